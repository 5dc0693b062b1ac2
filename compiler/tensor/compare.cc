#include "compiler/tensor/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "base/check.h"

namespace diapason {
namespace {

constexpr double kSumGrowth = 4, kStrassen = 4, kWinograd = 8, kWinogradTransforms = 320, kTruncation = 1.0 / 12;
constexpr double kFunctionRoundings = 32, kStageRoundings = 8;
// Two roundings to a narrow float, of the last store at most, relative to the spacing of its numbers; and 5.5 standard
// deviations of one before it.
constexpr double kStored = 1.6;
// A whole step of integers, which is what errors of rounded numbers are, is rounded itself once it is scaled.
constexpr double kStepRounding = 1 + 1e-5;
constexpr double kTf32Spacing = 0x1p-10;  // of TensorFloat-32, relative, as of float16
// Typical magnitude up to which integers are taken to be exact in float32: a quarter of the largest such integer.
constexpr double kMostWhole = 0x1p22;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestScale = 8;  // over the reference's root mean square
// What is rounded to integers is drawn with this magnitude, so that most of it is within the numbers of 8 bits.
constexpr double kRoundedMagnitude = 64;
// Constants that are added to sums of products of bytes.
constexpr int64_t kMostBias = 1000;
// From this share on elements that jump are not few: their error is one of all elements.
constexpr double kFew = 0.05;
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
  double jump = 0, share = 0;  // an error of a share of the elements, beyond `error`
  bool whole = false;          // integers, in whatever type
  // Between which all elements lie, where they are cut off there.
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
};

// Root mean square of numbers that are uniform in [low, high].
double UniformMagnitude(double low, double high) { return std::sqrt((low * low + low * high + high * high) / 3); }

// Of values of either operand that a result changes by `slope` times.
void AddJumps(const Estimate& operand, double slope, Estimate* result) {
  if (operand.share == 0) return;
  result->jump += slope * operand.jump;
  result->share += operand.share;
}

// Jumps of many elements are an error of all.
Estimate Settled(Estimate e) {
  if (e.share < kFew) return e;
  e.error = std::hypot(e.error, e.jump);
  e.jump = e.share = 0;
  return e;
}

class ErrorModel {
 public:
  // `ranges` of float placeholders of which nothing else is known.
  // `tf32`: float32 factors may be rounded to TensorFloat-32.
  ErrorModel(const ComputeDag& dag, const std::function<InputRange(int)>& ranges,
             const std::map<int, InputError>& inputs = {}, bool tf32 = false)
      : dag_(dag), tf32_(tf32) {
    for (int id = 0; id < dag.size(); ++id) {
      const Stage& stage = dag.stage(id);
      stages_.push_back(stage.placeholder ? OfPlaceholder(id, ranges, inputs) : OfStage(stage));
    }
  }

  Tolerance Of(int id) const {
    const Stage& stage = dag_.stage(id);
    const Estimate& e = stages_[id];
    if (!IsFloat(stage.dtype) && e.error == 0 && e.share == 0) return {};
    const double magnitude = std::max(e.magnitude, std::numeric_limits<double>::min());
    const double steps = IsFloat(stage.dtype) ? kStepRounding : 1;
    return {steps * e.error / magnitude + SpacingOf(stage.dtype), magnitude, steps * e.jump, e.share};
  }

  // The largest of what is rounded; 0 where nothing is.
  double rounded() const { return rounded_; }

 private:
  Estimate OfPlaceholder(int id, const std::function<InputRange(int)>& ranges,
                         const std::map<int, InputError>& inputs) const {
    const Stage& stage = dag_.stage(id);
    const bool is_float = IsFloat(stage.dtype);
    const IntegerRange integers = is_float ? IntegerRange{} : DrawnIntegers(dag_, id);
    if (const auto known = inputs.find(id); known != inputs.end() && (is_float || known->second.magnitude > 0)) {
      const InputError& of = known->second;
      return Settled({of.magnitude, of.error, !is_float && integers.low >= 0, of.jump, of.share, !is_float});
    }
    if (!is_float) {
      const double low = static_cast<double>(integers.low), high = static_cast<double>(integers.high);
      return {std::max(1.0, UniformMagnitude(low, high)), 0, low >= 0, 0, 0, true};
    }
    const InputRange range = ranges(id);
    return {UniformMagnitude(range.low, range.high), 0, !range.both_signs};
  }

  Estimate OfStage(const Stage& stage) {
    u_ = RoundoffOf(stage.dtype);  // integers: of floats that become integers
    Estimate e = stage.reduces() ? Reduced(stage, Of(stage.body)) : Of(stage.body);
    const bool exact = IsExact(e) && stage.combiner != Combiner::kProd;
    if (IsFloat(stage.dtype) && !exact) e.error = std::hypot(e.error, kStageRoundings * u_ * e.magnitude);
    if (IsNarrowFloat(stage.dtype) && !dag_.is_output(static_cast<int>(stages_.size())))
      e.error = std::hypot(e.error, kStored * SpacingOf(stage.dtype) * e.magnitude);
    return Settled(e);
  }

  Estimate Reduced(const Stage& stage, Estimate term) const {
    if (tf32_ && SumsProducts(stage) && stage.dtype == DType::kFloat32)
      term.error = std::hypot(term.error, std::sqrt(2.0) * kStored * kTf32Spacing * term.magnitude);
    const double n = static_cast<double>(stage.terms()), root = std::sqrt(n);
    Estimate e;
    e.whole = term.whole;
    // One of the terms, and what few standard deviations of their number add.
    const double jumping = n * term.share;
    if (term.share > 0) {
      e.jump = term.jump * (1 + jumping + 5 * std::sqrt(jumping));
      e.share = std::min(1.0, jumping);
    }
    switch (stage.combiner) {
      case Combiner::kMax:
      case Combiner::kMin:
        e.magnitude = term.magnitude;
        e.error = term.error;
        e.nonnegative = term.nonnegative;
        e.jump = term.jump;
        return e;
      case Combiner::kProd:
        e.magnitude = std::pow(term.magnitude, n);
        e.error = root * std::pow(term.magnitude, n - 1) * term.error;
        e.nonnegative = term.nonnegative;
        e.jump *= std::pow(term.magnitude, n - 1);
        return e;
      default:
        e.magnitude = (term.nonnegative ? n : root) * term.magnitude;
        e.error = (term.nonnegative ? n : root) * term.error;
        e.nonnegative = term.nonnegative;
        // Of whole terms, all partial sums are whole; not so what faster algorithms for products sum.
        if (IsFloat(stage.dtype) && !(IsExact(term) && n * term.magnitude < kMostWhole && !SumsProducts(stage)))
          e.error = std::hypot(e.error, u_ * e.magnitude * RoundingsOf(stage));
        return e;
    }
  }

  Estimate Of(const Expr& expr) {
    const ExprNode& e = *expr;
    switch (e.kind) {
      case ExprKind::kIntImm: return {std::fabs(static_cast<double>(e.value)), 0, e.value >= 0, 0, 0, true};
      case ExprKind::kFloatImm:
        return {StandsForInfinity(e.fvalue) ? 0 : std::fabs(e.fvalue),          0, e.fvalue >= 0, 0, 0,
                std::isfinite(e.fvalue) && std::nearbyint(e.fvalue) == e.fvalue};
      case ExprKind::kLoad: return stages_[e.buffer];
      case ExprKind::kAdd:
      case ExprKind::kSub:
        if (const Expr* wrapped = WrappedIn(e)) return Of(*wrapped);
        return OfSum(Of(e.args[0]), Of(e.args[1]), e);
      case ExprKind::kFloorMod: return OfRemainder(e);
      case ExprKind::kMul: return OfProduct(Of(e.args[0]), Of(e.args[1]), e);
      case ExprKind::kDiv: return OfProduct(Of(e.args[0]), Inverse(Of(e.args[1])), e);
      case ExprKind::kMin:
      case ExprKind::kMax: return OfExtremum(e);
      case ExprKind::kSelect: return Larger(Of(e.args[1]), Of(e.args[2]), false);
      case ExprKind::kCast: return OfCast(e);
      case ExprKind::kCall: return OfCall(e);
      default: return {1, 0, true, 0, 0, true};  // comparisons and index arithmetic
    }
  }

  // Integers that float32 holds.
  static bool IsExact(const Estimate& e) { return e.whole && e.error == 0 && e.magnitude < kMostWhole; }
  // Of one operation of a type.
  double RoundoffAt(const ExprNode& e) const { return IsFloat(e.dtype) ? u_ : 0; }

  Estimate OfSum(const Estimate& a, const Estimate& b, const ExprNode& node) const {
    Estimate e;
    e.nonnegative = node.kind == ExprKind::kAdd && a.nonnegative && b.nonnegative;
    e.magnitude = e.nonnegative ? a.magnitude + b.magnitude : std::hypot(a.magnitude, b.magnitude);
    // Sums of small integers are exact in float32, too.
    e.whole = a.whole && b.whole;
    e.error = std::hypot(a.error, b.error, (e.whole ? 0 : RoundoffAt(node)) * e.magnitude);
    AddJumps(a, 1, &e);
    AddJumps(b, 1, &e);
    return e;
  }
  Estimate OfProduct(const Estimate& a, const Estimate& b, const ExprNode& node) const {
    Estimate e;
    e.magnitude = a.magnitude * b.magnitude;
    e.error = std::hypot(a.error * b.magnitude, b.error * a.magnitude, RoundoffAt(node) * e.magnitude);
    e.nonnegative = a.nonnegative && b.nonnegative;
    e.whole = node.kind == ExprKind::kMul && a.whole && b.whole;
    AddJumps(a, b.magnitude, &e);
    AddJumps(b, a.magnitude, &e);
    return e;
  }
  // The x of (x + c) mod 2c - c, which wraps integers to a narrower signed type; null for other expressions.
  static const Expr* WrappedIn(const ExprNode& e) {
    if (e.kind != ExprKind::kSub || e.args[0]->kind != ExprKind::kFloorMod) return nullptr;
    const ExprNode& remainder = *e.args[0];
    const std::optional<double> half = ConstantOf(*e.args[1]), whole = ConstantOf(*remainder.args[1]);
    if (remainder.args[0]->kind != ExprKind::kAdd || !half || !whole || *whole != 2 * *half) return nullptr;
    return ConstantOf(*remainder.args[0]->args[1]) == half ? &remainder.args[0]->args[0] : nullptr;
  }
  // Numbers that are mostly below the divisor.
  Estimate OfRemainder(const ExprNode& e) {
    Estimate x = Of(e.args[0]);
    const std::optional<double> divisor = ConstantOf(*e.args[1]);
    if (!divisor || !x.whole || x.magnitude > *divisor) return {1, 0, true, 0, 0, true};
    x.nonnegative = true;
    return x;
  }
  static Estimate Inverse(const Estimate& a) {
    const double b = std::max(a.magnitude, 1e-30);
    return {1 / b, a.error / (b * b), a.nonnegative, a.jump / (b * b), a.share};
  }
  Estimate OfExtremum(const ExprNode& e) {
    const bool is_max = e.kind == ExprKind::kMax;
    const Estimate a = Of(e.args[0]), b = Of(e.args[1]);
    if (const std::optional<double> limit = ConstantOf(*e.args[1])) return Limited(a, b, *limit, is_max);
    if (const std::optional<double> limit = ConstantOf(*e.args[0])) return Limited(b, a, *limit, is_max);
    return Larger(a, b, is_max);
  }
  static std::optional<double> ConstantOf(const ExprNode& e) {
    if (e.kind == ExprKind::kFloatImm) return e.fvalue;
    if (e.kind == ExprKind::kIntImm) return static_cast<double>(e.value);
    return std::nullopt;
  }
  // A limit on the other side of zero than what it lets through says nothing of how large that is: of values around
  // 0.1, min(x, 6) is around 0.1.
  static Estimate Limited(const Estimate& x, const Estimate& constant, double limit, bool is_max) {
    Estimate e = Larger(x, constant, is_max);
    e.least = is_max ? std::max(x.least, limit) : x.least;
    e.most = is_max ? x.most : std::min(x.most, limit);
    if (is_max ? limit <= 0 : limit >= 0) e.magnitude = x.magnitude;
    const double low = e.nonnegative ? std::max(e.least, 0.0) : e.least;
    const double bound = std::max(std::fabs(low), std::fabs(e.most));
    if (bound > 0) e.magnitude = std::min(e.magnitude, bound);
    return e;
  }
  static Estimate Larger(const Estimate& a, const Estimate& b, bool either) {
    return {std::max(a.magnitude, b.magnitude),
            std::max(a.error, b.error),
            either ? a.nonnegative || b.nonnegative : a.nonnegative && b.nonnegative,
            std::max(a.jump, b.jump),
            a.share + b.share,
            a.whole && b.whole};
  }
  Estimate OfCast(const ExprNode& e) {
    Estimate value = Of(e.args[0]);
    if (!IsFloat(e.dtype)) return value.whole ? value : Rounded(value);
    value.error = std::hypot(value.error, kStored * SpacingOf(e.dtype) * value.magnitude);
    if (!IsFloat(e.args[0]->dtype) && !IsExact(value)) value.error = std::hypot(value.error, u_ * value.magnitude);
    return value;
  }

  // To the nearest integer: of an error of e steps, a share of 2e crosses a middle.
  static Estimate Rounded(Estimate x) {
    if (x.error > 0 || x.share > 0) {
      x.jump = std::floor(x.jump + x.error) + 1;
      x.share = std::min(1.0, x.share + 2 * x.error);
      x.error = 0;
    }
    x.whole = true;
    return Settled(x);
  }

  Estimate OfCall(const ExprNode& e) {
    const Estimate x = Of(e.args[0]);
    const double m = std::max(x.magnitude, 1e-30);
    const auto with = [&](double magnitude, double slope, bool nonnegative) {
      Estimate result{magnitude, std::hypot(slope * x.error, kFunctionRoundings * u_ * magnitude), nonnegative};
      AddJumps(x, slope, &result);
      return result;
    };
    if (e.name == "abs") return {x.magnitude, x.error, true, x.jump, x.share, x.whole};
    if (e.name == "round") {
      rounded_ = std::max(rounded_, x.magnitude);
      return Rounded(x);
    }
    // Of places between elements, of which the fraction is used as well: together they are continuous.
    if (e.name == "floor" || e.name == "ceil") return {x.magnitude, x.error, x.nonnegative, x.jump, x.share, true};
    if (e.name == "bfloat16")
      return {x.magnitude, std::hypot(x.error, kStored * SpacingOf(DType::kBfloat16) * x.magnitude), x.nonnegative,
              x.jump, x.share};
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
  const bool tf32_;
  std::vector<Estimate> stages_;
  double u_ = 0;  // of the stage that is looked at
  double rounded_ = 0;
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

// The largest bits without the sign.
template <typename Bits>
Bits LargestBits(const Bits* values, int64_t n) {
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() >> 1;
  Bits largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max<Bits>(largest, values[i] & kMagnitude);
  return largest;
}

// False, after one pass by vectors, for most arrays; NaN and infinity count as large.
bool HasLargeElements(const Array& array) {
  const auto least = static_cast<float>(kLeastMask);
  if (array.dtype == DType::kFloat32)
    return LargestBits(array.as<uint32_t>(), array.elements()) >= std::bit_cast<uint32_t>(least);
  if (IsNarrowFloat(array.dtype))
    return LargestBits(array.as<uint16_t>(), array.elements()) >= FloatToNarrow(array.dtype, least);
  return true;
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

// The element with the largest error.
struct Worst {
  double error = 0, allowed = 0;  // relative; absolute
  int64_t at = -1;
  void Take(int64_t i, double relative, double most) {
    if (relative <= error) return;
    error = relative;
    allowed = most;
    at = i;
  }
};

bool IsWide(const Array& array) { return array.dtype == DType::kInt64; }

InputRange RangeWithoutRounding(const ComputeDag& dag, int placeholder) {
  InputRange range;
  range.both_signs = !NeedsPositiveInputs(dag);
  if (!range.both_signs || !Saturates(dag)) return range;
  const double share = 1 / std::sqrt(static_cast<double>(TermsAsSecondFactor(dag, placeholder)));
  range.low *= share;
  range.high *= share;
  return range;
}

bool ReadsBytes(const ComputeDag& dag) {
  return std::any_of(dag.stages().begin(), dag.stages().end(),
                     [](const Stage& stage) { return stage.placeholder && IsByte(stage.dtype); });
}

// Float placeholders that scale something that the dag computes, with 1 for factors and -1 for divisors.
std::map<int, int> ScalesOf(const ComputeDag& dag) {
  std::map<int, int> scales;
  const auto placeholder = [&](const Expr& e) {
    const int stage = OperandOf(*e);
    return stage >= 0 && dag.stage(stage).placeholder && IsFloat(dag.stage(stage).dtype) ? stage : -1;
  };
  for (const Stage& stage : dag.stages()) {
    if (stage.body == nullptr || stage.reduces()) continue;
    Visit(stage.body, [&](const ExprNode& node) {
      if (node.kind != ExprKind::kMul && node.kind != ExprKind::kDiv) return;
      const int first = placeholder(node.args[0]), second = placeholder(node.args[1]);
      if (first < 0 && second >= 0) scales[second] = node.kind == ExprKind::kMul ? 1 : -1;
      if (second < 0 && first >= 0 && node.kind == ExprKind::kMul) scales[first] = 1;
    });
  }
  return scales;
}

// What the placeholder is multiplied by, so that what the dag rounds has the magnitude above.
double ScaleOfRounded(const ComputeDag& dag, int placeholder) {
  if (!Calls(dag, {"round"})) return 1;
  const std::map<int, int> scales = ScalesOf(dag);
  const auto own = scales.find(placeholder);
  if (own == scales.end()) return 1;
  const double rounded = ErrorModel(dag, [&](int id) { return RangeWithoutRounding(dag, id); }).rounded();
  if (!(rounded > 0) || !std::isfinite(rounded)) return 1;
  return std::pow(kRoundedMagnitude / rounded, own->second / static_cast<double>(scales.size()));
}

}  // namespace

int64_t ElementsOf(double share, int64_t n) {
  const double expected = share * static_cast<double>(n);
  return share > 0 ? static_cast<int64_t>(std::ceil(expected + 5 * std::sqrt(expected))) + 1 : 0;
}

IntegerRange DrawnIntegers(DType dtype, int64_t valid_min, int64_t valid_max) {
  if (valid_min != 0 || valid_max != 0) return {valid_min, valid_max};
  if (dtype == DType::kInt8) return {-128, 127};
  return dtype == DType::kUint8 ? IntegerRange{0, 255} : IntegerRange{0, 1};
}

IntegerRange DrawnIntegers(const ComputeDag& dag, int placeholder) {
  const Stage& stage = dag.stage(placeholder);
  const bool bias = stage.dtype == DType::kInt32 && stage.constant && ReadsBytes(dag);
  if (bias && !stage.has_valid_range()) return {-kMostBias, kMostBias};
  return DrawnIntegers(stage.dtype, stage.valid_min, stage.valid_max);
}

InputRange RangeOfInput(const ComputeDag& dag, int placeholder) {
  InputRange range = RangeWithoutRounding(dag, placeholder);
  const double scale = ScaleOfRounded(dag, placeholder);
  range.low *= scale;
  range.high *= scale;
  return range;
}

Tolerance ToleranceOf(const ComputeDag& dag, int output, const std::map<int, InputError>& inputs, double tf32) {
  const auto range = [&](int placeholder) { return RangeOfInput(dag, placeholder); };
  const Tolerance exact = ErrorModel(dag, range, inputs).Of(dag.outputs()[output]);
  if (tf32 == 0) return exact;
  Tolerance rounded = ErrorModel(dag, range, inputs, /*tf32=*/true).Of(dag.outputs()[output]);
  rounded.relative = std::max(exact.relative, std::min(rounded.relative, tf32));
  return rounded;
}

Comparison Compare(const Array& got, const Array& reference, const Tolerance& tolerance) {
  DIAPASON_CHECK(got.dtype == reference.dtype && got.data.size() == reference.data.size());
  Comparison result;
  result.tolerance = tolerance.relative;
  const double scale = ScaleOf(reference, tolerance);
  const int64_t n = got.elements();
  Worst all, others;  // others: those that did not jump
  const auto look_at = [&](int64_t i) {
    const double expected = reference.at(i);
    double error = ElementError(got.at(i), expected);
    if (IsWide(got) && error == 0 && got.int_at(i) != reference.int_at(i)) error = 1;
    const double size = std::isfinite(expected) ? std::max(scale, std::fabs(expected)) : scale;
    const double allowed = tolerance.relative * size;
    result.max_abs_error = std::max(result.max_abs_error, error);
    all.Take(i, error / size, allowed);
    if (error > allowed && error <= allowed + tolerance.jump)
      ++result.jumps;
    else
      others.Take(i, error / size, allowed);
  };
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    if (got.dtype == DType::kFloat32) {
      const FloatBlock block = LookAt(got.as<float>() + begin, reference.as<float>() + begin, end - begin);
      if (block.finite && block.worst <= result.max_abs_error && block.worst / scale <= others.error) continue;
    }
    for (int64_t i = begin; i < end; ++i) look_at(i);
  }
  const Worst& worst = result.jumps <= ElementsOf(tolerance.share, n) ? others : all;
  result.max_rel_error = worst.error;
  result.worst = worst.at;
  result.allowed = worst.allowed;
  result.ok = result.max_rel_error <= tolerance.relative;
  return result;
}

double MagnitudeOf(const Array& array) {
  const double mask = MaskOf(array);
  double sum = 0;
  int64_t count = 0;
  float floats[kBlock];
  for (int64_t begin = 0, n = array.elements(); begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    double block = kNan;
    if (mask == kInfinite && array.dtype == DType::kFloat32) {
      block = SumOfSquares(array.as<float>() + begin, end - begin);
    } else if (mask == kInfinite && IsNarrowFloat(array.dtype)) {
      WidenFloats(array, begin, end, floats);
      block = SumOfSquares(floats, end - begin);
    }
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
