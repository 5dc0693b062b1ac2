#include "compiler/graph/model.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/builtin.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/passes.h"

namespace diapason {

const char* NameOf(Layout layout) { return layout == Layout::kNHWC ? "NHWC" : "NCHW"; }

bool IsModelType(DType dtype) { return dtype == DType::kFloat32 || IsNarrowFloat(dtype); }

std::string ModelTypes() {
  std::vector<std::string> names;
  for (DType dtype : AllDTypes())
    if (IsModelType(dtype)) names.push_back(NameOf(dtype));
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

absl::StatusOr<DType> ModelTypeFromName(const std::string& what, const std::string& name) {
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype && IsModelType(*dtype)) return *dtype;
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " is '", name, "'; give ", ModelTypes()));
}

namespace {

constexpr char kBatch[] = "batch";

// Of a product the batch is an axis in front that it has or has not.
bool HasBatchSymbol(const std::string& builtin) { return builtin != "gemm"; }

// The sizes of a built-in network's symbols become options of its own.
absl::StatusOr<ModelOptions> WithBatch(const std::string& name, ModelOptions options) {
  for (const auto& [symbol, size] : options.dims) {
    if (symbol != kBatch || !HasBatchSymbol(name)) {
      return absl::InvalidArgumentError(absl::StrCat("network '", name, "' has no symbolic dimension '", symbol, "'",
                                                     HasBatchSymbol(name) ? ": it has 'batch'" : " and no other"));
    }
    if (options.batch != 0 && options.batch != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("--batch ", options.batch, " contradicts --dim batch=", size, ": leave one of them out"));
    }
    options.batch = size;
  }
  return options;
}

absl::StatusOr<Network> LoadBuiltin(const std::string& name, const ModelOptions& given, ModelFacts* facts) {
  ASSIGN_OR_RETURN(const ModelOptions options, WithBatch(name, given));
  ASSIGN_OR_RETURN(Network network, BuiltinNetwork(name, options));
  if (facts == nullptr) return network;
  for (int id : network.inputs) {
    const Tensor& tensor = network.tensor(id);
    ModelInput input{tensor.name, std::vector<std::string>(tensor.type.shape.size())};
    if (HasBatchSymbol(name)) input.symbols[0] = kBatch;
    facts->inputs.push_back(std::move(input));
  }
  return network;
}

}  // namespace

bool IsModelFile(const std::string& name_or_path) {
  return absl::EndsWith(name_or_path, ".onnx") || name_or_path.find('/') != std::string::npos;
}

absl::StatusOr<Network> LoadModel(const std::string& name_or_path, const ModelOptions& options, ModelFacts* facts) {
  return IsModelFile(name_or_path) ? ImportOnnx(name_or_path, options, facts)
                                   : LoadBuiltin(name_or_path, options, facts);
}

absl::StatusOr<Network> LoadOptimized(const std::string& name_or_path, const ModelOptions& options) {
  ASSIGN_OR_RETURN(Network network, LoadModel(name_or_path, options));
  return Optimize(std::move(network), options);
}

}  // namespace diapason
