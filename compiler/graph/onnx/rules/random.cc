// Random numbers. With a seed they are the same at each run, so they are constants; without one, results could not be
// repeated, and the node is refused. ONNX leaves the generator open: numbers differ from those of other runtimes, their
// distribution does not.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "compiler/graph/rank.h"

namespace diapason::onnx_rules {
namespace {

using Ints = std::vector<int64_t>;

// The generator is std's since its numbers are fixed by the standard; those of std's distributions are not.
class Numbers {
 public:
  explicit Numbers(double seed) {
    uint64_t bits = 0;
    std::memcpy(&bits, &seed, sizeof bits);
    generator_.seed(bits);
  }
  // From 0 to 1, without 1.
  double Uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
  // Of mean 0 and deviation 1, by Box and Muller.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  std::mt19937_64 generator_;
};

absl::StatusOr<Numbers> SeededNumbers(NodeImporter& node) {
  if (!node.Has("seed")) {
    return absl::InvalidArgumentError(
        "its results would differ from run to run: give it the attribute 'seed', which makes them constants, or pass "
        "random numbers "
        "in as an input of the model");
  }
  return Numbers(node.Float("seed", 0));
}

// Numbers of `draw`, as a constant.
template <typename Draw>
absl::StatusOr<Array> Drawn(NodeImporter& node, DType dtype, const Ints& shape, const Draw& draw) {
  const bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent < 0; });
  if (shape.size() > kMaxRank || negative)
    return absl::InvalidArgumentError(absl::StrCat("its shape ", absl::StrJoin(shape, "x"), " is not supported"));
  int64_t bytes = BytesOf(dtype);
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  if (!node.SpendConstantBytes(bytes))
    return absl::InvalidArgumentError(
        absl::StrCat("its result of shape ", absl::StrJoin(shape, "x"), " is too large for a constant"));
  Array array(dtype, shape);
  for (int64_t i = 0, n = array.elements(); i < n; ++i) array.set(i, draw());
  return array;
}

absl::StatusOr<DType> ResultType(NodeImporter& node, DType fallback) {
  return node.Has("dtype") ? StorageOfOnnx(static_cast<int>(node.Int("dtype", 1))) : fallback;
}

absl::Status EmitDrawn(NodeImporter& node, bool normal, DType fallback, const Ints& shape) {
  ASSIGN_OR_RETURN(Numbers numbers, SeededNumbers(node));
  ASSIGN_OR_RETURN(DType dtype, ResultType(node, fallback));
  if (!IsFloat(dtype))
    return absl::InvalidArgumentError(absl::StrCat("its result would be ", NameOf(dtype), ", no type of floats"));
  absl::StatusOr<Array> array;
  if (normal) {
    const double mean = node.Float("mean", 0), scale = node.Float("scale", 1);
    array = Drawn(node, dtype, shape, [&] { return mean + scale * numbers.Normal(); });
  } else {
    const double low = node.Float("low", 0), high = node.Float("high", 1);
    array = Drawn(node, dtype, shape, [&] { return low + (high - low) * numbers.Uniform(); });
  }
  RETURN_IF_ERROR(array.status());
  node.Set(0, KnownValue(*std::move(array), node.node().name));
  return absl::OkStatus();
}

template <bool normal>
absl::Status ImportOfShape(NodeImporter& node) {
  return EmitDrawn(node, normal, DType::kFloat32, node.Ints("shape", {}));
}

template <bool normal>
absl::Status ImportLike(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue like, node.Input(0));
  return EmitDrawn(node, normal, like->type.dtype, like->type.shape);
}

// 1 with the probability that the input says, else 0.
absl::Status ImportBernoulli(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  RETURN_IF_ERROR(c.status());
  ASSIGN_OR_RETURN(Numbers numbers, SeededNumbers(node));
  ASSIGN_OR_RETURN(DType dtype, ResultType(node, x->type.dtype));
  ASSIGN_OR_RETURN(Array drawn, Drawn(node, DType::kFloat32, x->type.shape, [&] { return numbers.Uniform(); }));
  return c.Finish(c.Cast(c.Op("less", {c.Constant(std::move(drawn)), c.Cast(x, DType::kFloat32)}), dtype));
}

// Classes by their unnormalised logarithms of probabilities, [batch, class] to [batch, sample]: how many of the sums of
// the first probabilities a uniform number has passed.
absl::Status ImportMultinomial(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  RETURN_IF_ERROR(c.status());
  if (RankOf(x) != 2)
    return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(), ", no matrix"));
  ASSIGN_OR_RETURN(Numbers numbers, SeededNumbers(node));
  ASSIGN_OR_RETURN(DType dtype, ResultType(node, DType::kInt32));
  const int64_t batch = x->type.shape[0], classes = x->type.shape[1], samples = node.Int("sample_size", 1);
  if (samples < 1) return absl::InvalidArgumentError(absl::StrCat("its sample_size of ", samples, " is not above 0"));
  ASSIGN_OR_RETURN(Array drawn, Drawn(node, DType::kFloat32, {batch, samples, 1}, [&] { return numbers.Uniform(); }));
  if (classes < 2) return c.Finish(c.Expand(c.Scalar(0, dtype), {batch, samples}));
  ImportValue passed = c.Op("softmax", {c.Cast(x, DType::kFloat32)}, {{"axis", int64_t{1}}});
  // Without the last one, which is 1 but for rounding.
  passed = c.Slice(c.Op("cumulative_sum", {passed}, {{"axis", int64_t{1}}}), 1, 0, classes - 1);
  passed = c.Op("less_equal", {c.Unsqueeze(passed, {1}), c.Constant(std::move(drawn))});
  ImportValue number =
      c.Op("reduce_sum", {c.Cast(passed, DType::kInt32)}, {{"axes", Ints{2}}, {"keepdims", int64_t{0}}});
  return c.Finish(c.Cast(number, dtype));
}

}  // namespace

std::vector<OnnxRule> Random() {
  return {{"RandomNormal", ImportOfShape<true>},   {"RandomNormalLike", ImportLike<true>},
          {"RandomUniform", ImportOfShape<false>}, {"RandomUniformLike", ImportLike<false>},
          {"Bernoulli", ImportBernoulli},          {"Multinomial", ImportMultinomial}};
}

}  // namespace diapason::onnx_rules
