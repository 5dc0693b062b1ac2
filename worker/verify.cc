#include "worker/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
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

// Error of one element: infinity where only one is finite or they are different infinities.
double ElementError(double got, double reference) {
  if (std::isfinite(got) && std::isfinite(reference)) return std::fabs(got - reference);
  bool same = (std::isnan(got) && std::isnan(reference)) || got == reference;
  return same ? 0 : std::numeric_limits<double>::infinity();
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
    for (int64_t i = 0, n = got[o].elements(); i < n; ++i) {
      double expected = reference[o].at(i);
      if (std::isfinite(expected)) largest = std::max(largest, std::fabs(expected));
      double error = ElementError(got[o].at(i), expected);
      if (error > worst) {
        worst = error;
        worst_at = i;
      }
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
  if (!IsFloat(output.dtype)) return -1;
  const auto width = static_cast<size_t>(BytesOf(output.dtype));
  const uint8_t poison[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  for (int64_t i = 0, n = output.elements(); i < n; ++i) {
    if (std::memcmp(output.data.data() + static_cast<size_t>(i) * width, poison, width) == 0) return i;
  }
  return -1;
}

int64_t FirstNonFinite(const Array& output) {
  if (!IsFloat(output.dtype)) return -1;
  for (int64_t i = 0, n = output.elements(); i < n; ++i) {
    if (!std::isfinite(output.at(i))) return i;
  }
  return -1;
}

}  // namespace diapason
