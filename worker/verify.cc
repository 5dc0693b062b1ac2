#include "worker/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "compiler/runtime/fill.h"

namespace diapason {
namespace {

constexpr double kReductionBase = 1024;

// True if a part of the dag is not defined, or explodes, for negative numbers or numbers around zero.
bool NeedsPositiveInputs(const ComputeDag& dag) {
  static const auto* const partial = new std::set<std::string>{"log", "sqrt", "rsqrt", "pow"};
  bool found = false;
  for (const Stage& stage : dag.stages()) {
    if (stage.body == nullptr) continue;
    Visit(stage.body, [&](const ExprNode& node) {
      found |= node.kind == ExprKind::kDiv && node.args[1]->kind != ExprKind::kFloatImm;
      found |= node.kind == ExprKind::kCall && partial->contains(node.name);
    });
  }
  return found;
}

double BaseTolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 1e-2;
    case DType::kFloat32:
      return 1e-4;
    case DType::kFloat64:
      return 1e-9;
    default:
      return 0;
  }
}

int64_t LongestReduction(const ComputeDag& dag) {
  int64_t longest = 1;
  for (const Stage& stage : dag.stages()) longest = std::max(longest, stage.terms());
  return longest;
}

// Elements that are looked at together: a block without a number that is not finite is the rule, and is told by a loop that
// the compiler makes vectors of. Outputs of a large batch have 10 million elements, and every candidate's are looked at.
constexpr int64_t kBlock = 4096;

// The first element whose bits satisfy `is_it`; -1 if there is none.
template <typename Bits, typename Predicate>
int64_t FirstThat(const Array& array, Predicate is_it) {
  const Bits* bits = array.as<Bits>();
  const int64_t n = array.elements();
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    unsigned found = 0;
    for (int64_t i = begin; i < end; ++i) found |= is_it(bits[i]);
    if (found == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if (is_it(bits[i])) return i;
  }
  return -1;
}

// Error of one element: infinity where only one is finite or they are different infinities.
double ElementError(double got, double reference) {
  if (std::isfinite(got) && std::isfinite(reference)) return std::fabs(got - reference);
  bool same = (std::isnan(got) && std::isnan(reference)) || got == reference;
  return same ? 0 : std::numeric_limits<double>::infinity();
}

// At least the largest magnitude of the reference and the largest error, when all numbers are finite.
struct FloatBlock {
  bool finite = true;
  double largest = 0, worst = 0;
};

// Floats without their signs are in the order of their bits, and the largest integer is found by vectors.
FloatBlock LookAt(const float* got, const float* reference, int64_t n) {
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  int32_t largest = 0, worst = 0, largest_got = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t value = std::bit_cast<int32_t>(got[i]) & kMagnitude;
    const int32_t expected = std::bit_cast<int32_t>(reference[i]) & kMagnitude;
    const int32_t error = std::bit_cast<int32_t>(got[i] - reference[i]) & kMagnitude;
    largest_got = std::max(largest_got, value);
    largest = std::max(largest, expected);
    worst = std::max(worst, error);
  }
  // Of two differences one may be rounded down to the other: a little more than what was found.
  return {std::max(largest, largest_got) < kInfinity, std::bit_cast<float>(largest),
          1.000001 * std::bit_cast<float>(worst)};
}

std::string Describe(const Stage& stage, int64_t element, double got, double reference, double limit) {
  std::string index;
  std::vector<int64_t> shape = stage.shape();
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) {
    index = std::to_string(element % shape[d]) + (index.empty() ? "" : ", ") + index;
  }
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), "is %.9g where the naive evaluation has %.9g (allowed error %.3g)", got,
                reference, limit);
  return "'" + stage.name + "' [" + index + "] " + numbers;
}

}  // namespace

Array RandomInput(const ComputeDag& dag, int stage_id, uint64_t seed) {
  const Stage& stage = dag.stage(stage_id);
  Array array(stage.dtype, stage.shape());
  FillRandom(array, seed * 0x100000001b3ull + static_cast<uint64_t>(stage_id), stage.valid_min, stage.valid_max);
  if (!IsFloat(stage.dtype) || !NeedsPositiveInputs(dag)) return array;
  for (int64_t i = 0, n = array.elements(); i < n; ++i) array.set(i, 0.5 + 0.499 * std::fabs(array.at(i)));
  return array;
}

double RelativeTolerance(const ComputeDag& dag, int output) {
  if (!IsFloat(dag.stage(output).dtype)) return 0;
  double base = 0;
  for (const Stage& stage : dag.stages()) base = std::max(base, BaseTolerance(stage.dtype));
  double growth = std::sqrt(static_cast<double>(LongestReduction(dag)) / kReductionBase);
  return base * std::max(1.0, growth);
}

Comparison CompareOutputs(const ComputeDag& dag, const std::vector<Array>& got, const std::vector<Array>& reference) {
  Comparison result;
  for (size_t o = 0; o < got.size(); ++o) {
    int id = dag.outputs()[o];
    double largest = 0, worst = 0;
    int64_t worst_at = -1;
    const auto look_at = [&](int64_t i, double value, double expected) {
      if (std::isfinite(expected)) largest = std::max(largest, std::fabs(expected));
      const double error = ElementError(value, expected);
      if (error > worst) {
        worst = error;
        worst_at = i;
      }
    };
    const int64_t n = got[o].elements();
    const bool floats = got[o].dtype == DType::kFloat32 && reference[o].dtype == DType::kFloat32;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      if (floats) {
        const FloatBlock block = LookAt(got[o].as<float>() + begin, reference[o].as<float>() + begin, end - begin);
        if (block.finite && block.largest <= largest && block.worst <= worst) continue;
      }
      for (int64_t i = begin; i < end; ++i) look_at(i, got[o].at(i), reference[o].at(i));
    }
    // A reference of nothing but zeros leaves no scale; the smallest normal half is one that no network cares for.
    double scale = std::max(largest, 6e-5);
    double tolerance = RelativeTolerance(dag, id);
    double relative = worst / scale;
    bool bad = relative > tolerance;
    if (bad && result.ok) {
      result.text =
          Describe(dag.stage(id), worst_at, got[o].at(worst_at), reference[o].at(worst_at), tolerance * scale);
    }
    result.ok = result.ok && !bad;
    if (o == 0 || relative > result.max_rel_error) result.tolerance = tolerance;
    result.max_abs_error = std::max(result.max_abs_error, worst);
    result.max_rel_error = std::max(result.max_rel_error, relative);
  }
  return result;
}

int64_t FirstUnwritten(const Array& output) {
  switch (output.dtype) {
    case DType::kFloat16:
      return FirstThat<uint16_t>(output, [](uint16_t bits) { return bits == 0xffff; });
    case DType::kFloat32:
      return FirstThat<uint32_t>(output, [](uint32_t bits) { return bits == 0xffffffff; });
    case DType::kFloat64:
      return FirstThat<uint64_t>(output, [](uint64_t bits) { return bits == ~uint64_t{0}; });
    default:
      return -1;
  }
}

int64_t FirstNonFinite(const Array& output) {
  switch (output.dtype) {  // numbers that are not finite have all bits of the exponent
    case DType::kFloat16:
      return FirstThat<uint16_t>(output, [](uint16_t bits) { return (bits & 0x7c00) == 0x7c00; });
    case DType::kFloat32:
      return FirstThat<uint32_t>(output, [](uint32_t bits) { return (bits & 0x7f800000) == 0x7f800000; });
    case DType::kFloat64:
      return FirstThat<uint64_t>(output, [](uint64_t bits) { return (bits << 1) >= uint64_t{0xffe} << 52; });
    default:
      return -1;
  }
}

}  // namespace diapason
