// softmax and log_softmax along one axis, with the maximum subtracted first.
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> Infer(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(NormalAxis(args.attributes->Int("axis", -1), args.inputs[0].shape.size()).status());
  return args.inputs[0];
}

template <bool kLog>
int Emit(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.output.shape;
  int64_t axis = AxisOf(args, "axis", -1, shape.size());
  std::vector<int64_t> rows = shape;
  rows.erase(rows.begin() + axis);
  auto whole = [&](const Vars& row, const Expr& position) {
    Vars i = row;
    i.insert(i.begin() + axis, position);
    return i;
  };
  auto row = [&](const Vars& i) {
    Vars out = i;
    out.erase(out.begin() + axis);
    return out;
  };
  int top = b.Reduce("softmax_max", rows, {shape[axis]}, Combiner::kMax,
                     [&](const Vars& i, const Vars& r) { return Wide(b, stages[0], whole(i, r[0])); });
  auto shifted = [&](const Vars& i) { return Sub(Wide(b, stages[0], i), Wide(b, top, row(i))); };
  int power = b.Compute("softmax_exp", shape, [&](const Vars& i) { return Call("exp", {shifted(i)}); });
  int sum = b.Reduce("softmax_sum", rows, {shape[axis]}, Combiner::kSum,
                     [&](const Vars& i, const Vars& r) { return Wide(b, power, whole(i, r[0])); });
  if (kLog) {
    return b.Compute("log_softmax", shape,
                     [&](const Vars& i) { return Sub(shifted(i), Call("log", {Wide(b, sum, row(i))})); });
  }
  return b.Compute("softmax", shape, [&](const Vars& i) { return Div(Wide(b, power, i), Wide(b, sum, row(i))); });
}

}  // namespace

std::vector<Operator> Softmax() {
  return {{"softmax", OperatorKind::kAnchor, 1, 1, Infer, Emit<false>},
          {"log_softmax", OperatorKind::kAnchor, 1, 1, Infer, Emit<true>}};
}

}  // namespace diapason::ops
