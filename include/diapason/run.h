// Checks and measures packages by running them. See model.h. To use the results of a package in a program, load it with
// the runtime library (runtime.h), which is far smaller.
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
  double warm_up_ms = 200;     // before measuring; at least one run
  double seconds = 3;          // of single runs
  int64_t iterations = 10;     // least number of single runs, however long they take
  int repeat = 10;             // samples of runs back to back
  double min_repeat_ms = 100;  // least length of such a sample
};

// Files are NumPy's .npy and ONNX tensors (.pb).
struct RunOptions {
  std::string package;                         // folder or .dpk file
  std::map<std::string, std::string> inputs;   // files by input; the others get random values
  std::vector<std::string> dims;               // sizes of the random inputs, as Model::dims; empty: those of all plans
  uint64_t seed = 0;                           // of the random values
  std::string output_dir;                      // folder for the outputs, as NAME.npy; empty: they are not written
  bool check = false;                          // compare with the reference implementation of the network
  std::map<std::string, std::string> compare;  // files to compare outputs with, by output
  // Error that `compare` allows, relative to the larger of the element and the output's root mean square; integers must
  // be equal. Below 0: 0.001, 0.01 for float16, 0.05 for bfloat16.
  double tolerance = -1;
  std::optional<BenchOptions> bench;  // nothing: do not measure
};

// Errors of outputs.
struct OutputErrors {
  bool ok = false;
  double max_abs_error = 0, max_rel_error = 0;  // may be infinite
  double tolerance = 0;                         // largest max_rel_error that is ok
  std::string worst;                            // the element with the largest error, as text
};

// An output and the file that it was compared with.
struct FileComparison {
  std::string output, file;
  OutputErrors errors;  // `worst` is empty if all elements are equal
  int64_t elements = 0;
  int64_t differing = 0;  // elements whose error exceeds the tolerance
};

// Latency of single runs: device time on cuda, elsewhere by a steady clock. Percentiles by nearest rank.
struct RunLatency {
  int64_t runs = 0;
  double mean_us = 0, std_us = 0, min_us = 0, max_us = 0, p50_us = 0, p90_us = 0, p99_us = 0;
};

struct RunBench {
  RunLatency latency;
  double runs_per_s = 0;           // of runs back to back
  int64_t runs_per_sample = 0;     // number of these per sample
  std::vector<double> samples_us;  // mean time of a run in each sample
};

struct RunOutput {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

// A plan that was run.
struct PlanRun {
  std::map<std::string, int64_t> sizes;        // of the plan; empty: all shapes are fixed
  std::map<std::string, int64_t> input_sizes;  // of the inputs; smaller where they were padded
  std::vector<RunOutput> outputs;
  int paths = 1;                       // parallel paths of kernels
  int64_t prefetched_bytes = 0;        // of weights, loaded into the cache ahead of their kernels in each run
  std::optional<double> tasks_us;      // the sum of the tasks' times when the package was built
  std::optional<double> estimated_us;  // the estimated latency then
  std::optional<RunBench> bench;
  std::optional<OutputErrors> check;
  std::vector<FileComparison> comparisons;  // in the order of the outputs
};

// Runs the package on its device, once for each combination of sizes: those of the inputs, else those of `dims`, else
// those of all plans. A wrong result is not an error of the call (see OutputErrors::ok). NotFound: no such package or
// file; InvalidArgument: names, types, shapes or sizes that the package does not have; Unavailable: no such device;
// DataLoss: a damaged file.
absl::StatusOr<std::vector<PlanRun>> Run(const RunOptions& options);

}  // namespace diapason::api
