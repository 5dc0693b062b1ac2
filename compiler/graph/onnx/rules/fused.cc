// Operators of ONNX Runtime's own domain that its optimisers and converters write for what are several of ONNX's.
#include <algorithm>
#include <numeric>

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

// An operand of FusedMatMul as MatMul has it. `batch`: its first axis is moved behind the batch axes, which follow it;
// `last`: then the last two are swapped.
ImportValue Operand(Composer& c, const ImportValue& x, bool batch, bool last) {
  const int64_t rank = RankOf(x);
  if (rank < 2) return x;
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (last) std::swap(perm[rank - 1], perm[rank - 2]);
  return std::is_sorted(perm.begin(), perm.end()) ? x : c.Transpose(x, perm);
}

absl::Status FusedMatMul(NodeImporter& node) {
  Composer c(node);
  const ImportValue a = Operand(c, c.Input(0), node.Int("transBatchA", 0) != 0, node.Int("transA", 0) != 0);
  const ImportValue b = Operand(c, c.Input(1), node.Int("transBatchB", 0) != 0, node.Int("transB", 0) != 0);
  double alpha = node.Float("alpha", 1);
  ImportValue y = c.Matmul(a, b);
  return c.Finish(alpha == 1 ? y : c.Mul(y, c.Scalar(alpha, y)));
}

// The activation behind a fused product; its numbers are in the order in which ONNX's operator has its attributes.
ImportValue Activated(Composer& c, const ImportValue& y, const std::string& activation,
                      const std::vector<double>& params) {
  auto param = [&](size_t i, double fallback) { return i < params.size() ? params[i] : fallback; };
  if (activation.empty()) return y;
  if (activation == "Relu") return c.Op("relu", {y});
  if (activation == "Sigmoid") return c.Op("sigmoid", {y});
  if (activation == "Tanh") return c.Op("tanh", {y});
  if (activation == "Softplus") return c.Op("softplus", {y});
  if (activation == "Softsign") return c.Op("softsign", {y});
  if (activation == "LeakyRelu") return c.Op("leaky_relu", {y}, {{"alpha", param(0, 0.01)}});
  if (activation == "Elu") return c.Op("elu", {y}, {{"alpha", param(0, 1)}});
  if (activation == "ThresholdedRelu") return c.Op("thresholded_relu", {y}, {{"alpha", param(0, 1)}});
  if (activation == "Clip") return c.Op("clip", {y}, {{"min", param(0, -3.4e38)}, {"max", param(1, 3.4e38)}});
  if (activation == "HardSigmoid")
    return c.Op("hard_sigmoid", {y}, {{"alpha", param(0, 0.2)}, {"beta", param(1, 0.5)}});
  c.Fail(absl::InvalidArgumentError(absl::StrCat("activation '", activation, "' is not known")));
  return y;
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
  const std::string activation = node.String("activation", "");
  ASSIGN_OR_RETURN(std::vector<double> params, node.Floats("activation_params"));
  return c.Finish(Activated(c, y, activation, params));
}

// Gemm and an activation.
absl::Status FusedGemm(NodeImporter& node) {
  Composer c(node);
  std::vector<ImportValue> inputs = {c.Input(0), c.Input(1)};
  if (node.HasInput(2)) inputs.push_back(c.Input(2));
  ImportValue y = c.Op("gemm", inputs,
                       {{"trans_a", node.Int("transA", 0)},
                        {"trans_b", node.Int("transB", 0)},
                        {"alpha", node.Float("alpha", 1)},
                        {"beta", node.Float("beta", 1)}});
  std::vector<double> params;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (node.Has(name)) params.push_back(node.Float(name, 0));
  return c.Finish(Activated(c, y, node.String("activation", ""), params));
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

// A constant of bytes as numbers of a few bits, `count` a row; one of a type of few bits is that already.
absl::StatusOr<ImportValue> UnpackedRows(Composer& c, const ImportValue& packed, int64_t bits, int64_t count) {
  if (packed->type.dtype != DType::kUint8 || !packed->narrow.empty() || bits == 8) return packed;
  Ints shape = packed->type.shape;
  if (!packed->value || shape.back() != (count * bits + 7) / 8)
    return absl::InvalidArgumentError(
        absl::StrCat("packed numbers of ", packed->type.ToString(), " are not constants or not ", count, " a row"));
  shape.back() = count;
  return c.Reshape(
      c.Constant(Unpacked(*packed->value, packed->type.elements() / packed->type.shape.back(), bits, count)), shape);
}

// Rows of a table of few bits, which are in blocks with a scale, and a zero point, of their own.
absl::Status GatherBlockQuantized(NodeImporter& node) {
  Composer c(node);
  ImportValue packed = c.Input(0), indices = c.Input(1), scales = c.Input(2), zeros;
  const int64_t bits = node.Int("bits", 4), block = node.Int("block_size", 128);
  RETURN_IF_ERROR(c.status());
  const int64_t rank = RankOf(packed), gathered = c.Axis(node.Int("gather_axis", 0), packed),
                axis = c.Axis(node.Int("quantize_axis", 1), packed);
  RETURN_IF_ERROR(c.status());
  const bool bytes = packed->type.dtype == DType::kUint8 && packed->narrow.empty();
  if ((bits != 4 && bits != 8) || block < 1 || gathered == axis || axis != rank - 1 || RankOf(scales) != rank) {
    return absl::InvalidArgumentError(absl::StrCat("bits=", bits, ", block_size=", block, " and scales of ",
                                                   scales->type.ToString(), " for rows of ", packed->type.ToString(),
                                                   " are not supported: 4 or 8 bits in blocks of the last axis are"));
  }
  const int64_t count = packed->type.shape[axis] * (bytes ? 8 / bits : 1), blocks = scales->type.shape[axis];
  if (blocks != (count + block - 1) / block)
    return absl::InvalidArgumentError(
        absl::StrCat(blocks, " scales do not fit ", count, " numbers in blocks of ", block));
  ASSIGN_OR_RETURN(const ImportValue table, UnpackedRows(c, packed, bits, count));
  if (node.HasInput(3)) {
    ASSIGN_OR_RETURN(zeros, UnpackedRows(c, c.Input(3), bits, blocks));
  }
  const DType type = scales->type.dtype;
  const auto rows = [&](const ImportValue& x) { return c.Op("gather", {x, indices}, {{"axis", gathered}}); };
  Ints owner;  // the block of each number of a row
  for (int64_t i = 0; i < count; ++i) owner.push_back(i / block);
  const int64_t last = axis + RankOf(indices) - 1;
  const auto spread = [&](const ImportValue& x) {
    return c.Op("gather", {rows(x), c.Indices(owner)}, {{"axis", last}});
  };
  ImportValue zero =
      zeros ? spread(c.Cast(zeros, type)) : c.Scalar(bytes ? static_cast<double>(1 << (bits - 1)) : 0, type);
  return c.Finish(c.Mul(c.Sub(c.Cast(rows(table), type), zero), spread(scales)));
}

}  // namespace

std::vector<OnnxRule> Fused() {
  return {{"com.microsoft.Gelu", Gelu},
          {"com.microsoft.BiasGelu", Gelu},
          {"com.microsoft.FastGelu", FastGelu},
          {"com.microsoft.QuickGelu", QuickGelu},
          {"com.microsoft.FusedMatMul", FusedMatMul},
          {"com.microsoft.FusedConv", FusedConv},
          {"com.microsoft.FusedGemm", FusedGemm},
          {"com.microsoft.EmbedLayerNormalization", EmbedLayerNormalization},
          {"com.microsoft.GatherBlockQuantized", GatherBlockQuantized},
          {"com.microsoft.MatMulNBits", MatMulNBits}};
}

}  // namespace diapason::onnx_rules
