// Makes a package of an optimised network and the compiled programs of its tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/graph/dims.h"
#include "compiler/graph/network.h"
#include "compiler/graph/padding.h"
#include "compiler/graph/partition.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/kernel_work.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/target.h"

namespace diapason {

// What a placed task runs in the package.
struct TaskKernels {
  Program program;                 // of the task's dag, written to its place, for the package's target
  std::string schedule;            // for people; "default" or steps
  int64_t record = -1;             // id of the schedule's record in its source; -1: the fallback schedule
  double estimated_seconds = 0;    // what the record measured; 0: unknown
  std::vector<KernelWork> work{};  // by kernel of the program; empty: unknown
  std::string record_uuid{};       // of the record
  std::string record_source{};     // as PackageTask's
};

// A plan among several of a package.
struct PlanSymbols {
  SymbolSizes sizes;                             // of the network; empty: a package of one plan for fixed shapes
  std::vector<std::vector<std::string>> inputs;  // by input and axis; empty where the extent is fixed
  std::map<std::string, SymbolPadding> padding;  // by symbol
  std::string mask;
};

struct PackageRequest {
  const Network& network;  // after the passes, as it was partitioned
  const Partition& partition;
  Target target;                   // cuda: with its -arch
  DeviceFacts device;              // of the target: ResolveFacts
  std::vector<TaskKernels> tasks;  // one for each of Partition::programs, in order
  // What the network was measured to take, over the sum of its tasks' times; nothing: not known, the latency is
  // modelled.
  std::optional<double> correction = {};
  PlanSymbols symbols{};
};

// Writes the package (package_format.h) to `dir`, a folder, or a file where the name ends in .dpk (package_archive.h),
// whole or not at all: beside it first, then renamed. FailedPrecondition
// when `dir` holds something that is no package; a package there is replaced. InvalidArgument when a program does not
// fit its task (buffers that are missing or of another size). Disk errors name the path.
absl::Status BuildPackage(const std::string& dir, const PackageRequest& request);

// The same of several plans, whose symbols are the same and whose sizes differ. Constants and kernels that are equal
// are stored once. REQUIRES: at least one; with sizes if there are several.
absl::Status BuildPackage(const std::string& dir, const std::vector<PackageRequest>& requests);

// The contents of weights.bin: equal constants once.
class PackageWeights {
 public:
  // Where the constant is. What was added before is not looked at again.
  int64_t Add(const std::shared_ptr<const Array>& constant);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::unordered_map<std::shared_ptr<const Array>, int64_t> offsets_;
  std::unordered_multimap<size_t, std::pair<int64_t, size_t>> places_;  // offset and size, by the hash of the contents
};

// The same package in memory. `weights`: of other versions of the network, whose constants keep their places; this
// one's are added. The manifest has no checksum of them. InvalidArgument as above.
absl::StatusOr<PackageContents> AssemblePackage(const PackageRequest& request,
                                                const std::shared_ptr<PackageWeights>& weights);
absl::StatusOr<PackageContents> AssemblePackage(const PackageRequest& request);

}  // namespace diapason
