// Elements of one axis chosen by a tensor of indices; negative ones count from the end. Those outside, which the
// runtime rejects in inputs of a network, choose the first or last element where they are computed.
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferGather(const OperatorArgs& args) {
  const std::vector<int64_t>&data = args.inputs[0].shape, &indices = args.inputs[1].shape;
  DType type = args.inputs[1].dtype;
  if (type != DType::kInt64 && type != DType::kInt32)
    return absl::InvalidArgumentError("indices must be int32 or int64");
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(args.attributes->Int("axis", 0), data.size()));
  TensorType out = args.inputs[0];
  out.shape.erase(out.shape.begin() + axis);
  out.shape.insert(out.shape.begin() + axis, indices.begin(), indices.end());
  return out;
}

int EmitGather(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& data = args.inputs[0].shape;
  int64_t axis = AxisOf(args, "axis", 0, data.size());
  size_t rank = args.inputs[1].shape.size();
  Stage& indices = b.stage(stages[1]);
  if (indices.placeholder) {
    indices.valid_min = -data[axis];
    indices.valid_max = data[axis] - 1;
  }
  return b.Compute("gather", args.output.shape, [&](const Vars& i) {
    Vars at(i.begin(), i.begin() + axis);
    at.push_back(PlaceOnAxis(b, stages[1], Vars(i.begin() + axis, i.begin() + axis + rank), data[axis]));
    at.insert(at.end(), i.begin() + axis + rank, i.end());
    return Raw(b, stages[0], at);
  });
}

}  // namespace

std::vector<Operator> Gather() { return {{"gather", OperatorKind::kInjective, 2, 2, InferGather, EmitGather}}; }

}  // namespace diapason::ops
