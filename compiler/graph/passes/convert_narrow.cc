// float32 becomes a narrow float, but for what is computed from integers: sums of 8-bit products, counts and positions
// are integers that float16 and bfloat16 do not have, so they stay float32 until they have been scaled.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

// Which tensors stay float32: results of casts from integers that are no constants, and what is computed from these
// element by element, by moves or by reductions, until it meets a narrow tensor as large as the result or an operator
// that is worth a narrow type (products, convolutions, normalizations).
class WideTensors {
 public:
  WideTensors(const Network& network, DType narrow)
      : network_(network),
        most_(LargestOf(narrow)),
        wide_(network.tensors.size(), false),
        fixed_(network.tensors.size(), false),
        computes_(network.nodes.size(), false) {
    for (size_t t = 0; t < fixed_.size(); ++t) fixed_[t] = network.tensors[t].constant();
    for (size_t n = 0; n < network.nodes.size(); ++n) Follow(n);
    DropUnread();
  }

  bool Stays(int tensor) const { return wide_[tensor]; }
  // Whether a node reads and computes float32.
  bool Computes(size_t node) const { return computes_[node]; }

 private:
  const TensorType& TypeOf(int tensor) const { return network_.tensor(tensor).type; }
  bool IsFloat32(int tensor) const { return TypeOf(tensor).dtype == DType::kFloat32; }

  bool ReadsWide(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return wide_[input]; });
  }
  bool ReadsNarrow(const Node& node, int64_t elements) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return IsFloat32(input) && !wide_[input] && !network_.tensor(input).constant() &&
             TypeOf(input).elements() >= elements;
    });
  }

  // Masks are made of the lowest float32, and a narrow float has a value of its own for it (RoundConstant).
  bool HasConstantsBeyondRange(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      const Array* data = network_.tensor(input).data.get();
      if (data == nullptr || !IsFloat32(input)) return false;
      for (int64_t i = 0, n = data->elements(); i < n; ++i)
        if (std::isfinite(data->at(i)) && std::abs(data->at(i)) > most_) return true;
      return false;
    });
  }

  static bool IsMove(const Node& node) { return FindOperator(node.op)->kind == OperatorKind::kInjective; }

  // A matrix of one column by one of one row: positions by frequencies.
  bool HasOneTerm(const Node& node) const {
    return node.op == "matmul" && !TypeOf(node.inputs[0]).shape.empty() && TypeOf(node.inputs[0]).shape.back() == 1;
  }

  bool MayCompute(const Node& node) const {
    static const std::set<std::string> kReductions = {
        "reduce_sum",     "reduce_mean",        "reduce_max", "reduce_min", "reduce_prod", "avg_pool",  "avg_pool3d",
        "cumulative_sum", "cumulative_product", "max_pool",   "max_pool3d", "sum_pool",    "sum_pool3d"};
    if (HasConstantsBeyondRange(node)) return false;
    const OperatorKind kind = FindOperator(node.op)->kind;
    if (kind == OperatorKind::kElementwise)
      return node.op != "batch_norm" && !ReadsNarrow(node, TypeOf(node.output).elements());
    return (kind == OperatorKind::kInjective || kReductions.contains(node.op) || HasOneTerm(node)) &&
           !ReadsNarrow(node, 0);
  }

  void Follow(size_t n) {
    const Node& node = network_.nodes[n];
    fixed_[node.output] = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return fixed_[input]; });
    if (!IsFloat32(node.output)) {
      computes_[n] = ReadsWide(node);
      return;
    }
    const auto is_integer = [&](int tensor) {
      return !IsFloat(TypeOf(tensor).dtype) && TypeOf(tensor).dtype != DType::kBool;
    };
    const bool begins = node.op == "cast" && is_integer(node.inputs[0]) && !fixed_[node.output];
    computes_[n] = wide_[node.output] = begins || (ReadsWide(node) && MayCompute(node));
  }

  // Casts from integers and moves whose results nobody reads as float32 need not make it.
  void DropUnread() {
    const std::vector<std::vector<int>> consumers = network_.Consumers();
    for (size_t n = network_.nodes.size(); n-- > 0;) {
      const Node& node = network_.nodes[n];
      if (!wide_[node.output] || (node.op != "cast" && !IsMove(node))) continue;
      const std::vector<int>& readers = consumers[node.output];
      if (std::any_of(readers.begin(), readers.end(), [&](int reader) { return computes_[reader]; })) continue;
      computes_[n] = wide_[node.output] = false;
    }
  }

  const Network& network_;
  const double most_;
  std::vector<bool> wide_, fixed_;  // by tensor; fixed: computed from constants alone
  std::vector<bool> computes_;      // by node
};

class NarrowConversion {
 public:
  NarrowConversion(Network* network, DType dtype) : network_(*network), dtype_(dtype), wide_(*network, dtype) {}

  absl::Status Run() {
    std::set<int> read_wide;
    for (size_t n = 0; n < network_.nodes.size(); ++n)
      if (wide_.Computes(n)) read_wide.insert(network_.nodes[n].inputs.begin(), network_.nodes[n].inputs.end());
    for (size_t id = 0, n = network_.tensors.size(); id < n; ++id) {
      Tensor& tensor = network_.tensors[id];
      if (tensor.type.dtype != DType::kFloat32) continue;
      was_float32_.insert(static_cast<int>(id));
      if (wide_.Stays(static_cast<int>(id))) continue;
      if (tensor.constant() && read_wide.contains(static_cast<int>(id))) continue;
      tensor.type.dtype = dtype_;
      if (tensor.data) tensor.data = std::make_shared<const Array>(RoundConstant(*tensor.data, dtype_));
    }
    std::vector<Node> old;
    old.swap(network_.nodes);
    for (size_t n = 0; n < old.size(); ++n) {
      Node& node = old[n];
      for (int& input : node.inputs) input = InType(input, wide_.Computes(n) ? DType::kFloat32 : dtype_);
      if (!wide_.Computes(n)) RoundAttributes(&node);
      network_.nodes.push_back(std::move(node));
    }
    for (int& output : network_.outputs) output = InType(output, dtype_);
    return InferShapes(network_);
  }

 private:
  // Of what was float32 the tensor of this type that holds the same; anything else itself.
  int InType(int tensor, DType dtype) {
    const Tensor from = network_.tensor(tensor);
    if (!was_float32_.contains(tensor) || from.type.dtype == dtype) return tensor;
    const auto [known, fresh] = casts_.emplace(std::pair(tensor, dtype), -1);
    if (!fresh) return known->second;
    if (from.constant()) return known->second = network_.AddConstant(from.name, RoundConstant(*from.data, dtype));
    const auto result = static_cast<int>(network_.tensors.size());
    network_.tensors.push_back({from.name, {dtype, from.type.shape}, nullptr});
    network_.nodes.push_back(
        {"cast", from.name + "_" + std::string(NameOf(dtype)), {{"to", std::string(NameOf(dtype))}}, {tensor}, result});
    return known->second = result;
  }

  void RoundAttributes(Node* node) const {
    if (!was_float32_.contains(node->output)) return;
    Attributes& attributes = node->attributes;
    if (node->op == "cast") attributes.Set("to", std::string(NameOf(dtype_)));
    if (node->op == "pad" && attributes.has("value"))
      attributes.Set("value", RoundNumber(attributes.Float("value", 0), dtype_));
    if (node->op != "clip") return;
    for (const char* limit : {"min", "max"}) {
      if (!attributes.has(limit)) continue;
      const double value = attributes.Float(limit, 0), most = LargestOf(dtype_);
      const bool beyond = std::isfinite(value) && std::abs(value) > most;
      attributes.Set(limit, beyond ? std::copysign(most, value) : RoundNumber(value, dtype_));
    }
  }

  Network& network_;
  const DType dtype_;
  const WideTensors wide_;
  std::set<int> was_float32_;
  std::map<std::pair<int, DType>, int> casts_;
};

}  // namespace

absl::Status ConvertToNarrow(Network& network, DType dtype) { return NarrowConversion(&network, dtype).Run(); }

}  // namespace diapason
