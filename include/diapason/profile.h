// The time of each kernel of a package, and export of its kernels as C code. See model.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

struct ProfileOptions {
  std::string package;            // folder or .dpk file
  std::vector<std::string> dims;  // sizes of the plans to profile, as Model::dims; empty: all plans
  double warm_up_ms = 200;        // before measuring
  double seconds = 2;             // of timed runs of each plan; results are their medians
  // Peaks of float32 arithmetic and of memory for the roofline; 0: computed from the device's clocks and units (unknown
  // for opencl).
  double peak_gflops = 0, peak_gbs = 0;
  Hooks hooks;
};

// The speed of a kernel relative to the device's peaks.
struct KernelRoofline {
  double limit_us = 0;             // shortest time that the peaks allow
  bool compute = false;            // bound by arithmetic; else by memory
  std::optional<double> fraction;  // limit_us relative to the measured time; above 1: data came from caches
};

struct ProfiledKernel {
  std::string kernel;
  int step = 0;  // position of its step in the plan
  std::string task, workload;
  std::string record_source;      // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;  // id in its history or service; files have none
  std::string schedule;           // as text
  double time_us = 0;             // median
  double share = 0;               // of the latency
  // Operations that the kernel executes, and bytes that it accesses, each counted once. Nothing: not in the package.
  std::optional<double> flops, bytes;
  std::optional<double> gflops_per_s, gb_per_s;
  std::optional<KernelRoofline> roofline;  // nothing: operations and bytes, or the peaks, are unknown
};

// kernels_us, disturbed_us and between_us add up to the latency.
struct PlanProfile {
  std::map<std::string, int64_t> sizes;  // empty: all shapes are fixed
  double latency_us = 0;                 // median of real runs, without timers
  double kernels_us = 0;                 // the sum of the kernels' medians
  double disturbed_us = 0;               // how much longer all kernels of a run take than the sum of their medians
  double between_us = 0;                 // the rest of the latency; below 0 if kernels overlap in a real run
  int runs = 0;                          // timed runs
  int paths = 1;                         // parallel paths of kernels in a real run
  bool early_starts = false;             // in a real run, kernels start before the previous ones have ended
  std::vector<ProfiledKernel> kernels;   // in order
};

struct PackageProfile {
  std::string network, target, device;
  std::optional<double> peak_gflops, peak_gbs;  // used for the roofline
  std::vector<PlanProfile> plans;
};

// Runs the package with random inputs, and times each kernel in place. Errors as of Run (run.h).
absl::StatusOr<PackageProfile> Profile(const ProfileOptions& options);

struct KernelExport {
  std::string package;            // folder or .dpk file
  std::vector<std::string> dims;  // sizes of the plan to export, for a package that has several
  std::string out;                // folder to write, new or empty
  std::string name;               // prefix of all declarations of the C code; empty: derived from the network's name
};
struct ExportedKernels {
  std::string network, target;
};
// Writes a package as a CMake project that does not need Diapason (docs/export.md). InvalidArgument: a name that is not
// a C identifier, sizes that the package does not have, or a package for opencl or with library calls;
// FailedPrecondition: `out` exists and is not empty. A failed export leaves nothing behind.
absl::StatusOr<ExportedKernels> ExportKernels(const KernelExport& options);

}  // namespace diapason::api
