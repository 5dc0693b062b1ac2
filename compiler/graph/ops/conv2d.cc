// 2-D convolution: groups, dilation, strides, asymmetric padding by `pad_value` (0); NCHW with OIHW weights, NHWC with
// HWIO weights.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/products.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

// Weights as dimensions in order of meaning.
struct Weights {
  int64_t kh, kw, in, out;  // in: channels of one group
};

Weights WeightsOf(const std::vector<int64_t>& w, const ImageAxes& axes) {
  return axes.c == 1 ? Weights{w[2], w[3], w[1], w[0]} : Weights{w[0], w[1], w[2], w[3]};
}

absl::StatusOr<TensorType> InferConv2d(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFactors(args));
  RETURN_IF_ERROR(RequireRank(args, 0, 4));
  RETURN_IF_ERROR(RequireRank(args, 1, 4));
  ASSIGN_OR_RETURN(ImageAxes axes, ImageAxesOf(*args.attributes));
  const std::vector<int64_t>& x = args.inputs[0].shape;
  Weights w = WeightsOf(args.inputs[1].shape, axes);
  int64_t group = args.attributes->Int("group", 1);
  if (group < 1 || x[axes.c] != group * w.in || w.out % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("weights for ", w.in, " to ", w.out, " channels in ", group,
                                                   " groups do not fit an image of ", x[axes.c], " channels"));
  }
  if (args.inputs.size() == 3 && args.inputs[2].shape != std::vector<int64_t>{w.out}) {
    return absl::InvalidArgumentError(absl::StrCat("the bias must have ", w.out, " elements"));
  }
  ASSIGN_OR_RETURN(std::vector<Window> windows, WindowsOf(*args.attributes, {x[axes.h], x[axes.w]}, {w.kh, w.kw}));
  TensorType out{SumTypeOf(args), args.inputs[0].shape};
  out.shape[axes.c] = w.out;
  out.shape[axes.h] = windows[0].output;
  out.shape[axes.w] = windows[1].output;
  return out;
}

struct Convolution {
  ImageAxes axes;
  Weights weights;
  std::vector<Window> windows;  // of rows and columns
};

// The channels innermost in the reduction for NHWC, where they are innermost in memory; outermost for NCHW. A depthwise
// convolution (one channel a group) reduces over the window only.
int EmitProduct(DagBuilder& b, const OperatorArgs& args, int x, int weights, const Convolution& convolution) {
  const ImageAxes& axes = convolution.axes;
  const Weights& w = convolution.weights;
  const std::vector<Window>& windows = convolution.windows;
  bool nchw = axes.c == 1;
  int64_t group = args.attributes->Int("group", 1);
  int64_t out_per_group = w.out / group;
  std::vector<int64_t> reduce = {w.kh, w.kw};
  if (w.in > 1 || group == 1) reduce.insert(nchw ? reduce.begin() : reduce.end(), w.in);
  const char* name = w.in == 1 && group > 1 ? "depthwise_conv2d" : group > 1 ? "group_conv2d" : "conv2d";
  return b.Reduce(name, args.output.shape, reduce, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    bool has_channel = r.size() == 3;
    const Expr& ky = r[nchw && has_channel ? 1 : 0];
    const Expr& kx = r[nchw && has_channel ? 2 : 1];
    Expr channel = has_channel ? r[nchw ? 0 : 2] : IntImm(0);
    Vars at(4);
    at[axes.n] = i[axes.n];
    at[axes.h] = Add(Mul(i[axes.h], IntImm(windows[0].stride)), Mul(ky, IntImm(windows[0].dilation)));
    at[axes.w] = Add(Mul(i[axes.w], IntImm(windows[1].stride)), Mul(kx, IntImm(windows[1].dilation)));
    at[axes.c] = group == 1 ? channel : Add(Mul(FloorDiv(i[axes.c], out_per_group), IntImm(w.in)), channel);
    Vars weight = nchw ? Vars{i[axes.c], channel, ky, kx} : Vars{ky, kx, channel, i[axes.c]};
    return Mul(Factor(b, x, at), Factor(b, weights, weight));
  });
}

int EmitConv2d(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  ImageAxes axes = ImageAxesOf(*args.attributes).value();
  const std::vector<int64_t>& x = args.inputs[0].shape;
  Weights w = WeightsOf(args.inputs[1].shape, axes);
  std::vector<Window> windows = WindowsOf(*args.attributes, {x[axes.h], x[axes.w]}, {w.kh, w.kw}).value();
  const Expr around = Literal(args.attributes->Float("pad_value", 0), b.stage(stages[0]).dtype);
  int padded = EmitImagePad(b, stages[0], axes.spatial(), windows, around);
  int result = EmitProduct(b, args, padded, stages[1], {axes, w, windows});
  if (stages.size() < 3) return result;
  return b.Compute("bias", args.output.shape,
                   [&](const Vars& i) { return Add(Wide(b, result, i), Wide(b, stages[2], {i[axes.c]})); });
}

}  // namespace

std::vector<Operator> Conv2d() { return {{"conv2d", OperatorKind::kAnchor, 2, 3, InferConv2d, EmitConv2d}}; }

}  // namespace diapason::ops
