// Resampling: each axis by itself, as a weighted sum of elements whose positions and weights are computed here (they
// depend on extents only). Coordinates and weights are those of ONNX's Resize; see its reference for the formulas.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

struct Settings {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  bool ceil_down = false;  // of opset 10: where an axis shrinks, the nearest element is the next one
};

// How one axis is resampled.
struct AxisPlan {
  int64_t input = 1, output = 1;
  double scale = 1, roi_start = 0, roi_end = 1;
  bool exact = false;  // the scale is output / input
};

template <typename Real>
Real SourceOf(const AxisPlan& a, const Settings& s, int64_t at) {
  const Real x = static_cast<Real>(at), in = static_cast<Real>(a.input), out = static_cast<Real>(a.output);
  const Real scale = static_cast<Real>(a.scale), half = static_cast<Real>(0.5);
  const Real start = static_cast<Real>(a.roi_start), end = static_cast<Real>(a.roi_end);
  if (s.coordinates == "asymmetric") return x / scale;
  if (s.coordinates == "align_corners") return a.output == 1 ? 0 : x * (in - 1) / (in * scale - 1);
  if (s.coordinates == "pytorch_half_pixel") return in * scale > 1 ? (x + half) / scale - half : 0;
  if (s.coordinates == "tf_half_pixel_for_nn") return (x + half) / scale;
  if (s.coordinates == "tf_crop_and_resize") {
    return a.output > 1 ? start * (in - 1) + x * (end - start) * (in - 1) / (out - 1) : half * (start + end) * (in - 1);
  }
  if (s.coordinates == "half_pixel_symmetric") {
    const Real adjustment = out / (scale * in), centre = in / 2;
    return centre * (1 - adjustment) + (x + half) / scale - half;
  }
  return (x + half) / scale - half;
}

// Which element is nearest is decided in float32, as others do: elements that lie where they do by a scale of 1.2 lie
// on whole numbers only if quotients are rounded to what the scale was rounded to.
double PlaceOf(const AxisPlan& a, const Settings& s, int64_t at) {
  return s.mode == "nearest" ? SourceOf<float>(a, s, at) : SourceOf<double>(a, s, at);
}

int64_t Nearest(double x, const std::string& mode) {
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  return static_cast<int64_t>(std::ceil(x - 0.5));  // round_prefer_floor
}

struct Fraction {
  int64_t above, below;
};

// SourceOf, where the scale is exact.
Fraction FractionOf(const AxisPlan& a, const Settings& s, int64_t at) {
  if (s.coordinates == "asymmetric") return {at * a.input, a.output};
  if (s.coordinates == "align_corners") return {at * (a.input - 1), std::max<int64_t>(1, a.output - 1)};
  if (s.coordinates == "tf_half_pixel_for_nn") return {(2 * at + 1) * a.input, 2 * a.output};
  if (s.coordinates == "pytorch_half_pixel" && a.output == 1) return {0, 1};
  return {(2 * at + 1) * a.input - a.output, 2 * a.output};
}

// Whether the fraction decides, where it is known: ONNX Runtime chooses exactly between two elements at equal distance,
// and where corners are aligned.
bool IsDecidedExactly(const AxisPlan& a, const Settings& s) {
  const bool rounds = s.nearest.rfind("round", 0) == 0;
  return a.exact && s.coordinates != "tf_crop_and_resize" && (rounds || s.coordinates == "align_corners");
}

int64_t FloorOfQuotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }  // b > 0

int64_t NearestOf(const Fraction& x, const std::string& mode) {
  if (mode == "floor") return FloorOfQuotient(x.above, x.below);
  if (mode == "ceil") return -FloorOfQuotient(-x.above, x.below);
  if (mode == "round_prefer_ceil") return FloorOfQuotient(2 * x.above + x.below, 2 * x.below);
  return -FloorOfQuotient(x.below - 2 * x.above, 2 * x.below);  // round_prefer_floor
}

int64_t NearestAt(const AxisPlan& a, const Settings& s, int64_t at, double x) {
  if (s.ceil_down) return Nearest(x, a.scale < 1 ? "ceil" : "floor");
  return IsDecidedExactly(a, s) ? NearestOf(FractionOf(a, s, at), s.nearest) : Nearest(x, s.nearest);
}

double Triangle(double x) { return std::max(0.0, 1 - std::fabs(x)); }

// Keys' cubic convolution.
double Cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// For each output position its taps; all have equally many.
struct Taps {
  std::vector<std::vector<int64_t>> position;  // [tap][output]
  std::vector<std::vector<double>> weight;
  std::vector<bool> outside;  // of the image, with tf_crop_and_resize
};

Taps TapsOf(const AxisPlan& a, const Settings& s) {
  double stretch = s.antialias && a.scale < 1 ? a.scale : 1, radius = (s.mode == "cubic" ? 2 : 1) / stretch;
  size_t count = s.mode == "nearest" ? 1 : static_cast<size_t>(2 * std::ceil(radius)) + (stretch < 1 ? 1 : 0);
  Taps taps{std::vector<std::vector<int64_t>>(count, std::vector<int64_t>(a.output)),
            std::vector<std::vector<double>>(count, std::vector<double>(a.output, 1)), std::vector<bool>(a.output)};
  for (int64_t at = 0; at < a.output; ++at) {
    double x = PlaceOf(a, s, at);
    taps.outside[at] = s.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(a.input - 1));
    if (s.mode == "nearest") {
      taps.position[0][at] = std::clamp<int64_t>(NearestAt(a, s, at, x), 0, a.input - 1);
      continue;
    }
    int64_t first = static_cast<int64_t>(std::floor(x)) - static_cast<int64_t>(std::ceil(radius)) + 1;
    if (stretch < 1) --first;
    double sum = 0;
    const bool normalised = s.exclude_outside || stretch < 1;
    for (size_t t = 0; t < count; ++t) {
      int64_t from = first + static_cast<int64_t>(t);
      double distance = (x - static_cast<double>(from)) * stretch;
      double weight = s.mode == "cubic" ? Cubic(distance, s.cubic) : Triangle(distance);
      if (s.exclude_outside && (from < 0 || from >= a.input)) weight = 0;
      taps.position[t][at] = std::clamp<int64_t>(from, 0, a.input - 1);
      taps.weight[t][at] = weight;
      sum += weight;
    }
    for (size_t t = 0; t < count && normalised && sum != 0; ++t) taps.weight[t][at] /= sum;
  }
  return taps;
}

ImportValue Resampled(Composer& c, const ImportValue& x, int64_t axis, const Taps& taps) {
  ImportValue sum;
  Ints shape(x->type.shape.size(), 1);
  shape[axis] = static_cast<int64_t>(taps.position[0].size());
  for (size_t t = 0; t < taps.position.size(); ++t) {
    const std::vector<double>& weights = taps.weight[t];
    if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) continue;
    ImportValue part = c.Op("gather", {x, c.Indices(taps.position[t])}, {{"axis", axis}});
    if (std::any_of(weights.begin(), weights.end(), [](double w) { return w != 1; })) {
      Array weight(x->type.dtype, shape);
      for (size_t i = 0; i < weights.size(); ++i) weight.set(static_cast<int64_t>(i), weights[i]);
      part = c.Mul(part, c.Constant(std::move(weight)));
    }
    sum = sum ? c.Add(sum, part) : part;
  }
  return sum;
}

// What lies outside of the image gets the extrapolation value.
ImportValue Extrapolated(Composer& c, const ImportValue& x, int64_t axis, const Taps& taps, double value) {
  if (std::none_of(taps.outside.begin(), taps.outside.end(), [](bool o) { return o; })) return x;
  Ints shape(x->type.shape.size(), 1);
  shape[axis] = static_cast<int64_t>(taps.outside.size());
  Array outside(DType::kBool, shape);
  for (size_t i = 0; i < taps.outside.size(); ++i) outside.set_int(static_cast<int64_t>(i), taps.outside[i]);
  return c.Op("where", {c.Constant(std::move(outside)), c.Scalar(value, x), x});
}

absl::StatusOr<std::vector<double>> KnownFloats(NodeImporter& node, int input, const std::string& what) {
  ASSIGN_OR_RETURN(ImportValue value, node.Input(input));
  if (!value->value) {
    return absl::InvalidArgumentError(absl::StrCat("input ", input, " (", what, ") must be a constant"));
  }
  std::vector<double> values;
  for (int64_t i = 0, n = value->type.elements(); i < n; ++i) values.push_back(value->value->at(i));
  return values;
}

// Scales or sizes of the axes named by `axes`, as plans of all axes.
struct Request {
  std::vector<double> scales, roi;
  std::vector<int64_t> sizes, axes;
  std::string policy = "stretch";
};

absl::StatusOr<std::vector<AxisPlan>> PlansOf(const Request& r, const std::vector<int64_t>& shape) {
  std::vector<AxisPlan> plans;
  for (int64_t extent : shape) plans.push_back({extent, extent});
  size_t given = r.sizes.empty() ? r.scales.size() : r.sizes.size();
  if (given != r.axes.size() || (!r.roi.empty() && r.roi.size() != 2 * given)) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " scales or sizes and ", r.roi.size(), " borders are given for ", r.axes.size(), " axes"));
  }
  double policy_scale = 0;
  for (size_t k = 0; k < r.sizes.size() && r.policy != "stretch"; ++k) {
    double scale = static_cast<double>(r.sizes[k]) / static_cast<double>(shape[r.axes[k]]);
    bool better = r.policy == "not_larger" ? scale < policy_scale : scale > policy_scale;
    if (k == 0 || better) policy_scale = scale;
  }
  for (size_t k = 0; k < given; ++k) {
    AxisPlan& plan = plans[r.axes[k]];
    double in = static_cast<double>(plan.input);
    if (!r.roi.empty()) {
      plan.roi_start = r.roi[k];
      plan.roi_end = r.roi[k + given];
    }
    plan.scale =
        !r.sizes.empty() ? (policy_scale > 0 ? policy_scale : static_cast<double>(r.sizes[k]) / in) : r.scales[k];
    double out = !r.sizes.empty()
                     ? (policy_scale > 0 ? std::floor(policy_scale * in + 0.5) : static_cast<double>(r.sizes[k]))
                     : std::floor(in * plan.scale);
    constexpr double kMost = 1 << 24;
    if (!(out >= 1 && out <= kMost)) {
      return absl::InvalidArgumentError(absl::StrCat("an axis of ", plan.input, " would become one of ", out));
    }
    plan.output = static_cast<int64_t>(out);
    plan.exact = !r.sizes.empty() && policy_scale == 0;
  }
  return plans;
}

absl::Status CheckSettings(const Settings& s) {
  auto one_of = [](const std::string& value, std::initializer_list<const char*> known,
                   const char* name) -> absl::Status {
    std::string all;
    for (const char* k : known) {
      if (value == k) return absl::OkStatus();
      absl::StrAppend(&all, all.empty() ? "" : ", ", k);
    }
    return absl::InvalidArgumentError(absl::StrCat(name, " must be one of ", all, ", not '", value, "'"));
  };
  RETURN_IF_ERROR(one_of(s.mode, {"nearest", "linear", "cubic"}, "mode"));
  RETURN_IF_ERROR(one_of(s.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}, "nearest_mode"));
  return one_of(s.coordinates,
                {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                 "tf_half_pixel_for_nn", "tf_crop_and_resize"},
                "coordinate_transformation_mode");
}

absl::Status Resample(NodeImporter& node, const Settings& settings, const Request& request) {
  RETURN_IF_ERROR(CheckSettings(settings));
  Composer c(node);
  ImportValue x = c.Input(0), y = x;
  ASSIGN_OR_RETURN(std::vector<AxisPlan> plans, PlansOf(request, x->type.shape));
  DType work = settings.mode == "nearest" || IsFloat(x->type.dtype) ? x->type.dtype : DType::kFloat32;
  y = c.Cast(y, work);
  for (size_t d = 0; d < plans.size(); ++d) {
    const AxisPlan& plan = plans[d];
    bool crop = settings.coordinates == "tf_crop_and_resize" && (plan.roi_start != 0 || plan.roi_end != 1);
    if (plan.input == plan.output && plan.scale == 1 && !crop) continue;
    Taps taps = TapsOf(plan, settings);
    y = Extrapolated(c, Resampled(c, y, static_cast<int64_t>(d), taps), static_cast<int64_t>(d), taps,
                     settings.extrapolation);
    if (!c.ok()) return c.status();
  }
  return c.Finish(c.Cast(y, x->type.dtype));
}

absl::Status ImportResize(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  bool old = node.opset() < 11;  // of opset 10: scales behind x, and no coordinates but these
  Settings s{node.String("mode", "nearest"),
             old ? "asymmetric" : node.String("coordinate_transformation_mode", "half_pixel"),
             old ? "floor" : node.String("nearest_mode", "round_prefer_floor"),
             node.Float("cubic_coeff_a", -0.75),
             node.Float("extrapolation_value", 0),
             node.Int("exclude_outside", 0) != 0,
             node.Int("antialias", 0) != 0,
             old};
  Request r;
  r.policy = node.String("keep_aspect_ratio_policy", "stretch");
  for (int64_t given : node.Ints("axes", {})) {
    ASSIGN_OR_RETURN(int64_t axis, NormalAxis(given, x));
    r.axes.push_back(axis);
  }
  for (int64_t d = 0; d < rank && !node.Has("axes"); ++d) r.axes.push_back(d);
  int scales = old ? 1 : 2;
  if (!old && node.HasInput(1)) {
    ASSIGN_OR_RETURN(r.roi, KnownFloats(node, 1, "the region"));
    if (s.coordinates != "tf_crop_and_resize") r.roi.clear();
  }
  if (node.HasInput(scales)) {
    ASSIGN_OR_RETURN(r.scales, KnownFloats(node, scales, "the scales"));
  }
  if (!old && node.HasInput(3)) {
    ASSIGN_OR_RETURN(r.sizes, node.KnownInts(3, "the sizes"));
  }
  return Resample(node, s, r);
}

// Scales are an attribute before opset 9.
absl::Status ImportUpsample(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Settings s{node.String("mode", "nearest"), "asymmetric", "floor"};
  Request r;
  for (size_t d = 0; d < x->type.shape.size(); ++d) r.axes.push_back(static_cast<int64_t>(d));
  if (node.opset() >= 9) {
    ASSIGN_OR_RETURN(r.scales, KnownFloats(node, 1, "the scales"));
  } else {
    ASSIGN_OR_RETURN(r.scales, node.Floats("scales"));
  }
  return Resample(node, s, r);
}

}  // namespace

std::vector<OnnxRule> Resize() { return {{"Resize", ImportResize}, {"Upsample", ImportUpsample}}; }

}  // namespace diapason::onnx_rules
