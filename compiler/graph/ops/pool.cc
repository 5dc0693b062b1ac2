// Pooling over windows of images (2-D, in either layout) and of volumes (3-D, channels first). Global pools are
// reductions.
#include <algorithm>
#include <limits>
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
absl::StatusOr<TensorType> InferPool(const OperatorArgs& args) {
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
  return InferPool<kAxes>(args);
}

// The maximum or the sum of each window of a stage.
int EmitWindowReduce(DagBuilder& b, const OperatorArgs& args, int stage, const std::vector<int>& axes,
                     Combiner combiner) {
  const std::vector<Window> windows = PoolWindows(args, axes).value();
  const char* name = combiner == Combiner::kMax ? "max_pool" : "pool_sum";
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
  return EmitWindowReduce(b, args, stages[0], axes, Combiner::kMax);
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
  int sum = EmitWindowReduce(b, args, stages[0], axes, Combiner::kSum);
  DType type = b.stage(sum).dtype;
  return b.Compute("avg_pool", args.output.shape, [&](const Vars& i) {
    Expr count = CountInside(windows[0], i[axes[0]], include_pad);
    for (size_t d = 1; d < axes.size(); ++d) count = Mul(count, CountInside(windows[d], i[axes[d]], include_pad));
    if (count->kind == ExprKind::kIntImm) return Mul(Wide(b, sum, i), Literal(1.0 / IntValue(count), type));
    return Div(Wide(b, sum, i), diapason::Cast(type, count));
  });
}

template <Dimensions kAxes>
int EmitSum(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<int> axes = kAxes(args).value();
  return EmitWindowReduce(b, args, stages[0], axes, Combiner::kSum);
}

template <Dimensions kAxes>
absl::StatusOr<TensorType> InferIndices(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(TensorType type, InferPool<kAxes>(args));
  return TensorType{DType::kInt64, type.shape};
}

// Positions in the whole tensor, counted row by row, or column by column of each image where column_major is 1.
template <Dimensions kAxes>
int EmitIndices(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<int> axes = kAxes(args).value();
  std::vector<Window> windows = PoolWindows(args, axes).value();
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  const bool columns = args.attributes->Int("column_major", 0) != 0;
  std::vector<int64_t> kernel, strides(shape.size(), 1);
  for (const Window& w : windows) kernel.push_back(w.kernel);
  std::vector<size_t> order(shape.size());  // from the slowest to the fastest
  std::iota(order.begin(), order.end(), 0);
  if (columns) std::reverse(order.begin() + 2, order.end());
  for (size_t k = order.size() - 1; k-- > 0;) strides[order[k]] = strides[order[k + 1]] * shape[order[k + 1]];
  const DType type = args.inputs[0].dtype;
  int padded = EmitImagePad(b, stages[0], axes, windows, IdentityOf(Combiner::kMax, type));
  auto place = [&](const Vars& i, const Vars& r) {
    Vars at = i;
    for (size_t d = 0; d < axes.size(); ++d)
      at[axes[d]] = Add(Mul(i[axes[d]], IntImm(windows[d].stride)), Mul(r[d], IntImm(windows[d].dilation)));
    return at;
  };
  int top = b.Reduce("max_pool", args.output.shape, kernel, Combiner::kMax,
                     [&](const Vars& i, const Vars& r) { return Wide(b, padded, place(i, r)); });
  return b.Reduce("max_pool_indices", args.output.shape, kernel, Combiner::kMin, [&](const Vars& i, const Vars& r) {
    const Vars at = place(i, r);
    Expr index = IntImm(0), inside = IntImm(1, DType::kBool);
    for (size_t d = 0; d < at.size(); ++d) {
      Expr own = at[d];
      for (size_t k = 0; k < axes.size(); ++k) {
        if (axes[k] != static_cast<int>(d) || !windows[k].padded()) continue;
        own = Sub(own, IntImm(windows[k].before));
        inside = And(inside, And(Le(IntImm(0), own), Lt(own, IntImm(shape[d]))));
      }
      index = Add(index, Mul(own, IntImm(strides[d])));
    }
    return Select(And(inside, Eq(Wide(b, padded, at), Wide(b, top, i))), index,
                  IntImm(std::numeric_limits<int64_t>::max()));
  });
}

struct PoolNames {
  const char *max, *average, *sum, *indices;
};

template <Dimensions kAxes>
std::vector<Operator> Pools(const PoolNames& names) {
  return {{names.max, OperatorKind::kAnchor, 1, 1, InferPool<kAxes>, EmitMax<kAxes>},
          {names.average, OperatorKind::kAnchor, 1, 1, InferAverage<kAxes>, EmitAverage<kAxes>},
          {names.sum, OperatorKind::kAnchor, 1, 1, InferAverage<kAxes>, EmitSum<kAxes>},
          {names.indices, OperatorKind::kAnchor, 1, 1, InferIndices<kAxes>, EmitIndices<kAxes>}};
}

}  // namespace

std::vector<Operator> Pool() {
  return Pools<ImageDimensions>({"max_pool", "avg_pool", "sum_pool", "max_pool_indices"});
}
std::vector<Operator> Pool3d() {
  return Pools<VolumeDimensions>({"max_pool3d", "avg_pool3d", "sum_pool3d", "max_pool3d_indices"});
}

}  // namespace diapason::ops
