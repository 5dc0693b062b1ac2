// Elementwise functions of one tensor.
#include <cmath>
#include <limits>

#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"
#include "compiler/tensor/gelu.h"

namespace diapason::ops {
namespace {

using Function = Expr (*)(const Expr& x, const Attributes& attributes);

absl::StatusOr<TensorType> InferFloatUnary(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return args.inputs[0];
}

absl::StatusOr<TensorType> InferNumber(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireNumber(args));
  return args.inputs[0];
}

absl::StatusOr<TensorType> InferFloatTest(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return TensorType{DType::kBool, args.inputs[0].shape};
}

absl::StatusOr<TensorType> InferBool(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireBool(args));
  return args.inputs[0];
}

absl::StatusOr<TensorType> InferInteger(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireInteger(args));
  return args.inputs[0];
}

Expr Same(const Expr& x, double value) { return Literal(value, x->dtype); }

Expr Relu(const Expr& x, const Attributes&) { return Max(x, Same(x, 0)); }
Expr Sigmoid(const Expr& x, const Attributes&) { return Call("sigmoid", {x}); }
Expr Tanh(const Expr& x, const Attributes&) { return Call("tanh", {x}); }
Expr Exp(const Expr& x, const Attributes&) { return Call("exp", {x}); }
Expr Log(const Expr& x, const Attributes&) { return Call("log", {x}); }
Expr Sqrt(const Expr& x, const Attributes&) { return Call("sqrt", {x}); }
Expr Rsqrt(const Expr& x, const Attributes&) { return Call("rsqrt", {x}); }
Expr Erf(const Expr& x, const Attributes&) { return Call("erf", {x}); }
Expr Floor(const Expr& x, const Attributes&) { return Call("floor", {x}); }
Expr Ceil(const Expr& x, const Attributes&) { return Call("ceil", {x}); }
Expr Round(const Expr& x, const Attributes&) { return Call("round", {x}); }
Expr Reciprocal(const Expr& x, const Attributes&) { return Div(Same(x, 1), x); }
// As of int32, since -(-128) is -128 in a byte (binary.cc).
Expr Neg(const Expr& x, const Attributes& a) {
  if (IsByte(x->dtype)) return diapason::Cast(x->dtype, Neg(diapason::Cast(DType::kInt32, x), a));
  return Sub(Same(x, 0), x);
}
Expr Abs(const Expr& x, const Attributes& a) {
  if (IsByte(x->dtype)) return diapason::Cast(x->dtype, Abs(diapason::Cast(DType::kInt32, x), a));
  return Max(x, Sub(Same(x, 0), x));
}

Expr Sin(const Expr& x, const Attributes&) { return Call("sin", {x}); }
Expr Cos(const Expr& x, const Attributes&) { return Call("cos", {x}); }
Expr Tan(const Expr& x, const Attributes&) { return Call("tan", {x}); }
Expr Asin(const Expr& x, const Attributes&) { return Call("asin", {x}); }
Expr Acos(const Expr& x, const Attributes&) { return Call("acos", {x}); }
Expr Atan(const Expr& x, const Attributes&) { return Call("atan", {x}); }
Expr Sinh(const Expr& x, const Attributes&) { return Call("sinh", {x}); }
Expr Cosh(const Expr& x, const Attributes&) { return Call("cosh", {x}); }
Expr Asinh(const Expr& x, const Attributes&) { return Call("asinh", {x}); }
Expr Acosh(const Expr& x, const Attributes&) { return Call("acosh", {x}); }
Expr Atanh(const Expr& x, const Attributes&) { return Call("atanh", {x}); }
// NaN stays.
Expr Sign(const Expr& x, const Attributes&) {
  const Expr zero = Same(x, 0), rest = IsFloat(x->dtype) ? Select(Ne(x, x), x, zero) : zero;
  return Select(Lt(x, zero), Same(x, -1), Select(Lt(zero, x), Same(x, 1), rest));
}
Expr IsNan(const Expr& x, const Attributes&) { return Ne(x, x); }
Expr IsInf(const Expr& x, const Attributes& a) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Expr negative = a.Int("negative", 1) != 0 ? Eq(x, Same(x, -kInf)) : Lt(x, Same(x, -kInf));
  Expr positive = a.Int("positive", 1) != 0 ? Eq(x, Same(x, kInf)) : Lt(Same(x, kInf), x);
  return Or(negative, positive);
}
Expr LogicalNot(const Expr& x, const Attributes&) { return Not(x); }
Expr BitwiseNot(const Expr& x, const Attributes&) { return Sub(Same(x, -1), x); }

// A limit that is NaN is none.
Expr Clip(const Expr& x, const Attributes& a) {
  Expr y = x;
  const auto limits = [&](const char* name) { return a.has(name) && !std::isnan(a.Float(name, 0)); };
  if (limits("min")) y = Max(y, Same(x, a.Float("min", 0)));
  if (limits("max")) y = Min(y, Same(x, a.Float("max", 0)));
  return y;
}
Expr LeakyRelu(const Expr& x, const Attributes& a) {
  return Select(Lt(x, Same(x, 0)), Mul(x, Same(x, a.Float("alpha", 0.01))), x);
}
Expr Elu(const Expr& x, const Attributes& a) {
  Expr below = Mul(Sub(Call("exp", {Min(x, Same(x, 0))}), Same(x, 1)), Same(x, a.Float("alpha", 1)));
  return Select(Lt(x, Same(x, 0)), below, x);
}
Expr HardSigmoid(const Expr& x, const Attributes& a) {
  Expr line = Add(Mul(x, Same(x, a.Float("alpha", 0.2))), Same(x, a.Float("beta", 0.5)));
  return Min(Max(line, Same(x, 0)), Same(x, 1));
}
Expr HardSwish(const Expr& x, const Attributes&) {
  return Mul(x, Min(Max(Add(Mul(x, Same(x, 1.0 / 6)), Same(x, 0.5)), Same(x, 0)), Same(x, 1)));
}
Expr Celu(const Expr& x, const Attributes& a) {
  double alpha = a.Float("alpha", 1);
  Expr below = Mul(Sub(Call("exp", {Mul(Min(x, Same(x, 0)), Same(x, 1 / alpha))}), Same(x, 1)), Same(x, alpha));
  return Select(Lt(x, Same(x, 0)), below, x);
}
Expr Selu(const Expr& x, const Attributes& a) {
  return Mul(Elu(x, Attributes{{"alpha", a.Float("alpha", 1.67326319217681884765625)}}),
             Same(x, a.Float("gamma", 1.05070102214813232421875)));
}
Expr ThresholdedRelu(const Expr& x, const Attributes& a) {
  return Select(Lt(Same(x, a.Float("alpha", 1)), x), x, Same(x, 0));
}
Expr Shrink(const Expr& x, const Attributes& a) {
  double lambda = a.Float("lambd", 0.5), bias = a.Float("bias", 0);
  Expr high = Select(Lt(Same(x, lambda), x), Sub(x, Same(x, bias)), Same(x, 0));
  return Select(Lt(x, Same(x, -lambda)), Add(x, Same(x, bias)), high);
}
Expr Softsign(const Expr& x, const Attributes& a) { return Div(x, Add(Same(x, 1), Abs(x, a))); }
Expr Swish(const Expr& x, const Attributes& a) {
  double alpha = a.Float("alpha", 1);
  return Mul(x, Call("sigmoid", {alpha == 1 ? x : Mul(x, Same(x, alpha))}));
}
Expr GeluTanh(const Expr& x, const Attributes&) { return GeluByTanh(x); }
Expr Gelu(const Expr& x, const Attributes&) { return GeluByErf(x); }
// max(x, 0) + log(1 + exp(-|x|)): no overflow.
Expr Softplus(const Expr& x, const Attributes& a) {
  Expr tail = Call("log", {Add(Same(x, 1), Call("exp", {Sub(Same(x, 0), Abs(x, a))}))});
  return Add(Max(x, Same(x, 0)), tail);
}

Expr Mish(const Expr& x, const Attributes& a) { return Mul(x, Call("tanh", {Softplus(x, a)})); }

// The stage is named after its function, for the names of tasks and generated code.
template <Function kFunction>
int EmitUnary(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages, const char* name) {
  return b.Compute(name, args.output.shape,
                   [&](const Vars& i) { return kFunction(Wide(b, stages[0], i), *args.attributes); });
}

}  // namespace

#define DIAPASON_UNARY(name, infer, function)                                         \
  Operator {                                                                          \
    name, OperatorKind::kElementwise, 1, 1, infer,                                    \
        [](DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) { \
          return EmitUnary<function>(b, args, stages, name);                          \
        }                                                                             \
  }

std::vector<Operator> Unary() {
  return {
      DIAPASON_UNARY("relu", InferNumber, Relu),
      DIAPASON_UNARY("sigmoid", InferFloatUnary, Sigmoid),
      DIAPASON_UNARY("tanh", InferFloatUnary, Tanh),
      DIAPASON_UNARY("exp", InferFloatUnary, Exp),
      DIAPASON_UNARY("log", InferFloatUnary, Log),
      DIAPASON_UNARY("sqrt", InferFloatUnary, Sqrt),
      DIAPASON_UNARY("rsqrt", InferFloatUnary, Rsqrt),
      DIAPASON_UNARY("erf", InferFloatUnary, Erf),
      DIAPASON_UNARY("abs", InferNumber, Abs),
      DIAPASON_UNARY("neg", InferNumber, Neg),
      DIAPASON_UNARY("floor", InferFloatUnary, Floor),
      DIAPASON_UNARY("ceil", InferFloatUnary, Ceil),
      DIAPASON_UNARY("round", InferFloatUnary, Round),
      DIAPASON_UNARY("reciprocal", InferFloatUnary, Reciprocal),
      DIAPASON_UNARY("clip", InferNumber, Clip),
      DIAPASON_UNARY("leaky_relu", InferFloatUnary, LeakyRelu),
      DIAPASON_UNARY("elu", InferFloatUnary, Elu),
      DIAPASON_UNARY("hard_sigmoid", InferFloatUnary, HardSigmoid),
      DIAPASON_UNARY("hard_swish", InferFloatUnary, HardSwish),
      DIAPASON_UNARY("gelu", InferFloatUnary, Gelu),
      DIAPASON_UNARY("softplus", InferFloatUnary, Softplus),
      DIAPASON_UNARY("sin", InferFloatUnary, Sin),
      DIAPASON_UNARY("cos", InferFloatUnary, Cos),
      DIAPASON_UNARY("tan", InferFloatUnary, Tan),
      DIAPASON_UNARY("asin", InferFloatUnary, Asin),
      DIAPASON_UNARY("acos", InferFloatUnary, Acos),
      DIAPASON_UNARY("atan", InferFloatUnary, Atan),
      DIAPASON_UNARY("sinh", InferFloatUnary, Sinh),
      DIAPASON_UNARY("cosh", InferFloatUnary, Cosh),
      DIAPASON_UNARY("asinh", InferFloatUnary, Asinh),
      DIAPASON_UNARY("acosh", InferFloatUnary, Acosh),
      DIAPASON_UNARY("atanh", InferFloatUnary, Atanh),
      DIAPASON_UNARY("sign", InferNumber, Sign),
      DIAPASON_UNARY("is_nan", InferFloatTest, IsNan),
      DIAPASON_UNARY("is_inf", InferFloatTest, IsInf),
      DIAPASON_UNARY("not", InferBool, LogicalNot),
      DIAPASON_UNARY("bitwise_not", InferInteger, BitwiseNot),
      DIAPASON_UNARY("celu", InferFloatUnary, Celu),
      DIAPASON_UNARY("selu", InferFloatUnary, Selu),
      DIAPASON_UNARY("thresholded_relu", InferFloatUnary, ThresholdedRelu),
      DIAPASON_UNARY("shrink", InferNumber, Shrink),
      DIAPASON_UNARY("softsign", InferFloatUnary, Softsign),
      DIAPASON_UNARY("swish", InferFloatUnary, Swish),
      DIAPASON_UNARY("gelu_tanh", InferFloatUnary, GeluTanh),
      DIAPASON_UNARY("mish", InferFloatUnary, Mish),
  };
}

#undef DIAPASON_UNARY

}  // namespace diapason::ops
