#include "compiler/graph/model.h"

#include "absl/strings/match.h"
#include "compiler/graph/builtin.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/check.h"

namespace diapason {

const char* NameOf(Layout layout) { return layout == Layout::kNHWC ? "NHWC" : "NCHW"; }

absl::StatusOr<Network> LoadModel(const std::string& name_or_path, const ModelOptions& options) {
  bool file = absl::EndsWith(name_or_path, ".onnx") || name_or_path.find('/') != std::string::npos;
  if (file) return ImportOnnx(name_or_path, options);
  return BuiltinNetwork(name_or_path, options);
}

absl::StatusOr<Network> LoadOptimized(const std::string& name_or_path, const ModelOptions& options) {
  ASSIGN_OR_RETURN(Network network, LoadModel(name_or_path, options));
  return Optimize(std::move(network), options);
}

}  // namespace diapason
