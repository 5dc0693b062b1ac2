#include "compiler/graph/value_range.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

namespace diapason {
namespace {

using Ranges = std::vector<ValueRange>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMostExponent = 80;  // exp() of it is finite in float32
// What bounds of exact results are widened by, as a share: of those that are rounded, some spacings of their type; and
// where they are rounded to integers next, by what longer computations may be off by.
constexpr double kRoundings = 4, kSteps = 0x1p-10, kSpacing = 0x1p-23;

ValueRange::Kind Worst(const Ranges& inputs) {
  ValueRange::Kind worst = ValueRange::Kind::kFinite;
  for (const ValueRange& input : inputs) worst = std::max(worst, input.kind);
  return worst;
}

// What is smaller may be taken for 0.
double Least(DType dtype) { return dtype == DType::kFloat16 ? 6.2e-5 : 1.2e-38; }

// Both ends outwards by a share of themselves: no sign changes.
ValueRange Widened(ValueRange x, double share) {
  if (std::isfinite(x.lower)) x.lower -= share * std::abs(x.lower);
  if (std::isfinite(x.upper)) x.upper += share * std::abs(x.upper);
  return x;
}

// Operators whose bounds are computed, of results that are rounded.
bool Rounds(const std::string& op) {
  static const std::set<std::string> kRounding = {"add", "sub",  "mul",   "div",        "pow",        "exp",
                                                  "log", "sqrt", "rsqrt", "reciprocal", "reduce_mean"};
  return kRounding.contains(op);
}

// Products of bounds, where 0 times an unknown one says nothing.
ValueRange Product(const ValueRange& a, const ValueRange& b) {
  const auto positive = [](const ValueRange& x) { return x.lower > 0 && x.finite(); };
  ValueRange product;
  product.kind = std::max(a.kind, b.kind);
  if (product.kind == ValueRange::Kind::kFiniteOrLow && !positive(a) && !positive(b))
    product.kind = ValueRange::Kind::kAny;
  double lower = kInfinity, upper = -kInfinity;
  for (double x : {a.lower, a.upper}) {
    for (double y : {b.lower, b.upper}) {
      const double corner = x * y;
      if (std::isnan(corner))
        return a.lower >= 0 && b.lower >= 0 ? ValueRange{product.kind, 0, kInfinity} : ValueRange{product.kind};
      lower = std::min(lower, corner);
      upper = std::max(upper, corner);
    }
  }
  return {product.kind, lower, upper};
}

ValueRange Square(const ValueRange& x) {
  const double most = std::max(std::abs(x.lower), std::abs(x.upper));
  const double least = x.lower > 0 ? x.lower : x.upper < 0 ? -x.upper : 0;
  return {x.finite() ? ValueRange::Kind::kFinite : ValueRange::Kind::kAny, least * least, most * most};
}

ValueRange Quotient(const ValueRange& a, const ValueRange& b) {
  if (!a.finite() || !b.finite() || (b.lower <= 0 && b.upper >= 0)) return {};
  return {ValueRange::Kind::kFinite, a.lower >= 0 && b.lower > 0 ? 0 : -kInfinity, kInfinity};
}

ValueRange Power(const ValueRange& base, const ValueRange& exponent) {
  if (!base.finite() || exponent.lower != exponent.upper) return {};
  const double e = exponent.lower;
  if (e == 2) return Square(base);
  if (base.lower > 0 || (base.lower >= 0 && e >= 0)) {
    const double first = std::pow(base.lower, e), last = std::pow(base.upper, e);
    return {ValueRange::Kind::kFinite, std::min(first, last), std::max(first, last)};
  }
  if (e < 0 || e != std::floor(e)) return {};
  return {ValueRange::Kind::kFinite, std::fmod(e, 2) == 0 ? 0 : -kInfinity, kInfinity};
}

ValueRange Selection(const Ranges& inputs, size_t first) {
  ValueRange all = inputs[first];
  for (size_t i = first + 1; i < inputs.size(); ++i)
    all = {std::max(all.kind, inputs[i].kind), std::min(all.lower, inputs[i].lower),
           std::max(all.upper, inputs[i].upper)};
  return all;
}

// With bounds by a function that grows.
template <typename F>
ValueRange Growing(const ValueRange& x, ValueRange::Kind kind, F f) {
  return {kind, f(x.lower), f(x.upper)};
}

// Functions of one number whose result has bounds of its own and which -inf does not harm.
ValueRange Bounded(const ValueRange& x, double lower, double upper) {
  return {x.kind == ValueRange::Kind::kAny ? ValueRange::Kind::kAny : ValueRange::Kind::kFinite, lower, upper};
}

ValueRange Exponential(const ValueRange& x) {
  if (x.kind == ValueRange::Kind::kAny || x.upper > kMostExponent) return {ValueRange::Kind::kAny, 0, kInfinity};
  return {ValueRange::Kind::kFinite, std::exp(x.lower), std::exp(x.upper)};
}

// Of one number; kAny for what is not here.
ValueRange Unary(const Node& node, const ValueRange& x) {
  const std::string& op = node.op;
  const ValueRange::Kind kept = x.kind, whole = x.finite() ? ValueRange::Kind::kFinite : ValueRange::Kind::kAny;
  static const std::set<std::string> kTotal = {"leaky_relu", "elu",    "hard_swish", "gelu", "gelu_tanh",
                                               "softplus",   "mish",   "celu",       "selu", "thresholded_relu",
                                               "swish",      "shrink", "asinh"};
  if (kTotal.contains(op)) return {whole, op == "softplus" ? 0 : -kInfinity, kInfinity};
  if (op == "neg") return {whole, -x.upper, -x.lower};
  if (op == "abs") return {whole, std::sqrt(Square(x).lower), std::max(std::abs(x.lower), std::abs(x.upper))};
  if (op == "relu")
    return Growing(x, kept == ValueRange::Kind::kAny ? kept : ValueRange::Kind::kFinite,
                   [](double v) { return std::max(v, 0.0); });
  if (op == "sigmoid" || op == "hard_sigmoid") return Bounded(x, 0, 1);
  if (op == "tanh" || op == "erf") return Bounded(x, -1, 1);
  if (op == "softsign") return {whole, -1, 1};
  if (op == "sign") return Bounded(x, -1, 1);
  if (op == "sin" || op == "cos") return {whole, -1, 1};
  if (op == "atan") return Bounded(x, -2, 2);
  if (op == "floor") return Growing(Widened(x, kSteps), kept, [](double v) { return std::floor(v); });
  if (op == "ceil") return Growing(Widened(x, kSteps), kept, [](double v) { return std::ceil(v); });
  if (op == "round") return Growing(Widened(x, kSteps), kept, [](double v) { return std::nearbyint(v); });
  if (op == "exp") return Exponential(x);
  const bool defined = x.finite() && (op == "sqrt" ? x.lower >= 0 : x.lower > 0);
  if (op == "sqrt" && defined) return Growing(x, ValueRange::Kind::kFinite, [](double v) { return std::sqrt(v); });
  if (op == "log" && defined) return Growing(x, ValueRange::Kind::kFinite, [](double v) { return std::log(v); });
  if (op == "rsqrt" && defined) return {ValueRange::Kind::kFinite, 1 / std::sqrt(x.upper), 1 / std::sqrt(x.lower)};
  if (op == "reciprocal" && x.finite() && x.upper < 0) return {ValueRange::Kind::kFinite, 1 / x.upper, 1 / x.lower};
  if (op == "reciprocal" && defined) return {ValueRange::Kind::kFinite, 1 / x.upper, 1 / x.lower};
  if (op == "clip") {
    double low = node.attributes.Float("min", -kInfinity), high = node.attributes.Float("max", kInfinity);
    if (std::isnan(low)) low = -kInfinity;
    if (std::isnan(high)) high = kInfinity;
    return {kept == ValueRange::Kind::kFiniteOrLow && low > -kInfinity ? ValueRange::Kind::kFinite : kept,
            std::min(std::max(x.lower, low), high), std::min(std::max(x.upper, low), high)};
  }
  return {};
}

ValueRange Binary(const Node& node, const ValueRange& a, const ValueRange& b) {
  const std::string& op = node.op;
  const ValueRange::Kind worst = std::max(a.kind, b.kind),
                         whole = worst == ValueRange::Kind::kFinite ? worst : ValueRange::Kind::kAny;
  if (op == "add") return {worst, a.lower + b.lower, a.upper + b.upper};
  if (op == "sub") return {b.finite() ? a.kind : ValueRange::Kind::kAny, a.lower - b.upper, a.upper - b.lower};
  if (op == "mul") return node.inputs[0] == node.inputs[1] ? Square(a) : Product(a, b);
  if (op == "div") return Quotient(a, b);
  if (op == "pow") return Power(a, b);
  if (op == "minimum") return {worst, std::min(a.lower, b.lower), std::min(a.upper, b.upper)};
  if (op == "maximum") {
    const bool bounded = worst == ValueRange::Kind::kFiniteOrLow && (a.finite() || b.finite());
    return {bounded ? ValueRange::Kind::kFinite : worst, std::max(a.lower, b.lower), std::max(a.upper, b.upper)};
  }
  if ((op == "mod" || op == "fmod") && (b.lower > 0 || b.upper < 0)) return {whole};
  return {};
}

ValueRange Reduction(const Node& node, const ValueRange& x) {
  const std::string& op = node.op;
  if (op == "reduce_max" || op == "reduce_min") return x;
  if (!x.finite()) return {};
  if (op == "reduce_mean") return x;
  if (op == "reduce_prod") return {ValueRange::Kind::kFinite, x.lower >= 0 ? 0 : -kInfinity, kInfinity};
  return {ValueRange::Kind::kFinite, x.lower >= 0 ? x.lower : -kInfinity, x.upper <= 0 ? x.upper : kInfinity};
}

// Operators that move elements of their first input.
bool MovesValues(const std::string& op) {
  static const std::set<std::string> kMoves = {"identity", "expand",          "reshape",   "flatten",
                                               "squeeze",  "unsqueeze",       "transpose", "slice",
                                               "gather",   "gather_elements", "gather_nd"};
  return kMoves.contains(op);
}

// Sums of products, normalisations and the like: finite where all inputs are.
bool Sums(const std::string& op) {
  static const std::set<std::string> kSums = {"matmul",         "gemm",       "conv2d",         "conv3d",
                                              "conv_transpose", "batch_norm", "layer_norm",     "rms_norm",
                                              "avg_pool",       "avg_pool3d", "max_pool",       "max_pool3d",
                                              "sum_pool",       "sum_pool3d", "cumulative_sum", "log_softmax"};
  return kSums.contains(op);
}

ValueRange Unchecked(const Node& node, const Ranges& inputs) {
  const std::string& op = node.op;
  if (MovesValues(op) || op == "cast") return inputs[0];
  if (op == "where") return Selection(inputs, 1);
  if (op == "concat") return Selection(inputs, 0);
  if (op == "pad") {
    if (node.attributes.String("mode", "constant") != "constant") return inputs[0];
    const double value = node.attributes.Float("value", 0);
    return Selection(
        {inputs[0], {std::isfinite(value) ? ValueRange::Kind::kFinite : ValueRange::Kind::kAny, value, value}}, 0);
  }
  if (op == "softmax") return Bounded(inputs[0], 0, 1);
  if (op.rfind("reduce_", 0) == 0) return Reduction(node, inputs[0]);
  const bool is_norm = op == "layer_norm" || op == "rms_norm";
  if (is_norm && node.attributes.Float("epsilon", 1e-5) < kLeastOnDevices) return {};  // 0 / 0
  if (op == "batch_norm" && !(inputs[4].lower + node.attributes.Float("epsilon", 1e-5) >= kLeastOnDevices)) return {};
  if (Sums(op) || op == "dequantize")
    return {Worst(inputs) == ValueRange::Kind::kFinite ? ValueRange::Kind::kFinite : ValueRange::Kind::kAny};
  if (inputs.size() == 1) return Unary(node, inputs[0]);
  return inputs.size() == 2 ? Binary(node, inputs[0], inputs[1]) : ValueRange();
}

}  // namespace

ValueRange RangeOf(const Array& constant) {
  ValueRange range{ValueRange::Kind::kFinite, kInfinity, -kInfinity};
  const int64_t n = constant.elements();
  const auto take = [&](double value) {
    if (std::isnan(value) || value == kInfinity) range.kind = ValueRange::Kind::kAny;
    if (value == -kInfinity) range.kind = std::max(range.kind, ValueRange::Kind::kFiniteOrLow);
    range.lower = std::min(range.lower, value);
    range.upper = std::max(range.upper, value);
  };
  if (constant.dtype == DType::kFloat32) {  // weights have many elements
    const float* values = reinterpret_cast<const float*>(constant.data.data());
    for (int64_t i = 0; i < n; ++i) take(values[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) take(constant.at(i));
  }
  return range;
}

ValueRange RangeOf(const Network& network, const Node& node, const std::vector<ValueRange>& inputs) {
  const DType dtype = network.tensor(node.output).type.dtype;
  if (node.op == "arg_max" || node.op == "arg_min") {
    const std::vector<int64_t>& shape = network.tensor(node.inputs[0]).type.shape;
    const int64_t axis = node.attributes.Int("axis", 0);
    const auto extent = static_cast<double>(shape[axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis]);
    return {ValueRange::Kind::kFinite, 0, extent - 1};
  }
  ValueRange range = Unchecked(node, inputs);
  if (dtype == DType::kBool) return {ValueRange::Kind::kFinite, 0, 1};
  if (!IsFloat(dtype)) {  // what is out of its type's range wraps
    const bool was_float = !inputs.empty() && IsFloat(network.tensor(node.inputs[0]).type.dtype);
    if (was_float) range = Widened(range, kSteps);
    const bool narrow = dtype == DType::kInt8 || dtype == DType::kUint8;
    const double most = narrow ? 127 : 1 << 30, least = dtype == DType::kUint8 ? 0 : narrow ? -128 : -most;
    const auto within = [&](const char* limit) {  // limits of clip that do not fit wrap as well
      const double value = node.attributes.Float(limit, 0);
      return node.op != "clip" || (value >= least && value <= most);
    };
    const bool fits = range.kind == ValueRange::Kind::kFinite && std::trunc(range.lower) >= least &&
                      std::trunc(range.upper) <= most && within("min") && within("max");
    if (!fits) return ValueRange::Finite();
    return {range.kind, std::trunc(range.lower), std::trunc(range.upper)};  // a cast cuts off fractions
  }
  if (Rounds(node.op)) range = Widened(range, kRoundings * (IsNarrowFloat(dtype) ? SpacingOf(dtype) : kSpacing));
  if (std::abs(range.lower) < Least(dtype)) range.lower = std::min(range.lower, 0.0);
  if (std::abs(range.upper) < Least(dtype)) range.upper = std::max(range.upper, 0.0);
  if (std::isfinite(range.lower) && range.lower < -LargestOf(dtype))
    range = {std::max(range.kind, ValueRange::Kind::kFiniteOrLow), -kInfinity, range.upper};
  if (std::isfinite(range.upper) && range.upper > LargestOf(dtype))
    range = {ValueRange::Kind::kAny, range.lower, kInfinity};
  return range;
}

}  // namespace diapason
