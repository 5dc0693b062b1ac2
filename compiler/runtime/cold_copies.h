// Copies of a program that take turns, so that each run finds the caches as it would in a network. There no kernel runs
// twice in a row: its code, and weights of some megabytes, come from farther away each time. Runs of one copy back to
// back would hide that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/buffer_pool.h"
#include "compiler/runtime/executable.h"

namespace diapason {

// Buffers for programs that are timed, kept from one program to the next: taking 64 MiB of fresh memory and filling it
// takes longer than the runs that tell most losers. To be cleared when a kernel may have written where it should not.
struct SpareBuffers {
  // Keeps at most so many bytes of each kind.
  SpareBuffers(Device& device, int64_t most_bytes);
  void Clear();

  BufferPool small_numbers;  // that stand for constants
  BufferPool others;
};

// Buffers of programs that are timed, from `spare`, where they go back to at the end. Null: they are made for this.
class TakenBuffers {
 public:
  explicit TakenBuffers(SpareBuffers* spare) : spare_(spare) {}
  TakenBuffers(TakenBuffers&&) = default;
  TakenBuffers& operator=(TakenBuffers&&) = delete;
  ~TakenBuffers();

  // Errors: those of Device::Allocate.
  absl::StatusOr<DeviceBuffer*> Take(Device& device, int64_t bytes, bool small_numbers);

 private:
  SpareBuffers* spare_;
  std::vector<std::unique_ptr<DeviceBuffer>> small_numbers_, others_;
};

// cuda: copies of code and constants that together are larger than the instruction caches and the L2 cache.
class ColdCopies {
 public:
  // `executable` outlives the copies, and so does `spare`, where the memory of constants is from and goes back to;
  // null: it is made for this. The copies outlive their plans. Errors: those of Device::Load and Allocate.
  static absl::StatusOr<ColdCopies> Create(Executable& executable, SpareBuffers* spare = nullptr);

  // One plan of so many runs, of each copy in turn, each behind the launches `before`.
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(int64_t runs, const std::vector<Launch>& before = {});

 private:
  ColdCopies(Executable& first, SpareBuffers* spare) : first_(&first), constants_(spare) {}
  absl::Status Add(const Program& program);

  Executable* first_;
  TakenBuffers constants_;  // of the copies, which end before
  std::vector<std::unique_ptr<Executable>> others_;
};

// cpu: copies of a program's buffers, so that each run finds them as far from the processor as a run within a network
// does. Of the constants there are copies that together are as large as those of a network: what of them a cache would
// keep from one run of the network to the next, it keeps here too. Of inputs, workspaces and outputs there are copies
// of 4 MiB together, and at least two: the tensors between the steps of a network share memory of about that size.
class BuffersInTurns {
 public:
  // A plan for each turn; none when all buffers are so small that caches hold them beside everything else.
  // `executable` outlives them, and so does `spare`, where their buffers are from and go back to; null: they are
  // made for this. ResourceExhausted when memory is out.
  static absl::StatusOr<BuffersInTurns> Create(Executable& executable, SpareBuffers* spare = nullptr);

  const std::vector<std::unique_ptr<Plan>>& plans() const { return plans_; }

 private:
  struct Group;

  explicit BuffersInTurns(SpareBuffers* spare) : copies_(spare) {}
  // So many copies of the group's buffers take turns in the plans.
  absl::Status Rotate(Device& device, const Group& group, int64_t copies, std::vector<std::vector<Launch>>& plans);

  TakenBuffers copies_;  // of the plans, which end before
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace diapason
