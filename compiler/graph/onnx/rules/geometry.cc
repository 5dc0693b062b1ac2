// Images moved, sampled and put together.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// Names of modes before opset 20: bilinear and bicubic.
absl::Status GridSample(NodeImporter& node) {
  Composer c(node);
  std::string mode = node.String("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  return c.Finish(c.Op("grid_sample", {c.Input(0), c.Input(1)},
                       {{"mode", mode},
                        {"padding", node.String("padding_mode", "zeros")},
                        {"align_corners", node.Int("align_corners", 0)}}));
}

// Points of the image, x first and 1 last, times a matrix for each batch element.
absl::Status AffineGrid(NodeImporter& node) {
  Composer c(node);
  ImportValue theta = c.Input(0);
  ASSIGN_OR_RETURN(std::vector<int64_t> size, node.KnownInts(1, "the size"));
  const int64_t rank = static_cast<int64_t>(size.size()) - 2;
  const bool align = node.Int("align_corners", 0) != 0;
  if (rank < 2 || rank > 3 || theta->type.shape != Ints{size[0], rank, rank + 1} || !IsFloat(theta->type.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrices of ", theta->type.ToString(), " do not fit a size of ", size.size(), " numbers"));
  }
  int64_t points = 1;
  for (int64_t d = 0; d < rank; ++d) {
    if (size[2 + d] < 1 || size[2 + d] > 1 << 20)
      return absl::InvalidArgumentError(absl::StrCat("an image cannot have an extent of ", size[2 + d]));
    points *= size[2 + d];
    if (points > int64_t{1} << 28) return absl::InvalidArgumentError("its image is too large");
  }
  if (!node.SpendConstantBytes(points * (rank + 1) * BytesOf(theta->type.dtype)))
    return absl::InvalidArgumentError("its image is too large");
  Array grid(theta->type.dtype, {points, rank + 1});
  for (int64_t p = 0; p < points; ++p) {
    int64_t rest = p;
    for (int64_t d = rank; d-- > 0; rest /= size[2 + d]) {
      const double extent = static_cast<double>(size[2 + d]), at = static_cast<double>(rest % size[2 + d]);
      // A single point with aligned corners lies at -1, as in numpy's linspace.
      const double place = !align ? (2 * at + 1) / extent - 1 : extent > 1 ? 2 * at / (extent - 1) - 1 : -1;
      grid.set(p * (rank + 1) + rank - 1 - d, place);
    }
    grid.set(p * (rank + 1) + rank, 1);
  }
  ImportValue y = c.Matmul(c.Constant(std::move(grid)), c.Transpose(theta, {0, 2, 1}));
  Ints shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(rank);
  return c.Finish(c.Reshape(y, shape));
}

absl::Status RoiAlign(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), rois = c.Input(1), of = c.Input(2);
  const int64_t samples = node.Int("sampling_ratio", 0);
  const std::string transformation =
      node.opset() < 16 ? "output_half_pixel" : node.String("coordinate_transformation_mode", "half_pixel");
  const std::string mode = node.String("mode", "avg");
  if (samples < 0 || samples > 64)
    return absl::InvalidArgumentError(absl::StrCat("sampling_ratio cannot be ", samples));
  if (mode != "avg" && mode != "max")
    return absl::InvalidArgumentError(absl::StrCat("mode must be avg or max, not '", mode, "'"));
  if (transformation != "half_pixel" && transformation != "output_half_pixel") {
    return absl::InvalidArgumentError(absl::StrCat(
        "coordinate_transformation_mode must be half_pixel or output_half_pixel, not '", transformation, "'"));
  }
  return c.Finish(c.Op("roi_align", {x, rois, of},
                       {{"size", Ints{node.Int("output_height", 1), node.Int("output_width", 1)}},
                        {"samples", samples},
                        {"scale", node.Float("spatial_scale", 1)},
                        {"mode", mode},
                        {"half_pixel", int64_t{transformation == "half_pixel"}}}));
}

absl::Status DeformConv(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1), offset = c.Input(2);
  if (RankOf(x) != 4 || RankOf(w) != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("images of ", x->type.ToString(), " are not supported: those of 4 dimensions are"));
  }
  const std::vector<int64_t> kernel(w->type.shape.begin() + 2, w->type.shape.end());
  node.Ints("kernel_shape", kernel);
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  attributes.Set("offset_group", node.Int("offset_group", 1));
  std::vector<ImportValue> inputs = {x, w, offset};
  if (node.HasInput(4)) inputs.push_back(c.Input(4));
  ImportValue y = c.Op("deform_conv", inputs, std::move(attributes));
  if (node.HasInput(3)) y = c.Add(y, c.Reshape(c.Input(3), {w->type.shape[0], 1, 1}));
  return c.Finish(y);
}

absl::Status Col2Im(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(std::vector<int64_t> image, node.KnownInts(1, "the image's shape"));
  ASSIGN_OR_RETURN(std::vector<int64_t> kernel, node.KnownInts(2, "the shape of blocks"));
  Attributes attributes{{"image", image}, {"kernel", kernel}};
  for (const char* name : {"strides", "pads", "dilations"}) {
    if (node.Has(name)) attributes.Set(name, node.Ints(name, {}));
  }
  return c.Finish(c.Op("fold", {x}, std::move(attributes)));
}

// An odd number of elements is cut off, or added, more at the end.
absl::Status CenterCropPad(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, node.KnownInts(1, "the shape"));
  Ints axes;
  for (int64_t d = 0; d < RankOf(x); ++d) axes.push_back(d);
  axes = node.Ints("axes", axes);
  if (axes.size() != shape.size())
    return absl::InvalidArgumentError(absl::StrCat(shape.size(), " extents are given for ", axes.size(), " axes"));
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t axis = c.Axis(axes[k], x);
    RETURN_IF_ERROR(c.status());
    const int64_t extent = x->type.shape[axis], wanted = shape[k];
    if (wanted < 1 || wanted > int64_t{1} << 31)
      return absl::InvalidArgumentError(absl::StrCat("an extent cannot be ", wanted));
    if (wanted < extent) {
      const int64_t start = (extent - wanted) / 2;
      x = c.Slice(x, axis, start, start + wanted);
    } else if (wanted > extent) {
      Ints pads(2 * RankOf(x), 0);
      pads[axis] = (wanted - extent) / 2;
      pads[RankOf(x) + axis] = wanted - extent - pads[axis];
      x = c.Op("pad", {x}, {{"pads", pads}});
    }
  }
  return c.Finish(x);
}

// By Laplace's expansion.
ImportValue SmallDeterminant(Composer& c, const ImportValue& x) {
  const int64_t rank = RankOf(x), n = x->type.shape.back();
  if (n == 1) return c.Squeeze(x, {rank - 2, rank - 1});
  ImportValue sum;
  for (int64_t j = 0; j < n && c.ok(); ++j) {
    ImportValue below = c.Slice(x, rank - 2, 1, n), minor;
    if (j == 0) {
      minor = c.Slice(below, rank - 1, 1, n);
    } else if (j == n - 1) {
      minor = c.Slice(below, rank - 1, 0, n - 1);
    } else {
      minor = c.Concat({c.Slice(below, rank - 1, 0, j), c.Slice(below, rank - 1, j + 1, n)}, rank - 1);
    }
    ImportValue head = c.Squeeze(c.Slice(c.Slice(x, rank - 2, 0, 1), rank - 1, j, j + 1), {rank - 2, rank - 1});
    ImportValue term = c.Mul(head, SmallDeterminant(c, minor));
    sum = !sum ? term : j % 2 == 0 ? c.Add(sum, term) : c.Sub(sum, term);
  }
  return sum;
}

// Eliminates the first column of matrices by its largest element, and multiplies `product` by that, with the sign of
// the exchange of rows. What is left moves up and left; zeros follow it, so that all steps are the same task.
void EliminateColumn(Composer& c, ImportValue& x, ImportValue& product) {
  const int64_t rank = RankOf(x), n = x->type.shape.back(), row = rank - 2, column = rank - 1;
  ImportValue place = c.Op("arg_max", {c.Op("abs", {c.Slice(x, column, 0, 1)})}, {{"axis", row}});
  Ints along = x->type.shape;
  along[row] = 1;
  ImportValue top = c.Op("gather_elements", {x, c.Expand(place, along)}, {{"axis", row}});
  Ints numbers(n - 1);
  std::iota(numbers.begin(), numbers.end(), 1);
  ImportValue exchanged = c.Op("equal", {c.Reshape(c.Indices(numbers), {n - 1, 1}), place});
  ImportValue below = c.Op("where", {exchanged, c.Slice(x, row, 0, 1), c.Slice(x, row, 1, n)});
  ImportValue pivot = c.Slice(top, column, 0, 1);
  // Of a column of zeros nothing is to be eliminated.
  ImportValue divisor = c.Op("where", {c.Op("equal", {pivot, c.Scalar(0, x)}), c.Scalar(1, x), pivot});
  ImportValue share = c.Div(c.Slice(below, column, 0, 1), divisor);
  ImportValue rest = c.Sub(c.Slice(below, column, 1, n), c.Mul(share, c.Slice(top, column, 1, n)));
  ImportValue stays = c.Op("equal", {place, c.Indices({0})});
  product = c.Mul(product, c.Op("where", {stays, pivot, c.Op("neg", {pivot})}));
  Ints pads(2 * rank, 0);
  pads[rank + row] = pads[rank + column] = 1;
  x = c.Op("pad", {rest}, {{"pads", pads}});
}

constexpr int64_t kMaxDeterminantRows = 64;

absl::Status Det(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  const Ints& s = x->type.shape;
  if (s.size() < 2 || s[s.size() - 1] != s[s.size() - 2] || s.back() > kMaxDeterminantRows) {
    return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(), ": square matrices of up to ",
                                                   kMaxDeterminantRows, " rows are supported"));
  }
  if (s.back() <= 4) return c.Finish(SmallDeterminant(c, x));
  const DType type = x->type.dtype;
  if (type == DType::kFloat16 || type == DType::kBfloat16) x = c.Cast(x, DType::kFloat32);
  ImportValue product = c.Scalar(1, x);
  for (int64_t step = 0; step < s.back() && c.ok(); ++step) EliminateColumn(c, x, product);
  return c.Finish(c.Cast(c.Squeeze(product, {RankOf(x) - 2, RankOf(x) - 1}), type));
}

// The maxima where they were, zeros elsewhere; positions count in the shape that the pool had.
absl::Status MaxUnpool(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), places = c.Cast(c.Input(1), DType::kInt64);
  const int64_t rank = RankOf(x) - 2;
  const Ints kernel = node.Ints("kernel_shape", {}), strides = node.Ints("strides", Ints(kernel.size(), 1));
  const Ints pads = node.Ints("pads", Ints(2 * kernel.size(), 0));
  if (rank < 1 || static_cast<int64_t>(kernel.size()) != rank || strides.size() != kernel.size() ||
      pads.size() != 2 * kernel.size() || places->type.shape != x->type.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("positions of ", places->type.ToString(), " and its window do not fit ", x->type.ToString()));
  }
  Ints shape = {x->type.shape[0], x->type.shape[1]};
  int64_t elements = shape[0] * shape[1];
  for (int64_t d = 0; d < rank; ++d) {
    shape.push_back((x->type.shape[2 + d] - 1) * strides[d] - pads[d] - pads[rank + d] + kernel[d]);
    if (shape.back() < 1 || shape.back() > 1 << 20)
      return absl::InvalidArgumentError(absl::StrCat("its result would have an extent of ", shape.back()));
    elements *= shape.back();
  }
  ImportValue zeros = c.Expand(c.Reshape(c.Scalar(0, x), {1}), {elements});
  ImportValue y =
      c.Op("scatter_elements", {zeros, c.Reshape(places, {-1}), c.Reshape(x, {-1})}, {{"axis", int64_t{0}}});
  y = c.Reshape(y, shape);
  if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(std::vector<int64_t> wanted, node.KnownInts(2, "the shape of the result"));
    Ints more(2 * RankOf(x), 0);
    bool fits = wanted.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      more[shape.size() + d] = wanted[d] - shape[d];
      fits = more[shape.size() + d] >= 0 && wanted[d] <= 1 << 20;
    }
    if (!fits)
      return absl::InvalidArgumentError("the shape of the result must not be smaller than what the window gives");
    y = c.Op("pad", {y}, {{"pads", more}});
  }
  return c.Finish(y);
}

}  // namespace

std::vector<OnnxRule> Geometry() {
  return {
      {"GridSample", GridSample}, {"AffineGrid", AffineGrid},       {"RoiAlign", RoiAlign}, {"DeformConv", DeformConv},
      {"Col2Im", Col2Im},         {"CenterCropPad", CenterCropPad}, {"Det", Det},           {"MaxUnpool", MaxUnpool}};
}

}  // namespace diapason::onnx_rules
