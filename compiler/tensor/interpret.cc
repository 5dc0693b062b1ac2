#include "compiler/tensor/interpret.h"

#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace diapason {
namespace {

// A scalar: `f` for float types, `i` for the others.
struct Value {
  double f = 0;
  int64_t i = 0;
};

enum class Function {
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kSigmoid,
  kErf,
  kPow,
  kAbs,
  kFloor,
  kCeil,
  kRound,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kBfloat16
};

Function FunctionOf(const std::string& name) {
  static const auto& functions = *new std::unordered_map<std::string, Function>{
      {"exp", Function::kExp},     {"log", Function::kLog},     {"sqrt", Function::kSqrt},
      {"rsqrt", Function::kRsqrt}, {"tanh", Function::kTanh},   {"erf", Function::kErf},
      {"pow", Function::kPow},     {"abs", Function::kAbs},     {"sigmoid", Function::kSigmoid},
      {"ceil", Function::kCeil},   {"floor", Function::kFloor}, {"round", Function::kRound},
      {"sin", Function::kSin},     {"cos", Function::kCos},     {"tan", Function::kTan},
      {"asin", Function::kAsin},   {"acos", Function::kAcos},   {"atan", Function::kAtan},
      {"sinh", Function::kSinh},   {"cosh", Function::kCosh},   {"asinh", Function::kAsinh},
      {"acosh", Function::kAcosh}, {"atanh", Function::kAtanh}, {"bfloat16", Function::kBfloat16}};
  return functions.at(name);
}

// The nearest number of type bfloat16, ties to even.
double ToBfloat16(double a) {
  const float value = static_cast<float>(a);
  if (std::isnan(value)) return a;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

double Apply(Function function, double a, double b) {
  switch (function) {
    case Function::kExp: return std::exp(a);
    case Function::kLog: return std::log(a);
    case Function::kSqrt: return std::sqrt(a);
    case Function::kRsqrt: return 1 / std::sqrt(a);
    case Function::kTanh: return std::tanh(a);
    case Function::kSigmoid: return 1 / (1 + std::exp(-a));
    case Function::kErf: return std::erf(a);
    case Function::kPow: return std::pow(a, b);
    case Function::kAbs: return std::fabs(a);
    case Function::kFloor: return std::floor(a);
    case Function::kCeil: return std::ceil(a);
    case Function::kRound: return std::nearbyint(a);
    case Function::kSin: return std::sin(a);
    case Function::kCos: return std::cos(a);
    case Function::kTan: return std::tan(a);
    case Function::kAsin: return std::asin(a);
    case Function::kAcos: return std::acos(a);
    case Function::kAtan: return std::atan(a);
    case Function::kSinh: return std::sinh(a);
    case Function::kCosh: return std::cosh(a);
    case Function::kAsinh: return std::asinh(a);
    case Function::kAcosh: return std::acosh(a);
    case Function::kAtanh: return std::atanh(a);
    case Function::kBfloat16: return ToBfloat16(a);
  }
  return 0;
}

int64_t Wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kInt32: return static_cast<int32_t>(value);
    case DType::kInt8: return static_cast<int8_t>(value);
    case DType::kUint8: return static_cast<uint8_t>(value);
    case DType::kBool: return value != 0;
    default: return value;
  }
}

int64_t ToInteger(double value) {  // saturates; NaN is 0
  if (std::isnan(value)) return 0;
  if (value >= 9.2233720368547758e18) return std::numeric_limits<int64_t>::max();
  if (value <= -9.2233720368547758e18) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

// A stage's body with variables and buffers resolved.
struct CompiledNode {
  ExprKind kind;
  DType dtype;
  bool float_args = false;  // type of the first argument
  DType arg_dtype = DType::kInt64;
  Value value;                   // literals
  int slot = 0;                  // kVar: place in the loop counters
  Function function{};           // kCall
  const Array* array = nullptr;  // kLoad
  std::vector<int> args;         // positions in the body's nodes
};

class Body {
 public:
  Body(const Stage& stage, const std::vector<Array>& arrays) : arrays_(arrays) {
    for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) slots_.emplace(axis.var.get(), static_cast<int>(slots_.size()));
    root_ = Compile(stage.body);
  }

  Value Run(const std::vector<int64_t>& counters) { return Eval(root_, counters.data()); }
  bool out_of_bounds() const { return out_of_bounds_; }

 private:
  int Compile(const Expr& e) {
    if (auto it = compiled_.find(e.get()); it != compiled_.end()) return it->second;
    CompiledNode node;
    node.kind = e->kind;
    node.dtype = e->dtype;
    node.value = {e->fvalue, e->value};
    if (e->kind == ExprKind::kVar) node.slot = slots_.at(e.get());
    if (e->kind == ExprKind::kCall) node.function = FunctionOf(e->name);
    if (e->kind == ExprKind::kLoad) node.array = &arrays_[e->buffer];
    for (const Expr& arg : e->args) node.args.push_back(Compile(arg));
    if (!e->args.empty()) {
      node.arg_dtype = e->args[0]->dtype;
      node.float_args = IsFloat(node.arg_dtype);
    }
    nodes_.push_back(std::move(node));
    return compiled_[e.get()] = static_cast<int>(nodes_.size()) - 1;
  }

  Value Eval(int position, const int64_t* counters) {
    const CompiledNode& node = nodes_[position];
    switch (node.kind) {
      case ExprKind::kIntImm:
      case ExprKind::kFloatImm: return node.value;
      case ExprKind::kVar: return {0, counters[node.slot]};
      case ExprKind::kLoad: return EvalLoad(node, counters);
      case ExprKind::kSelect: return Eval(node.args[Eval(node.args[0], counters).i != 0 ? 1 : 2], counters);
      case ExprKind::kNot: return {0, Eval(node.args[0], counters).i == 0};
      case ExprKind::kAnd: return {0, Eval(node.args[0], counters).i != 0 && Eval(node.args[1], counters).i != 0};
      case ExprKind::kOr: return {0, Eval(node.args[0], counters).i != 0 || Eval(node.args[1], counters).i != 0};
      case ExprKind::kCast: return EvalCast(node, Eval(node.args[0], counters));
      case ExprKind::kCall: {
        const double a = Eval(node.args[0], counters).f;
        return {Apply(node.function, a, node.args.size() > 1 ? Eval(node.args[1], counters).f : 0), 0};
      }
      default: {
        const Value a = Eval(node.args[0], counters);
        const Value b = Eval(node.args[1], counters);
        return node.float_args ? FloatOp(node.kind, a.f, b.f) : Value{0, Wrap(node.dtype, IntOp(node.kind, a.i, b.i))};
      }
    }
  }

  Value EvalLoad(const CompiledNode& node, const int64_t* counters) {
    int64_t flat = 0;
    for (size_t d = 0; d < node.args.size(); ++d) {
      const int64_t index = Eval(node.args[d], counters).i;
      if (index < 0 || index >= node.array->shape[d]) {
        out_of_bounds_ = true;
        return {};
      }
      flat = flat * node.array->shape[d] + index;
    }
    return IsFloat(node.dtype) ? Value{node.array->at(flat), 0} : Value{0, node.array->int_at(flat)};
  }

  static Value EvalCast(const CompiledNode& node, Value a) {
    if (IsFloat(node.dtype)) return {RoundTo(node.dtype, node.float_args ? a.f : static_cast<double>(a.i)), 0};
    if (node.dtype == DType::kBool) return {0, node.float_args ? a.f != 0 : a.i != 0};
    return {0, Wrap(node.dtype, node.float_args ? ToInteger(a.f) : a.i)};
  }

  static Value FloatOp(ExprKind kind, double a, double b) {
    switch (kind) {
      case ExprKind::kAdd: return {a + b, 0};
      case ExprKind::kSub: return {a - b, 0};
      case ExprKind::kMul: return {a * b, 0};
      case ExprKind::kDiv: return {a / b, 0};
      case ExprKind::kMin: return {b < a ? b : a, 0};
      case ExprKind::kMax: return {a < b ? b : a, 0};
      case ExprKind::kLt: return {0, a < b};
      case ExprKind::kLe: return {0, a <= b};
      case ExprKind::kEq: return {0, a == b};
      default: return {0, a != b};
    }
  }

  static int64_t IntOp(ExprKind kind, int64_t a, int64_t b) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);  // wraps around
    switch (kind) {
      case ExprKind::kAdd: return static_cast<int64_t>(x + y);
      case ExprKind::kSub: return static_cast<int64_t>(x - y);
      case ExprKind::kMul: return static_cast<int64_t>(x * y);
      case ExprKind::kFloorDiv: return a / b - (a % b < 0);
      case ExprKind::kFloorMod: return a % b + (a % b < 0 ? b : 0);
      case ExprKind::kMin: return std::min(a, b);
      case ExprKind::kMax: return std::max(a, b);
      case ExprKind::kLt: return a < b;
      case ExprKind::kLe: return a <= b;
      case ExprKind::kEq: return a == b;
      default: return a != b;
    }
  }

  friend class StageRunner;

  const std::vector<Array>& arrays_;
  std::unordered_map<const ExprNode*, int> slots_;
  std::unordered_map<const ExprNode*, int> compiled_;
  std::vector<CompiledNode> nodes_;
  int root_ = 0;
  bool out_of_bounds_ = false;
};

class StageRunner {
 public:
  StageRunner(const Stage& stage, const std::vector<Array>& arrays) : stage_(stage), body_(stage, arrays) {
    for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) extents_.push_back(axis.extent);
  }

  absl::StatusOr<Array> Run() {
    Array out(stage_.dtype, stage_.shape());
    std::vector<int64_t> counters(extents_.size(), 0);
    const size_t spatial = stage_.axes.size();
    for (int64_t i = 0; i < out.elements(); ++i) {
      const Value value = stage_.reduces() ? Reduced(counters) : body_.Run(counters);
      if (body_.out_of_bounds())
        return absl::OutOfRangeError(
            absl::StrCat("stage '", stage_.name, "' reads outside a tensor at [", absl::StrJoin(counters, ", "), "]"));
      if (IsFloat(stage_.dtype)) {
        out.set(i, value.f);
      } else {
        out.set_int(i, value.i);
      }
      Advance(counters, 0, spatial);
    }
    return out;
  }

 private:
  Value Reduced(std::vector<int64_t>& counters) {
    const size_t spatial = stage_.axes.size();
    const Expr identity = IdentityOf(stage_.combiner, stage_.dtype);
    Value sum{identity->fvalue, identity->value};
    do {
      const Value value = body_.Run(counters);
      if (body_.out_of_bounds()) return {};
      sum = Combined(sum, value);
    } while (Advance(counters, spatial, extents_.size()));
    return sum;
  }

  Value Combined(Value a, Value b) const {
    static constexpr ExprKind kKinds[] = {ExprKind::kAdd, ExprKind::kAdd, ExprKind::kMax, ExprKind::kMin,
                                          ExprKind::kMul};
    const ExprKind kind = kKinds[static_cast<int>(stage_.combiner)];
    if (IsFloat(stage_.dtype)) return Body::FloatOp(kind, a.f, b.f);
    return {0, Wrap(stage_.dtype, Body::IntOp(kind, a.i, b.i))};
  }

  // The next point of counters [first, last) in row-major order; false (and all zero) after the last.
  bool Advance(std::vector<int64_t>& counters, size_t first, size_t last) const {
    for (size_t d = last; d-- > first;) {
      if (++counters[d] < extents_[d]) return true;
      counters[d] = 0;
    }
    return false;
  }

  const Stage& stage_;
  Body body_;
  std::vector<int64_t> extents_;
};

absl::Status CheckInput(const Stage& stage, const std::map<int, Array>& inputs, int id) {
  auto it = inputs.find(id);
  if (it == inputs.end())
    return absl::InvalidArgumentError(absl::StrCat("no values are given for the input '", stage.name, "'"));
  const Array& array = it->second;
  if (array.dtype != stage.dtype || array.shape != stage.shape())
    return absl::InvalidArgumentError(absl::StrCat("the input '", stage.name, "' is ", NameOf(stage.dtype), "[",
                                                   absl::StrJoin(stage.shape(), ", "), "], but its values are ",
                                                   NameOf(array.dtype), "[", absl::StrJoin(array.shape, ", "), "]"));
  DIAPASON_CHECK(static_cast<int64_t>(array.data.size()) == array.elements() * BytesOf(array.dtype));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Array>> Interpret(const ComputeDag& dag, const std::map<int, Array>& inputs) {
  std::vector<Array> arrays(dag.size());
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (stage.placeholder) {
      RETURN_IF_ERROR(CheckInput(stage, inputs, id));
      arrays[id] = inputs.at(id);
    } else {
      ASSIGN_OR_RETURN(arrays[id], StageRunner(stage, arrays).Run());
    }
  }
  std::vector<Array> outputs;
  for (int id : dag.outputs()) outputs.push_back(arrays[id]);
  return outputs;
}

}  // namespace diapason
