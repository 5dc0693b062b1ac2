// Spectra of signals: Fourier transforms as products with constant matrices, windows, and the filters of the mel scale.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

constexpr double kPi = std::numbers::pi;

struct Transform {
  int64_t length = 0;  // of the signal
  int64_t input = 0;   // elements that are read: the signal, or half of a spectrum
  int64_t output = 0;  // elements that are computed
  int64_t parts = 1;   // of an input element: 1 is real, 2 complex
  bool inverse = false, real_result = false;
};

// The matrix of (input, part) x (output, part).
Array MatrixOf(const Transform& t, DType type) {
  const int64_t results = t.real_result ? 1 : 2;
  Array matrix(type, {t.input * t.parts, t.output * results});
  for (int64_t n = 0; n < t.input; ++n) {
    // The other half of a real signal's spectrum is the conjugate of the first.
    const bool twice = t.real_result && n > 0 && 2 * n != t.length;
    const double weight = (t.inverse ? 1.0 / static_cast<double>(t.length) : 1) * (twice ? 2 : 1);
    for (int64_t k = 0; k < t.output; ++k) {
      const double angle = 2 * kPi * static_cast<double>(n * k % t.length) / static_cast<double>(t.length);
      const double real = weight * std::cos(angle),
                   imaginary = weight * (t.inverse ? std::sin(angle) : -std::sin(angle));
      const auto set = [&](int64_t part, int64_t result, double value) {
        matrix.set(((n * t.parts + part) * t.output + k) * results + result, value);
      };
      set(0, 0, real);
      if (!t.real_result) set(0, 1, imaginary);
      if (t.parts == 2) set(1, 0, -imaginary);
      if (t.parts == 2 && !t.real_result) set(1, 1, real);
    }
  }
  return matrix;
}

// x has its parts in the last axis; `axis` counts from the front.
ImportValue Transformed(NodeImporter& node, Composer& c, const ImportValue& x, int64_t axis, const Transform& t) {
  const int64_t rank = RankOf(x);
  if (!node.SpendConstantBytes(t.input * t.parts * t.output * 2 * BytesOf(x->type.dtype))) {
    c.Fail(absl::InvalidArgumentError(
        absl::StrCat("a transform of length ", t.length, " is too long: its matrix takes too much memory")));
    return x;
  }
  ImportValue signal = x;
  const int64_t extent = x->type.shape[axis];
  if (extent > t.input) signal = c.Slice(x, axis, 0, t.input);
  if (extent < t.input) {
    Ints pads(2 * rank, 0);
    pads[rank + axis] = t.input - extent;
    signal = c.Op("pad", {x}, {{"pads", pads}});
  }
  Ints perm, back(rank), shape;
  for (int64_t d = 0; d < rank - 1; ++d)
    if (d != axis) perm.push_back(d);
  for (int64_t d : perm) shape.push_back(x->type.shape[d]);
  perm.insert(perm.end(), {axis, rank - 1});
  for (int64_t d = 0; d < rank; ++d) back[perm[d]] = d;
  Ints rows = shape, spectrum = shape;
  rows.push_back(t.input * t.parts);
  spectrum.insert(spectrum.end(), {t.output, t.real_result ? 1 : 2});
  ImportValue product = c.Matmul(c.Reshape(c.Transpose(signal, perm), rows), c.Constant(MatrixOf(t, x->type.dtype)));
  return c.Transpose(c.Reshape(product, spectrum), back);
}

absl::StatusOr<int64_t> KnownNumber(NodeImporter& node, int input, const std::string& what) {
  ASSIGN_OR_RETURN(std::vector<int64_t> values, node.KnownInts(input, what));
  if (values.size() == 1) return values[0];
  return absl::InvalidArgumentError(absl::StrCat("input ", input, " (", what, ") must be one number"));
}

constexpr int64_t kLongest = int64_t{1} << 20;

// The axis is an attribute before opset 20.
absl::Status Dft(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  int64_t given = node.opset() < 20 ? node.Int("axis", 1) : -2;
  if (node.opset() >= 20 && node.HasInput(2)) {
    ASSIGN_OR_RETURN(given, KnownNumber(node, 2, "the axis"));
  }
  const int64_t axis = c.Axis(given, x);
  RETURN_IF_ERROR(c.status());
  const bool half = node.Int("onesided", 0) != 0;
  Transform t;
  t.inverse = node.Int("inverse", 0) != 0;
  t.parts = x->type.shape.back();
  t.real_result = t.inverse && half;
  if (axis == RankOf(x) - 1 || t.parts < 1 || t.parts > 2 || !IsFloat(x->type.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("its input is ", x->type.ToString(),
                                                   ": floats with a last axis of 1 (real) or 2 (complex) behind axis ",
                                                   axis, " are supported"));
  }
  const int64_t extent = x->type.shape[axis];
  t.length = t.real_result ? 2 * (extent - 1) : extent;
  if (node.HasInput(1)) {
    ASSIGN_OR_RETURN(t.length, KnownNumber(node, 1, "the length"));
  }
  if (t.length < 1 || t.length > kLongest)
    return absl::InvalidArgumentError(absl::StrCat("its length cannot be ", t.length));
  t.input = t.real_result ? t.length / 2 + 1 : t.length;
  t.output = half && !t.inverse ? t.length / 2 + 1 : t.length;
  return c.Finish(Transformed(node, c, x, axis, t));
}

absl::Status Stft(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  ASSIGN_OR_RETURN(int64_t step, KnownNumber(node, 1, "the step of frames"));
  Transform t;
  if (RankOf(x) == 2) x = c.Unsqueeze(x, {2});
  RETURN_IF_ERROR(c.status());
  if (RankOf(x) != 3)
    return absl::InvalidArgumentError(
        absl::StrCat("its signal is ", x->type.ToString(), ": 3 dimensions are supported"));
  const int64_t samples = x->type.shape[1];
  t.length = samples;
  ImportValue window;
  if (node.HasInput(2)) {
    window = c.Input(2);
    t.length = window->type.elements();
  }
  if (node.HasInput(3)) {
    ASSIGN_OR_RETURN(t.length, KnownNumber(node, 3, "the length of frames"));
  }
  t.parts = x->type.shape[2];
  t.input = t.length;
  if (step < 1 || t.length < 1 || t.length > samples || t.length > kLongest || t.parts < 1 || t.parts > 2 ||
      (window && window->type.shape != Ints{t.length})) {
    return absl::InvalidArgumentError(absl::StrCat("frames of ", t.length, " in steps of ", step, " do not fit ",
                                                   x->type.ToString(), " and its window"));
  }
  t.output = node.Int("onesided", 1) != 0 ? t.length / 2 + 1 : t.length;
  const int64_t frames = (samples - t.length) / step + 1;
  if (!node.SpendConstantBytes(frames * t.length * 8)) return absl::InvalidArgumentError("it has too many frames");
  Array places(DType::kInt64, {frames, t.length});
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < t.length; ++i) places.set_int(f * t.length + i, f * step + i);
  ImportValue framed = c.Op("gather", {x, c.Constant(std::move(places))}, {{"axis", int64_t{1}}});
  if (window) framed = c.Mul(framed, c.Reshape(window, {t.length, 1}));
  return c.Finish(Transformed(node, c, framed, 2, t));
}

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), where N is the size, or one less where the window is symmetric.
absl::Status ImportWindow(NodeImporter& node, double a0, double a1, double a2) {
  Composer c(node);
  ASSIGN_OR_RETURN(int64_t size, KnownNumber(node, 0, "the size"));
  ASSIGN_OR_RETURN(DType type, StorageOfOnnx(static_cast<int>(node.Int("output_datatype", 1))));
  if (size < 1 || size > int64_t{1} << 24) return absl::InvalidArgumentError(absl::StrCat("its size cannot be ", size));
  const bool periodic = node.Int("periodic", 1) != 0;
  const double period = static_cast<double>(periodic ? size : size - 1);
  Array window(type, {size});
  for (int64_t n = 0; n < size; ++n) {
    const double angle = period == 0 ? kPi : 2 * kPi * static_cast<double>(n) / period;
    const double value = a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle);
    if (IsFloat(type)) {
      window.set(n, value);
    } else {
      window.set_int(n, static_cast<int64_t>(value));
    }
  }
  return c.Finish(c.Constant(std::move(window)));
}
absl::Status HannWindow(NodeImporter& node) { return ImportWindow(node, 0.5, 0.5, 0); }
absl::Status HammingWindow(NodeImporter& node) { return ImportWindow(node, 25.0 / 46, 21.0 / 46, 0); }
absl::Status BlackmanWindow(NodeImporter& node) { return ImportWindow(node, 0.42, 0.5, 0.08); }

absl::StatusOr<double> KnownFloat(NodeImporter& node, int input) {
  ASSIGN_OR_RETURN(ImportValue value, node.Input(input));
  if (value->value && value->type.elements() == 1) return value->value->at(0);
  return absl::InvalidArgumentError(absl::StrCat("input ", input, " must be a constant of one number"));
}

// Triangles over the bins of a spectrum, whose corners are equally far apart in mel.
absl::Status MelWeightMatrix(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(int64_t mels, KnownNumber(node, 0, "the number of bands"));
  ASSIGN_OR_RETURN(int64_t length, KnownNumber(node, 1, "the length of the transform"));
  ASSIGN_OR_RETURN(int64_t rate, KnownNumber(node, 2, "the sample rate"));
  ASSIGN_OR_RETURN(double lowest, KnownFloat(node, 3));
  ASSIGN_OR_RETURN(double highest, KnownFloat(node, 4));
  ASSIGN_OR_RETURN(DType type, StorageOfOnnx(static_cast<int>(node.Int("output_datatype", 1))));
  const int64_t bins = length / 2 + 1;
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  if (mels < 1 || mels > 65536 || length < 1 || length > kLongest || rate < 1 || !(lowest >= 0) ||
      !(highest > lowest) || !node.SpendConstantBytes(bins * mels * BytesOf(type))) {
    return absl::InvalidArgumentError(
        absl::StrCat(mels, " bands from ", lowest, " to ", highest, " hertz do not fit ", bins, " bins"));
  }
  const double step = (mel(highest) - mel(lowest)) / static_cast<double>(mels + 2);
  Ints corners;
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (mel(lowest) + static_cast<double>(i) * step) / 2595) - 1);
    corners.push_back(
        static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
    if (corners.back() >= bins)
      return absl::InvalidArgumentError(absl::StrCat(highest, " hertz are beyond the spectrum of a rate of ", rate));
  }
  Array weights(type, {bins, mels});
  for (int64_t i = 0; i < mels; ++i) {
    const int64_t low = corners[i], centre = corners[i + 1], high = corners[i + 2];
    if (low == centre) weights.set(centre * mels + i, 1);
    for (int64_t j = low; low < centre && j <= centre; ++j)
      weights.set(j * mels + i, static_cast<double>(j - low) / static_cast<double>(centre - low));
    for (int64_t j = centre; j < high; ++j)
      weights.set(j * mels + i, static_cast<double>(high - j) / static_cast<double>(high - centre));
  }
  return c.Finish(c.Constant(std::move(weights)));
}

}  // namespace

std::vector<OnnxRule> Signal() {
  return {{"DFT", Dft},
          {"STFT", Stft},
          {"HannWindow", HannWindow},
          {"HammingWindow", HammingWindow},
          {"BlackmanWindow", BlackmanWindow},
          {"MelWeightMatrix", MelWeightMatrix}};
}

}  // namespace diapason::onnx_rules
