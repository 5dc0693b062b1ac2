// softmax and log_softmax along one axis, with the maximum subtracted first.
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferSoftmax(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(NormalAxis(args.attributes->Int("axis", -1), args.inputs[0].shape.size()).status());
  return args.inputs[0];
}

template <bool kLog>
int EmitSoftmax(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.output.shape;
  const int64_t axis = AxisOf(args, "axis", -1, shape.size());
  const ReducedAxes axes{axis, axis + 1};
  const std::vector<int64_t> rows = axes.Rows(shape), reduced = axes.Extents(shape);
  int top = b.Reduce("softmax_max", rows, reduced, Combiner::kMax,
                     [&](const Vars& i, const Vars& r) { return Wide(b, stages[0], axes.Element(i, r)); });
  auto shifted = [&](const Vars& i) { return Sub(Wide(b, stages[0], i), Wide(b, top, axes.RowOf(i))); };
  int power = b.Compute("softmax_exp", shape, [&](const Vars& i) { return Call("exp", {shifted(i)}); });
  int sum = b.Reduce("softmax_sum", rows, reduced, Combiner::kSum,
                     [&](const Vars& i, const Vars& r) { return Wide(b, power, axes.Element(i, r)); });
  if (kLog) {
    return b.Compute("log_softmax", shape,
                     [&](const Vars& i) { return Sub(shifted(i), Call("log", {Wide(b, sum, axes.RowOf(i))})); });
  }
  return b.Compute("softmax", shape,
                   [&](const Vars& i) { return Div(Wide(b, power, i), Wide(b, sum, axes.RowOf(i))); });
}

}  // namespace

std::vector<Operator> Softmax() {
  return {{"softmax", OperatorKind::kAnchor, 1, 1, InferSoftmax, EmitSoftmax<false>},
          {"log_softmax", OperatorKind::kAnchor, 1, 1, InferSoftmax, EmitSoftmax<true>}};
}

}  // namespace diapason::ops
