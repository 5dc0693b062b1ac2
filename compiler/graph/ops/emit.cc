#include "compiler/graph/ops/emit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace diapason::ops {

Expr Raw(DagBuilder& builder, int stage, Vars indices) { return builder.At(stage, std::move(indices)); }

Expr Wide(DagBuilder& builder, int stage, Vars indices) {
  Expr load = builder.At(stage, std::move(indices));
  return IsNarrowFloat(load->dtype) ? diapason::Cast(DType::kFloat32, load) : load;
}

Expr FromEnd(const Expr& index, int64_t extent) {
  const Expr at = diapason::Cast(DType::kInt64, index);
  return Select(Lt(at, IntImm(0)), Add(at, IntImm(extent)), at);
}

Expr PlaceOnAxis(DagBuilder& builder, int indices, Vars at, int64_t extent) {
  const Expr place = FromEnd(Raw(builder, indices, std::move(at)), extent);
  return builder.stage(indices).constant ? place : Max(Min(place, IntImm(extent - 1)), IntImm(0));
}

Expr Literal(double value, DType dtype) {
  return IsFloat(dtype) ? FloatImm(value, dtype) : IntImm(static_cast<int64_t>(value), dtype);
}

Expr Minimum(Expr a, Expr b) {
  if (!IsFloat(a->dtype)) return Min(a, b);
  return Select(Ne(a, a), a, Select(Ne(b, b), b, Min(a, b)));
}

Expr Maximum(Expr a, Expr b) {
  if (!IsFloat(a->dtype)) return Max(a, b);
  return Select(Ne(a, a), a, Select(Ne(b, b), b, Max(a, b)));
}

Vars BroadcastIndex(const Vars& index, const std::vector<int64_t>& from) {
  Vars out;
  size_t skip = index.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) out.push_back(from[d] == 1 ? IntImm(0) : index[skip + d]);
  return out;
}

absl::StatusOr<std::vector<int64_t>> BroadcastShapes(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  size_t rank = std::max(a.size(), b.size());
  std::vector<int64_t> out(rank, 1);
  for (size_t d = 0; d < rank; ++d) {
    int64_t x = d + a.size() >= rank ? a[d + a.size() - rank] : 1;
    int64_t y = d + b.size() >= rank ? b[d + b.size() - rank] : 1;
    if (x != y && x != 1 && y != 1) {
      return absl::InvalidArgumentError(absl::StrCat("shapes ", absl::StrJoin(a, "x"), " and ", absl::StrJoin(b, "x"),
                                                     " do not broadcast to each other"));
    }
    out[d] = x == 1 ? y : x;  // 0 where either is empty
  }
  return out;
}

absl::StatusOr<int64_t> NormalAxis(int64_t axis, size_t rank) {
  int64_t n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) {
    return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is outside of a tensor with ", n, " dimensions"));
  }
  return axis < 0 ? axis + n : axis;
}

absl::StatusOr<std::vector<int64_t>> NormalAxes(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<int64_t> out;
  for (int64_t axis : axes) {
    ASSIGN_OR_RETURN(int64_t normal, NormalAxis(axis, rank));
    out.push_back(normal);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) {
    return absl::InvalidArgumentError("an axis is named twice");
  }
  return out;
}

int64_t AxisOf(const OperatorArgs& args, const std::string& name, int64_t fallback, size_t rank) {
  return NormalAxis(args.attributes->Int(name, fallback), rank).value();
}

std::vector<int64_t> ReducedAxes::Rows(std::vector<int64_t> shape) const {
  shape.erase(shape.begin() + first, shape.begin() + last);
  return shape;
}

Vars ReducedAxes::RowOf(Vars index) const {
  index.erase(index.begin() + first, index.begin() + last);
  return index;
}

Vars ReducedAxes::Element(Vars row, const Vars& r) const {
  row.insert(row.begin() + first, r.begin(), r.end());
  return row;
}

absl::Status RequireFloat(const OperatorArgs& args) {
  if (IsFloat(args.inputs[0].dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("works on floating point numbers, not on ", NameOf(args.inputs[0].dtype)));
}

absl::Status RequireFloats(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return RequireProducts(args);
}

absl::Status RequireProducts(const OperatorArgs& args) {
  if (args.inputs[0].dtype != DType::kInt32) RETURN_IF_ERROR(RequireFloat(args));
  for (const TensorType& input : args.inputs) {
    if (input.dtype == args.inputs[0].dtype) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs must have one type, not ", NameOf(args.inputs[0].dtype), " and ", NameOf(input.dtype)));
  }
  return absl::OkStatus();
}

absl::Status RequireInteger(const OperatorArgs& args) {
  DType type = args.inputs[0].dtype;
  if (!IsFloat(type) && type != DType::kBool) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("works on integers, not on ", NameOf(type)));
}

absl::Status RequireNumber(const OperatorArgs& args) {
  if (args.inputs[0].dtype != DType::kBool) return absl::OkStatus();
  return absl::InvalidArgumentError("works on numbers, not on bool");
}

absl::Status RequireBool(const OperatorArgs& args) {
  if (args.inputs[0].dtype == DType::kBool) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("works on bool, not on ", NameOf(args.inputs[0].dtype)));
}

absl::Status RequireRank(const OperatorArgs& args, size_t input, size_t rank) {
  size_t got = args.inputs[input].shape.size();
  if (got == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", input, " must have ", rank, " dimensions, not ", got));
}

absl::StatusOr<ImageAxes> ImageAxesOf(const Attributes& attributes) {
  std::string layout = attributes.String("layout", "NCHW");
  if (layout == "NCHW") return ImageAxes{0, 1, 2, 3};
  if (layout == "NHWC") return ImageAxes{0, 3, 1, 2};
  return absl::InvalidArgumentError(absl::StrCat("unknown layout '", layout, "': NCHW or NHWC"));
}

namespace {

absl::StatusOr<std::vector<int64_t>> ImageList(const Attributes& attributes, const std::string& name, int64_t fallback,
                                               size_t length, int64_t minimum) {
  std::vector<int64_t> list = attributes.Ints(name, std::vector<int64_t>(length, fallback));
  if (list.size() != length) {
    return absl::InvalidArgumentError(absl::StrCat(name, " must have ", length, " numbers, not ", list.size()));
  }
  for (int64_t value : list) {
    if (value >= minimum) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " must be at least ", minimum, ", not ", value));
  }
  return list;
}

// With ceil_mode the last window may hang over the end, but must start inside the image or the padding before it.
int64_t OutputExtent(const Window& w, bool ceil_mode) {
  int64_t room = w.input + w.before + w.after - ((w.kernel - 1) * w.dilation + 1);
  if (room < 0) return 0;
  int64_t output = room / w.stride + 1;
  if (ceil_mode && room % w.stride != 0 && output * w.stride < w.input + w.before) ++output;
  return output;
}

}  // namespace

absl::StatusOr<std::vector<Window>> WindowsOf(const Attributes& attributes, const std::vector<int64_t>& image,
                                              const std::vector<int64_t>& kernel) {
  ASSIGN_OR_RETURN(std::vector<int64_t> strides, ImageList(attributes, "strides", 1, image.size(), 1));
  ASSIGN_OR_RETURN(std::vector<int64_t> dilations, ImageList(attributes, "dilations", 1, image.size(), 1));
  ASSIGN_OR_RETURN(std::vector<int64_t> pads, ImageList(attributes, "pads", 0, 2 * image.size(), 0));
  std::vector<Window> windows;
  for (size_t d = 0; d < image.size(); ++d) {
    Window w{image[d], kernel[d], strides[d], dilations[d], pads[d], pads[d + image.size()], 0};
    w.output = OutputExtent(w, attributes.Int("ceil_mode", 0) != 0);
    if (w.output <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("a kernel of ", w.kernel, " (dilation ", w.dilation,
                                                     ") does not fit an image of ", w.input, " with padding ", w.before,
                                                     " and ", w.after));
    }
    windows.push_back(w);
  }
  return windows;
}

int EmitImagePad(DagBuilder& builder, int stage, const std::vector<int>& axes, const std::vector<Window>& windows,
                 Expr fill) {
  std::vector<int64_t> shape = builder.stage(stage).shape();
  bool padded = false;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (windows[d].padded()) shape[axes[d]] = windows[d].reach();
    padded |= windows[d].padded();
  }
  if (!padded) return stage;
  return builder.Compute("pad", shape, [&](const Vars& i) {
    Vars index = i;
    Expr inside;
    auto require = [&](Expr condition) { inside = inside ? And(inside, condition) : condition; };
    for (size_t d = 0; d < axes.size(); ++d) {
      const Window& w = windows[d];
      if (!w.padded()) continue;
      const Expr& at = i[axes[d]];
      if (w.before > 0) require(Le(IntImm(w.before), at));
      if (w.reach() > w.before + w.input) require(Lt(at, IntImm(w.before + w.input)));
      index[axes[d]] = Sub(at, IntImm(w.before));
    }
    Expr value = Raw(builder, stage, index);
    return inside ? Select(inside, value, fill) : value;
  });
}

}  // namespace diapason::ops
