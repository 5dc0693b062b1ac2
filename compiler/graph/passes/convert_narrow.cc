// float32 becomes a narrow float, but for what is computed from integers: sums of 8-bit products, counts and positions
// are integers that float16 and bfloat16 do not have, so they stay float32 until they have been scaled.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/graph/value_range.h"

namespace diapason {
namespace {

// Which tensors stay float32 (are wide): results of casts from integers that are no constants, and what is computed
// from these element by element, by moves or by reductions, until it meets a narrow tensor as large as the result or an
// operator that is worth a narrow type (products, convolutions).
class WideTensors {
 public:
  WideTensors(const Network& network, DType narrow)
      : network_(network),
        most_(LargestOf(narrow)),
        wide_(network.tensors.size(), false),
        fixed_(network.tensors.size(), false),
        computes_(network.nodes.size(), false),
        ranges_(network.tensors.size()) {
    for (size_t t = 0; t < fixed_.size(); ++t) {
      fixed_[t] = network.tensors[t].constant();
      ranges_[t] = ValueRange::Finite();
      if (network.tensors[t].type.dtype == DType::kBool) ranges_[t] = {ValueRange::Kind::kFinite, 0, 1};
      if (fixed_[t]) ranges_[t] = RangeOf(*network.tensors[t].data);
    }
    for (size_t n = 0; n < network.nodes.size(); ++n) Follow(n);
    const std::vector<std::vector<int>> consumers = network.Consumers();
    for (size_t n = network.nodes.size(); n-- > 0;) LeadToIntegers(n, consumers[network.nodes[n].output]);
    for (size_t n = network.nodes.size(); n-- > 0;) DropUnread(n, consumers[network.nodes[n].output]);
  }

  bool Stays(int tensor) const { return wide_[tensor]; }
  // Whether a node reads and computes float32. Where its result does not stay, that is narrowed behind it.
  bool Computes(size_t node) const { return computes_[node]; }

 private:
  const TensorType& TypeOf(int tensor) const { return network_.tensor(tensor).type; }
  bool IsFloat32(int tensor) const { return TypeOf(tensor).dtype == DType::kFloat32; }
  bool IsNarrow(int tensor) const { return IsFloat32(tensor) && !wide_[tensor] && !network_.tensor(tensor).constant(); }
  bool IsWithinRange(double value) const { return std::abs(value) <= most_ || !std::isfinite(value); }

  bool ReadsWide(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return wide_[input]; });
  }
  // Of so many elements or more.
  bool ReadsNarrow(const Node& node, int64_t elements) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](int input) { return IsNarrow(input) && TypeOf(input).elements() >= elements; });
  }

  // Whether the node makes a mask, which says "hidden" by a number beyond the narrow range, for which that has one of
  // its own (RoundConstant): of what is divided by or added such numbers are what they are.
  bool MakesMask(const Node& node) const {
    constexpr double kLeastHidden = 1e12;
    if (node.op == "div") return false;
    const bool sum = node.op == "add" || node.op == "sub";
    if (node.op == "clip" || node.op == "pad")
      for (const char* limit : {"min", "max", "value"})
        if (node.attributes.has(limit) && !IsWithinRange(node.attributes.Float(limit, 0))) return true;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      const ValueRange& range = ranges_[input];
      if (!network_.tensor(input).constant() || !IsFloat32(input)) return false;
      const double largest = std::max(std::abs(range.lower), std::abs(range.upper));
      return sum ? std::isfinite(largest) && largest > std::max(kLeastHidden, most_) : !IsWithinRange(largest);
    });
  }

  // A matrix of one column by one of one row, or a convolution of one channel and place: positions by frequencies.
  bool HasOneTerm(const Node& node) const {
    if (node.op == "conv2d") {
      const TensorType& filter = TypeOf(node.inputs[1]);
      return filter.elements() == filter.shape[0] && node.attributes.String("layout", "NCHW") == "NCHW";
    }
    if (node.op != "matmul" && node.op != "gemm") return false;
    const std::vector<int64_t>& shape = TypeOf(node.inputs[0]).shape;
    return !shape.empty() && (node.attributes.Int("trans_a", 0) != 0 ? shape.front() : shape.back()) == 1;
  }

  // How an operator computes float32 from wide tensors: kMixed, from narrow ones too, which are cast;
  // kNormalization, with results that need no float32.
  enum class Kind { kNone, kUnmixed, kMixed, kNormalization };
  Kind KindOf(const Node& node) const {
    static const std::set<std::string> kReductions = {
        "reduce_sum",     "reduce_mean",        "reduce_max", "reduce_min", "reduce_prod", "avg_pool",  "avg_pool3d",
        "cumulative_sum", "cumulative_product", "max_pool",   "max_pool3d", "sum_pool",    "sum_pool3d"};
    static const std::set<std::string> kNormalizations = {"layer_norm", "rms_norm", "softmax", "log_softmax"};
    const OperatorKind kind = FindOperator(node.op)->kind;
    if (kind == OperatorKind::kElementwise) return Kind::kMixed;
    if (kNormalizations.contains(node.op)) return Kind::kNormalization;
    const bool unmixed = kind == OperatorKind::kInjective || kReductions.contains(node.op) || HasOneTerm(node);
    return unmixed ? Kind::kUnmixed : Kind::kNone;
  }

  // Whether the wide operands of a node that also reads narrow ones do as well as narrow ones: those of sums, whose
  // narrow result reaches no further, and factors of known size, such as cosines of positions. Other factors and
  // divisors might become 0 or infinite.
  bool MayNarrowOperands(const Node& node) const {
    if (node.op == "add" || node.op == "sub") return true;
    return node.op == "mul" && std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
             const ValueRange& range = ranges_[input];
             return !wide_[input] || (range.finite() && range.lower >= -most_ && range.upper <= most_);
           });
  }

  void Follow(size_t n) {
    const Node& node = network_.nodes[n];
    fixed_[node.output] = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return fixed_[input]; });
    std::vector<ValueRange> ranges;
    for (int input : node.inputs) ranges.push_back(ranges_[input]);
    ranges_[node.output] = RangeOf(network_, node, ranges);
    if (!IsFloat32(node.output)) {
      computes_[n] = ReadsWide(node);
      return;
    }
    if (node.op == "cast" && !IsFloat(TypeOf(node.inputs[0]).dtype)) {
      computes_[n] = wide_[node.output] = !fixed_[node.output];
      return;
    }
    const Kind kind = ReadsWide(node) ? KindOf(node) : Kind::kNone;
    if (kind == Kind::kNone || MakesMask(node)) return;
    if (kind == Kind::kUnmixed) {
      computes_[n] = wide_[node.output] = !ReadsNarrow(node, 0);
    } else if (kind == Kind::kNormalization) {
      computes_[n] = true;
    } else if (!ReadsNarrow(node, TypeOf(node.output).elements())) {
      computes_[n] = wide_[node.output] = true;
    } else {
      computes_[n] = !MayNarrowOperands(node);
    }
  }

  // What becomes integers is computed in float32 as well, element by element from narrow results: quotients by scales,
  // limits of integer types.
  void LeadToIntegers(size_t n, const std::vector<int>& readers) {
    const Node& node = network_.nodes[n];
    const DType result = TypeOf(node.output).dtype;
    if (fixed_[node.output] || computes_[n]) return;
    if (node.op == "cast" && IsFloat32(node.inputs[0]) && !IsFloat(result) && result != DType::kBool) {
      computes_[n] = true;
    } else if (IsFloat32(node.output) && KindOf(node) == Kind::kMixed && node.op != "cast" && !MakesMask(node) &&
               !readers.empty() && !network_.is_output(node.output)) {
      computes_[n] = wide_[node.output] =
          std::all_of(readers.begin(), readers.end(), [&](int reader) { return computes_[reader]; });
    }
  }

  // Casts from integers and moves whose results nobody reads as float32 need not make it.
  void DropUnread(size_t n, const std::vector<int>& readers) {
    const Node& node = network_.nodes[n];
    const bool moves = node.op == "cast" || FindOperator(node.op)->kind == OperatorKind::kInjective;
    if (!wide_[node.output] || !moves) return;
    if (std::any_of(readers.begin(), readers.end(), [&](int reader) { return computes_[reader]; })) return;
    computes_[n] = wide_[node.output] = false;
  }

  const Network& network_;
  const double most_;
  std::vector<bool> wide_, fixed_;  // by tensor; fixed: computed from constants alone
  std::vector<bool> computes_;      // by node
  std::vector<ValueRange> ranges_;  // by tensor
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
      const bool wide = wide_.Computes(n);
      for (int& input : node.inputs) input = InType(input, wide ? DType::kFloat32 : dtype_);
      if (!wide) RoundAttributes(&node);
      const int result = node.output;
      const bool narrows = wide && was_float32_.contains(result) && !wide_.Stays(result);
      if (narrows) node.output = AddTensor(network_.tensor(result), DType::kFloat32);
      const int computed = node.output;
      network_.nodes.push_back(std::move(node));
      if (narrows) AddCast(computed, result);
    }
    for (int& output : network_.outputs) output = InType(output, dtype_);
    return InferShapes(network_);
  }

 private:
  // Of what was float32 the tensor of this type that holds the same; anything else itself.
  int InType(int tensor, DType dtype) {
    const Tensor from = network_.tensor(tensor);  // tensors are added below
    if (!was_float32_.contains(tensor) || from.type.dtype == dtype) return tensor;
    const auto [known, fresh] = casts_.emplace(std::pair(tensor, dtype), -1);
    if (!fresh) return known->second;
    if (from.constant()) return known->second = network_.AddConstant(from.name, RoundConstant(*from.data, dtype));
    known->second = AddTensor(from, dtype);
    AddCast(tensor, known->second);
    return known->second;
  }

  int AddTensor(const Tensor& like, DType dtype) { return network_.AddTensor(like.name, {dtype, like.type.shape}); }

  void AddCast(int from, int to) {
    const std::string type(NameOf(network_.tensor(to).type.dtype));
    network_.nodes.push_back({"cast", network_.tensor(to).name + "_" + type, {{"to", type}}, {from}, to});
  }

  // A limit's nearest value within it: what the type has beyond the limits of an integer type would not be that type's.
  double RoundLimit(double value, bool upper) const {
    double rounded = RoundNumber(value, dtype_);
    const double sign = upper ? -1 : 1;
    for (double step = std::abs(rounded) * 0x1p-13; sign * (value - rounded) > 0 && step > 0; step *= 2)
      if (const double next = RoundNumber(rounded + sign * step, dtype_); next != rounded) rounded = next;
    return rounded;
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
      const bool upper = limit == std::string("max");
      attributes.Set(limit, beyond ? std::copysign(most, value) : RoundLimit(value, upper));
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
