// Quantised operators. A quantised tensor stands for (q - zero point) * scale. Products of integers are summed as
// int32, exactly; the scale and the rounding (half to even) are float32, as in ONNX Runtime.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/quantized.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"
#include "compiler/graph/onnx/tensor_proto.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// A parameter of the whole tensor, of one axis, or of blocks of it, in a shape that broadcasts to x.
ImportValue Spread(NodeImporter& node, Composer& c, const ImportValue& parameter, const ImportValue& x) {
  int64_t rank = RankOf(x), given = node.Int("axis", 1), block = node.Int("block_size", 0);
  if (parameter->type.elements() == 1) return c.Reshape(parameter, {});
  int64_t axis = c.Axis(given, x);
  if (!c.ok()) return parameter;
  if (RankOf(parameter) == 1 && block == 0) {
    Ints shape(rank, 1);
    shape[axis] = parameter->type.elements();
    return c.Reshape(parameter, shape);
  }
  if (RankOf(parameter) != rank) {
    c.Fail(absl::InvalidArgumentError(
        absl::StrCat("a parameter of ", parameter->type.ToString(), " does not fit ", x->type.ToString())));
    return parameter;
  }
  Ints repeated;
  int64_t extent = x->type.shape[axis], blocks = parameter->type.shape[axis];
  if (block == 0) block = (extent + blocks - 1) / blocks;
  for (int64_t i = 0; i < extent; ++i) repeated.push_back(std::min(i / block, blocks - 1));
  return c.Op("gather", {parameter, c.Indices(repeated)}, {{"axis", axis}});
}

// The numbers of a type of integers; int8 and uint8 hold those of 4 and 2 bits too, int32 those of 16.
absl::StatusOr<std::pair<double, double>> LimitsOf(const std::string& type) {
  static const auto& limits = *new std::map<std::string, std::pair<double, double>>{
      {"int8", {-128, 127}}, {"uint8", {0, 255}}, {"int16", {-32768, 32767}}, {"uint16", {0, 65535}},
      {"int4", {-8, 7}},     {"uint4", {0, 15}},  {"int2", {-2, 1}},          {"uint2", {0, 3}}};
  auto it = limits.find(type);
  if (it != limits.end()) return it->second;
  return absl::InvalidArgumentError(absl::StrCat("it quantises to ", type, ", which is not supported"));
}

void Limits(DType dtype, double& low, double& high) {
  low = dtype == DType::kInt8 ? -128 : 0;
  high = dtype == DType::kInt8 ? 127 : 255;
}

// x (float32, already divided by the scale) as integers around a zero point, which may be null.
ImportValue Rounded(Composer& c, const ImportValue& x, const ImportValue& zero, DType to) {
  double low, high;
  Limits(to, low, high);
  ImportValue q = c.Op("round", {x});
  if (zero) q = c.Add(q, c.Cast(zero, q->type.dtype));
  return c.Cast(c.Op("clip", {q}, {{"min", low}, {"max", high}}), to);
}

absl::Status QuantizeLinear(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), scale = Spread(node, c, c.Input(1), x), zero;
  DType to = DType::kUint8;
  std::string name = "uint8";
  int64_t type = node.Int("output_dtype", 0);
  if (node.HasInput(2)) {
    zero = c.Input(2);
    to = zero->type.dtype;
    name = zero->narrow.empty() ? NameOf(to) : zero->narrow;
    zero = Spread(node, c, zero, x);
  } else if (type != 0) {
    ASSIGN_OR_RETURN(to, StorageOfOnnx(static_cast<int>(type)));
    name = NarrowNameOfOnnx(static_cast<int>(type));
    if (name.empty()) name = NameOf(to);
  }
  node.Ignore({"saturate", "precision"});
  const bool is_float = name.rfind("float", 0) == 0 && name != NameOf(to);
  if (!is_float && x->type.dtype == DType::kFloat32 && scale->type.dtype == DType::kFloat32) {
    ASSIGN_OR_RETURN(auto limits, LimitsOf(name));
    Attributes attributes{{"to", std::string(NameOf(to))}, {"min", limits.first}, {"max", limits.second}};
    return c.Finish(
        c.Op("quantize", zero ? std::vector{x, scale, zero} : std::vector{x, scale}, std::move(attributes)));
  }
  ImportValue q = c.Div(c.Cast(x, DType::kFloat32), c.Cast(scale, DType::kFloat32));
  if (is_float) return c.Finish(q);  // NodeImporter rounds it
  ASSIGN_OR_RETURN(auto limits, LimitsOf(name));
  q = c.Op("round", {q});
  if (zero) q = c.Add(q, c.Cast(zero, q->type.dtype));
  return c.Finish(c.Cast(c.Op("clip", {q}, {{"min", limits.first}, {"max", limits.second}}), to));
}

ImportValue Dequantized(Composer& c, const ImportValue& x, const ImportValue& scale, const ImportValue& zero) {
  DType type = scale->type.dtype, work = x->type.dtype == DType::kInt32 ? DType::kInt32 : type;
  ImportValue q = c.Cast(x, work);
  if (zero) q = c.Sub(q, c.Cast(zero, work));
  return c.Mul(c.Cast(q, type), scale);
}

absl::Status DequantizeLinear(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), scale = Spread(node, c, c.Input(1), x), zero;
  if (node.HasInput(2)) zero = Spread(node, c, c.Input(2), x);
  int64_t type = node.Int("output_dtype", 0);
  const bool plain = !IsFloat(x->type.dtype) && x->type.dtype != DType::kBool && scale->type.dtype == DType::kFloat32;
  ImportValue y = plain ? c.Op("dequantize", zero ? std::vector{x, scale, zero} : std::vector{x, scale})
                        : Dequantized(c, x, scale, zero);
  if (type != 0) {
    ASSIGN_OR_RETURN(DType to, StorageOfOnnx(static_cast<int>(type)));
    y = c.Cast(y, to);
  }
  return c.Finish(y);
}

// Scale and zero point of the range of x with 0 in it: results 1 and 2.
absl::Status DynamicQuantizeLinear(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), none = c.Scalar(0, x), steps = c.Scalar(255, x);
  Attributes all{{"keepdims", int64_t{0}}};
  ImportValue low = c.Op("minimum", {c.Op("reduce_min", {x}, all), none});
  ImportValue high = c.Op("maximum", {c.Op("reduce_max", {x}, all), none});
  ImportValue scale = c.Div(c.Sub(high, low), steps);
  // A tensor of zeros has no range: any scale will do, and ONNX Runtime says 1.
  ImportValue safe = c.Op("where", {c.Op("equal", {scale, none}), c.Scalar(1, x), scale});
  ImportValue zero = c.Op("clip", {c.Op("round", {c.Div(c.Sub(none, low), safe)})}, {{"min", 0.0}, {"max", 255.0}});
  ImportValue q = Rounded(c, c.Div(x, safe), zero, DType::kUint8);
  if (node.IsRead(1)) c.Set(1, safe);
  if (node.IsRead(2)) c.Set(2, c.Cast(zero, DType::kUint8));
  if (node.IsRead(0)) c.Set(0, q);
  return c.status();
}

// q - zero point as int32.
ImportValue Centred(NodeImporter& node, Composer& c, const ImportValue& q, int zero_input, int64_t axis) {
  return Centred(c, q, node.HasInput(zero_input) ? c.Input(zero_input) : nullptr, axis);
}

absl::Status MatMulInteger(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(1);
  return c.Finish(c.Matmul(Centred(node, c, a, 2, -2), Centred(node, c, b, 3, -1)));
}

ImportValue QuantizedProduct(Composer& c, const ImportValue& sum, const ImportValue& scales, const ImportValue& scale,
                             const ImportValue& zero) {
  ImportValue y = c.Mul(c.Cast(sum, DType::kFloat32), c.Div(scales, scale));
  return Rounded(c, y, zero, zero->type.dtype);
}

// A list of scales of a factor belongs to its rows or columns.
ImportValue AlongAxis(Composer& c, const ImportValue& scale, int64_t rank, int64_t axis) {
  if (scale->type.elements() == 1) return c.Reshape(scale, {});
  if (RankOf(scale) != 1) return scale;
  Ints shape(rank, 1);
  shape[axis < 0 ? axis + rank : axis] = scale->type.elements();
  return c.Reshape(scale, shape);
}

absl::Status QLinearMatMul(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(3);
  ImportValue sum = c.Matmul(Centred(node, c, a, 2, -2), Centred(node, c, b, 5, -1));
  auto scale = [&](int input, int64_t axis) {
    return AlongAxis(c, c.Cast(c.Input(input), DType::kFloat32), RankOf(sum), axis);
  };
  ImportValue scales = c.Mul(scale(1, -2), scale(4, -1)), zero = c.Input(7);
  if (zero->type.elements() == 1) zero = c.Reshape(zero, {});
  return c.Finish(QuantizedProduct(c, sum, scales, scale(6, -2), zero));
}

// Of inputs less their zero points, which are inputs too.
struct CentredInputs {
  int x, x_zero, w, w_zero;
};

absl::StatusOr<ImportValue> IntegerConv(NodeImporter& node, Composer& c, const CentredInputs& inputs) {
  const ImportValue x = c.Input(inputs.x), w = c.Input(inputs.w);
  const ImportValue filter = Centred(node, c, w, inputs.w_zero, 0), image = Centred(node, c, x, inputs.x_zero, 1);
  if (w->type.shape.size() < 3 || w->type.shape.size() > 4 || w->type.shape.size() != x->type.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of ", w->type.ToString(), " do not fit images of ", x->type.ToString()));
  }
  std::vector<int64_t> kernel(w->type.shape.begin() + 2, w->type.shape.end());
  node.Ints("kernel_shape", kernel);
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  bool line = kernel.size() == 1;
  ImportValue y = c.Op("conv2d", {line ? c.Unsqueeze(image, {2}) : image, line ? c.Unsqueeze(filter, {2}) : filter},
                       std::move(attributes));
  return line ? c.Squeeze(y, {2}) : y;
}

absl::Status ConvInteger(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(ImportValue y, IntegerConv(node, c, {.x = 0, .x_zero = 2, .w = 1, .w_zero = 3}));
  return c.Finish(y);
}

absl::Status QLinearConv(NodeImporter& node) {
  Composer c(node);
  ASSIGN_OR_RETURN(ImportValue sum, IntegerConv(node, c, {.x = 0, .x_zero = 2, .w = 3, .w_zero = 5}));
  if (node.HasInput(8)) sum = c.Add(sum, AlongAxis(c, c.Input(8), RankOf(sum), 1));
  ImportValue scales = c.Mul(c.Reshape(c.Input(1), {}), AlongAxis(c, c.Input(4), RankOf(sum), 1));
  return c.Finish(QuantizedProduct(c, sum, scales, c.Reshape(c.Input(6), {}), c.Reshape(c.Input(7), {})));
}

// Elementwise operators of ONNX Runtime on quantised tensors: dequantised, computed, quantised.
ImportValue Operand(NodeImporter& node, Composer& c, int input) {
  ImportValue zero;
  if (node.HasInput(input + 2)) zero = c.Reshape(c.Input(input + 2), {});
  return Dequantized(c, c.Input(input), c.Reshape(c.Input(input + 1), {}), zero);
}

absl::Status FinishQuantized(NodeImporter& node, Composer& c, const ImportValue& y, int scale, DType fallback) {
  ImportValue zero;
  if (node.HasInput(scale + 1)) zero = c.Reshape(c.Input(scale + 1), {});
  DType to = zero ? zero->type.dtype : fallback;
  return c.Finish(Rounded(c, c.Div(y, c.Reshape(c.Input(scale), {})), zero, to));
}

absl::Status QLinearBinary(NodeImporter& node, const char* op) {
  Composer c(node);
  DType type = c.Input(0)->type.dtype;
  return FinishQuantized(node, c, c.Op(op, {Operand(node, c, 0), Operand(node, c, 3)}), 6, type);
}
absl::Status QLinearAdd(NodeImporter& node) { return QLinearBinary(node, "add"); }
absl::Status QLinearMul(NodeImporter& node) { return QLinearBinary(node, "mul"); }

absl::Status QLinearSigmoid(NodeImporter& node) {
  Composer c(node);
  return FinishQuantized(node, c, c.Op("sigmoid", {Operand(node, c, 0)}), 3, c.Input(0)->type.dtype);
}

absl::Status QLinearLeakyRelu(NodeImporter& node) {
  Composer c(node);
  ImportValue y = c.Op("leaky_relu", {Operand(node, c, 0)}, {{"alpha", node.Float("alpha", 0.01)}});
  return FinishQuantized(node, c, y, 3, c.Input(0)->type.dtype);
}

absl::Status QLinearGlobalAveragePool(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  bool last = node.Int("channels_last", 0) != 0;
  Ints axes;
  for (int64_t d = last ? 1 : 2; d < RankOf(x) - (last ? 1 : 0); ++d) axes.push_back(d);
  // Sums are exact, so that a mean in the middle between two numbers is rounded as one.
  double count = 1;
  for (int64_t d : axes) count *= static_cast<double>(x->type.shape[d]);
  ImportValue sum = c.Op("reduce_sum", {Centred(node, c, x, 2, 0)}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  ImportValue from = c.Reshape(c.Input(1), {}), to = c.Reshape(c.Input(3), {}), zero;
  if (node.HasInput(4)) zero = c.Reshape(c.Input(4), {});
  ImportValue y = c.Mul(c.Cast(sum, DType::kFloat32), c.Div(from, c.Mul(to, c.Scalar(count, to))));
  return c.Finish(Rounded(c, y, zero, zero ? zero->type.dtype : x->type.dtype));
}

absl::Status QLinearAveragePool(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0);
  if (RankOf(x) != 4 || node.Int("channels_last", 0) != 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "images of ", x->type.ToString(), " are not supported: those of 4 dimensions with channels_last=0 are"));
  const Ints kernel = node.Ints("kernel_shape", {});
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("kernel", kernel);
  if (node.Int("count_include_pad", 0) != 0) attributes.Set("count_include_pad", int64_t{1});
  // Sums are exact, so that a mean in the middle between two numbers is rounded as one.
  const ImportValue mean = c.Op("avg_pool", {c.Cast(Centred(node, c, x, 2, 0), DType::kFloat32)}, attributes);
  return FinishQuantized(node, c, c.Mul(mean, c.Reshape(c.Input(1), {})), 3, x->type.dtype);
}

// Scale and zero point of the result come first, then three inputs of each part.
absl::Status QLinearConcat(NodeImporter& node) {
  Composer c(node);
  std::vector<ImportValue> parts;
  for (int i = 2; i + 1 < node.inputs(); i += 3) parts.push_back(Operand(node, c, i));
  if (parts.empty()) return absl::InvalidArgumentError("it has no parts");
  const int64_t axis = c.Axis(node.Int("axis", 1), parts[0]);
  return FinishQuantized(node, c, c.Concat(parts, axis), 0, c.Input(2)->type.dtype);
}

// `opset` is that of the Softmax: before 13 it takes all axes behind its own together.
absl::Status QLinearSoftmax(NodeImporter& node) {
  Composer c(node);
  ImportValue x = Operand(node, c, 0);
  const int64_t axis = c.Axis(node.Int("axis", -1), x);
  const bool one_axis = node.Int("opset", 13) >= 13 || axis == RankOf(x) - 1;
  ImportValue y = one_axis
                      ? c.Op("softmax", {x}, {{"axis", axis}})
                      : c.Reshape(c.Op("softmax", {c.Op("flatten", {x}, {{"axis", axis}})}, {{"axis", int64_t{-1}}}),
                                  x->type.shape);
  return FinishQuantized(node, c, y, 3, c.Input(0)->type.dtype);
}

absl::Status QLinearWhere(NodeImporter& node) {
  Composer c(node);
  return FinishQuantized(node, c, c.Op("where", {c.Input(0), Operand(node, c, 1), Operand(node, c, 4)}), 7,
                         c.Input(1)->type.dtype);
}

// A bias counts in units of both factors' scales. Without a scale of its own the result is float32.
absl::Status QGemm(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(3);
  if (RankOf(a) != 2 || RankOf(b) != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("matrices are supported, not ", a->type.ToString(), " and ", b->type.ToString()));
  const bool turned = node.Int("transB", 0) != 0;
  a = Centred(node, c, a, 2, 0);
  b = Centred(node, c, b, 5, turned ? 0 : 1);
  if (node.Int("transA", 0) != 0) a = c.Transpose(a, {1, 0});
  if (turned) b = c.Transpose(b, {1, 0});
  ImportValue sum = c.Matmul(a, b);
  if (node.HasInput(6)) sum = c.Add(sum, c.Input(6));
  ImportValue scales = c.Mul(c.Reshape(c.Input(1), {}), AlongAxis(c, c.Input(4), 2, 1));
  scales = c.Mul(scales, c.Scalar(node.Float("alpha", 1), scales));
  if (!node.HasInput(7)) return c.Finish(c.Mul(c.Cast(sum, DType::kFloat32), scales));
  if (!node.HasInput(8)) return absl::InvalidArgumentError("input 8, the zero point of its result, is missing");
  return c.Finish(QuantizedProduct(c, sum, scales, c.Reshape(c.Input(7), {}), c.Reshape(c.Input(8), {})));
}

absl::Status DynamicQuantizeMatMul(NodeImporter& node) {
  Composer c(node);
  ImportValue zero;
  if (node.HasInput(3)) zero = c.Input(3);
  ImportValue y = DynamicProduct(c, c.Input(0), c.Input(1), c.Input(2), zero);
  if (node.HasInput(4)) y = c.Add(y, c.Input(4));
  return c.Finish(y);
}

// The product of integers, scaled and with a bias: what a MatMulInteger and its scale are fused to.
absl::Status MatMulIntegerToFloat(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(1);
  ImportValue sum = c.Matmul(Centred(node, c, a, 4, -2), Centred(node, c, b, 5, -1));
  ImportValue scales = c.Mul(c.Reshape(c.Input(2), {}), AlongAxis(c, c.Input(3), RankOf(sum), -1));
  ImportValue y = c.Mul(c.Cast(sum, DType::kFloat32), scales);
  if (node.HasInput(6)) y = c.Add(y, c.Input(6));
  return c.Finish(y);
}

}  // namespace

ImportValue Centred(Composer& c, const ImportValue& q, ImportValue zero, int64_t axis) {
  ImportValue wide = c.Cast(q, DType::kInt32);
  if (!zero) return wide;
  zero = c.Cast(zero, DType::kInt32);
  if (RankOf(zero) == 1 && zero->type.elements() > 1) {
    Ints shape(RankOf(q), 1);
    shape[axis < 0 ? axis + RankOf(q) : axis] = zero->type.elements();
    zero = c.Reshape(zero, shape);
  } else if (zero->type.elements() == 1) {
    zero = c.Reshape(zero, {});
  }
  return c.Sub(wide, zero);
}

ImportValue DynamicProduct(Composer& c, const ImportValue& x, const ImportValue& weights, const ImportValue& scale,
                           const ImportValue& zero_point) {
  const ImportValue none = c.Scalar(0, x);
  const Attributes all{{"keepdims", int64_t{0}}};
  const ImportValue low = c.Op("minimum", {c.Op("reduce_min", {x}, all), none});
  const ImportValue high = c.Op("maximum", {c.Op("reduce_max", {x}, all), none});
  const ImportValue range = c.Div(c.Sub(high, low), c.Scalar(255, x));
  const ImportValue safe = c.Op("where", {c.Op("equal", {range, none}), c.Scalar(1, x), range});
  const ImportValue zero =
      c.Op("clip", {c.Op("round", {c.Div(c.Sub(none, low), safe)})}, {{"min", 0.0}, {"max", 255.0}});
  const ImportValue q =
      c.Sub(c.Cast(Rounded(c, c.Div(x, safe), zero, DType::kUint8), DType::kInt32), c.Cast(zero, DType::kInt32));
  const ImportValue sum = c.Matmul(q, Centred(c, weights, zero_point, -1));
  return c.Mul(c.Cast(sum, DType::kFloat32), c.Mul(safe, AlongAxis(c, scale, RankOf(sum), -1)));
}

std::vector<OnnxRule> Quantize() {
  return {{"QuantizeLinear", QuantizeLinear},
          {"DequantizeLinear", DequantizeLinear},
          {"DynamicQuantizeLinear", DynamicQuantizeLinear},
          {"MatMulInteger", MatMulInteger},
          {"QLinearMatMul", QLinearMatMul},
          {"ConvInteger", ConvInteger},
          {"QLinearConv", QLinearConv},
          {"com.microsoft.QuantizeLinear", QuantizeLinear},
          {"com.microsoft.DequantizeLinear", DequantizeLinear},
          {"com.microsoft.QGemm", QGemm},
          {"com.microsoft.QLinearAdd", QLinearAdd},
          {"com.microsoft.QLinearAveragePool", QLinearAveragePool},
          {"com.microsoft.QLinearConcat", QLinearConcat},
          {"com.microsoft.QLinearSoftmax", QLinearSoftmax},
          {"com.microsoft.QLinearWhere", QLinearWhere},
          {"com.microsoft.QLinearMul", QLinearMul},
          {"com.microsoft.QLinearSigmoid", QLinearSigmoid},
          {"com.microsoft.QLinearLeakyRelu", QLinearLeakyRelu},
          {"com.microsoft.QLinearGlobalAveragePool", QLinearGlobalAveragePool},
          {"com.microsoft.DynamicQuantizeMatMul", DynamicQuantizeMatMul},
          {"com.microsoft.MatMulIntegerToFloat", MatMulIntegerToFloat}};
}

}  // namespace diapason::onnx_rules
