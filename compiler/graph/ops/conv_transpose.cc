// Transposed convolution (the gradient of a convolution towards its input), channels first, any number of spatial
// dimensions. Weights are C x (M / group) x kernel. Each result sums the taps of the kernel whose position, going back
// by the stride, falls on an element of the image.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

struct Geometry {
  std::vector<int64_t> strides, dilations, pads, output;
};

absl::StatusOr<Geometry> GeometryOf(const OperatorArgs& args) {
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  size_t rank = x.size() - 2;
  const Attributes& a = *args.attributes;
  Geometry g{a.Ints("strides", std::vector<int64_t>(rank, 1)),
             a.Ints("dilations", std::vector<int64_t>(rank, 1)),
             a.Ints("pads", std::vector<int64_t>(2 * rank, 0)),
             {}};
  std::vector<int64_t> extra = a.Ints("output_padding", std::vector<int64_t>(rank, 0));
  if (g.strides.size() != rank || g.dilations.size() != rank || g.pads.size() != 2 * rank || extra.size() != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("strides, dilations, pads and output_padding must be for ", rank, " dimensions"));
  }
  for (size_t d = 0; d < rank; ++d) {
    if (g.strides[d] < 1 || g.dilations[d] < 1) {
      return absl::InvalidArgumentError("strides and dilations must be at least 1");
    }
    g.output.push_back((x[d + 2] - 1) * g.strides[d] + extra[d] + (w[d + 2] - 1) * g.dilations[d] + 1 - g.pads[d] -
                       g.pads[d + rank]);
    if (g.output[d] < 1) {
      return absl::InvalidArgumentError(absl::StrCat("its result would have an extent of ", g.output[d]));
    }
  }
  return g;
}

absl::StatusOr<TensorType> InferConvTranspose(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloats(args));
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  if (x.size() < 3 || w.size() != x.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", args.inputs[1].ToString(), " do not fit an image of ", args.inputs[0].ToString()));
  }
  int64_t group = args.attributes->Int("group", 1);
  if (group < 1 || x[1] != w[0] || x[1] % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("weights for ", w[0], " channels in ", group,
                                                   " groups do not fit an image of ", x[1], " channels"));
  }
  if (args.inputs.size() == 3 && args.inputs[2].shape != std::vector<int64_t>{w[1] * group}) {
    return absl::InvalidArgumentError(absl::StrCat("the bias must have ", w[1] * group, " elements"));
  }
  ASSIGN_OR_RETURN(Geometry g, GeometryOf(args));
  TensorType out{args.inputs[0].dtype, {x[0], w[1] * group}};
  out.shape.insert(out.shape.end(), g.output.begin(), g.output.end());
  return out;
}

int EmitConvTranspose(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  Geometry g = GeometryOf(args).value();
  const std::vector<int64_t>&x = args.inputs[0].shape, &w = args.inputs[1].shape;
  int64_t group = args.attributes->Int("group", 1), in_per_group = x[1] / group;
  std::vector<int64_t> reduce = {in_per_group};
  reduce.insert(reduce.end(), w.begin() + 2, w.end());
  int result = b.Reduce("conv_transpose", args.output.shape, reduce, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    Expr channel = group == 1 ? r[0] : Add(Mul(FloorDiv(i[1], w[1]), IntImm(in_per_group)), r[0]);
    Vars image = {i[0], channel}, weight = {channel, group == 1 ? i[1] : FloorMod(i[1], w[1])};
    std::vector<Expr> inside;
    for (size_t d = 0; d < g.output.size(); ++d) {
      Expr from = Sub(Add(i[d + 2], IntImm(g.pads[d])), Mul(r[d + 1], IntImm(g.dilations[d])));
      if (g.strides[d] > 1) inside.push_back(Eq(FloorMod(from, g.strides[d]), IntImm(0)));
      inside.push_back(Le(IntImm(0), from));
      inside.push_back(Lt(from, IntImm((x[d + 2] - 1) * g.strides[d] + 1)));
      image.push_back(FloorDiv(from, g.strides[d]));
      weight.push_back(r[d + 1]);
    }
    Expr pixel = Wide(b, stages[0], image);
    return Mul(Select(And(inside), pixel, Literal(0, pixel->dtype)), Wide(b, stages[1], weight));
  });
  if (stages.size() < 3) return result;
  return b.Compute("bias", args.output.shape,
                   [&](const Vars& i) { return Add(Wide(b, result, i), Wide(b, stages[2], {i[1]})); });
}

}  // namespace

std::vector<Operator> ConvTranspose() {
  return {{"conv_transpose", OperatorKind::kAnchor, 2, 3, InferConvTranspose, EmitConvTranspose}};
}

}  // namespace diapason::ops
