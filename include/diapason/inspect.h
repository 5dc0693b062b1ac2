// What models and packages take and give. See model.h. Nothing is compiled, and no device is needed.
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
  std::string dtype;                 // "float32"; empty: the model does not say
  bool has_shape = true;             // false: not even the rank is known
  std::vector<int64_t> shape;        // 0: open, of models; the size in the first plan, of packages
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed, or open without a name

  std::string TypeText() const;  // "float32 batchx3x224x224"; "?" stands for what is not known
};

struct ModelInfo {
  std::string name;   // of its graph
  int64_t opset = 0;  // of ONNX's operators; 0: a built-in network
  std::vector<PortInfo> inputs, outputs;
  std::map<std::string, int64_t> operators;   // how many nodes of each, in the terms of the model
  int64_t parameters = 0, weights_bytes = 0;  // of constants
};

// What the model declares, in a process of its own as all models are read. Where `model` gives sizes, all shapes are
// fixed by them. Errors as Tasks (compiler.h), of what is read here.
absl::StatusOr<ModelInfo> InspectModel(const Model& model, const Hooks& hooks = {});

struct PackageTaskInfo {
  std::string name;
  std::string workload;
  int64_t count = 0;                   // runs of it in one run of the plan
  int64_t kernel_count = 0;            // that each of these launches
  std::string record_source;           // "history", "service", "file", "shipped"; empty: the fallback schedule
  std::optional<int64_t> record;       // id in its history or service; files have none
  std::string record_uuid;             // empty: none, or the package does not say
  std::string schedule;                // for people
  std::optional<double> estimated_us;  // of one run
};

// A combination of sizes of symbolic dimensions.
struct PackagePlanInfo {
  std::map<std::string, int64_t> sizes;   // empty: all shapes are fixed
  std::map<std::string, int64_t> padded;  // by symbol, where smaller inputs are padded: the smallest size that is
  std::vector<PackageTaskInfo> tasks;
  int64_t kernel_count = 0;            // launches of one run
  int64_t arena_bytes = 0;             // of intermediate tensors
  std::optional<double> estimated_us;  // of one run
};

struct PackageInfo {
  std::string path, network, target;
  std::string device;                  // that it was built on or for: "AMD EPYC, AVX-512"; may be empty
  std::string arch;                    // of a GPU
  std::vector<std::string> libraries;  // "cudnn": that must be where it runs
  int64_t weights_bytes = 0;
  int64_t programs = 0;  // different compiled tasks
  std::string mask;      // input that is 0 where there is padding; empty: none
  std::vector<PortInfo> inputs, outputs;
  std::vector<PackagePlanInfo> plans;  // at least one
};

// Whether `path` stands for a package rather than a model: a folder, or the name of a file that ends in .dpk.
bool IsPackage(const std::string& path);

// Reads a package, and runs nothing of it. NotFound: there is none at `path`; DataLoss: it is damaged;
// FailedPrecondition: of another version.
absl::StatusOr<PackageInfo> InspectPackage(const std::string& path);

}  // namespace diapason::api
