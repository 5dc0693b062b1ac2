#include "compiler/graph/passes/canonical_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/operator.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

// Whether all elements of a constant are `value`. Of numbers only one-element constants: what a network is shall not
// depend on its weights.
bool IsAll(const NetworkEditor& network, int tensor, double value) {
  const Array* array = network.constant(tensor);
  if (!array || (array->dtype != DType::kBool && array->elements() != 1)) return false;
  for (int64_t i = 0, n = array->elements(); i < n; ++i)
    if (array->at(i) != value) return false;
  return true;
}

// The operand that a node hands on since the others change nothing (x and true, x * 1, a choice that is known), or
// -1.
int Unchanged(const NetworkEditor& network, const Node& node) {
  if (node.op == "where") return IsAll(network, node.inputs[0], 1) ? 1 : IsAll(network, node.inputs[0], 0) ? 2 : -1;
  const bool sum = node.op == "add" || node.op == "sub" || node.op == "or";
  const bool product = node.op == "mul" || node.op == "div" || node.op == "and";
  if (!sum && !product) return -1;
  if (IsAll(network, node.inputs[1], product)) return 0;
  return FindOperator(node.op)->commutative && IsAll(network, node.inputs[0], product) ? 1 : -1;
}

// A constant like one that is there, with another value.
int ReplacedConstant(NetworkEditor& network, int constant, Array value) {
  return network.AddConstant(network.network().tensor(constant).name, std::move(value));
}

// A constant of one element beside an operand that has the result's shape is a scalar, however many axes an exporter
// gave it.
bool PlainScalars(NetworkEditor& network, size_t n) {
  static const auto& broadcasting =
      *new std::set<std::string>{"add",  "sub",   "mul",  "div",        "maximum", "minimum", "pow", "mod",
                                 "fmod", "equal", "less", "less_equal", "and",     "or",      "xor", "where"};
  if (broadcasting.count(network.node(n).op) == 0) return false;
  std::vector<int> inputs = network.node(n).inputs;
  const auto is_whole = [&](int input) {
    return network.type(input).shape == network.type(network.node(n).output).shape;
  };
  bool changed = false;
  for (int& input : inputs) {
    const TensorType& one = network.type(input);
    if (network.constant(input) == nullptr || one.elements() != 1 || one.shape.empty()) continue;
    if (std::none_of(inputs.begin(), inputs.end(), [&](int other) { return other != input && is_whole(other); }))
      continue;
    input = ReplacedConstant(network, input, ReshapeArray(*network.constant(input), {}));
    changed = true;
  }
  if (changed) network.SetInputs(n, std::move(inputs));
  return changed;
}

// 1 / x.
bool DivToReciprocal(NetworkEditor& network, size_t n) {
  const Node& quotient = network.node(n);
  if (quotient.op != "div" || !IsAll(network, quotient.inputs[0], 1) || !IsFloat(network.type(quotient.output).dtype))
    return false;
  const int divisor = quotient.inputs[1];
  if (!(network.type(divisor) == network.type(quotient.output))) return false;
  network.node(n).op = "reciprocal";
  network.SetInputs(n, {divisor});
  return true;
}

bool DropNeutral(NetworkEditor& network, size_t n) {
  const int kept = Unchanged(network, network.node(n));
  if (kept < 0) return false;
  const int input = network.node(n).inputs[kept], output = network.node(n).output;
  if (network.type(input) == network.type(output)) return network.ReplaceBy(n, input);
  if (network.type(input).dtype != network.type(output).dtype) return false;
  network.node(n).op = "expand";
  network.node(n).attributes = Attributes{{"shape", network.type(output).shape}};
  network.SetInputs(n, {input});
  return true;
}

// A tensor as a product: a number times other tensors. Numbers are constants of one element; x * x and pow(x, 2) are
// the same.
class FactorsOf {
 public:
  FactorsOf(const NetworkEditor& network, int tensor) : network_(network) { Multiply(tensor, 0); }

  double scale() const { return scale_; }
  // Too many for what is looked for here: none.
  const std::vector<int>& factors() const { return factors_; }
  // Whether it is `scale`, as far as the tensors' type tells numbers apart, times one tensor (returned) that often; -1.
  int PowerOf(double scale, size_t exponent, double tolerance) const {
    if (factors_.size() != exponent || std::abs(scale_ / scale - 1) > tolerance) return -1;
    return std::equal(factors_.begin() + 1, factors_.end(), factors_.begin()) ? factors_[0] : -1;
  }

 private:
  static constexpr int kMostDepth = 6;
  static constexpr size_t kMostFactors = 4;

  const Array* Number(int tensor) const {
    const Array* array = network_.constant(tensor);
    return array && array->elements() == 1 && IsFloat(array->dtype) ? array : nullptr;
  }

  void Multiply(int tensor, int depth) {
    if (factors_.size() > kMostFactors) return;
    if (const Array* number = Number(tensor)) {
      scale_ *= number->at(0);
      return;
    }
    const Node* node = depth < kMostDepth ? network_.ProducerOf(tensor) : nullptr;
    if (node && node->op == "mul") {
      for (int input : node->inputs) Multiply(input, depth + 1);
    } else if (const Array* by = node && node->op == "div" ? Number(node->inputs[1]) : nullptr) {
      Multiply(node->inputs[0], depth + 1);
      scale_ /= by->at(0);
    } else if (const Array* power = node && node->op == "pow" ? Number(node->inputs[1]) : nullptr;
               power && (power->at(0) == 2 || power->at(0) == 3)) {
      for (int i = 0; i < power->at(0); ++i) factors_.push_back(node->inputs[0]);
    } else {
      factors_.push_back(tensor);
    }
  }

  const NetworkEditor& network_;
  double scale_ = 1;
  std::vector<int> factors_;
};

// The operand that is added to a constant `value` of one element; -1.
int AddedTo(const NetworkEditor& network, const Node& node, double value) {
  if (node.op != "add") return -1;
  for (int i = 0; i < 2; ++i)
    if (IsAll(network, node.inputs[i], value)) return node.inputs[1 - i];
  return -1;
}

// x where a tensor is sqrt(2 / pi) (x + 0.044715 x^3), in either way of writing it; -1.
int CubicOf(const NetworkEditor& network, int tensor, double tolerance) {
  constexpr double kCubic = 0.044715;
  const FactorsOf all(network, tensor);
  if (std::abs(all.scale() / std::sqrt(2 / 3.14159265358979323846) - 1) > tolerance) return -1;
  if (all.factors().size() == 1) {  // x + 0.044715 x^3
    const Node* sum = network.ProducerOf(all.factors()[0], "add");
    for (int i = 0; sum && i < 2; ++i)
      if (FactorsOf(network, sum->inputs[i]).PowerOf(kCubic, 3, tolerance) == sum->inputs[1 - i])
        return sum->inputs[1 - i];
  }
  for (size_t i = 0; all.factors().size() == 2 && i < 2; ++i) {  // x (1 + 0.044715 x^2)
    const Node* sum = network.ProducerOf(all.factors()[i], "add");
    const int square = sum ? AddedTo(network, *sum, 1) : -1, x = all.factors()[1 - i];
    if (square >= 0 && FactorsOf(network, square).PowerOf(kCubic, 2, tolerance) == x) return x;
  }
  return -1;
}

// x / 2 (1 + erf(x / sqrt(2))), or with tanh.
bool MergeGelu(NetworkEditor& network, size_t n) {
  if (network.node(n).op != "mul") return false;
  const TensorType& type = network.type(network.node(n).output);
  if (!IsFloat(type.dtype)) return false;
  const double tolerance = BytesOf(type.dtype) == 2 ? 4e-3 : 1e-6;
  const FactorsOf all(network, network.node(n).output);
  if (all.factors().size() != 2 || std::abs(all.scale() / 0.5 - 1) > tolerance) return false;
  for (int i = 0; i < 2; ++i) {
    const int x = all.factors()[1 - i];
    const Node* sum = network.ProducerOf(all.factors()[i], "add");
    const int curve = sum ? AddedTo(network, *sum, 1) : -1;
    const Node* function = curve >= 0 ? network.ProducerOf(curve) : nullptr;
    if (!function || (function->op != "erf" && function->op != "tanh") || !(network.type(x) == type)) continue;
    const int of = function->op == "erf" ? FactorsOf(network, function->inputs[0]).PowerOf(std::sqrt(0.5), 1, tolerance)
                                         : CubicOf(network, function->inputs[0], tolerance);
    if (of != x) continue;
    network.node(n).op = function->op == "erf" ? "gelu" : "gelu_tanh";
    network.node(n).attributes = {};
    network.SetInputs(n, {x});
    return true;
  }
  return false;
}

// A constant around an image becomes padding of the convolution that reads it, if that pads by the same.
bool MergePad(NetworkEditor& network, size_t n) {
  Node& conv = network.node(n);
  if (conv.op != "conv2d") return false;
  const Node* pad = network.ProducerOf(conv.inputs[0], "pad");
  if (!pad || !network.IsReadOnce(pad->output) || pad->attributes.String("mode", "constant") != "constant")
    return false;
  std::vector<int64_t> amount = pad->attributes.Ints("pads", {});
  if (pad->attributes.Float("value", 0) != conv.attributes.Float("pad_value", 0) ||
      *std::min_element(amount.begin(), amount.end()) < 0)
    return false;
  bool nhwc = conv.attributes.String("layout", "NCHW") == "NHWC";
  int h = nhwc ? 1 : 2, c = nhwc ? 3 : 1;
  if (amount[0] || amount[4] || amount[c] || amount[c + 4]) return false;
  std::vector<int64_t> pads = conv.attributes.Ints("pads", {0, 0, 0, 0});
  const int64_t more[4] = {amount[h], amount[h + 1], amount[h + 4], amount[h + 5]};
  for (int i = 0; i < 4; ++i) pads[i] += more[i];
  conv.attributes.Set("pads", pads);
  std::vector<int> inputs = conv.inputs;
  inputs[0] = pad->inputs[0];
  network.SetInputs(n, std::move(inputs));
  return true;
}

// A product of matrices by constant weights; rows of more dimensions stay a matmul.
bool MatmulToGemm(NetworkEditor& network, size_t n) {
  Node& product = network.node(n);
  if (product.op != "matmul" || network.type(product.inputs[0]).shape.size() != 2) return false;
  if (network.type(product.inputs[1]).shape.size() != 2) return false;
  product.op = "gemm";
  network.LookAgainAround(n);
  return true;
}

Array Scaled(const Array& array, double factor) {
  Array out = array;
  for (int64_t i = 0, n = out.elements(); i < n; ++i) out.set(i, array.at(i) * factor);
  return out;
}

// Constant operands of gemm: b as (depth, columns), scales multiplied in.
bool PlainGemm(NetworkEditor& network, size_t n) {
  if (network.node(n).op != "gemm") return false;
  const Array* b = network.constant(network.node(n).inputs[1]);
  Node gemm = network.node(n);
  bool changed = false;
  if (b && gemm.attributes.Int("trans_b", 0) != 0) {
    gemm.inputs[1] = ReplacedConstant(network, gemm.inputs[1], TransposeArray(*b, {1, 0}));
    gemm.attributes.Erase("trans_b");
    changed = true;
  }
  if (double alpha = gemm.attributes.Float("alpha", 1); b && alpha != 1) {
    gemm.inputs[1] = ReplacedConstant(network, gemm.inputs[1], Scaled(*network.constant(gemm.inputs[1]), alpha));
    gemm.attributes.Erase("alpha");
    changed = true;
  }
  double beta = gemm.attributes.Float("beta", 1);
  if (gemm.inputs.size() == 3 && beta != 1 && network.constant(gemm.inputs[2]) != nullptr) {
    gemm.inputs[2] = ReplacedConstant(network, gemm.inputs[2], Scaled(*network.constant(gemm.inputs[2]), beta));
    gemm.attributes.Erase("beta");
    changed = true;
  }
  if (!changed) return false;
  network.node(n).attributes = gemm.attributes;
  network.SetInputs(n, gemm.inputs);
  return true;
}

}  // namespace

bool CanonicalizeArithmetic(NetworkEditor& network, size_t n) {
  return DropNeutral(network, n) || PlainScalars(network, n) || DivToReciprocal(network, n) || MergeGelu(network, n) ||
         MergePad(network, n) || MatmulToGemm(network, n) || PlainGemm(network, n);
}

}  // namespace diapason
