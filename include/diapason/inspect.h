// Inputs, outputs and contents of models and packages. See model.h. Nothing is compiled, and no device is needed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// An input or output.
struct PortInfo {
  std::string name;
  std::string dtype;                 // "float32"; empty: the model does not declare it
  bool has_shape = true;             // false: the rank is unknown
  std::vector<int64_t> shape;        // of a symbolic extent: 0 in models, the size in the first plan in packages
  std::vector<std::string> symbols;  // by axis; empty if the extent is fixed, or symbolic without a name

  std::string TypeText() const;  // "float32 batchx3x224x224"; "?" for unknown parts
};

struct ModelInfo {
  std::string name;   // of its graph
  int64_t opset = 0;  // of ONNX's operators; 0: a built-in network
  std::vector<PortInfo> inputs, outputs;
  std::map<std::string, int64_t> operators;   // number of nodes by operator, under the model's own names
  int64_t parameters = 0, weights_bytes = 0;  // elements and bytes of constants
};

// Reads the declarations of a model, in a separate process. If `model` gives sizes, they replace its symbolic extents.
// Errors as of Tasks (compiler.h).
absl::StatusOr<ModelInfo> InspectModel(const Model& model, const Hooks& hooks = {});

struct PackageTaskInfo {
  std::string name;
  std::string workload;
  int64_t count = 0;                   // occurrences in the plan
  int64_t kernel_count = 0;            // kernels of one occurrence
  std::string record_source;           // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;       // id in its history or service; files have none
  std::string record_uuid;             // empty: no record, or not stored in the package
  std::string schedule;                // as text
  std::optional<double> estimated_us;  // of one run
};

// A combination of sizes of symbolic dimensions.
struct PackagePlanInfo {
  std::map<std::string, int64_t> sizes;   // empty: all shapes are fixed
  std::map<std::string, int64_t> padded;  // by symbol along which inputs are padded: the smallest size
  std::vector<PackageTaskInfo> tasks;
  int64_t kernel_count = 0;            // kernel launches of one run
  int64_t arena_bytes = 0;             // memory of intermediate tensors
  std::optional<double> estimated_us;  // of one run
};

struct PackageInfo {
  std::string path, network, target;
  std::string device;                  // that it was built on or for: "AMD EPYC, AVX-512"; may be empty
  std::string arch;                    // of a GPU
  std::vector<std::string> libraries;  // needed to run it: "cudnn"
  int64_t weights_bytes = 0;
  int64_t programs = 0;  // distinct compiled tasks
  std::string mask;      // input that is 0 at padded positions; empty: none
  std::vector<PortInfo> inputs, outputs;
  std::vector<PackagePlanInfo> plans;  // at least one
};

// Whether `path` names a package rather than a model: a folder, or a file name that ends in .dpk.
bool IsPackage(const std::string& path);

// Reads a package without executing anything in it. NotFound: there is none at `path`; DataLoss: it is damaged;
// FailedPrecondition: it has another format version.
absl::StatusOr<PackageInfo> InspectPackage(const std::string& path);

}  // namespace diapason::api
