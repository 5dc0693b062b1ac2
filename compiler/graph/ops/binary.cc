// Elementwise arithmetic, comparisons and logic of two tensors with numpy broadcasting.
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferSame(const OperatorArgs& args) {
  const TensorType &a = args.inputs[0], &b = args.inputs[1];
  if (a.dtype != b.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs must have one type, not ", NameOf(a.dtype), " and ", NameOf(b.dtype)));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, BroadcastShapes(a.shape, b.shape));
  return TensorType{a.dtype, shape};
}

absl::StatusOr<TensorType> InferBinary(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  return InferSame(args);
}

absl::StatusOr<TensorType> InferEqual(const OperatorArgs& args) {
  ASSIGN_OR_RETURN(TensorType type, InferSame(args));
  return TensorType{DType::kBool, type.shape};
}

absl::StatusOr<TensorType> InferOrder(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  return InferEqual(args);
}

absl::StatusOr<TensorType> InferLogic(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireBool(args));
  return InferSame(args);
}

absl::StatusOr<TensorType> InferFloat(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return InferBinary(args);
}

// C computes with bytes as with int, so that a result wraps only where it is stored. It is converted here, so that what
// reads it in the same kernel reads a byte.
Expr Wrapped(Expr (*function)(Expr, Expr), const Expr& a, const Expr& b) {
  if (!IsByte(a->dtype)) return function(a, b);
  return diapason::Cast(a->dtype, function(diapason::Cast(DType::kInt32, a), diapason::Cast(DType::kInt32, b)));
}
Expr Plus(Expr a, Expr b) { return Wrapped(Add, a, b); }
Expr Minus(Expr a, Expr b) { return Wrapped(Sub, a, b); }
Expr Times(Expr a, Expr b) { return Wrapped(Mul, a, b); }

// An integer as a divisor of type float64; `nothing` in the place of 0, by which divisions of integers are not defined:
// results are 0 then, on all targets.
Expr Divisor(const Expr& b, double nothing) {
  return Select(Eq(b, IntImm(0, b->dtype)), FloatImm(nothing, DType::kFloat64), diapason::Cast(DType::kFloat64, b));
}

// Integers are divided as ONNX says: towards zero.
Expr Divide(Expr a, Expr b) {
  if (IsFloat(a->dtype)) return Div(a, b);
  Expr quotient = Div(diapason::Cast(DType::kFloat64, a), Divisor(b, std::numeric_limits<double>::infinity()));
  return diapason::Cast(a->dtype, Select(Lt(quotient, FloatImm(0, DType::kFloat64)), Call("ceil", {quotient}),
                                         Call("floor", {quotient})));
}

// What is left of a division that rounds down (mod: the sign of the divisor) or towards zero (fmod: of the dividend).
// Integers beyond 2^53 are not exact.
Expr Remainder(Expr a, Expr b, bool truncated) {
  DType type = a->dtype, work = IsFloat(type) ? type : DType::kFloat64;
  Expr x = type == work ? a : diapason::Cast(work, a), y = IsFloat(type) ? b : Divisor(b, 1);
  Expr quotient = Div(x, y), down = Call("floor", {quotient});
  if (truncated) down = Select(Lt(quotient, FloatImm(0, work)), Call("ceil", {quotient}), down);
  Expr left = Sub(x, Mul(down, y));
  if (IsFloat(type)) {  // an infinite divisor leaves what is finite, or itself where the signs must be its own
    const Expr zero = FloatImm(0, work), infinity = FloatImm(std::numeric_limits<double>::infinity(), work);
    const auto size = [&](const Expr& e) { return Max(e, Sub(zero, e)); };
    const Expr opposite = Or(And(Lt(x, zero), Lt(zero, y)), And(Lt(zero, x), Lt(y, zero)));
    left = Select(And(Eq(size(y), infinity), Lt(size(x), infinity)), truncated ? x : Select(opposite, y, x), left);
  }
  return type == work ? left : diapason::Cast(type, left);
}
Expr Mod(Expr a, Expr b) { return Remainder(std::move(a), std::move(b), false); }
Expr Fmod(Expr a, Expr b) { return Remainder(std::move(a), std::move(b), true); }

Expr Power(Expr a, Expr b) { return Call("pow", {a, b}); }

template <Expr (*kFunction)(Expr, Expr)>
int EmitBinary(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages, const char* name) {
  return b.Compute(name, args.output.shape, [&](const Vars& i) {
    return kFunction(Wide(b, stages[0], BroadcastIndex(i, args.inputs[0].shape)),
                     Wide(b, stages[1], BroadcastIndex(i, args.inputs[1].shape)));
  });
}

}  // namespace

#define DIAPASON_BINARY(name, infer, function, commutative)                           \
  Operator {                                                                          \
    name, OperatorKind::kElementwise, 2, 2, infer,                                    \
        [](DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) { \
          return EmitBinary<function>(b, args, stages, name);                         \
        },                                                                            \
        nullptr, commutative                                                          \
  }

std::vector<Operator> Binary() {
  return {
      DIAPASON_BINARY("add", InferBinary, Plus, true),        DIAPASON_BINARY("sub", InferBinary, Minus, false),
      DIAPASON_BINARY("mul", InferBinary, Times, true),       DIAPASON_BINARY("div", InferBinary, Divide, false),
      DIAPASON_BINARY("maximum", InferBinary, Maximum, true), DIAPASON_BINARY("minimum", InferBinary, Minimum, true),
      DIAPASON_BINARY("pow", InferFloat, Power, false),       DIAPASON_BINARY("mod", InferBinary, Mod, false),
      DIAPASON_BINARY("fmod", InferBinary, Fmod, false),      DIAPASON_BINARY("equal", InferEqual, Eq, true),
      DIAPASON_BINARY("less", InferOrder, Lt, false),         DIAPASON_BINARY("less_equal", InferOrder, Le, false),
      DIAPASON_BINARY("and", InferLogic, And, true),          DIAPASON_BINARY("or", InferLogic, Or, true),
      DIAPASON_BINARY("xor", InferLogic, Ne, true),
  };
}

#undef DIAPASON_BINARY

}  // namespace diapason::ops
