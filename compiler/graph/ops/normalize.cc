// Layer normalisation (Ba et al. 2016) and RMS normalisation (Zhang and Sennrich 2019) over the axes from `axis` on,
// without scale and bias, which are nodes of their own and join as an epilogue. The variance is that of the centred
// numbers: the difference of squares loses precision where the mean is large.
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferNormalize(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(NormalAxis(args.attributes->Int("axis", -1), args.inputs[0].shape.size()).status());
  return args.inputs[0];
}

template <bool kCentred>
int EmitNormalize(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  const ReducedAxes axes{AxisOf(args, "axis", -1, shape.size()), static_cast<int64_t>(shape.size())};
  const std::vector<int64_t> rows = axes.Rows(shape), reduced = axes.Extents(shape);
  double count = 1, epsilon = args.attributes->Float("epsilon", 1e-5);
  for (int64_t extent : reduced) count *= static_cast<double>(extent);
  int sum = -1;
  if (kCentred) {
    sum = b.Reduce("norm_sum", rows, reduced, Combiner::kSum,
                   [&](const Vars& i, const Vars& r) { return Wide(b, stages[0], axes.Element(i, r)); });
  }
  auto centred = [&](const Vars& i) {
    Expr x = Wide(b, stages[0], i);
    return kCentred ? Sub(x, Mul(Wide(b, sum, axes.RowOf(i)), Literal(1 / count, x->dtype))) : x;
  };
  int squares = b.Reduce("norm_squares", rows, reduced, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    Expr x = centred(axes.Element(i, r));
    return Mul(x, x);
  });
  return b.Compute(kCentred ? "layer_norm" : "rms_norm", shape, [&](const Vars& i) {
    Expr variance = Wide(b, squares, axes.RowOf(i));
    DType type = variance->dtype;
    return Mul(centred(i), Call("rsqrt", {Add(Mul(variance, Literal(1 / count, type)), Literal(epsilon, type))}));
  });
}

}  // namespace

std::vector<Operator> Normalize() {
  return {{"layer_norm", OperatorKind::kAnchor, 1, 1, InferNormalize, EmitNormalize<true>},
          {"rms_norm", OperatorKind::kAnchor, 1, 1, InferNormalize, EmitNormalize<false>}};
}

}  // namespace diapason::ops
