// Runs of packages that check and measure them. See model.h. Programs that use what a package computes load it with the
// runtime library (runtime.h), which is far smaller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

struct BenchOptions {
  double warm_up_ms = 200;     // runs that do not count; one at least
  double seconds = 3;          // of runs one by one
  int64_t iterations = 10;     // of these, at least, however long they take
  int repeat = 10;             // samples of runs back to back
  double min_repeat_ms = 100;  // length of such a sample, at least
};

// Files are NumPy's .npy and ONNX tensors (.pb).
struct RunOptions {
  std::string package;                         // folder or .dpk file
  std::map<std::string, std::string> inputs;   // files by input; the others get random values
  std::vector<std::string> dims;               // sizes of the random inputs, as Model::dims; empty: those of all plans
  uint64_t seed = 0;                           // of the random values
  std::string output_dir;                      // gets the outputs as NAME.npy; empty: they are not written
  bool check = false;                          // compare with the reference implementation of the network
  std::map<std::string, std::string> compare;  // files that outputs are compared with, by output
  // What `compare` allows: an error of so much of the larger of the element and the output's root mean square; integers
  // must be equal. Below 0: 0.001, 0.01 for float16, 0.05 for bfloat16.
  double tolerance = -1;
  std::optional<BenchOptions> bench;  // nothing: it is not measured
};

// How far outputs are off.
struct OutputErrors {
  bool ok = false;
  double max_abs_error = 0, max_rel_error = 0;  // may be infinite
  double tolerance = 0;                         // that max_rel_error may have
  std::string worst;                            // the element that is furthest off, for people
};

// An output and the file that it was compared with.
struct FileComparison {
  std::string output, file;
  OutputErrors errors;  // `worst` is empty where all elements are equal
  int64_t elements = 0;
  int64_t differing = 0;  // elements that are further off than allowed
};

// Of single runs, in microseconds: device time on cuda, by a steady clock elsewhere. Percentiles by nearest rank.
struct RunLatency {
  int64_t runs = 0;
  double mean_us = 0, std_us = 0, min_us = 0, max_us = 0, p50_us = 0, p90_us = 0, p99_us = 0;
};

struct RunBench {
  RunLatency latency;
  double runs_per_s = 0;           // back to back
  int64_t runs_per_sample = 0;     // of these
  std::vector<double> samples_us;  // of a run, by sample
};

struct RunOutput {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

// A plan that was run.
struct PlanRun {
  std::map<std::string, int64_t> sizes;        // of the plan; empty: the package has one
  std::map<std::string, int64_t> input_sizes;  // of the inputs, smaller where they were padded
  std::vector<RunOutput> outputs;
  int paths = 1;                       // on which kernels run side by side
  int64_t prefetched_bytes = 0;        // of weights, ahead of their kernels, in a run
  std::optional<double> tasks_us;      // the sum of the tasks' times when it was built
  std::optional<double> estimated_us;  // latency, then
  std::optional<RunBench> bench;
  std::optional<OutputErrors> check;
  std::vector<FileComparison> comparisons;  // in the order of the outputs
};

// Runs the package on its device, once for each combination of sizes: those of the inputs, those of `dims`, and else of
// all plans. A result that is wrong or differs is not an error (OutputErrors::ok). NotFound: no such package or file;
// InvalidArgument: names, types, shapes or sizes that the package does not have; Unavailable: no such device; DataLoss:
// a damaged file.
absl::StatusOr<std::vector<PlanRun>> Run(const RunOptions& options);

}  // namespace diapason::api
