// Pooling over windows of images (2-D, in either layout) and of volumes (3-D, channels first). Global pools are
// reductions.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

// The spatial axes, in the order of the windows.
absl::StatusOr<std::vector<int>> ImageDimensions(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireRank(args, 0, 4));
  ASSIGN_OR_RETURN(ImageAxes axes, ImageAxesOf(*args.attributes));
  return axes.spatial();
}
absl::StatusOr<std::vector<int>> VolumeDimensions(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireRank(args, 0, 5));
  return std::vector<int>{2, 3, 4};
}
using Dimensions = absl::StatusOr<std::vector<int>> (*)(const OperatorArgs& args);

absl::StatusOr<std::vector<Window>> PoolWindows(const OperatorArgs& args, const std::vector<int>& axes) {
  std::vector<int64_t> kernel = args.attributes->Ints("kernel", {}), image;
  for (int axis : axes) image.push_back(args.inputs[0].shape[axis]);
  bool positive = kernel.size() == axes.size();
  for (int64_t extent : kernel) positive &= extent >= 1;
  if (!positive) return absl::InvalidArgumentError(absl::StrCat("kernel must have ", axes.size(), " positive numbers"));
  return WindowsOf(*args.attributes, image, kernel);
}

template <Dimensions kAxes>
absl::StatusOr<TensorType> Infer(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(std::vector<int> axes, kAxes(args));
  RETURN_IF_ERROR(RequireNumber(args));
  ASSIGN_OR_RETURN(std::vector<Window> windows, PoolWindows(args, axes));
  TensorType out = args.inputs[0];
  for (size_t d = 0; d < axes.size(); ++d) out.shape[axes[d]] = windows[d].output;
  return out;
}

template <Dimensions kAxes>
absl::StatusOr<TensorType> InferAverage(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return Infer<kAxes>(args);
}

int EmitWindowReduce(DagBuilder& b, const OperatorArgs& args, int stage, Combiner combiner, const char* name,
                     const std::vector<int>& axes, const std::vector<Window>& windows) {
  int padded = EmitImagePad(b, stage, axes, windows, IdentityOf(combiner, b.stage(stage).dtype));
  std::vector<int64_t> kernel;
  for (const Window& w : windows) kernel.push_back(w.kernel);
  return b.Reduce(name, args.output.shape, kernel, combiner, [&](const Vars& i, const Vars& r) {
    Vars at = i;
    for (size_t d = 0; d < axes.size(); ++d) {
      at[axes[d]] = Add(Mul(i[axes[d]], IntImm(windows[d].stride)), Mul(r[d], IntImm(windows[d].dilation)));
    }
    return Wide(b, padded, at);
  });
}

template <Dimensions kAxes>
int EmitMax(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<int> axes = kAxes(args).value();
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

template <Dimensions kAxes>
int EmitAverage(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<int> axes = kAxes(args).value();
  std::vector<Window> windows = PoolWindows(args, axes).value();
  bool include_pad = args.attributes->Int("count_include_pad", 0) != 0;
  int sum = EmitWindowReduce(b, args, stages[0], Combiner::kSum, "pool_sum", axes, windows);
  DType type = b.stage(sum).dtype;
  return b.Compute("avg_pool", args.output.shape, [&](const Vars& i) {
    Expr count = CountInside(windows[0], i[axes[0]], include_pad);
    for (size_t d = 1; d < axes.size(); ++d) count = Mul(count, CountInside(windows[d], i[axes[d]], include_pad));
    if (count->kind == ExprKind::kIntImm) return Mul(Wide(b, sum, i), Literal(1.0 / IntValue(count), type));
    return Div(Wide(b, sum, i), diapason::Cast(type, count));
  });
}

template <Dimensions kAxes>
std::vector<Operator> Pools(const char* max, const char* average) {
  return {{max, OperatorKind::kAnchor, 1, 1, Infer<kAxes>, EmitMax<kAxes>},
          {average, OperatorKind::kAnchor, 1, 1, InferAverage<kAxes>, EmitAverage<kAxes>}};
}

}  // namespace

std::vector<Operator> Pool() { return Pools<ImageDimensions>("max_pool", "avg_pool"); }
std::vector<Operator> Pool3d() { return Pools<VolumeDimensions>("max_pool3d", "avg_pool3d"); }

}  // namespace diapason::ops
