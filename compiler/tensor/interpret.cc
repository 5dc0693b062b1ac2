#include "compiler/tensor/interpret.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

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
  kBfloat16,
  kTf32
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
      {"acosh", Function::kAcosh}, {"atanh", Function::kAtanh}, {"bfloat16", Function::kBfloat16},
      {"tf32", Function::kTf32}};
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

// To 10 bits of fraction, half away from zero.
double ToTf32(double a) {
  const float value = static_cast<float>(a);
  return std::isnan(value) ? a : std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000u) & 0xffffe000u);
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
    case Function::kTf32: return ToTf32(a);
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

// Points that are evaluated together: they follow one another along one loop.
constexpr int kLanes = 256;

// Scalars of a node at such points, those of one member alone.
struct Lanes {
  std::array<double, kLanes> f{};
  std::array<int64_t, kLanes> i{};
};

// Of points, those whose values are asked for; others have any value, and may read outside of tensors.
using Mask = std::array<bool, kLanes>;

// A stage's body with variables and buffers resolved.
struct CompiledNode {
  ExprKind kind;
  DType dtype;
  bool varies = false;      // along the loop of the lanes
  bool float_args = false;  // type of the first argument
  DType arg_dtype = DType::kInt64;
  Value value;                   // literals
  int slot = 0;                  // kVar: place in the loop counters
  Function function{};           // kCall
  const Array* array = nullptr;  // kLoad
  bool steps = false;            // kLoad: the indices that vary are the loop of the lanes itself
  std::vector<int> args;         // positions in the body's nodes
};

class Body {
 public:
  // lane_slot: the loop of the lanes, by its place among the counters; -1: none.
  Body(const Stage& stage, const std::vector<const Array*>& arrays, int lane_slot)
      : arrays_(arrays), lane_slot_(lane_slot) {
    for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) slots_.emplace(axis.var.get(), static_cast<int>(slots_.size()));
    root_ = Compile(stage.body);
  }

  Value Run(const std::vector<int64_t>& counters) { return Eval(root_, counters.data()); }
  // The values of `count` points from `counters` on.
  void Run(const std::vector<int64_t>& counters, int count, Lanes& values) {
    count_ = count;
    EvalLanes(root_, counters.data(), nullptr, values);
  }
  bool out_of_bounds() const { return out_of_bounds_; }
  void ForgetOutOfBounds() { out_of_bounds_ = false; }

 private:
  int Compile(const Expr& e) {
    if (auto it = compiled_.find(e.get()); it != compiled_.end()) return it->second;
    CompiledNode node;
    node.kind = e->kind;
    node.dtype = e->dtype;
    node.value = {e->fvalue, e->value};
    if (e->kind == ExprKind::kVar) {
      node.slot = slots_.at(e.get());
      node.varies = node.slot == lane_slot_;
    }
    if (e->kind == ExprKind::kCall) node.function = FunctionOf(e->name);
    if (e->kind == ExprKind::kLoad) node.array = arrays_[e->buffer];
    for (const Expr& arg : e->args) {
      node.args.push_back(Compile(arg));
      node.varies = node.varies || nodes_[node.args.back()].varies;
    }
    node.steps = node.kind == ExprKind::kLoad && std::all_of(node.args.begin(), node.args.end(), [&](int arg) {
                   return !nodes_[arg].varies || nodes_[arg].kind == ExprKind::kVar;
                 });
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

  // Lanes of a value that is in use.
  class Borrowed {
   public:
    explicit Borrowed(Body& body) : body_(body) {
      if (body_.spare_.empty()) body_.spare_.push_back(std::make_unique<Lanes>());
      lanes_ = std::move(body_.spare_.back());
      body_.spare_.pop_back();
    }
    ~Borrowed() { body_.spare_.push_back(std::move(lanes_)); }
    Lanes& operator*() const { return *lanes_; }
    Lanes* operator->() const { return lanes_.get(); }

   private:
    Body& body_;
    std::unique_ptr<Lanes> lanes_;
  };

  // Eval at count_ points. active: null for all; else one of them at least.
  void EvalLanes(int position, const int64_t* counters, const Mask* active, Lanes& out) {
    const CompiledNode& node = nodes_[position];
    if (!node.varies) {
      const Value value = Eval(position, counters);
      if (IsFloat(node.dtype)) {
        std::fill_n(out.f.begin(), count_, value.f);
      } else {
        std::fill_n(out.i.begin(), count_, value.i);
      }
      return;
    }
    switch (node.kind) {
      case ExprKind::kVar:
        for (int k = 0; k < count_; ++k) out.i[k] = counters[node.slot] + k;
        return;
      case ExprKind::kLoad: return LoadLanes(node, counters, active, out);
      case ExprKind::kSelect: return SelectLanes(node, counters, active, out);
      case ExprKind::kAnd:
      case ExprKind::kOr: return ConnectLanes(node, counters, active, out);
      case ExprKind::kNot:
        EvalLanes(node.args[0], counters, active, out);
        for (int k = 0; k < count_; ++k) out.i[k] = out.i[k] == 0;
        return;
      case ExprKind::kCast: {
        EvalLanes(node.args[0], counters, active, out);
        for (int k = 0; k < count_; ++k) {
          const Value value = EvalCast(node, {out.f[k], out.i[k]});
          out.f[k] = value.f;
          out.i[k] = value.i;
        }
        return;
      }
      case ExprKind::kCall: {
        EvalLanes(node.args[0], counters, active, out);
        const Borrowed second(*this);
        if (node.args.size() > 1) EvalLanes(node.args[1], counters, active, *second);
        for (int k = 0; k < count_; ++k) out.f[k] = Apply(node.function, out.f[k], second->f[k]);
        return;
      }
      default: {
        EvalLanes(node.args[0], counters, active, out);
        const Borrowed second(*this);
        EvalLanes(node.args[1], counters, active, *second);
        if (node.float_args) {
          FloatLanes(node.kind, *second, out);
        } else {
          IntLanes(node, *second, out);
        }
      }
    }
  }

  // Elements of a tensor, point k's at place(k).
  template <typename Place>
  void Fetch(const Array& array, const Place& place, Lanes& out) const {
    if (array.dtype == DType::kFloat32) {
      const float* values = array.as<float>();
      for (int k = 0; k < count_; ++k) out.f[k] = values[place(k)];
    } else if (IsFloat(array.dtype)) {
      for (int k = 0; k < count_; ++k) out.f[k] = array.at(place(k));
    } else {
      for (int k = 0; k < count_; ++k) out.i[k] = array.int_at(place(k));
    }
  }

  // A load whose elements lie at equal distances; false where some of them are outside of the tensor.
  bool LoadSteps(const CompiledNode& node, const int64_t* counters, Lanes& out) {
    const Array& array = *node.array;
    int64_t first = 0, step = 0;
    for (size_t d = 0; d < node.args.size(); ++d) {
      const CompiledNode& index = nodes_[node.args[d]];
      const int64_t at = Eval(node.args[d], counters).i;
      if (at < 0 || at + (index.varies ? count_ - 1 : 0) >= array.shape[d]) return false;
      first = first * array.shape[d] + at;
      step = step * array.shape[d] + (index.varies ? 1 : 0);
    }
    Fetch(
        array, [=](int k) { return first + k * step; }, out);
    return true;
  }

  void LoadLanes(const CompiledNode& node, const int64_t* counters, const Mask* active, Lanes& out) {
    if (node.steps && LoadSteps(node, counters, out)) return;
    const Array& array = *node.array;
    const Borrowed flat(*this), index(*this);
    std::fill_n(flat->i.begin(), count_, 0);
    for (size_t d = 0; d < node.args.size(); ++d) {
      EvalLanes(node.args[d], counters, active, *index);
      const int64_t extent = array.shape[d];
      for (int k = 0; k < count_; ++k) {
        int64_t at = index->i[k];
        if (at < 0 || at >= extent) {
          if (active == nullptr || (*active)[k]) out_of_bounds_ = true;
          at = 0;
        }
        flat->i[k] = flat->i[k] * extent + at;
      }
    }
    if (out_of_bounds_ || array.data.empty()) return;
    const Lanes& places = *flat;
    Fetch(
        array, [&](int k) { return places.i[k]; }, out);
  }

  // Splits points by a condition, and says how many there are for which it holds and does not.
  std::pair<int, int> Split(const Lanes& condition, const Mask* active, Mask& where, Mask& elsewhere) const {
    int holds = 0, fails = 0;
    for (int k = 0; k < count_; ++k) {
      const bool is_active = active == nullptr || (*active)[k];
      where[k] = is_active && condition.i[k] != 0;
      elsewhere[k] = is_active && condition.i[k] == 0;
      holds += where[k];
      fails += elsewhere[k];
    }
    return {holds, fails};
  }

  void SelectLanes(const CompiledNode& node, const int64_t* counters, const Mask* active, Lanes& out) {
    const Borrowed other(*this);
    EvalLanes(node.args[0], counters, active, *other);
    Mask where, elsewhere;
    const auto [holds, fails] = Split(*other, active, where, elsewhere);
    if (fails == 0) return EvalLanes(node.args[1], counters, active, out);
    if (holds == 0) return EvalLanes(node.args[2], counters, active, out);
    EvalLanes(node.args[1], counters, &where, out);
    EvalLanes(node.args[2], counters, &elsewhere, *other);
    for (int k = 0; k < count_; ++k) {
      if (where[k]) continue;
      out.f[k] = other->f[k];
      out.i[k] = other->i[k];
    }
  }

  // "And" and "or": the second argument only where the first does not decide.
  void ConnectLanes(const CompiledNode& node, const int64_t* counters, const Mask* active, Lanes& out) {
    EvalLanes(node.args[0], counters, active, out);
    Mask where, elsewhere;
    const auto [holds, fails] = Split(out, active, where, elsewhere);
    for (int k = 0; k < count_; ++k) out.i[k] = out.i[k] != 0;
    const bool is_and = node.kind == ExprKind::kAnd;
    if ((is_and ? holds : fails) == 0) return;
    const Mask& open = is_and ? where : elsewhere;
    const Borrowed second(*this);
    EvalLanes(node.args[1], counters, &open, *second);
    for (int k = 0; k < count_; ++k)
      if (open[k]) out.i[k] = second->i[k] != 0;
  }

  void FloatLanes(ExprKind kind, const Lanes& b, Lanes& out) const {
    switch (kind) {
      case ExprKind::kAdd:
        for (int k = 0; k < count_; ++k) out.f[k] += b.f[k];
        return;
      case ExprKind::kSub:
        for (int k = 0; k < count_; ++k) out.f[k] -= b.f[k];
        return;
      case ExprKind::kMul:
        for (int k = 0; k < count_; ++k) out.f[k] *= b.f[k];
        return;
      default:
        for (int k = 0; k < count_; ++k) {
          const Value value = FloatOp(kind, out.f[k], b.f[k]);
          out.f[k] = value.f;
          out.i[k] = value.i;
        }
    }
  }

  void IntLanes(const CompiledNode& node, const Lanes& b, Lanes& out) const {
    if (node.dtype == DType::kInt64 && (node.kind == ExprKind::kAdd || node.kind == ExprKind::kMul)) {
      const bool adds = node.kind == ExprKind::kAdd;
      for (int k = 0; k < count_; ++k) {
        const uint64_t x = static_cast<uint64_t>(out.i[k]), y = static_cast<uint64_t>(b.i[k]);
        out.i[k] = static_cast<int64_t>(adds ? x + y : x * y);
      }
      return;
    }
    for (int k = 0; k < count_; ++k) out.i[k] = Wrap(node.dtype, IntOp(node.kind, out.i[k], b.i[k]));
  }

  friend class StageRunner;

  const std::vector<const Array*>& arrays_;
  const int lane_slot_;
  int count_ = 0;
  std::vector<std::unique_ptr<Lanes>> spare_;
  std::unordered_map<const ExprNode*, int> slots_;
  std::unordered_map<const ExprNode*, int> compiled_;
  std::vector<CompiledNode> nodes_;
  int root_ = 0;
  bool out_of_bounds_ = false;
};

// Evaluates a stage, kLanes points at a time along the last axis of its output, or along its last axis of reduction
// where that is the longer one. Sums have the same order either way.
class StageRunner {
 public:
  StageRunner(const Stage& stage, const std::vector<const Array*>& arrays)
      : stage_(stage), extents_(ExtentsOf(stage)), lane_axis_(LaneAxisOf(stage)), body_(stage, arrays, lane_axis_) {}

  absl::StatusOr<Array> Run() {
    Array out(stage_.dtype, stage_.shape());
    std::vector<int64_t> counters(extents_.size(), 0);
    const bool along_output = lane_axis_ < static_cast<int>(stage_.axes.size());
    const size_t outer = stage_.axes.size() - (along_output && lane_axis_ >= 0 ? 1 : 0);
    const int64_t row = along_output && lane_axis_ >= 0 ? extents_[lane_axis_] : 1;
    Lanes values;
    for (int64_t first = 0; first < out.elements(); first += row) {
      for (int64_t begin = 0; begin < row; begin += kLanes) {
        const int count = static_cast<int>(std::min<int64_t>(kLanes, row - begin));
        if (row > 1) counters[lane_axis_] = begin;
        Evaluate(counters, count, along_output, values);
        if (body_.out_of_bounds()) return WhereOutOfBounds(counters);
        Store(values, count, first + begin, out);
      }
      if (row > 1) counters[lane_axis_] = 0;
      Advance(counters, 0, outer);
    }
    return out;
  }

 private:
  static std::vector<int64_t> ExtentsOf(const Stage& stage) {
    std::vector<int64_t> extents;
    for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) extents.push_back(axis.extent);
    return extents;
  }

  static int LaneAxisOf(const Stage& stage) {
    const int last = static_cast<int>(stage.axes.size()) - 1;
    if (!stage.reduces() || stage.reduce_axes.empty()) return last;
    const bool shorter = last < 0 || stage.axes.back().extent < stage.reduce_axes.back().extent;
    return shorter ? last + static_cast<int>(stage.reduce_axes.size()) : last;
  }

  // The elements of the output at `count` points, one behind the other.
  void Evaluate(std::vector<int64_t>& counters, int count, bool along_output, Lanes& values) {
    if (!stage_.reduces()) return body_.Run(counters, count, values);
    if (along_output) return ReduceLanes(counters, count, values);
    const Value value = ReduceAlong(counters);
    values.f[0] = value.f;
    values.i[0] = value.i;
  }

  Value Identity() const {
    const Expr identity = IdentityOf(stage_.combiner, stage_.dtype);
    return {identity->fvalue, identity->value};
  }

  void ReduceLanes(std::vector<int64_t>& counters, int count, Lanes& sums) {
    const Value identity = Identity();
    std::fill_n(sums.f.begin(), count, identity.f);
    std::fill_n(sums.i.begin(), count, identity.i);
    do {
      body_.Run(counters, count, terms_);
      if (body_.out_of_bounds()) return;
      for (int k = 0; k < count; ++k) {
        const Value sum = Combined({sums.f[k], sums.i[k]}, {terms_.f[k], terms_.i[k]});
        sums.f[k] = sum.f;
        sums.i[k] = sum.i;
      }
    } while (Advance(counters, stage_.axes.size(), extents_.size()));
  }

  Value ReduceAlong(std::vector<int64_t>& counters) {
    Value sum = Identity();
    const int64_t extent = extents_[lane_axis_];
    do {
      for (int64_t begin = 0; begin < extent; begin += kLanes) {
        const int count = static_cast<int>(std::min<int64_t>(kLanes, extent - begin));
        counters[lane_axis_] = begin;
        body_.Run(counters, count, terms_);
        if (body_.out_of_bounds()) return {};
        for (int k = 0; k < count; ++k) sum = Combined(sum, {terms_.f[k], terms_.i[k]});
      }
      counters[lane_axis_] = 0;
    } while (Advance(counters, stage_.axes.size(), extents_.size() - 1));
    return sum;
  }

  // The error: at which of the points from `counters` on.
  absl::Status WhereOutOfBounds(std::vector<int64_t> counters) {
    while (true) {
      body_.ForgetOutOfBounds();
      body_.Run(counters);
      if (body_.out_of_bounds())
        return absl::OutOfRangeError(
            absl::StrCat("stage '", stage_.name, "' reads outside a tensor at [", absl::StrJoin(counters, ", "), "]"));
      DIAPASON_CHECK(++counters[lane_axis_] < extents_[lane_axis_]);
    }
  }

  void Store(const Lanes& values, int count, int64_t first, Array& out) const {
    if (stage_.dtype == DType::kFloat32) {
      float* to = out.as<float>() + first;
      for (int k = 0; k < count; ++k) to[k] = static_cast<float>(values.f[k]);
    } else if (IsFloat(stage_.dtype)) {
      for (int k = 0; k < count; ++k) out.set(first + k, values.f[k]);
    } else {
      for (int k = 0; k < count; ++k) out.set_int(first + k, values.i[k]);
    }
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
  const std::vector<int64_t> extents_;
  const int lane_axis_;  // by its place among the counters; -1: the output is one element, and there is no reduction
  Body body_;
  Lanes terms_;
};

absl::Status CheckInput(const Stage& stage, const std::map<int, const Array*>& inputs, int id) {
  auto it = inputs.find(id);
  if (it == inputs.end())
    return absl::InvalidArgumentError(absl::StrCat("no values are given for the input '", stage.name, "'"));
  const Array& array = *it->second;
  if (array.dtype != stage.dtype || array.shape != stage.shape())
    return absl::InvalidArgumentError(absl::StrCat("the input '", stage.name, "' is ", NameOf(stage.dtype), "[",
                                                   absl::StrJoin(stage.shape(), ", "), "], but its values are ",
                                                   NameOf(array.dtype), "[", absl::StrJoin(array.shape, ", "), "]"));
  DIAPASON_CHECK(static_cast<int64_t>(array.data.size()) == array.elements() * BytesOf(array.dtype));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Array>> Interpret(const ComputeDag& dag, const std::map<int, const Array*>& inputs) {
  std::vector<Array> computed(dag.size());
  std::vector<const Array*> arrays(dag.size());
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (stage.placeholder) {
      RETURN_IF_ERROR(CheckInput(stage, inputs, id));
      arrays[id] = inputs.at(id);
    } else {
      ASSIGN_OR_RETURN(computed[id], StageRunner(stage, arrays).Run());
      arrays[id] = &computed[id];
    }
  }
  std::vector<Array> outputs;
  outputs.reserve(dag.outputs().size());
  for (int id : dag.outputs()) {
    // An input stays with the caller, and an output may be there twice.
    if (dag.stage(id).placeholder || std::count(dag.outputs().begin(), dag.outputs().end(), id) > 1) {
      outputs.push_back(*arrays[id]);
    } else {
      outputs.push_back(std::move(computed[id]));
    }
  }
  return outputs;
}

absl::StatusOr<std::vector<Array>> Interpret(const ComputeDag& dag, const std::map<int, Array>& inputs) {
  std::map<int, const Array*> addresses;
  for (const auto& [id, array] : inputs) addresses[id] = &array;
  return Interpret(dag, addresses);
}

}  // namespace diapason
