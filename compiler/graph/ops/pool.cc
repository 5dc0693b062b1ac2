// Pooling over image windows. (Global pools are reductions.)
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<std::vector<Window>> PoolWindows(const OperatorArgs& args, const ImageAxes& axes) {
  const std::vector<int64_t>& x = args.inputs[0].shape;
  std::vector<int64_t> kernel = args.attributes->Ints("kernel", {});
  if (kernel.size() != 2 || kernel[0] < 1 || kernel[1] < 1) {
    return absl::InvalidArgumentError("kernel must have 2 positive numbers");
  }
  return WindowsOf(*args.attributes, {x[axes.h], x[axes.w]}, kernel);
}

absl::StatusOr<TensorType> Infer(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireRank(args, 0, 4));
  ASSIGN_OR_RETURN(ImageAxes axes, ImageAxesOf(*args.attributes));
  ASSIGN_OR_RETURN(std::vector<Window> windows, PoolWindows(args, axes));
  TensorType out = args.inputs[0];
  out.shape[axes.h] = windows[0].output;
  out.shape[axes.w] = windows[1].output;
  return out;
}

absl::StatusOr<TensorType> InferAverage(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return Infer(args);
}

int EmitWindowReduce(DagBuilder& b, const OperatorArgs& args, int stage, Combiner combiner, const char* name,
                     const ImageAxes& axes, const std::vector<Window>& windows) {
  int padded = EmitImagePad(b, stage, axes, windows, IdentityOf(combiner, b.stage(stage).dtype));
  return b.Reduce(name, args.output.shape, {windows[0].kernel, windows[1].kernel}, combiner,
                  [&](const Vars& i, const Vars& r) {
                    Vars at = i;
                    at[axes.h] = Add(Mul(i[axes.h], IntImm(windows[0].stride)), Mul(r[0], IntImm(windows[0].dilation)));
                    at[axes.w] = Add(Mul(i[axes.w], IntImm(windows[1].stride)), Mul(r[1], IntImm(windows[1].dilation)));
                    return Wide(b, padded, at);
                  });
}

int EmitMax(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  ImageAxes axes = ImageAxesOf(*args.attributes).value();
  return EmitWindowReduce(b, args, stages[0], Combiner::kMax, "max_pool", axes, PoolWindows(args, axes).value());
}

// How many positions of the window at `out` lie inside the image (with its padding, if that counts): a constant where
// all windows do.
Expr CountInside(const Window& w, const Expr& out, bool include_pad) {
  int64_t low = include_pad ? 0 : w.before;
  int64_t high = include_pad ? w.before + w.input + w.after : w.before + w.input;
  if (low == 0 && w.reach() <= high) return IntImm(w.kernel);
  Expr start = Mul(out, IntImm(w.stride));
  // First position at or behind `low`, and the number of positions before `high`.
  Expr first = FloorDiv(Add(Max(Sub(IntImm(low), start), IntImm(0)), IntImm(w.dilation - 1)), w.dilation);
  Expr last = FloorDiv(Add(Max(Sub(IntImm(high), start), IntImm(0)), IntImm(w.dilation - 1)), w.dilation);
  return Sub(Min(last, IntImm(w.kernel)), first);
}

int EmitAverage(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  ImageAxes axes = ImageAxesOf(*args.attributes).value();
  std::vector<Window> windows = PoolWindows(args, axes).value();
  bool include_pad = args.attributes->Int("count_include_pad", 0) != 0;
  int sum = EmitWindowReduce(b, args, stages[0], Combiner::kSum, "pool_sum", axes, windows);
  DType type = b.stage(sum).dtype;
  return b.Compute("avg_pool", args.output.shape, [&](const Vars& i) {
    Expr count = Mul(CountInside(windows[0], i[axes.h], include_pad), CountInside(windows[1], i[axes.w], include_pad));
    if (count->kind == ExprKind::kIntImm) return Mul(Wide(b, sum, i), Literal(1.0 / IntValue(count), type));
    return Div(Wide(b, sum, i), diapason::Cast(type, count));
  });
}

}  // namespace

std::vector<Operator> Pool() {
  return {{"max_pool", OperatorKind::kAnchor, 1, 1, Infer, EmitMax},
          {"avg_pool", OperatorKind::kAnchor, 1, 1, InferAverage, EmitAverage}};
}

}  // namespace diapason::ops
