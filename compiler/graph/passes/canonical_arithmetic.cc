#include "compiler/graph/passes/canonical_arithmetic.h"

#include <algorithm>
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
  return DropNeutral(network, n) || PlainScalars(network, n) || DivToReciprocal(network, n) || MergePad(network, n) ||
         MatmulToGemm(network, n) || PlainGemm(network, n);
}

}  // namespace diapason
