// Elementwise arithmetic of two tensors with numpy broadcasting.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> Infer(const OperatorArgs& args) {
  const TensorType &a = args.inputs[0], &b = args.inputs[1];
  if (a.dtype != b.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs must have one type, not ", NameOf(a.dtype), " and ", NameOf(b.dtype)));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, BroadcastShapes(a.shape, b.shape));
  return TensorType{a.dtype, shape};
}

absl::StatusOr<TensorType> InferFloat(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  return Infer(args);
}

// Integers are divided as ONNX says: towards zero.
Expr Divide(Expr a, Expr b) {
  if (IsFloat(a->dtype)) return Div(a, b);
  Expr quotient = Div(diapason::Cast(DType::kFloat64, a), diapason::Cast(DType::kFloat64, b));
  return diapason::Cast(a->dtype, Select(Lt(quotient, FloatImm(0, DType::kFloat64)), Call("ceil", {quotient}),
                                         Call("floor", {quotient})));
}

Expr Power(Expr a, Expr b) { return Call("pow", {a, b}); }

template <Expr (*kFunction)(Expr, Expr)>
int Emit(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages, const char* name) {
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
          return Emit<function>(b, args, stages, name);                               \
        },                                                                            \
        nullptr, commutative                                                          \
  }

std::vector<Operator> Binary() {
  return {
      DIAPASON_BINARY("add", Infer, Add, true),         DIAPASON_BINARY("sub", Infer, Sub, false),
      DIAPASON_BINARY("mul", Infer, Mul, true),         DIAPASON_BINARY("div", Infer, Divide, false),
      DIAPASON_BINARY("maximum", Infer, Max, true),     DIAPASON_BINARY("minimum", Infer, Min, true),
      DIAPASON_BINARY("pow", InferFloat, Power, false),
  };
}

#undef DIAPASON_BINARY

}  // namespace diapason::ops
