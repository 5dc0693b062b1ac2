// Tensors one behind the other along an axis.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferConcat(const OperatorArgs& args) {
  TensorType out = args.inputs[0];
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(args.attributes->Int("axis", 0), out.shape.size()));
  for (size_t k = 1; k < args.inputs.size(); ++k) {
    TensorType part = args.inputs[k];
    if (part.shape.size() == out.shape.size()) {
      int64_t extent = part.shape[axis];
      part.shape[axis] = out.shape[axis];
      if (part == out) {
        out.shape[axis] += extent;
        continue;
      }
    }
    return absl::InvalidArgumentError(absl::StrCat("input ", k, " (", args.inputs[k].ToString(),
                                                   ") differs from the first (", args.inputs[0].ToString(),
                                                   ") beyond axis ", axis));
  }
  return out;
}

// Parts of more than that are chosen by halves: expressions are walked by recursion.
constexpr size_t kMostInChain = 32;

// Of parts [first, last): the one in which `at` lies. Each begins where `begins` says.
Expr Selected(const Expr& at, const std::vector<Expr>& parts, const std::vector<int64_t>& begins, size_t first,
              size_t last) {
  if (last - first == 1) return parts[first];
  const size_t middle = parts.size() <= kMostInChain ? first + 1 : first + (last - first) / 2;
  return Select(Lt(at, IntImm(begins[middle])), Selected(at, parts, begins, first, middle),
                Selected(at, parts, begins, middle, last));
}

int EmitConcat(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  int64_t axis = AxisOf(args, "axis", 0, args.output.shape.size());
  // Parts may be stages of different width inside a subgraph: all are widened then.
  bool same = true;
  for (int stage : stages) same = same && b.stage(stage).dtype == b.stage(stages[0]).dtype;
  return b.Compute("concat", args.output.shape, [&](const Vars& i) {
    std::vector<Expr> parts;
    std::vector<int64_t> begins;
    int64_t begin = 0;
    for (size_t k = 0; k < stages.size(); ++k) {
      Vars at = i;
      at[axis] = Sub(i[axis], IntImm(begin));
      parts.push_back(same ? Raw(b, stages[k], at) : Wide(b, stages[k], at));
      begins.push_back(begin);
      begin += args.inputs[k].shape[axis];
    }
    return Selected(i[axis], parts, begins, 0, parts.size());
  });
}

bool ConcatIsView(const OperatorArgs& args) { return args.inputs.size() == 1; }

}  // namespace

std::vector<Operator> Concat() {
  return {{"concat", OperatorKind::kInjective, 1, -1, InferConcat, EmitConcat, ConcatIsView}};
}

}  // namespace diapason::ops
