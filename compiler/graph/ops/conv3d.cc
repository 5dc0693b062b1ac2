// 3-D convolution, channels first (NCDHW, weights OIDHW): groups, dilation, strides, asymmetric padding.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<std::vector<Window>> Windows(const OperatorArgs& args) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  return WindowsOf(*args.attributes, {x.begin() + 2, x.end()}, {w.begin() + 2, w.end()});
}

absl::StatusOr<TensorType> InferConv3d(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloats(args));
  RETURN_IF_ERROR(RequireRank(args, 0, 5));
  RETURN_IF_ERROR(RequireRank(args, 1, 5));
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  int64_t group = args.attributes->Int("group", 1);
  if (group < 1 || x[1] != group * w[1] || w[0] % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("weights for ", w[1], " to ", w[0], " channels in ", group,
                                                   " groups do not fit a volume of ", x[1], " channels"));
  }
  if (args.inputs.size() == 3 && args.inputs[2].shape != std::vector<int64_t>{w[0]}) {
    return absl::InvalidArgumentError(absl::StrCat("the bias must have ", w[0], " elements"));
  }
  ASSIGN_OR_RETURN(std::vector<Window> windows, Windows(args));
  TensorType out = args.inputs[0];
  out.shape[1] = w[0];
  for (size_t d = 0; d < windows.size(); ++d) out.shape[d + 2] = windows[d].output;
  return out;
}

int EmitConv3d(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<Window> windows = Windows(args).value();
  const std::vector<int64_t>& w = args.inputs[1].shape;
  int64_t group = args.attributes->Int("group", 1), out_per_group = w[0] / group;
  int padded = EmitImagePad(b, stages[0], {2, 3, 4}, windows, Literal(0, b.stage(stages[0]).dtype));
  std::vector<int64_t> reduce(w.begin() + 1, w.end());
  int result = b.Reduce("conv3d", args.output.shape, reduce, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    Expr channel = group == 1 ? r[0] : Add(Mul(FloorDiv(i[1], out_per_group), IntImm(w[1])), r[0]);
    Vars at = {i[0], channel};
    for (size_t d = 0; d < windows.size(); ++d) {
      at.push_back(Add(Mul(i[d + 2], IntImm(windows[d].stride)), Mul(r[d + 1], IntImm(windows[d].dilation))));
    }
    return Mul(Wide(b, padded, at), Wide(b, stages[1], {i[1], r[0], r[1], r[2], r[3]}));
  });
  if (stages.size() < 3) return result;
  return b.Compute("bias", args.output.shape,
                   [&](const Vars& i) { return Add(Wide(b, result, i), Wide(b, stages[2], {i[1]})); });
}

}  // namespace

std::vector<Operator> Conv3d() { return {{"conv3d", OperatorKind::kAnchor, 2, 3, InferConv3d, EmitConv3d}}; }

}  // namespace diapason::ops
