// Reductions over axes; global pools are those over the image axes.
#include <numeric>

#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<std::vector<int64_t>> AxesToReduce(const OperatorArgs& args) {
  size_t rank = args.inputs[0].shape.size();
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return NormalAxes(args.attributes->Ints("axes", all), rank);
}

absl::StatusOr<TensorType> InferReduce(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, AxesToReduce(args));
  bool keep = args.attributes->Int("keepdims", 1) != 0;
  TensorType out = args.inputs[0];
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (keep) {
      out.shape[*axis] = 1;
    } else {
      out.shape.erase(out.shape.begin() + *axis);
    }
  }
  return out;
}

absl::StatusOr<TensorType> InferMean(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return InferReduce(args);
}

// A maximum or minimum is NaN where the first element is, and ignores NaN elsewhere: as ONNX Runtime, which compares
// the others with it in turn.
int EmitReduce(DagBuilder& b, const OperatorArgs& args, int input, Combiner combiner, const char* name) {
  std::vector<int64_t> axes = AxesToReduce(args).value();
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  bool keep = args.attributes->Int("keepdims", 1) != 0;
  if (axes.empty()) return b.Compute(name, shape, [&](const Vars& i) { return Wide(b, input, i); });
  std::vector<int64_t> extents;
  for (int64_t axis : axes) extents.push_back(shape[axis]);
  const auto element = [&](const Vars& i, const Vars& r) {
    Vars at;
    size_t out = 0, reduced = 0;
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      bool is_reduced = reduced < axes.size() && axes[reduced] == d;
      at.push_back(is_reduced ? r[reduced++] : i[out]);
      if (!is_reduced || keep) ++out;
    }
    return Wide(b, input, at);
  };
  const int all = b.Reduce(name, args.output.shape, extents, combiner, element);
  const bool is_extreme = combiner == Combiner::kMax || combiner == Combiner::kMin;
  if (!is_extreme || !IsFloat(b.stage(all).dtype)) return all;
  const Vars zeros(axes.size(), IntImm(0));
  return b.Compute("first_or_all", args.output.shape, [&](const Vars& i) {
    Expr first = element(i, zeros);
    return Select(Ne(first, first), first, Wide(b, all, i));
  });
}

template <Combiner kCombiner>
int EmitReduction(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const char* name = kCombiner == Combiner::kSum   ? "sum"
                     : kCombiner == Combiner::kMax ? "max"
                     : kCombiner == Combiner::kMin ? "min"
                                                   : "prod";
  return EmitReduce(b, args, stages[0], kCombiner, name);
}

int EmitMean(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  int sum = EmitReduce(b, args, stages[0], Combiner::kSum, "sum");
  double count = static_cast<double>(args.inputs[0].elements()) / args.output.elements();
  DType type = b.stage(sum).dtype;
  return b.Compute("mean", args.output.shape,
                   [&](const Vars& i) { return Mul(Wide(b, sum, i), Literal(1 / count, type)); });
}

}  // namespace

std::vector<Operator> Reduce() {
  return {{"reduce_sum", OperatorKind::kAnchor, 1, 1, InferReduce, EmitReduction<Combiner::kSum>},
          {"reduce_mean", OperatorKind::kAnchor, 1, 1, InferMean, EmitMean},
          {"reduce_max", OperatorKind::kAnchor, 1, 1, InferReduce, EmitReduction<Combiner::kMax>},
          {"reduce_min", OperatorKind::kAnchor, 1, 1, InferReduce, EmitReduction<Combiner::kMin>},
          {"reduce_prod", OperatorKind::kAnchor, 1, 1, InferReduce, EmitReduction<Combiner::kProd>}};
}

}  // namespace diapason::ops
