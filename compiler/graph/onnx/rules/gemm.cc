// Products of matrices.
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// The third input is optional from opset 11 on.
absl::Status ImportGemm(NodeImporter& node) {
  std::vector<ImportValue> inputs;
  for (int i = 0; i < 3 && (i < 2 || node.HasInput(i)); ++i) {
    ASSIGN_OR_RETURN(ImportValue input, node.Input(i));
    inputs.push_back(std::move(input));
  }
  return node.Emit("gemm", inputs,
                   {{"trans_a", node.Int("transA", 0)},
                    {"trans_b", node.Int("transB", 0)},
                    {"alpha", node.Float("alpha", 1)},
                    {"beta", node.Float("beta", 1)}});
}

absl::Status ImportMatMul(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue a, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  return node.Emit("matmul", {a, b});
}

}  // namespace

std::vector<OnnxRule> Gemm() { return {{"Gemm", ImportGemm}, {"MatMul", ImportMatMul}}; }

}  // namespace diapason::onnx_rules
