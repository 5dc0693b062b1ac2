// Elementwise functions of one tensor.
#include <cmath>

#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

using Function = Expr (*)(const Expr& x, const Attributes& attributes);

absl::StatusOr<TensorType> InferAny(const OperatorArgs& args) { return args.inputs[0]; }

absl::StatusOr<TensorType> InferFloat(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
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
Expr Neg(const Expr& x, const Attributes&) { return Sub(Same(x, 0), x); }
Expr Abs(const Expr& x, const Attributes&) { return Max(x, Sub(Same(x, 0), x)); }

Expr Clip(const Expr& x, const Attributes& a) {
  Expr y = x;
  if (a.has("min")) y = Max(y, Same(x, a.Float("min", 0)));
  if (a.has("max")) y = Min(y, Same(x, a.Float("max", 0)));
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
Expr Gelu(const Expr& x, const Attributes&) {
  return Mul(Mul(x, Same(x, 0.5)), Add(Call("erf", {Mul(x, Same(x, std::sqrt(0.5)))}), Same(x, 1)));
}
// max(x, 0) + log(1 + exp(-|x|)): no overflow.
Expr Softplus(const Expr& x, const Attributes& a) {
  Expr tail = Call("log", {Add(Same(x, 1), Call("exp", {Sub(Same(x, 0), Abs(x, a))}))});
  return Add(Max(x, Same(x, 0)), tail);
}

// The stage is named after its function, for the names of tasks and generated code.
template <Function kFunction>
int Emit(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages, const char* name) {
  return b.Compute(name, args.output.shape,
                   [&](const Vars& i) { return kFunction(Wide(b, stages[0], i), *args.attributes); });
}

}  // namespace

#define DIAPASON_UNARY(name, infer, function)                                         \
  Operator {                                                                          \
    name, OperatorKind::kElementwise, 1, 1, infer,                                    \
        [](DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) { \
          return Emit<function>(b, args, stages, name);                               \
        }                                                                             \
  }

std::vector<Operator> Unary() {
  return {
      DIAPASON_UNARY("relu", InferAny, Relu),
      DIAPASON_UNARY("sigmoid", InferFloat, Sigmoid),
      DIAPASON_UNARY("tanh", InferFloat, Tanh),
      DIAPASON_UNARY("exp", InferFloat, Exp),
      DIAPASON_UNARY("log", InferFloat, Log),
      DIAPASON_UNARY("sqrt", InferFloat, Sqrt),
      DIAPASON_UNARY("rsqrt", InferFloat, Rsqrt),
      DIAPASON_UNARY("erf", InferFloat, Erf),
      DIAPASON_UNARY("abs", InferAny, Abs),
      DIAPASON_UNARY("neg", InferAny, Neg),
      DIAPASON_UNARY("floor", InferFloat, Floor),
      DIAPASON_UNARY("ceil", InferFloat, Ceil),
      DIAPASON_UNARY("round", InferFloat, Round),
      DIAPASON_UNARY("reciprocal", InferFloat, Reciprocal),
      DIAPASON_UNARY("clip", InferAny, Clip),
      DIAPASON_UNARY("leaky_relu", InferFloat, LeakyRelu),
      DIAPASON_UNARY("elu", InferFloat, Elu),
      DIAPASON_UNARY("hard_sigmoid", InferFloat, HardSigmoid),
      DIAPASON_UNARY("hard_swish", InferFloat, HardSwish),
      DIAPASON_UNARY("gelu", InferFloat, Gelu),
      DIAPASON_UNARY("softplus", InferFloat, Softplus),
  };
}

#undef DIAPASON_UNARY

}  // namespace diapason::ops
