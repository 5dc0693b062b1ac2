// Sums and choices along one axis: running sums, positions of extremes, the largest in order.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<int64_t> Axis(const OperatorArgs& args) {
  return NormalAxis(args.attributes->Int("axis", 0), args.inputs[0].shape.size());
}

Vars With(Vars i, int64_t axis, Expr at) {
  i[axis] = std::move(at);
  return i;
}

absl::StatusOr<TensorType> InferCumulativeSum(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  RETURN_IF_ERROR(Axis(args).status());
  return args.inputs[0];
}

template <Combiner kCombiner>
int EmitCumulative(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  int64_t axis = AxisOf(args, "axis", 0, shape.size());
  bool exclusive = args.attributes->Int("exclusive", 0) != 0, reverse = args.attributes->Int("reverse", 0) != 0;
  const bool sum = kCombiner == Combiner::kSum;
  return b.Reduce(sum ? "cumulative_sum" : "cumulative_product", shape, {shape[axis]}, kCombiner,
                  [&](const Vars& i, const Vars& r) {
                    Expr low = reverse ? i[axis] : r[0], high = reverse ? r[0] : i[axis];
                    Expr x = Wide(b, stages[0], With(i, axis, r[0]));
                    return Select(exclusive ? Lt(low, high) : Le(low, high), x, Literal(sum ? 0 : 1, x->dtype));
                  });
}

// The axis stays, with extent 1: who does not want it reshapes.
absl::StatusOr<TensorType> InferArg(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  ASSIGN_OR_RETURN(int64_t axis, Axis(args));
  TensorType out{DType::kInt64, args.inputs[0].shape};
  out.shape[axis] = 1;
  return out;
}

// As ONNX Runtime scans: what is compared with a NaN is not better, so that a NaN counts if it is first, and only then.
template <bool kMax>
int EmitArg(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  int64_t axis = AxisOf(args, "axis", 0, shape.size()), extent = shape[axis];
  bool last = args.attributes->Int("select_last_index", 0) != 0;
  auto at = [&](const Vars& i, const Expr& r) { return Wide(b, stages[0], With(i, axis, r)); };
  int extreme = b.Reduce(kMax ? "max" : "min", args.output.shape, {extent}, kMax ? Combiner::kMax : Combiner::kMin,
                         [&](const Vars& i, const Vars& r) { return at(i, r[0]); });
  int found = b.Reduce(kMax ? "arg_max" : "arg_min", args.output.shape, {extent},
                       last ? Combiner::kMax : Combiner::kMin, [&](const Vars& i, const Vars& r) {
                         return Select(Eq(at(i, r[0]), Wide(b, extreme, i)), r[0], IntImm(last ? 0 : extent - 1));
                       });
  if (!IsFloat(b.stage(stages[0]).dtype)) return found;
  return b.Compute("first_or_found", args.output.shape, [&](const Vars& i) {
    Expr first = at(i, IntImm(0));
    return Select(Ne(first, first), IntImm(0), Raw(b, found, i));
  });
}

// Indices of the k largest (or smallest) elements, in order; of equal ones the first comes first. NaN is the largest.
absl::StatusOr<TensorType> InferTopK(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  ASSIGN_OR_RETURN(int64_t axis, Axis(args));
  int64_t k = args.attributes->Int("k", 1), extent = args.inputs[0].shape[axis];
  if (k < 1 || k > extent) {
    return absl::InvalidArgumentError(absl::StrCat("there are not ", k, " elements in an axis of ", extent));
  }
  TensorType out{DType::kInt64, args.inputs[0].shape};
  out.shape[axis] = k;
  return out;
}

// a < b, NaN being larger than all numbers.
Expr Below(const Expr& a, const Expr& b) { return IsFloat(a->dtype) ? And(Eq(a, a), Not(Le(b, a))) : Lt(a, b); }

// By counting: the rank of an element is the number of those that come before it.
int EmitTopK(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  int64_t axis = AxisOf(args, "axis", 0, shape.size()), extent = shape[axis];
  bool largest = args.attributes->Int("largest", 1) != 0;
  int rank = b.Reduce("rank", shape, {extent}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    Expr own = Wide(b, stages[0], i), other = Wide(b, stages[0], With(i, axis, r[0]));
    // Of equal ones, which are in no order, the first.
    Expr before = largest ? Select(Lt(r[0], i[axis]), Not(Below(other, own)), Below(own, other))
                          : Select(Lt(r[0], i[axis]), Not(Below(own, other)), Below(other, own));
    return Select(before, IntImm(1), IntImm(0));
  });
  return b.Reduce("top_k", args.output.shape, {extent}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Select(Eq(Raw(b, rank, With(i, axis, r[0])), i[axis]), r[0], IntImm(0));
  });
}

}  // namespace

std::vector<Operator> SelectAlong() {
  return {{"cumulative_sum", OperatorKind::kAnchor, 1, 1, InferCumulativeSum, EmitCumulative<Combiner::kSum>},
          {"cumulative_product", OperatorKind::kAnchor, 1, 1, InferCumulativeSum, EmitCumulative<Combiner::kProd>},
          {"arg_max", OperatorKind::kAnchor, 1, 1, InferArg, EmitArg<true>},
          {"arg_min", OperatorKind::kAnchor, 1, 1, InferArg, EmitArg<false>},
          {"top_k_indices", OperatorKind::kAnchor, 1, 1, InferTopK, EmitTopK}};
}

}  // namespace diapason::ops
