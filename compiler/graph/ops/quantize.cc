// Quantised tensors, whose elements q stand for (q - zero point) * scale. FuseQuantized makes integer products of what
// lies between them, and elementary operators of the rest.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

// Scale and zero point broadcast to x.
absl::Status CheckParameters(const OperatorArgs& args, DType zero) {
  if (args.inputs[1].dtype != DType::kFloat32) return absl::InvalidArgumentError("the scale must be float32");
  if (args.inputs.size() > 2 && args.inputs[2].dtype != zero)
    return absl::InvalidArgumentError(
        absl::StrCat("the zero point must be ", NameOf(zero), ", not ", NameOf(args.inputs[2].dtype)));
  for (size_t i = 1; i < args.inputs.size(); ++i) {
    absl::StatusOr<std::vector<int64_t>> shape = BroadcastShapes(args.inputs[0].shape, args.inputs[i].shape);
    if (!shape.ok() || *shape != args.inputs[0].shape)
      return absl::InvalidArgumentError(
          absl::StrCat("a parameter of ", args.inputs[i].ToString(), " does not fit ", args.inputs[0].ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> InferDequantize(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireInteger(args));
  RETURN_IF_ERROR(CheckParameters(args, args.inputs[0].dtype));
  return TensorType{DType::kFloat32, args.inputs[0].shape};
}

int EmitDequantize(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  return b.Compute("dequantize", args.output.shape, [&](const Vars& i) {
    // Differences of int32 are exact as int32 only.
    const DType work = args.inputs[0].dtype == DType::kInt32 ? DType::kInt32 : DType::kFloat32;
    Expr q = diapason::Cast(work, Raw(b, stages[0], i));
    if (stages.size() > 2) q = Sub(q, diapason::Cast(work, Raw(b, stages[2], BroadcastIndex(i, args.inputs[2].shape))));
    return Mul(diapason::Cast(DType::kFloat32, q), Raw(b, stages[1], BroadcastIndex(i, args.inputs[1].shape)));
  });
}

absl::StatusOr<TensorType> InferQuantize(const OperatorArgs& args) {
  if (args.inputs[0].dtype != DType::kFloat32) return absl::InvalidArgumentError("works on float32");
  const std::string to = args.attributes->String("to", "uint8");
  const std::optional<DType> dtype = DTypeFromName(to);
  if (!dtype || IsFloat(*dtype) || *dtype == DType::kBool)
    return absl::InvalidArgumentError(absl::StrCat("it does not quantise to '", to, "'"));
  RETURN_IF_ERROR(CheckParameters(args, *dtype));
  return TensorType{*dtype, args.inputs[0].shape};
}

// The quotient is a stage of its own, so that it is a float32 number before it is rounded.
int EmitQuantize(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const int quotient = b.Compute("quotient", args.output.shape, [&](const Vars& i) {
    return Div(Raw(b, stages[0], i), Raw(b, stages[1], BroadcastIndex(i, args.inputs[1].shape)));
  });
  return b.Compute("quantize", args.output.shape, [&](const Vars& i) {
    Expr q = Call("round", {Raw(b, quotient, i)});
    if (stages.size() > 2)
      q = Add(q, diapason::Cast(DType::kFloat32, Raw(b, stages[2], BroadcastIndex(i, args.inputs[2].shape))));
    q = Max(q, Literal(args.attributes->Float("min", 0), DType::kFloat32));
    return diapason::Cast(args.output.dtype, Min(q, Literal(args.attributes->Float("max", 255), DType::kFloat32)));
  });
}

}  // namespace

std::vector<Operator> Quantize() {
  return {{"dequantize", OperatorKind::kElementwise, 2, 3, InferDequantize, EmitDequantize},
          {"quantize", OperatorKind::kElementwise, 2, 3, InferQuantize, EmitQuantize}};
}

}  // namespace diapason::ops
