#include "worker/process/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/tensor/compare.h"

namespace diapason {
namespace {

// Elements that are looked at together: a block without a number that is not finite is the rule, and is detected by a
// loop that the compiler makes vectors of. Outputs of a large batch have 10 million elements, and every candidate's are
// looked at.
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

std::string Describe(const Stage& stage, int64_t element, double got, double reference, double limit) {
  std::string index;
  std::vector<int64_t> shape = stage.shape();
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) {
    index = std::to_string(element % shape[d]) + (index.empty() ? "" : ", ") + index;
  }
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), "is %.9g where the reference implementation has %.9g (allowed error %.3g)",
                got, reference, limit);
  return "'" + stage.name + "' [" + index + "] " + numbers;
}

}  // namespace

OutputComparison CompareOutputs(const ComputeDag& dag, const std::vector<Array>& got,
                                const std::vector<Array>& reference, double tf32) {
  OutputComparison result;
  double most = -1;
  for (size_t o = 0; o < got.size(); ++o) {
    const Comparison one = Compare(got[o], reference[o], ToleranceOf(dag, static_cast<int>(o), {}, tf32));
    result.ok = result.ok && one.ok;
    result.max_abs_error = std::max(result.max_abs_error, one.max_abs_error);
    const double share = one.max_rel_error == 0 ? 0 : one.max_rel_error / one.tolerance;  // infinite for integers
    if (share <= most) continue;
    most = share;
    result.max_rel_error = one.max_rel_error;
    result.tolerance = one.tolerance;
    if (one.ok) continue;
    result.text =
        Describe(dag.stage(dag.outputs()[o]), one.worst, got[o].at(one.worst), reference[o].at(one.worst), one.allowed);
  }
  return result;
}

int64_t FirstUnwritten(const Array& output) {
  switch (output.dtype) {
    case DType::kFloat16:
    case DType::kBfloat16: return FirstThat<uint16_t>(output, [](uint16_t bits) { return bits == 0xffff; });
    case DType::kFloat32: return FirstThat<uint32_t>(output, [](uint32_t bits) { return bits == 0xffffffff; });
    case DType::kFloat64: return FirstThat<uint64_t>(output, [](uint64_t bits) { return bits == ~uint64_t{0}; });
    default: return -1;
  }
}

int64_t FirstNonFinite(const Array& output) {
  switch (output.dtype) {  // numbers that are not finite have all bits of the exponent
    case DType::kFloat16: return FirstThat<uint16_t>(output, [](uint16_t bits) { return (bits & 0x7c00) == 0x7c00; });
    case DType::kBfloat16: return FirstThat<uint16_t>(output, [](uint16_t bits) { return (bits & 0x7f80) == 0x7f80; });
    case DType::kFloat32:
      return FirstThat<uint32_t>(output, [](uint32_t bits) { return (bits & 0x7f800000) == 0x7f800000; });
    case DType::kFloat64:
      return FirstThat<uint64_t>(output, [](uint64_t bits) { return (bits << 1) >= uint64_t{0xffe} << 52; });
    default: return -1;
  }
}

}  // namespace diapason
