#include "compiler/runtime/fill.h"

#include <algorithm>
#include <cmath>

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

// In [-1, 1), a multiple of 2^-23: exact in float32.
float SignedUnit(uint64_t bits) { return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) / (1 << 23); }

int64_t InRange(uint64_t bits, int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (width == 0 ? bits : bits % width));
}

void FillNarrow(Array& array, float most, Random& random) {
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    array.as<uint16_t>()[i] = FloatToNarrow(array.dtype, std::min(SignedUnit(random.Next()), most));
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
    case DType::kFloat16: FillNarrow(array, 0.9995f, random); break;
    case DType::kBfloat16: FillNarrow(array, 0.996f, random); break;
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
  const InputRange range = RangeOfInput(dag, stage_id);
  for (int64_t i = 0, n = array.elements(); i < n; ++i) {
    const double drawn = array.at(i), magnitude = range.low + (range.high - range.low) * 0.999 * std::fabs(drawn);
    array.set(i, range.both_signs && drawn < 0 ? -magnitude : magnitude);
  }
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
