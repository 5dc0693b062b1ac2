// Where the time of a package goes, and its kernels as sources. See model.h.
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
  double warm_up_ms = 200;        // runs that do not count
  double seconds = 2;             // of timed runs of each plan, whose medians are the result
  // Peaks for the roofline, of float32 arithmetic and of memory; 0: by the device's clocks and units, opencl: not known
  double peak_gflops = 0, peak_gbs = 0;
  Hooks hooks;
};

// How close a kernel comes to what the device allows.
struct KernelRoofline {
  double limit_us = 0;             // the least that the kernel could take
  bool compute = false;            // bound by arithmetic; else by memory
  std::optional<double> fraction;  // of the allowed speed; above 1: the data came from caches
};

struct ProfiledKernel {
  std::string kernel;
  int step = 0;  // position of its step in the plan
  std::string task, workload;
  std::string record_source;      // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;  // id in its history or service; files have none
  std::string schedule;           // for people
  double time_us = 0;             // median
  double share = 0;               // of the latency
  // Operations that the kernel executes, and bytes that it touches, each once. Nothing: the package does not say.
  std::optional<double> flops, bytes;
  std::optional<double> gflops_per_s, gb_per_s;
  std::optional<KernelRoofline> roofline;  // nothing: the work or the peaks are not known
};

// kernels_us, disturbed_us and between_us add up to the latency.
struct PlanProfile {
  std::map<std::string, int64_t> sizes;  // empty: all shapes are fixed
  double latency_us = 0;                 // median of real runs, without timers
  double kernels_us = 0;                 // the sum of the kernels' medians
  double disturbed_us = 0;               // what their sum in a run has more
  double between_us = 0;                 // the rest of the latency; below 0 where kernels overlap in a real run
  int runs = 0;                          // that were timed
  int paths = 1;                         // on which kernels run side by side in a real run
  bool early_starts = false;             // kernels start before those in front have ended, in a real run
  std::vector<ProfiledKernel> kernels;   // in order
};

struct PackageProfile {
  std::string network, target, device;
  std::optional<double> peak_gflops, peak_gbs;  // that the roofline has
  std::vector<PlanProfile> plans;
};

// Runs the package with random inputs, and times each kernel where it stands. Errors as Run (run.h).
absl::StatusOr<PackageProfile> Profile(const ProfileOptions& options);

struct KernelExport {
  std::string package;            // folder or .dpk file
  std::vector<std::string> dims;  // sizes of the plan to export, for a package that has several
  std::string out;                // folder to write, new or empty
  std::string name;               // prefix of all that the C code declares; empty: made of the network's name
};
struct ExportedKernels {
  std::string network, target;
};
// Writes a package as a CMake project that needs nothing of Diapason (docs/export.md). InvalidArgument: a name that is
// no C identifier, sizes that the package does not have, a package for opencl or with calls of libraries;
// FailedPrecondition: there is something at `out`. Nothing is left of an export that failed.
absl::StatusOr<ExportedKernels> ExportKernels(const KernelExport& options);

}  // namespace diapason::api
