// Operators of ONNX Runtime's own domain that its optimisers and converters write for what are several of ONNX's.
#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

absl::Status ImportGelu(NodeImporter& node, const char* op) {
  Composer c(node);
  ImportValue x = c.Input(0);
  if (node.HasInput(1)) x = c.Add(x, c.Input(1));
  return c.Finish(c.Op(op, {x}));
}
absl::Status Gelu(NodeImporter& node) { return ImportGelu(node, "gelu"); }
absl::Status FastGelu(NodeImporter& node) { return ImportGelu(node, "gelu_tanh"); }

absl::Status QuickGelu(NodeImporter& node) {
  Composer c(node);
  return c.Finish(c.Op("swish", {c.Input(0)}, {{"alpha", node.Float("alpha", 1.702)}}));
}

ImportValue LastTwoSwapped(Composer& c, const ImportValue& x) {
  int64_t rank = RankOf(x);
  if (rank < 2) return x;
  Ints perm;
  for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return c.Transpose(x, perm);
}

absl::Status FusedMatMul(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(1);
  for (const char* name : {"transBatchA", "transBatchB"}) {
    if (node.Int(name, 0) != 0) return absl::InvalidArgumentError(absl::StrCat(name, "=1 is not supported"));
  }
  if (node.Int("transA", 0) != 0) a = LastTwoSwapped(c, a);
  if (node.Int("transB", 0) != 0) b = LastTwoSwapped(c, b);
  double alpha = node.Float("alpha", 1);
  ImportValue y = c.Matmul(a, b);
  return c.Finish(alpha == 1 ? y : c.Mul(y, c.Scalar(alpha, y)));
}

// A convolution, a sum (input 3) and an activation.
absl::Status FusedConv(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1);
  if (w->type.shape.size() != 4) return absl::InvalidArgumentError("its weights must have 4 dimensions");
  std::vector<int64_t> kernel(w->type.shape.begin() + 2, w->type.shape.end());
  node.Ints("kernel_shape", kernel);
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  std::vector<ImportValue> inputs = {x, w};
  if (node.HasInput(2)) inputs.push_back(c.Input(2));
  ImportValue y = c.Op("conv2d", inputs, std::move(attributes));
  if (node.HasInput(3)) y = c.Add(y, c.Input(3));
  std::string activation = node.String("activation", "");
  ASSIGN_OR_RETURN(std::vector<double> params, node.Floats("activation_params"));
  auto param = [&](size_t i, double fallback) { return i < params.size() ? params[i] : fallback; };
  if (activation == "Relu") return c.Finish(c.Op("relu", {y}));
  if (activation == "Sigmoid") return c.Finish(c.Op("sigmoid", {y}));
  if (activation == "Tanh") return c.Finish(c.Op("tanh", {y}));
  if (activation == "LeakyRelu") return c.Finish(c.Op("leaky_relu", {y}, {{"alpha", param(0, 0.01)}}));
  if (activation == "Clip") return c.Finish(c.Op("clip", {y}, {{"min", param(0, -3.4e38)}, {"max", param(1, 3.4e38)}}));
  if (activation == "HardSigmoid") {
    return c.Finish(c.Op("hard_sigmoid", {y}, {{"alpha", param(0, 0.2)}, {"beta", param(1, 0.5)}}));
  }
  if (!activation.empty()) return absl::InvalidArgumentError(absl::StrCat("activation '", activation, "' is not known"));
  return c.Finish(y);
}

}  // namespace

std::vector<OnnxRule> Fused() {
  return {{"com.microsoft.Gelu", Gelu},           {"com.microsoft.BiasGelu", Gelu},
          {"com.microsoft.FastGelu", FastGelu},   {"com.microsoft.QuickGelu", QuickGelu},
          {"com.microsoft.FusedMatMul", FusedMatMul}, {"com.microsoft.FusedConv", FusedConv}};
}

}  // namespace diapason::onnx_rules
