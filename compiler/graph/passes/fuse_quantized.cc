// Products between dequantize and quantize become sums of products of integers, with the scale behind them: what
// QLinearConv and its like are.
//
// Tensors that dequantize gives are kept as their integers and scale (Dequantized), and products of two such as
// integers with a scale (Sum), until something needs them as float32. So what is fused does not depend on what stands
// between.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/graph/passes/quantized.h"

namespace diapason {
namespace {

using ZeroPoint = std::shared_ptr<const Array>;  // null: 0

// (q - zero) * scale, whose parameters broadcast to q.
struct Dequantized {
  int q = -1;
  std::shared_ptr<const Array> scale;
  ZeroPoint zero;
  bool whole() const {
    return scale->elements() == 1 && (!zero || zero->elements() == 1);
  }  // one of each for all elements
};

// min(max(sum * scale, low), high), of integers that are exact, or of means of them.
struct ScaledSum {
  int sum = -1;  // int32, or float32
  Array scale;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

std::pair<double, double> LimitsOf(DType dtype) {
  return dtype == DType::kInt8 ? std::pair(-128.0, 127.0) : std::pair(0.0, 255.0);
}

double ZeroOf(const ZeroPoint& zero, int64_t i) {
  return zero ? static_cast<double>(zero->int_at(zero->elements() == 1 ? 0 : i)) : 0;
}

bool SameValues(const ZeroPoint& a, const ZeroPoint& b) {
  const int64_t n = std::max(a ? a->elements() : 1, b ? b->elements() : 1);
  for (int64_t i = 0; i < n; ++i)
    if (ZeroOf(a, i) != ZeroOf(b, i)) return false;
  return true;
}

bool IsPositive(const Array& scale) {
  for (int64_t i = 0, n = scale.elements(); i < n; ++i)
    if (!(scale.at(i) > 0 && std::isfinite(scale.at(i)))) return false;
  return true;
}

// Element by element in float32; one of them may have one element.
template <typename F>
Array Combined(const Array& a, const Array& b, F f) {
  const Array& larger = a.elements() >= b.elements() ? a : b;
  Array out(DType::kFloat32, larger.shape);
  for (int64_t i = 0, n = out.elements(); i < n; ++i)
    out.set(
        i, f(static_cast<float>(a.at(a.elements() == 1 ? 0 : i)), static_cast<float>(b.at(b.elements() == 1 ? 0 : i))));
  return out;
}
Array Product(const Array& a, const Array& b) {
  return Combined(a, b, [](float x, float y) { return x * y; });
}
Array Quotient(const Array& a, const Array& b) {
  return Combined(a, b, [](float x, float y) { return x / y; });
}

// A list of values along one axis of a tensor of that rank; one value is a scalar.
Array Along(const Array& values, size_t axis, size_t rank) {
  if (values.elements() == 1) return ReshapeArray(values, {});
  std::vector<int64_t> shape(rank, 1);
  shape[axis] = values.elements();
  return ReshapeArray(values, shape);
}

// A network that is being made. The first error stays, and nothing is added behind it.
class NewNetwork {
 protected:
  int Op(const std::string& op, std::vector<int> inputs, const std::string& name, Attributes attributes = {}) {
    if (!error_.ok()) return 0;
    absl::StatusOr<int> id = to_.AddNode(op, std::move(inputs), std::move(attributes), name);
    if (id.ok()) return *id;
    error_ = id.status();
    return 0;
  }
  int Constant(const std::string& name, Array value) { return to_.AddConstant(name, std::move(value)); }
  const TensorType& type(int id) const { return to_.tensor(id).type; }
  int CastTo(DType dtype, int x, const std::string& name) {
    return type(x).dtype == dtype ? x : Op("cast", {x}, name, {{"to", std::string(NameOf(dtype))}});
  }

  // dequantize as elementary operators.
  int Expanded(int q, int scale, int zero, const std::string& name) {
    const DType work = type(q).dtype == DType::kInt32 ? DType::kInt32 : DType::kFloat32;
    int x = CastTo(work, q, name);
    if (zero >= 0) x = Op("sub", {x, CastTo(work, zero, name)}, name);
    return Op("mul", {CastTo(DType::kFloat32, x, name), scale}, name);
  }

  int Clipped(int x, double low, double high, const std::string& name) {
    if (low == 0 && !std::isfinite(high)) return Op("relu", {x}, name);
    Attributes limits;
    if (std::isfinite(low)) limits.Set("min", low);
    if (std::isfinite(high)) limits.Set("max", high);
    return limits.values().empty() ? x : Op("clip", {x}, name, std::move(limits));
  }

  Network to_;
  absl::Status error_;
};

class QuantizedFuser : private NewNetwork {
 public:
  explicit QuantizedFuser(const Network& from) : from_(from), states_(from.tensors.size()) {}

  absl::StatusOr<Network> Run() {
    to_.name = from_.name;
    for (int id : from_.inputs) states_[id].id = to_.AddInput(from_.tensor(id).name, from_.tensor(id).type);
    for (const Node& node : from_.nodes) {
      states_[node.output].name = node.name;
      Visit(node);
      RETURN_IF_ERROR(error_);
    }
    for (int id : from_.outputs) to_.outputs.push_back(Output(id));
    RETURN_IF_ERROR(error_);
    return std::move(to_);
  }

 private:
  // A tensor of the old network: in the new one (id), or as what it is made of, or both.
  struct State {
    int id = -1;
    std::string name;  // of the node
    std::optional<Dequantized> quantized;
    std::optional<ScaledSum> sum;
  };

  void Visit(const Node& node) {
    static const std::set<std::string> kMoves = {"transpose", "reshape", "flatten", "squeeze",
                                                 "unsqueeze", "slice",   "gather",  "max_pool"};
    static const std::set<std::string> kMeans = {"avg_pool", "avg_pool3d", "reduce_mean"};
    const bool done = node.op == "dequantize"                                           ? TakeDequantize(node)
                      : node.op == "quantize"                                           ? Requantize(node)
                      : kMoves.contains(node.op)                                        ? Move(node)
                      : kMeans.contains(node.op)                                        ? Average(node)
                      : node.op == "mul"                                                ? Weight(node)
                      : node.op == "add"                                                ? Add(node)
                      : node.op == "concat"                                             ? Concat(node)
                      : node.op == "relu" || node.op == "clip"                          ? Clip(node)
                      : node.op == "conv2d" || node.op == "matmul" || node.op == "gemm" ? Multiply(node)
                                                                                        : false;
    if (!done) Copy(node);
  }

  int Value(int old) {
    State& state = states_[old];
    if (state.id >= 0) return state.id;
    if (from_.tensor(old).constant()) {
      state.id = static_cast<int>(to_.tensors.size());
      to_.tensors.push_back(from_.tensor(old));
    } else if (state.sum) {
      const ScaledSum& sum = *state.sum;
      const int scaled =
          Op("mul", {CastTo(DType::kFloat32, sum.sum, state.name), Constant(state.name, sum.scale)}, state.name);
      state.id = Clipped(scaled, sum.low, sum.high, state.name);
    } else {
      const Dequantized& d = *state.quantized;
      state.id = Expanded(d.q, Constant(state.name, *d.scale), d.zero ? Constant(state.name, *d.zero) : -1, state.name);
    }
    return state.id;
  }

  // Bears the name that it had.
  int Output(int old) {
    const int id = Value(old);
    return type(id) == from_.tensor(old).type && to_.tensor(id).name == from_.tensor(old).name
               ? id
               : Op("identity", {id}, from_.tensor(old).name);
  }

  void Copy(const Node& node) {
    std::vector<int> inputs;
    for (int input : node.inputs) inputs.push_back(Value(input));
    const int id = Op(node.op, std::move(inputs), node.name, node.attributes);
    states_[node.output].id = id;
    if (error_.ok()) to_.tensors[id].name = from_.tensor(node.output).name;
  }

  // ---- what stays quantised

  bool TakeDequantize(const Node& node) {
    const Tensor &q = from_.tensor(node.inputs[0]), &scale = from_.tensor(node.inputs[1]);
    const Tensor* zero = node.inputs.size() > 2 ? &from_.tensor(node.inputs[2]) : nullptr;
    State& state = states_[node.output];
    if ((IsByte(q.type.dtype) || q.type.dtype == DType::kInt32) && scale.constant() && (!zero || zero->constant()) &&
        IsPositive(*scale.data)) {
      state.quantized = Dequantized{Value(node.inputs[0]), scale.data, zero ? zero->data : nullptr};
    } else {
      state.id = Expanded(Value(node.inputs[0]), Value(node.inputs[1]), zero ? Value(node.inputs[2]) : -1, node.name);
    }
    return true;
  }

  // The parameter as it broadcasts to what a view makes of a tensor of that shape; nothing where that cannot be said.
  static ZeroPoint Moved(const Node& node, const ZeroPoint& parameter, const std::vector<int64_t>& shape) {
    if (!parameter || parameter->elements() == 1) return parameter;
    if (parameter->shape.size() != shape.size()) return nullptr;
    Attributes attributes = node.attributes;
    if (node.op == "squeeze" && !attributes.has("axes")) {  // those of the tensor: the parameter has more of extent 1
      std::vector<int64_t> axes;
      for (size_t d = 0; d < shape.size(); ++d)
        if (shape[d] == 1) axes.push_back(static_cast<int64_t>(d));
      attributes.Set("axes", std::move(axes));
    }
    absl::StatusOr<Array> moved = absl::InternalError("");
    if (node.op == "transpose" || node.op == "unsqueeze" || node.op == "squeeze") {
      Network one;
      const int x = one.AddConstant("x", *parameter);
      if (const auto id = one.AddNode(node.op, {x}, std::move(attributes));
          id.ok() && FoldConstants(one).ok() && one.tensor(*id).constant())
        return one.tensor(*id).data;
    }
    return nullptr;
  }

  // The node's inputs, with another first one.
  std::vector<int> WithFirst(const Node& node, int first) {
    std::vector<int> inputs = {first};
    for (size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(Value(node.inputs[i]));
    return inputs;
  }

  // Moving integers is moving what they stand for; the largest of some is that of what they stand for.
  bool Move(const Node& node) {
    const State& from = states_[node.inputs[0]];
    const std::vector<int64_t>& shape = from_.tensor(node.inputs[0]).type.shape;
    State& state = states_[node.output];
    if (from.sum) {
      const auto scale = Moved(node, std::make_shared<const Array>(from.sum->scale), shape);
      if (!scale || node.op == "max_pool") return false;
      state.sum = ScaledSum{Op(node.op, WithFirst(node, from.sum->sum), node.name, node.attributes), *scale,
                            from.sum->low, from.sum->high};
      return true;
    }
    if (!from.quantized) return false;
    const Dequantized& d = *from.quantized;
    const ZeroPoint scale = Moved(node, d.scale, shape), zero = Moved(node, d.zero, shape);
    if (!scale || (d.zero && !zero) || (node.op == "max_pool" && !d.whole())) return false;
    absl::StatusOr<int> q = to_.AddNode(node.op, WithFirst(node, d.q), node.attributes, node.name);
    if (!q.ok()) return false;
    state.quantized = Dequantized{*q, scale, zero};
    return true;
  }

  // ---- linear functions of one scale
  //
  // Sums of integers are exact in float32 too, in any order. So a result that lies right between two steps, as a
  // quarter of the means of four do where their scale is that of the result, is rounded the same way by all kernels.

  // The tensor as numbers in float32 that are multiplied by one scale; nothing where it is no such.
  std::optional<ScaledSum> InUnits(int old) {
    const State& state = states_[old];
    if (state.sum && state.sum->scale.elements() == 1 && type(state.sum->sum).dtype == DType::kFloat32 &&
        !std::isfinite(state.sum->low) && !std::isfinite(state.sum->high))
      return state.sum;
    if (!state.quantized || !state.quantized->whole() || !IsByte(type(state.quantized->q).dtype)) return std::nullopt;
    const Dequantized& d = *state.quantized;
    return ScaledSum{Centred(d, DType::kFloat32, state.name), ReshapeArray(*d.scale, {})};
  }

  bool Average(const Node& node) {
    std::optional<ScaledSum> units = InUnits(node.inputs[0]);
    if (!units) return false;
    units->sum = Op(node.op, {units->sum}, node.name, node.attributes);
    states_[node.output].sum = std::move(units);
    return true;
  }

  // By constants: those of an interpolation. Others might make numbers too large for the type before they are scaled.
  static bool IsWeight(const Tensor& tensor) {
    if (!tensor.constant() || tensor.type.dtype != DType::kFloat32) return false;
    for (int64_t i = 0, n = tensor.data->elements(); i < n; ++i)
      if (!(std::abs(tensor.data->at(i)) <= 1)) return false;
    return true;
  }
  bool Weight(const Node& node) {
    for (int i = 0; i < 2; ++i) {
      if (!IsWeight(from_.tensor(node.inputs[1 - i]))) continue;
      std::optional<ScaledSum> units = InUnits(node.inputs[i]);
      if (!units) continue;
      units->sum = Op("mul", {units->sum, Value(node.inputs[1 - i])}, node.name);
      states_[node.output].sum = std::move(units);
      return true;
    }
    return false;
  }

  bool Add(const Node& node) {
    std::optional<ScaledSum> a = InUnits(node.inputs[0]);
    const std::optional<ScaledSum> b = a ? InUnits(node.inputs[1]) : std::nullopt;
    if (!b || a->scale.at(0) != b->scale.at(0)) return false;
    a->sum = Op("add", {a->sum, b->sum}, node.name);
    states_[node.output].sum = std::move(a);
    return true;
  }

  bool Concat(const Node& node) {
    std::vector<int> parts;
    const std::optional<Dequantized>& first = states_[node.inputs[0]].quantized;
    if (!first || !first->whole()) return false;
    for (int input : node.inputs) {
      const std::optional<Dequantized>& d = states_[input].quantized;
      if (!d || !d->whole() || d->scale->at(0) != first->scale->at(0) || !SameValues(d->zero, first->zero) ||
          type(d->q).dtype != type(first->q).dtype)
        return false;
      parts.push_back(d->q);
    }
    const Dequantized kept = *first;
    states_[node.output].quantized =
        Dequantized{Op("concat", std::move(parts), node.name, node.attributes), kept.scale, kept.zero};
    return true;
  }

  bool Clip(const Node& node) {
    const std::optional<ScaledSum>& sum = states_[node.inputs[0]].sum;
    if (!sum) return false;
    const double infinity = std::numeric_limits<double>::infinity();
    const bool relu = node.op == "relu";
    const double low = relu ? 0 : node.attributes.Float("min", -infinity),
                 high = relu ? infinity : node.attributes.Float("max", infinity);
    ScaledSum clipped = *sum;
    clipped.low = std::min(std::max(clipped.low, low), high);
    clipped.high = std::min(std::max(clipped.high, low), high);
    states_[node.output].sum = std::move(clipped);
    return true;
  }

  // ---- products

  // Which axis of the result, and of b, has the columns of a product.
  struct Columns {
    size_t result = 0, of_b = 0;
    int64_t depth = 0;
  };
  std::optional<Columns> ColumnsOf(const Node& node) const {
    const TensorType &a = from_.tensor(node.inputs[0]).type, &b = from_.tensor(node.inputs[1]).type,
                     &y = from_.tensor(node.output).type;
    if (node.op == "matmul") {
      if (a.shape.size() < 2 || b.shape.size() < 2) return std::nullopt;
      return Columns{y.shape.size() - 1, b.shape.size() - 1, a.shape.back()};
    }
    if (node.op == "gemm") {
      const bool turned = node.attributes.Int("trans_b", 0) != 0;
      if (node.attributes.Float("alpha", 1) != 1 || node.attributes.Float("beta", 1) != 1) return std::nullopt;
      return Columns{1, turned ? size_t{0} : 1, b.shape[turned ? 1 : 0]};
    }
    const bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
    const size_t of_b = nhwc ? 3 : 0;
    return Columns{nhwc ? size_t{3} : 1, of_b, b.elements() / b.shape[of_b]};
  }

  static bool IsAlong(const ZeroPoint& parameter, size_t axis) {
    if (!parameter || parameter->elements() == 1) return true;
    return axis < parameter->shape.size() && parameter->shape[axis] == parameter->elements();
  }

  // The largest magnitude of q - zero.
  double MostOf(const Dequantized& d) const {
    const auto [low, high] = LimitsOf(type(d.q).dtype);
    double most = 0;
    for (int64_t i = 0, n = d.zero ? d.zero->elements() : 1; i < n; ++i)
      most = std::max({most, std::abs(low - ZeroOf(d.zero, i)), std::abs(high - ZeroOf(d.zero, i))});
    return most;
  }

  // q - zero, in a type that holds it.
  int Centred(const Dequantized& d, DType work, const std::string& name) {
    const int q = CastTo(work, d.q, name);
    if (SameValues(d.zero, nullptr)) return q;
    Array zero = CastArray(*d.zero, work);
    if (zero.elements() == 1) zero = ReshapeArray(std::move(zero), {});
    return Op("sub", {q, Constant(name, std::move(zero))}, name);
  }

  bool Multiply(const Node& node) {
    const std::optional<Dequantized>&a = states_[node.inputs[0]].quantized, &b = states_[node.inputs[1]].quantized;
    const std::optional<Columns> columns = ColumnsOf(node);
    if (!a || !b || !columns || !a->whole() || !IsByte(type(a->q).dtype) || !IsByte(type(b->q).dtype)) return false;
    if (!IsAlong(b->scale, columns->of_b) || !IsAlong(b->zero, columns->of_b)) return false;
    if (static_cast<double>(columns->depth) * MostOf(*a) * MostOf(*b) > std::numeric_limits<int32_t>::max() / 2)
      return false;
    const size_t rank = from_.tensor(node.output).type.shape.size();
    const Array scale = Along(Product(*a->scale, *b->scale), columns->result, rank);
    int sum = Op(node.op, {Centred(*a, DType::kInt32, node.name), Centred(*b, DType::kInt32, node.name)}, node.name,
                 node.attributes);
    State& state = states_[node.output];
    if (node.inputs.size() < 3) {
      state.sum = ScaledSum{sum, scale};
    } else if (const std::optional<Array> bias = IntegerBias(node.inputs[2], *columns, rank, scale)) {
      state.sum = ScaledSum{Op("add", {sum, Constant(node.name, *bias)}, node.name), scale};
    } else {
      const int scaled = Op("mul", {CastTo(DType::kFloat32, sum, node.name), Constant(node.name, scale)}, node.name);
      state.id = Op("add", {scaled, BiasOf(node, *columns, rank)}, node.name);
    }
    return true;
  }

  // A bias that is quantised with the scale of the products, as int32.
  std::optional<Array> IntegerBias(int old, const Columns& columns, size_t rank, const Array& scale) const {
    const std::optional<Dequantized>& d = states_[old].quantized;
    if (!d || type(d->q).dtype != DType::kInt32 || !to_.tensor(d->q).constant() || !SameValues(d->zero, nullptr))
      return std::nullopt;
    const Array& values = *to_.tensor(d->q).data;
    const int64_t n = std::max(d->scale->elements(), scale.elements());
    if (values.shape.size() != 1 || (n != 1 && n != values.elements())) return std::nullopt;
    for (int64_t i = 0; i < n; ++i) {
      const double given = d->scale->at(d->scale->elements() == 1 ? 0 : i),
                   wanted = scale.at(scale.elements() == 1 ? 0 : i);
      if (std::abs(given - wanted) > 1e-6 * wanted) return std::nullopt;
    }
    for (int64_t i = 0; i < values.elements(); ++i)
      if (std::abs(values.int_at(i)) > std::numeric_limits<int32_t>::max() / 2) return std::nullopt;
    return Along(values, columns.result, rank);
  }

  // float32, as it is added to the result.
  int BiasOf(const Node& node, const Columns& columns, size_t rank) {
    const int bias = Value(node.inputs[2]);
    if (node.op != "conv2d") return bias;
    std::vector<int64_t> shape(rank, 1);
    shape[columns.result] = type(bias).elements();
    return Op("reshape", {bias}, node.name, {{"shape", shape}});
  }

  // ---- quantize

  bool Requantize(const Node& node) {
    const DType to = from_.tensor(node.output).type.dtype;
    const Tensor& scale = from_.tensor(node.inputs[1]);
    const Tensor* zero = node.inputs.size() > 2 ? &from_.tensor(node.inputs[2]) : nullptr;
    const double low = node.attributes.Float("min", 0), high = node.attributes.Float("max", 255);
    const bool known = IsByte(to) && scale.constant() && scale.type.elements() == 1 && IsPositive(*scale.data) &&
                       (!zero || (zero->constant() && zero->type.elements() == 1));
    const ZeroPoint z = known && zero ? zero->data : nullptr;
    const State& from = states_[node.inputs[0]];
    State& state = states_[node.output];
    // Back to the integers that it was.
    if (known && from.quantized && from.quantized->whole() && type(from.quantized->q).dtype == to &&
        std::pair(low, high) == LimitsOf(to) && from.quantized->scale->at(0) == scale.data->at(0) &&
        SameValues(from.quantized->zero, z)) {
      state.id = from.quantized->q;
      return true;
    }
    int x;
    if (known && from.sum) {
      x = RescaledSum(*from.sum, node.name, *scale.data, {ZeroOf(z, 0), low, high});
    } else {
      x = Op("div", {Value(node.inputs[0]), Value(node.inputs[1])}, node.name);
    }
    x = Op("round", {x}, node.name);
    if (zero) x = Op("add", {x, CastTo(DType::kFloat32, Value(node.inputs[2]), node.name)}, node.name);
    x = Op("clip", {x}, node.name, {{"min", low}, {"max", high}});
    state.id = CastTo(to, x, node.name);
    if (error_.ok()) to_.tensors[state.id].name = from_.tensor(node.output).name;
    return true;
  }

  struct Target {
    double zero, low, high;
  };
  // In units of another scale. Limits that rounding and clipping to the type set anyway are left out.
  int RescaledSum(const ScaledSum& sum, const std::string& name, const Array& scale, const Target& to) {
    const double unit = scale.at(0), infinity = std::numeric_limits<double>::infinity();
    const Array factor = Quotient(sum.scale, scale);
    const int x = Op("mul", {CastTo(DType::kFloat32, sum.sum, name), Constant(name, factor)}, name);
    const bool low = std::nearbyint(sum.low / unit) + to.zero > to.low,
               high = std::nearbyint(sum.high / unit) + to.zero < to.high;
    return Clipped(x, low ? sum.low / unit : -infinity, high ? sum.high / unit : infinity, name);
  }

  const Network& from_;
  std::vector<State> states_;  // by tensor of from_
};

}  // namespace

absl::Status FuseQuantized(Network& network) {
  const auto quantised = [](const Node& node) { return node.op == "dequantize" || node.op == "quantize"; };
  if (std::none_of(network.nodes.begin(), network.nodes.end(), quantised)) return absl::OkStatus();
  ASSIGN_OR_RETURN(network, QuantizedFuser(network).Run());
  return EliminateDeadCode(network);
}

}  // namespace diapason
