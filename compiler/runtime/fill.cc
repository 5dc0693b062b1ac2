#include "compiler/runtime/fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "compiler/tensor/compare.h"

namespace diapason {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): one multiply-xorshift round a value, good enough for test data and fast enough
// for hundreds of MiB of weights.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// In [-2^23, 2^23): in units of 2^-23 a number in [-1, 1), exact in float32.
int32_t SignedUnits(uint64_t bits) { return static_cast<int32_t>(bits >> 40) - (1 << 23); }
float SignedUnit(uint64_t bits) { return static_cast<float>(SignedUnits(bits)) / (1 << 23); }

// So many units of 2^-23, at most 2^23 of them, as a half, rounded to nearest.
uint16_t HalfOfUnits(uint32_t units) {
  if (units < 1 << 9) return static_cast<uint16_t>(2 * units);  // subnormal
  const int exponent = std::bit_width(units) - 1, shift = exponent - 10;
  const uint32_t significand =
      shift <= 0 ? units << -shift : (units + (1u << (shift - 1)) - 1 + (units >> shift & 1)) >> shift;
  return static_cast<uint16_t>(((exponent - 8) << 10) + significand - (1 << 10));
}

uint16_t Bfloat16OfUnits(uint32_t units) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(units) / (1 << 23));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int64_t InRange(uint64_t bits, int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (width == 0 ? bits : bits % width));
}

// What rounds to more than `most` becomes that.
template <typename OfUnits>
void FillNarrow(Array& array, float most, Random& random, OfUnits of_units) {
  uint16_t* const to = array.as<uint16_t>();
  const uint16_t largest = FloatToNarrow(array.dtype, most);
  for (int64_t i = 0, n = array.elements(); i < n; ++i) {
    const int32_t units = SignedUnits(random.Next());
    const uint16_t magnitude = of_units(static_cast<uint32_t>(std::abs(units)));
    to[i] = units < 0 ? magnitude | 0x8000 : std::min(magnitude, largest);
  }
}

double MovedIntoRange(double drawn, const InputRange& range) {
  const double magnitude = range.low + (range.high - range.low) * 0.999 * std::fabs(drawn);
  return range.both_signs && drawn < 0 ? -magnitude : magnitude;
}

// Elements become what MovedIntoRange makes of them.
void MoveIntoRange(Array& array, const InputRange& range) {
  const int64_t n = array.elements();
  constexpr int64_t kNarrowNumbers = 1 << 16;
  if (array.dtype == DType::kFloat32) {
    float* const values = array.as<float>();
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(MovedIntoRange(values[i], range));
  } else if (IsNarrowFloat(array.dtype) && n > kNarrowNumbers) {
    std::vector<uint16_t> moved(kNarrowNumbers);
    for (int64_t bits = 0; bits < kNarrowNumbers; ++bits) {
      const double drawn = NarrowToFloat(array.dtype, static_cast<uint16_t>(bits));
      moved[bits] = FloatToNarrow(array.dtype, static_cast<float>(MovedIntoRange(drawn, range)));
    }
    uint16_t* const values = array.as<uint16_t>();
    for (int64_t i = 0; i < n; ++i) values[i] = moved[values[i]];
  } else {
    for (int64_t i = 0; i < n; ++i) array.set(i, MovedIntoRange(array.at(i), range));
  }
}

}  // namespace

void FillRandom(Array& array, uint64_t seed, int64_t valid_min, int64_t valid_max) {
  Random random(seed);
  const int64_t n = array.elements();
  switch (array.dtype) {
    case DType::kFloat32:
      for (int64_t i = 0; i < n; ++i) array.as<float>()[i] = SignedUnit(random.Next());
      break;
    // The conversion rounds to nearest, so what lies within 2^-12 (bfloat16: 2^-9) of 1 would become 1: moved just
    // inside.
    case DType::kFloat16: FillNarrow(array, 0.9995f, random, HalfOfUnits); break;
    case DType::kBfloat16: FillNarrow(array, 0.996f, random, Bfloat16OfUnits); break;
    case DType::kFloat64:
      for (int64_t i = 0; i < n; ++i) array.as<double>()[i] = SignedUnit(random.Next());
      break;
    case DType::kBool:
      for (int64_t i = 0; i < n; ++i) array.data[i] = random.Next() >> 63;
      break;
    default:
      for (int64_t i = 0; i < n; ++i)
        array.set_int(i, InRange(random.Next(), valid_min, std::max(valid_min, valid_max)));
  }
}

Array RandomInput(const ComputeDag& dag, int stage_id, uint64_t seed) {
  const Stage& stage = dag.stage(stage_id);
  Array array(stage.dtype, stage.shape());
  const uint64_t own_seed = seed * 0x100000001b3ull + static_cast<uint64_t>(stage_id);
  if (!IsFloat(stage.dtype)) {
    const IntegerRange range = DrawnIntegers(dag, stage_id);
    FillRandom(array, own_seed, range.low, range.high);
    return array;
  }
  FillRandom(array, own_seed);
  MoveIntoRange(array, RangeOfInput(dag, stage_id));
  return array;
}

absl::Status FillForMeasuring(Executable& executable, uint64_t seed) {
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    DeviceBuffer* to = executable.buffer(static_cast<int>(i));
    DIAPASON_CHECK_MSG(to != nullptr, buffers[i].name);
    if (buffers[i].role != BufferRole::kInput && buffers[i].role != BufferRole::kConstant) {
      RETURN_IF_ERROR(executable.device().Fill(*to, 0xff));
      continue;
    }
    Array values(buffers[i].dtype, {buffers[i].elements});
    const uint64_t own_seed = Random(seed * 0x100000001b3ull + i).Next();
    IntegerRange range{buffers[i].valid_min, buffers[i].valid_max};
    if (IsByte(buffers[i].dtype)) range = DrawnIntegers(buffers[i].dtype, range.low, range.high);
    FillRandom(values, own_seed, range.low, range.high);
    RETURN_IF_ERROR(executable.device().CopyIn(*to, values.data.data(), buffers[i].bytes()));
  }
  return absl::OkStatus();
}

}  // namespace diapason
