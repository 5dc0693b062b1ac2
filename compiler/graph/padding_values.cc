#include "compiler/graph/padding_values.h"

#include <algorithm>
#include <limits>

#include "absl/status/statusor.h"
#include "compiler/graph/evaluate.h"

namespace diapason {
namespace {

using Kind = PaddedValue::Kind;

bool AllKnown(const std::vector<PaddedValue>& values) {
  return std::all_of(values.begin(), values.end(), [](const PaddedValue& v) { return v.kind == Kind::kKnown; });
}

PaddedValue Evaluated(const Network& network, const Node& node, const std::vector<PaddedValue>& inputs) {
  std::vector<Array> arrays;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Array scalar(network.tensor(node.inputs[i]).type.dtype, {});
    IsFloat(scalar.dtype) ? scalar.set(0, inputs[i].value) : scalar.set_int(0, static_cast<int64_t>(inputs[i].value));
    arrays.push_back(std::move(scalar));
  }
  const absl::StatusOr<Array> result = EvaluateOperator(node.op, arrays, node.attributes);
  return result.ok() && result->elements() == 1 ? PaddedValue::Known(result->at(0)) : PaddedValue();
}

PaddedValue Selected(const std::vector<PaddedValue>& inputs) {
  const PaddedValue &condition = inputs[0], &yes = inputs[1], &no = inputs[2];
  if (condition.kind == Kind::kKnown) return condition.value != 0 ? yes : no;
  if (yes.kind == Kind::kKnown && yes == no) return yes;
  return yes.low() && no.low() ? PaddedValue::Low() : PaddedValue();
}

}  // namespace

PaddedValue CombinePadded(const Network& network, const Node& node, const std::vector<PaddedValue>& inputs,
                          const std::vector<bool>& finite) {
  if (node.op == "where") return Selected(inputs);
  if (AllKnown(inputs)) return Evaluated(network, node, inputs);
  const auto any = [&](auto holds) { return std::any_of(inputs.begin(), inputs.end(), holds); };
  if (node.op == "and" && any([](const PaddedValue& v) { return v.is(0); })) return PaddedValue::Known(0);
  if (node.op == "or" && any([](const PaddedValue& v) { return v.kind == Kind::kKnown && v.value != 0; }))
    return PaddedValue::Known(1);
  // What is low may be -inf; all others must be finite.
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].finite(finite[i]) && !inputs[i].low()) return {};
  const bool low = any([](const PaddedValue& v) { return v.low(); });
  if (node.op == "mul" && !low && any([](const PaddedValue& v) { return v.is(0); })) return PaddedValue::Known(0);
  const bool high = any([](const PaddedValue& v) { return v.kind == Kind::kKnown && v.value > 0; });
  if ((node.op == "add" && low && !high) || (node.op == "minimum" && low)) return PaddedValue::Low();
  if (node.op == "sub" && inputs[0].low() && inputs[1].kind == Kind::kUnknown) return PaddedValue::Low();
  if (node.op == "mul" && low && any([](const PaddedValue& v) { return v.kind == Kind::kKnown && v.value >= 1; }))
    return PaddedValue::Low();
  if (node.op == "cast" && low && IsFloat(network.tensor(node.output).type.dtype)) return PaddedValue::Low();
  return {};
}

PaddedValue PaddedValueOf(const Array& constant, const std::vector<int64_t>& blocks, size_t axis, int64_t least) {
  std::optional<double> all;
  bool same = true, low = true, beside_low = false;
  std::vector<int64_t> index(constant.shape.size(), 0);
  for (int64_t e = 0, n = constant.elements(); e < n; ++e) {
    int64_t other = -1;
    for (size_t d = 0; d < index.size(); ++d)
      if (d != axis && blocks[d] > 0) other = std::max(other, index[d] / blocks[d]);
    const int64_t row = index[axis] / blocks[axis];
    if (row >= least && other < row) {  // there is a real size at which this one is padded and the others are not
      const double value = constant.at(e);
      same = same && (!all.has_value() || *all == value);
      all = value;
      low = low && value <= -1e4;
    }
    beside_low = beside_low || (index[axis] == 0 && !(constant.at(e) > -1e4));
    for (size_t d = index.size(); d-- > 0 && ++index[d] == constant.shape[d];) index[d] = 0;
  }
  if (!all.has_value()) return {};
  const bool none = same && *all == -std::numeric_limits<double>::infinity();
  if (low && beside_low && !none) return {};
  return same ? PaddedValue::Known(*all) : low ? PaddedValue::Low() : PaddedValue();
}

std::optional<double> UniformValue(const Array& constant) {
  const int64_t n = constant.elements();
  if (n == 0) return std::nullopt;
  const double first = constant.at(0);
  for (int64_t e = 1; e < n; ++e)
    if (constant.at(e) != first) return std::nullopt;
  return first;
}

}  // namespace diapason
