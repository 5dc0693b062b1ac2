#include "compiler/tensor/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "base/check.h"

namespace diapason {
namespace {

constexpr double kSumGrowth = 4, kStrassen = 4, kWinograd = 8, kWinogradTransforms = 320, kTruncation = 1.0 / 12;
constexpr double kFunctionRoundings = 32, kStageRoundings = 8;
// Two roundings to a narrow float, of the last store at most, relative to the spacing of its numbers; and 5.5 standard
// deviations of one before it.
constexpr double kStored = 1.6;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestScale = 8;  // over the reference's root mean square
// Masks: see MagnitudeOf.
constexpr double kInfinite = 1e30, kLeastMask = 1e4, kMaskSpread = 4, kMaskGap = 256;

using Names = std::set<std::string>;

bool Calls(const ComputeDag& dag, const Names& names) {
  bool found = false;
  for (const Stage& stage : dag.stages())
    if (stage.body != nullptr)
      Visit(stage.body,
            [&](const ExprNode& node) { found |= node.kind == ExprKind::kCall && names.contains(node.name); });
  return found;
}

// True if a part of the dag is not defined, or explodes, for negative numbers or numbers around zero.
bool NeedsPositiveInputs(const ComputeDag& dag) {
  static const auto* const partial = new Names{"log", "sqrt", "rsqrt", "pow"};
  bool found = Calls(dag, *partial);
  for (const Stage& stage : dag.stages())
    if (stage.body != nullptr)
      Visit(stage.body, [&](const ExprNode& node) {
        found |= node.kind == ExprKind::kDiv && node.args[1]->kind != ExprKind::kFloatImm;
      });
  return found;
}

bool Saturates(const ComputeDag& dag) {
  static const auto* const saturating = new Names{"exp", "sigmoid", "tanh", "erf"};
  return Calls(dag, *saturating);
}

// The stage that an operand of a product reads, behind casts and selects of padding; -1 if it is anything else.
int OperandOf(const ExprNode& e) {
  if (e.kind == ExprKind::kLoad) return e.buffer;
  if (e.kind == ExprKind::kCast) return OperandOf(*e.args[0]);
  if (e.kind == ExprKind::kSelect) return std::max(OperandOf(*e.args[1]), OperandOf(*e.args[2]));
  return -1;
}

bool SumsProducts(const Stage& stage) {
  if (stage.body == nullptr || stage.combiner != Combiner::kSum || !stage.reduces()) return false;
  bool product = false;
  Visit(stage.body, [&](const ExprNode& node) {
    product |= node.kind == ExprKind::kMul && OperandOf(*node.args[0]) >= 0 && OperandOf(*node.args[1]) >= 0;
  });
  return product;
}

// Of the longest sum in which the placeholder is the second factor; 1 if there is none.
int64_t TermsAsSecondFactor(const ComputeDag& dag, int placeholder) {
  int64_t terms = 1;
  for (const Stage& stage : dag.stages()) {
    if (!SumsProducts(stage)) continue;
    Visit(stage.body, [&](const ExprNode& node) {
      if (node.kind == ExprKind::kMul && OperandOf(*node.args[1]) == placeholder)
        terms = std::max(terms, stage.terms());
    });
  }
  return terms;
}

bool StandsForInfinity(double constant) { return !(constant > -kLeastMask && constant < kInfinite); }

double RoundoffOf(DType dtype) { return dtype == DType::kFloat64 ? 0x1p-53 : 0x1p-24; }

// Whether Winograd's algorithm may apply.
bool SumsWindows(const Stage& stage) {
  const auto threes = std::count_if(stage.reduce_axes.begin(), stage.reduce_axes.end(),
                                    [](const Axis& axis) { return axis.extent == 3; });
  return SumsProducts(stage) && threes >= 2 && stage.dtype == DType::kFloat32;
}

// Unit roundoffs that a sum may be off by, relative to its magnitude, by any algorithm that may compute it.
double RoundingsOf(const Stage& stage) {
  const double n = static_cast<double>(stage.terms()), plain = kSumGrowth * std::sqrt(n);
  const double growth = SumsWindows(stage)    ? kWinograd * plain + kWinogradTransforms
                        : SumsProducts(stage) ? kStrassen * plain
                                              : plain;
  return growth + kTruncation * n;
}

// A typical magnitude of a value, and what a correct evaluation of it may be off by.
struct Estimate {
  double magnitude = 0, error = 0;
  bool nonnegative = false;
};

class ErrorModel {
 public:
  ErrorModel(const ComputeDag& dag, const std::map<int, InputError>& inputs) : dag_(dag) {
    for (int id = 0; id < dag.size(); ++id) {
      const Stage& stage = dag.stage(id);
      stages_.push_back(stage.placeholder ? OfPlaceholder(id, inputs) : OfStage(stage));
    }
  }

  Tolerance Of(int id) const {
    const Stage& stage = dag_.stage(id);
    if (!IsFloat(stage.dtype)) return {};
    const Estimate& e = stages_[id];
    const double magnitude = std::max(e.magnitude, std::numeric_limits<double>::min());
    return {e.error / magnitude + SpacingOf(stage.dtype), magnitude};
  }

 private:
  Estimate OfPlaceholder(int id, const std::map<int, InputError>& inputs) const {
    const Stage& stage = dag_.stage(id);
    if (!IsFloat(stage.dtype))
      return {std::max(1.0, std::fabs(static_cast<double>(stage.valid_max))), 0, stage.valid_min >= 0};
    if (const auto known = inputs.find(id); known != inputs.end())
      return {known->second.magnitude, known->second.error, false};
    const InputRange range = RangeOfInput(dag_, id);
    return {std::sqrt((range.low * range.low + range.low * range.high + range.high * range.high) / 3), 0,
            !range.both_signs};
  }

  Estimate OfStage(const Stage& stage) {
    u_ = RoundoffOf(stage.dtype);
    Estimate e = stage.reduces() ? Reduced(stage, Of(stage.body)) : Of(stage.body);
    e.error = std::hypot(e.error, kStageRoundings * u_ * e.magnitude);
    if (IsNarrowFloat(stage.dtype) && !dag_.is_output(static_cast<int>(stages_.size())))
      e.error = std::hypot(e.error, kStored * SpacingOf(stage.dtype) * e.magnitude);
    return e;
  }

  Estimate Reduced(const Stage& stage, const Estimate& term) const {
    const double n = static_cast<double>(stage.terms()), root = std::sqrt(n);
    switch (stage.combiner) {
      case Combiner::kMax:
      case Combiner::kMin: return term;
      case Combiner::kProd:
        return {std::pow(term.magnitude, n), root * std::pow(term.magnitude, n - 1) * term.error, term.nonnegative};
      default: {
        const double sum = (term.nonnegative ? n : root) * term.magnitude;
        return {sum, std::hypot((term.nonnegative ? n : root) * term.error, u_ * sum * RoundingsOf(stage)),
                term.nonnegative};
      }
    }
  }

  Estimate Of(const Expr& expr) const {
    const ExprNode& e = *expr;
    switch (e.kind) {
      case ExprKind::kIntImm: return {std::fabs(static_cast<double>(e.value)), 0, e.value >= 0};
      case ExprKind::kFloatImm: return {StandsForInfinity(e.fvalue) ? 0 : std::fabs(e.fvalue), 0, e.fvalue >= 0};
      case ExprKind::kLoad: return stages_[e.buffer];
      case ExprKind::kAdd:
      case ExprKind::kSub: return OfSum(Of(e.args[0]), Of(e.args[1]), e.kind == ExprKind::kAdd);
      case ExprKind::kMul: return OfProduct(Of(e.args[0]), Of(e.args[1]));
      case ExprKind::kDiv: return OfProduct(Of(e.args[0]), Inverse(Of(e.args[1])));
      case ExprKind::kMin:
      case ExprKind::kMax: return Larger(Of(e.args[0]), Of(e.args[1]), e.kind == ExprKind::kMax);
      case ExprKind::kSelect: return Larger(Of(e.args[1]), Of(e.args[2]), false);
      case ExprKind::kCast: return OfCast(e);
      case ExprKind::kCall: return OfCall(e);
      default: return {1, 0, true};  // comparisons and index arithmetic
    }
  }

  Estimate OfSum(const Estimate& a, const Estimate& b, bool add) const {
    const bool nonnegative = add && a.nonnegative && b.nonnegative;
    const double magnitude = nonnegative ? a.magnitude + b.magnitude : std::hypot(a.magnitude, b.magnitude);
    return {magnitude, std::hypot(a.error, b.error, u_ * magnitude), nonnegative};
  }
  Estimate OfProduct(const Estimate& a, const Estimate& b) const {
    const double magnitude = a.magnitude * b.magnitude;
    return {magnitude, std::hypot(a.error * b.magnitude, b.error * a.magnitude, u_ * magnitude),
            a.nonnegative && b.nonnegative};
  }
  static Estimate Inverse(const Estimate& a) {
    const double b = std::max(a.magnitude, 1e-30);
    return {1 / b, a.error / (b * b), a.nonnegative};
  }
  static Estimate Larger(const Estimate& a, const Estimate& b, bool either) {
    return {std::max(a.magnitude, b.magnitude), std::max(a.error, b.error),
            either ? a.nonnegative || b.nonnegative : a.nonnegative && b.nonnegative};
  }
  Estimate OfCast(const ExprNode& e) const {
    Estimate value = Of(e.args[0]);
    value.error = std::hypot(value.error, kStored * SpacingOf(e.dtype) * value.magnitude);
    return value;
  }

  Estimate OfCall(const ExprNode& e) const {
    const Estimate x = Of(e.args[0]);
    const double m = std::max(x.magnitude, 1e-30);
    const auto with = [&](double magnitude, double slope, bool nonnegative) {
      return Estimate{magnitude, std::hypot(slope * x.error, kFunctionRoundings * u_ * magnitude), nonnegative};
    };
    if (e.name == "abs") return {x.magnitude, x.error, true};
    if (e.name == "floor" || e.name == "ceil" || e.name == "round") return x;
    if (e.name == "bfloat16")
      return {x.magnitude, std::hypot(x.error, kStored * SpacingOf(DType::kBfloat16) * x.magnitude), x.nonnegative};
    if (e.name == "tanh" || e.name == "erf") return with(std::min(1.0, m), 1.13, x.nonnegative);
    if (e.name == "sigmoid") return with(0.5, 0.25, true);
    if (e.name == "sqrt") return with(std::sqrt(m), 0.5 / std::sqrt(m), true);
    if (e.name == "rsqrt") return with(1 / std::sqrt(m), 0.5 / (m * std::sqrt(m)), true);
    if (e.name == "log") return with(std::max(1.0, std::fabs(std::log(m))), 1 / m, false);
    // The exponential of a difference from a maximum is 1 at most: a relative error counts.
    if (e.name == "exp")
      return with(std::exp(std::min(x.magnitude, 20.0)), std::exp(std::min(x.magnitude, 20.0)), true);
    if (e.name == "pow") {
      const double power = std::fabs(Of(e.args[1]).magnitude), result = std::pow(m, power);
      return with(result, std::max(1.0, power) * result / m, x.nonnegative);
    }
    return with(m, 1, false);
  }

  const ComputeDag& dag_;
  std::vector<Estimate> stages_;
  double u_ = 0;
};

// Error of one element: infinity where only one is finite or they are different infinities.
double ElementError(double got, double reference) {
  if (std::isfinite(got) && std::isfinite(reference)) return std::fabs(got - reference);
  const bool same = (std::isnan(got) && std::isnan(reference)) || got == reference;
  return same ? 0 : std::numeric_limits<double>::infinity();
}

// Elements that are looked at together: most blocks have no larger error than those before, which a loop that the
// compiler vectorizes tells. Outputs of a large batch have 10 million elements.
constexpr int64_t kBlock = 4096;

// At least the largest error, when all numbers are finite.
struct FloatBlock {
  bool finite = true;
  double worst = 0;
};

// Floats without their signs are in the order of their bits, and the largest integer is found by vectors.
FloatBlock LookAt(const float* got, const float* reference, int64_t n) {
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  int32_t largest = 0, worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t value = std::bit_cast<int32_t>(got[i]) & kMagnitude;
    const int32_t expected = std::bit_cast<int32_t>(reference[i]) & kMagnitude;
    const int32_t error = std::bit_cast<int32_t>(got[i] - reference[i]) & kMagnitude;
    largest = std::max(largest, std::max(value, expected));
    worst = std::max(worst, error);
  }
  // Of two differences one may be rounded down to the other: a little more than what was found.
  return {largest < kInfinity, 1.000001 * std::bit_cast<float>(worst)};
}

// Eight sums side by side. Squares of floats do not overflow.
double SumOfSquares(const float* values, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
  for (; i < n; ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// Elements of the array with magnitudes in [from, below).
struct Group {
  int64_t count = 0;
  double least = std::numeric_limits<double>::infinity(), largest = 0;
  bool negative = true;  // all of them
};

Group GroupOf(const Array& array, double from, double below) {
  Group group;
  for (int64_t i = 0, n = array.elements(); i < n; ++i) {
    const double value = array.at(i), magnitude = std::fabs(value);
    if (!(magnitude >= from && magnitude < below)) continue;
    ++group.count;
    group.least = std::min(group.least, magnitude);
    group.largest = std::max(group.largest, magnitude);
    group.negative &= value < 0;
  }
  return group;
}

// False, after one pass by vectors, for most arrays; NaN and infinity count as large.
bool HasLargeElements(const Array& array) {
  if (array.dtype != DType::kFloat32) return true;
  const float* values = array.as<float>();
  int32_t largest = 0;
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  return largest >= std::bit_cast<int32_t>(static_cast<float>(kLeastMask));
}

// Elements from this magnitude on are of a mask.
double MaskOf(const Array& array) {
  double mask = kInfinite;
  if (!HasLargeElements(array)) return mask;
  for (double largest = GroupOf(array, 0, mask).largest; largest >= kLeastMask;
       largest = GroupOf(array, 0, mask).largest) {
    const Group upper = GroupOf(array, largest / kMaskSpread, mask), lower = GroupOf(array, 0, largest / kMaskSpread);
    const bool apart = lower.count > 0 ? kMaskGap * lower.largest <= upper.least : upper.least == upper.largest;
    if (!upper.negative || upper.least < kLeastMask || !apart) break;
    mask = upper.least;
  }
  return mask;
}

double ScaleOf(const Array& reference, const Tolerance& tolerance) {
  const double rms = MagnitudeOf(reference);
  if (rms > 0) return std::max(rms, std::min(tolerance.magnitude, kLargestScale * rms));
  return tolerance.magnitude > 0 ? tolerance.magnitude : 1;
}

bool IsWide(const Array& array) { return array.dtype == DType::kInt64; }

}  // namespace

InputRange RangeOfInput(const ComputeDag& dag, int placeholder) {
  InputRange range;
  range.both_signs = !NeedsPositiveInputs(dag);
  if (!range.both_signs || !Saturates(dag)) return range;
  const double share = 1 / std::sqrt(static_cast<double>(TermsAsSecondFactor(dag, placeholder)));
  range.low *= share;
  range.high *= share;
  return range;
}

Tolerance ToleranceOf(const ComputeDag& dag, int output, const std::map<int, InputError>& inputs) {
  return ErrorModel(dag, inputs).Of(dag.outputs()[output]);
}

Comparison Compare(const Array& got, const Array& reference, const Tolerance& tolerance) {
  DIAPASON_CHECK(got.dtype == reference.dtype && got.data.size() == reference.data.size());
  Comparison result;
  result.tolerance = tolerance.relative;
  const double scale = ScaleOf(reference, tolerance);
  const int64_t n = got.elements();
  const auto look_at = [&](int64_t i) {
    const double expected = reference.at(i);
    double error = ElementError(got.at(i), expected);
    if (IsWide(got) && error == 0 && got.int_at(i) != reference.int_at(i)) error = 1;
    const double size = std::isfinite(expected) ? std::max(scale, std::fabs(expected)) : scale;
    result.max_abs_error = std::max(result.max_abs_error, error);
    if (error / size <= result.max_rel_error) return;
    result.max_rel_error = error / size;
    result.worst = i;
    result.allowed = tolerance.relative * size;
  };
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    if (got.dtype == DType::kFloat32) {
      const FloatBlock block = LookAt(got.as<float>() + begin, reference.as<float>() + begin, end - begin);
      if (block.finite && block.worst <= result.max_abs_error && block.worst / scale <= result.max_rel_error) continue;
    }
    for (int64_t i = begin; i < end; ++i) look_at(i);
  }
  result.ok = result.max_rel_error <= tolerance.relative;
  return result;
}

double MagnitudeOf(const Array& array) {
  const double mask = MaskOf(array);
  double sum = 0;
  int64_t count = 0;
  for (int64_t begin = 0, n = array.elements(); begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    const bool whole = array.dtype == DType::kFloat32 && mask == kInfinite;
    const double block = whole ? SumOfSquares(array.as<float>() + begin, end - begin) : kNan;
    if (block < kInfinite * kInfinite) {
      sum += block;
      count += end - begin;
      continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      const double value = array.at(i);
      if (!(std::fabs(value) < mask)) continue;
      sum += value * value;
      ++count;
    }
  }
  return count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0;
}

double LargestSaving(const ComputeDag& dag) {
  double saving = 1;
  for (const Stage& stage : dag.stages()) {
    if (SumsProducts(stage)) saving = std::max(saving, 64.0 / 49);
    if (SumsWindows(stage)) saving = 4;
  }
  return saving;
}

}  // namespace diapason
