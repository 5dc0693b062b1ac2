// Batch normalisation at inference: (x - mean) / sqrt(variance + epsilon) * scale + bias along one axis.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferBatchNorm(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  const std::vector<int64_t>& x = args.inputs[0].shape;
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(args.attributes->Int("axis", 1), x.size()));
  for (size_t i = 1; i < 5; ++i) {
    if (args.inputs[i].shape == std::vector<int64_t>{x[axis]}) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " must have one element for each of ", x[axis], " channels"));
  }
  return args.inputs[0];
}

int EmitBatchNorm(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  int64_t axis = AxisOf(args, "axis", 1, args.output.shape.size());
  double epsilon = args.attributes->Float("epsilon", 1e-5);
  return b.Compute("batch_norm", args.output.shape, [&](const Vars& i) {
    auto parameter = [&](int input) { return Wide(b, stages[input], {i[axis]}); };
    Expr variance = parameter(4);
    Expr factor = Mul(parameter(1), Call("rsqrt", {Add(variance, Literal(epsilon, variance->dtype))}));
    return Add(Mul(Sub(Wide(b, stages[0], i), parameter(3)), factor), parameter(2));
  });
}

}  // namespace

std::vector<Operator> BatchNorm() {
  return {{"batch_norm", OperatorKind::kElementwise, 5, 5, InferBatchNorm, EmitBatchNorm}};
}

}  // namespace diapason::ops
