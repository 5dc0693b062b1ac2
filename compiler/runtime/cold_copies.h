// Copies of a program that take turns, so that each run finds the caches as it would in a network. There no kernel runs
// twice in a row: its code, and weights of some megabytes, come from farther away each time. Runs of one copy back to
// back would hide that.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/buffer_pool.h"
#include "compiler/runtime/executable.h"

namespace diapason {

// cuda: copies of code and constants that together are larger than the instruction caches and the L2 cache.
class ColdCopies {
 public:
  // `executable` outlives the copies. Errors: those of Device::Load and Allocate.
  static absl::StatusOr<ColdCopies> Create(Executable& executable);

  // One plan of so many runs, of each copy in turn, each behind the launches `before`.
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(int64_t runs, const std::vector<Launch>& before = {});

 private:
  explicit ColdCopies(Executable& first) : first_(&first) {}
  Executable* first_;
  std::vector<std::unique_ptr<Executable>> others_;
};

// A pool of buffers full of small numbers, which stand for constants while a program is timed, kept from one program to
// the next: taking 64 MiB of fresh memory and filling it takes longer than the runs that tell most losers. To be
// cleared when a kernel may have written into them.
class SmallNumbers : public BufferPool {
 public:
  SmallNumbers(Device& device, int64_t most_bytes);
};

// cpu: copies of the constants that together are as large as those of a network. What of them a cache would keep from
// one run of the network to the next, it keeps here too.
class ConstantsInTurns {
 public:
  // A plan for each copy; none when the constants are so small that caches hold them beside everything else.
  // `executable` outlives them, and so does `kept`, where their buffers are from and go back to; null: they are
  // made for this. ResourceExhausted when memory is out.
  static absl::StatusOr<ConstantsInTurns> Create(Executable& executable, SmallNumbers* kept = nullptr);
  ConstantsInTurns(ConstantsInTurns&&) = default;
  ~ConstantsInTurns();

  const std::vector<std::unique_ptr<Plan>>& plans() const { return plans_; }

 private:
  explicit ConstantsInTurns(SmallNumbers* kept) : kept_(kept) {}
  absl::Status AddCopy(Device& device, std::vector<Launch> launches, const std::set<DeviceBuffer*>& constants);

  SmallNumbers* kept_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace diapason
