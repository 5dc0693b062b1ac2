// Runs a program as it runs in a network: behind a kernel that writes its inputs just before, in one plan. A kernel
// that starts early (programmatic dependent launch) and reads an input, or writes an output, before it has waited shows
// there: behind an earlier run of its own it finds the right inputs in any case.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/measure.h"

namespace diapason {

// Compiles the source of a program for its target, as CompileSource (compiler/codegen/compile.h).
using SourceCompiler = std::function<absl::Status(Program& program, double timeout_seconds)>;

// True if a kernel of a run may start before the one in front of it has ended.
bool StartsEarly(const Program& program);

// The kernels around programs on one device, compiled once. The device outlives it; one thread at a time.
class InPlace {
 public:
  // Errors: those of the compiler, and Device::Load.
  static absl::StatusOr<std::unique_ptr<InPlace>> Create(Device& device, const SourceCompiler& compile);

  // Launches that write each input of the executable with what it holds, for timing. Like the kernels of a network they
  // start early, let the next kernel start early, and have a block for each multiprocessor. Beside these there is no
  // room for a block of the program's first kernel if there is none beside a block of its own kind: where a kernel has
  // half of a multiprocessor's shared memory, so have its neighbours in a network, as a rule. They refer to memory of
  // this object until the next Rewrite or Compare. Errors: those of Device::Allocate.
  absl::StatusOr<std::vector<Launch>> Rewrite(const Executable& executable);
  // Such launches for inputs of these sizes in memory of its own. Null if that would be too much memory. It is kept
  // until a call for inputs of other sizes, or Forget.
  absl::StatusOr<TimedLaunches*> TimedRewrite(const Executable& executable, double max_seconds);
  // Gives up what is kept: where memory is short, or a kernel may have written where it should not.
  void Forget() { kept_.reset(); }

  // Compares the program's outputs with those that it has when each of its kernels starts after the one before has
  // ended, bit for bit, in one plan that is run `replays` times (fewer of one that takes milliseconds). Each run in the
  // plan comes behind a kernel that lets it start and some microseconds later writes other inputs, in turns, and fills
  // outputs and workspaces with 0xff. Returns an empty text where they are equal, else which output differs. Either way
  // inputs are as before, and outputs are those of these inputs. REQUIRES: all buffers filled, prologue run. Errors:
  // those of Device and Plan.
  absl::StatusOr<std::string> Compare(Executable& executable, int replays);

 private:
  // What a slot of the writing kernel does to one buffer.
  struct Slot {
    DeviceBuffer* to = nullptr;
    DeviceBuffer* from = nullptr;  // null: 0xff in every byte
    int64_t width = 1;             // of an element
    bool turned = false;           // the elements of the first half come last
  };
  class Comparison;

  InPlace(Device& device, Target target) : device_(device), target_(std::move(target)) {}
  using Buffers = std::vector<std::unique_ptr<DeviceBuffer>>;
  // Launches for inputs of some sizes, and their time: by the shared memory that a block has.
  struct Kept {
    struct Timed {
      Buffers numbers;  // that the launches read
      TimedLaunches launches;
    };
    std::vector<int64_t> sizes;
    Buffers inputs;
    std::map<int64_t, Timed> timed;
  };

  // Launches that fill the slots, as many of them in one as a kernel has; launch number `last` of them comes last. They
  // read `numbers`, to which theirs are added.
  absl::StatusOr<std::vector<Launch>> Write(const std::vector<Slot>& slots, int64_t delay, size_t last,
                                            Buffers& numbers);
  absl::StatusOr<Launch> WriteSome(const Slot* slots, size_t count, int64_t delay, Buffers& numbers);
  absl::StatusOr<std::vector<Launch>> RewriteAll(const std::vector<Slot>& slots, int64_t shared_bytes,
                                                 Buffers& numbers);
  // Of a block of the launches in front of the program (Rewrite).
  int64_t SharedBytesBefore(const Executable& executable) const;
  absl::StatusOr<Launch> CompareBytes(DeviceBuffer& got, DeviceBuffer& expected, DeviceBuffer& found);
  absl::StatusOr<DeviceBuffer*> Numbers(const std::vector<int64_t>& values, Buffers& numbers);

  Device& device_;
  const Target target_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<DeviceBuffer> unused_;  // stands for slots that are not used
  Buffers numbers_;                       // of the launches that were made since the last call
  std::unique_ptr<Kept> kept_;
};

// An InPlace that is made for the first program that needs it, since that takes a compiler.
class LazyInPlace {
 public:
  // `compile` may be null: then there is none. The device outlives this.
  LazyInPlace(Device& device, SourceCompiler compile) : device_(device), compile_(std::move(compile)) {}

  // Errors: Unavailable without a compiler, and those of InPlace::Create.
  absl::StatusOr<InPlace*> Get();
  // Gives up the memory that the one that was made keeps.
  void Forget() {
    if (made_ != nullptr) made_->Forget();
  }

 private:
  Device& device_;
  const SourceCompiler compile_;
  std::unique_ptr<InPlace> made_;
};

}  // namespace diapason
