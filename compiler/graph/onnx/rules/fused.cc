// Operators of ONNX Runtime's own domain that its optimisers and converters write for what are several of ONNX's.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/graph/onnx/rules/window.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

absl::Status ImportContribGelu(NodeImporter& node, const char* op) {
  Composer c(node);
  ImportValue x = c.Input(0);
  if (node.HasInput(1)) x = c.Add(x, c.Input(1));
  return c.Finish(c.Op(op, {x}));
}
absl::Status Gelu(NodeImporter& node) { return ImportContribGelu(node, "gelu"); }
absl::Status FastGelu(NodeImporter& node) { return ImportContribGelu(node, "gelu_tanh"); }

absl::Status QuickGelu(NodeImporter& node) {
  Composer c(node);
  return c.Finish(c.Op("swish", {c.Input(0)}, {{"alpha", node.Float("alpha", 1.702)}}));
}

ImportValue LastTwoSwapped(Composer& c, const ImportValue& x) {
  int64_t rank = RankOf(x);
  if (rank < 2) return x;
  Ints perm;
  for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return c.Transpose(x, perm);
}

absl::Status FusedMatMul(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(1);
  for (const char* name : {"transBatchA", "transBatchB"}) {
    if (node.Int(name, 0) != 0) return absl::InvalidArgumentError(absl::StrCat(name, "=1 is not supported"));
  }
  if (node.Int("transA", 0) != 0) a = LastTwoSwapped(c, a);
  if (node.Int("transB", 0) != 0) b = LastTwoSwapped(c, b);
  double alpha = node.Float("alpha", 1);
  ImportValue y = c.Matmul(a, b);
  return c.Finish(alpha == 1 ? y : c.Mul(y, c.Scalar(alpha, y)));
}

// A convolution, a sum (input 3) and an activation.
absl::Status FusedConv(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), w = c.Input(1);
  if (w->type.shape.size() != 4) return absl::InvalidArgumentError("its weights must have 4 dimensions");
  std::vector<int64_t> kernel(w->type.shape.begin() + 2, w->type.shape.end());
  node.Ints("kernel_shape", kernel);
  ASSIGN_OR_RETURN(Attributes attributes, WindowAttributes(node, x, kernel));
  attributes.Set("group", node.Int("group", 1));
  std::vector<ImportValue> inputs = {x, w};
  if (node.HasInput(2)) inputs.push_back(c.Input(2));
  ImportValue y = c.Op("conv2d", inputs, std::move(attributes));
  if (node.HasInput(3)) y = c.Add(y, c.Input(3));
  std::string activation = node.String("activation", "");
  ASSIGN_OR_RETURN(std::vector<double> params, node.Floats("activation_params"));
  auto param = [&](size_t i, double fallback) { return i < params.size() ? params[i] : fallback; };
  if (activation == "Relu") return c.Finish(c.Op("relu", {y}));
  if (activation == "Sigmoid") return c.Finish(c.Op("sigmoid", {y}));
  if (activation == "Tanh") return c.Finish(c.Op("tanh", {y}));
  if (activation == "LeakyRelu") return c.Finish(c.Op("leaky_relu", {y}, {{"alpha", param(0, 0.01)}}));
  if (activation == "Clip") return c.Finish(c.Op("clip", {y}, {{"min", param(0, -3.4e38)}, {"max", param(1, 3.4e38)}}));
  if (activation == "HardSigmoid") {
    return c.Finish(c.Op("hard_sigmoid", {y}, {{"alpha", param(0, 0.2)}, {"beta", param(1, 0.5)}}));
  }
  if (!activation.empty())
    return absl::InvalidArgumentError(absl::StrCat("activation '", activation, "' is not known"));
  return c.Finish(y);
}

// Embeddings of words, places and segments, added up and normalised. Result 1 says how many words each sequence has,
// result 2 is the sum.
absl::Status EmbedLayerNormalization(NodeImporter& node) {
  Composer c(node);
  ImportValue words = c.Input(0), scale = c.Input(5), bias = c.Input(6);
  if (RankOf(words) != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("its words are ", words->type.ToString(), ": batch x length is supported"));
  auto embedded = [&](int table, const ImportValue& indices) {
    return c.Op("gather", {c.Input(table), indices}, {{"axis", int64_t{0}}});
  };
  const int64_t batch = words->type.shape[0], length = words->type.shape[1];
  ImportValue places;
  if (node.HasInput(8)) {
    places = embedded(3, c.Input(8));
  } else {
    ImportValue table = c.Input(3);
    if (RankOf(table) != 2 || table->type.shape[0] < length) {
      return absl::InvalidArgumentError(
          absl::StrCat("a table of places of ", table->type.ToString(), " does not fit ", length, " words"));
    }
    places = c.Slice(table, 0, 0, length);
  }
  ImportValue sum = c.Add(embedded(2, words), places);
  if (node.HasInput(1) != node.HasInput(4))
    return absl::InvalidArgumentError("segments and their table must be given together");
  if (node.HasInput(1)) sum = c.Add(sum, embedded(4, c.Input(1)));
  ImportValue y = c.Op("layer_norm", {sum}, {{"axis", int64_t{-1}}, {"epsilon", node.Float("epsilon", 1e-12)}});
  node.Int("mask_index_type", 1);
  if (node.IsRead(1)) {
    if (node.HasInput(7)) {
      c.Set(1, c.Op("reduce_sum", {c.Cast(c.Input(7), DType::kInt32)}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}));
    } else {
      if (!node.SpendConstantBytes(4 * batch)) return absl::InvalidArgumentError("its batch is too large");
      c.Set(1, c.Constant(Array(DType::kInt32, {batch})));
    }
  } else if (node.HasInput(7)) {
    node.IgnoreInput(7);
  }
  if (node.IsRead(2)) c.Set(2, sum);
  return c.Finish(c.Add(c.Mul(y, scale), bias));
}

// Numbers of 2, 4 or 8 bits out of bytes, the lowest bits first: n x bytes -> n x count.
Array Unpacked(const Array& packed, int64_t rows, int64_t bits, int64_t count) {
  const int64_t bytes = packed.elements() / rows, per_byte = 8 / bits;
  Array out(DType::kUint8, {rows, count});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t byte = packed.int_at(i * bytes + j / per_byte);
      out.set_int(i * count + j, byte >> (j % per_byte * bits) & ((1 << bits) - 1));
    }
  }
  return out;
}

// x times the transpose of weights of few bits, which are in blocks with a scale, and a zero point, of their own.
absl::Status MatMulNBits(NodeImporter& node) {
  Composer c(node);
  ImportValue x = c.Input(0), packed = c.Input(1), scales = c.Input(2);
  const int64_t k = node.Int("K", 0), n = node.Int("N", 0), bits = node.Int("bits", 4),
                block = node.Int("block_size", 0);
  node.Ignore({"accuracy_level", "weight_prepacked"});
  if (bits != 2 && bits != 4 && bits != 8)
    return absl::InvalidArgumentError(absl::StrCat("bits=", bits, " is not supported: 2, 4 and 8 are"));
  const int64_t blocks = block >= 1 ? (k + block - 1) / block : 0;
  if (k < 1 || n < 1 || blocks < 1 || !packed->value || packed->type.dtype != DType::kUint8 ||
      packed->type.elements() * (8 / bits) != n * blocks * block || scales->type.elements() != n * blocks) {
    return absl::InvalidArgumentError(absl::StrCat("weights of ", packed->type.ToString(), " and scales of ",
                                                   scales->type.ToString(), " do not fit N=", n, ", K=", k,
                                                   " in blocks of ", block, ", or are not constants"));
  }
  if (node.HasInput(4)) return absl::InvalidArgumentError("an order of groups (input 4) is not supported");
  const DType type = scales->type.dtype;
  ImportValue w = c.Reshape(c.Constant(Unpacked(*packed->value, n * blocks, bits, block)), {n, blocks, block});
  ImportValue zero = c.Scalar(static_cast<double>(1 << (bits - 1)), type);
  if (node.HasInput(3)) {
    ImportValue given = c.Input(3);
    if (given->type.dtype == DType::kUint8) {
      const int64_t bytes = (blocks * bits + 7) / 8;
      if (!given->value || given->type.elements() != n * bytes)
        return absl::InvalidArgumentError("its zero points do not fit its weights, or are not constants");
      given = c.Constant(Unpacked(*given->value, n, bits, blocks));
    }
    zero = c.Cast(c.Reshape(given, {n, blocks, 1}), type);
  }
  w = c.Mul(c.Sub(c.Cast(w, type), zero), c.Reshape(scales, {n, blocks, 1}));
  w = c.Reshape(w, {n, blocks * block});
  if (blocks * block != k) w = c.Slice(w, 1, 0, k);
  ImportValue y = c.Matmul(x, c.Cast(c.Transpose(w, {1, 0}), x->type.dtype));
  if (node.HasInput(5)) y = c.Add(y, c.Input(5));
  return c.Finish(y);
}

}  // namespace

std::vector<OnnxRule> Fused() {
  return {{"com.microsoft.Gelu", Gelu},
          {"com.microsoft.BiasGelu", Gelu},
          {"com.microsoft.FastGelu", FastGelu},
          {"com.microsoft.QuickGelu", QuickGelu},
          {"com.microsoft.FusedMatMul", FusedMatMul},
          {"com.microsoft.FusedConv", FusedConv},
          {"com.microsoft.EmbedLayerNormalization", EmbedLayerNormalization},
          {"com.microsoft.MatMulNBits", MatMulNBits}};
}

}  // namespace diapason::onnx_rules
