// Other shapes of the same memory: no kernel, the result shares the buffer of the input.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferReshape(const OperatorArgs& args) {
  const TensorType& x = args.inputs[0];
  TensorType out{x.dtype, args.attributes->Ints("shape", {})};
  int open = -1;
  int64_t known = 1;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    if (out.shape[d] == 0 && d < x.shape.size()) out.shape[d] = x.shape[d];
    if (out.shape[d] == -1 && open < 0) {
      open = static_cast<int>(d);
    } else {
      known *= out.shape[d];
    }
  }
  if (open >= 0 && known > 0) out.shape[open] = x.elements() / known;
  if (out.elements() != x.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot reshape ", absl::StrJoin(x.shape, "x"), " to ",
                                                   absl::StrJoin(args.attributes->Ints("shape", {}), "x")));
  }
  return out;
}

absl::StatusOr<TensorType> InferFlatten(const OperatorArgs& args) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  int64_t rank = static_cast<int64_t>(shape.size()), axis = args.attributes->Int("axis", 1);
  if (axis < -rank || axis > rank)
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " is outside of a tensor with ", rank, " dimensions"));
  if (axis < 0) axis += rank;
  int64_t rows = 1;
  for (int64_t d = 0; d < axis; ++d) rows *= shape[d];
  return TensorType{args.inputs[0].dtype, {rows, args.inputs[0].elements() / rows}};
}

absl::StatusOr<TensorType> InferSqueeze(const OperatorArgs& args) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  std::vector<int64_t> ones;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) ones.push_back(static_cast<int64_t>(d));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, NormalAxes(args.attributes->Ints("axes", ones), shape.size()));
  TensorType out = args.inputs[0];
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (shape[*axis] != 1)
      return absl::InvalidArgumentError(absl::StrCat("axis ", *axis, " has extent ", shape[*axis], ", not 1"));
    out.shape.erase(out.shape.begin() + *axis);
  }
  return out;
}

absl::StatusOr<TensorType> InferUnsqueeze(const OperatorArgs& args) {
  std::vector<int64_t> added = args.attributes->Ints("axes", {});
  TensorType out = args.inputs[0];
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, NormalAxes(added, out.shape.size() + added.size()));
  for (int64_t axis : axes) out.shape.insert(out.shape.begin() + axis, 1);
  return out;
}

absl::StatusOr<TensorType> InferIdentity(const OperatorArgs& args) { return args.inputs[0]; }

// The element with the same position in row-major order.
int EmitView(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&from = args.inputs[0].shape, &to = args.output.shape;
  return b.Compute("reshape", to, [&](const Vars& i) {
    if (from == to) return Raw(b, stages[0], i);
    Expr position = IntImm(0);
    for (size_t d = 0; d < to.size(); ++d) position = Add(Mul(position, IntImm(to[d])), i[d]);
    Vars at(from.size());
    int64_t stride = 1;
    for (size_t d = from.size(); d-- > 0; stride *= from[d]) {
      Expr outer = FloorDiv(position, stride);
      at[d] = d == 0 ? outer : FloorMod(outer, from[d]);
    }
    return Raw(b, stages[0], at);
  });
}

bool Always(const OperatorArgs&) { return true; }

}  // namespace

std::vector<Operator> View() {
  return {{"reshape", OperatorKind::kInjective, 1, 1, InferReshape, EmitView, Always},
          {"flatten", OperatorKind::kInjective, 1, 1, InferFlatten, EmitView, Always},
          {"squeeze", OperatorKind::kInjective, 1, 1, InferSqueeze, EmitView, Always},
          {"unsqueeze", OperatorKind::kInjective, 1, 1, InferUnsqueeze, EmitView, Always},
          {"identity", OperatorKind::kInjective, 1, 1, InferIdentity, EmitView, Always}};
}

}  // namespace diapason::ops
