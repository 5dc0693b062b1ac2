// Chooses between two tensors by a third, with numpy broadcasting.
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferWhere(const OperatorArgs& args) {
  if (args.inputs[0].dtype != DType::kBool) return absl::InvalidArgumentError("the condition must be bool");
  if (args.inputs[1].dtype != args.inputs[2].dtype)
    return absl::InvalidArgumentError("both choices must have one type");
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, BroadcastShapes(args.inputs[1].shape, args.inputs[2].shape));
  ASSIGN_OR_RETURN(shape, BroadcastShapes(shape, args.inputs[0].shape));
  return TensorType{args.inputs[1].dtype, shape};
}

int EmitWhere(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  return b.Compute("where", args.output.shape, [&](const Vars& i) {
    auto at = [&](int k) { return BroadcastIndex(i, args.inputs[k].shape); };
    // A stage of the same kernel may hold float32 for what is float16 outside.
    const bool same = b.stage(stages[1]).dtype == b.stage(stages[2]).dtype;
    auto choice = [&](int k) { return same ? Raw(b, stages[k], at(k)) : Wide(b, stages[k], at(k)); };
    return Select(Raw(b, stages[0], at(0)), choice(1), choice(2));
  });
}

}  // namespace

std::vector<Operator> Where() { return {{"where", OperatorKind::kElementwise, 3, 3, InferWhere, EmitWhere}}; }

}  // namespace diapason::ops
