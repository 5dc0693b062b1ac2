// Conversion of the element type.
#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferCast(const OperatorArgs& args) {
  std::string to = args.attributes->String("to", "float32");
  std::optional<DType> dtype = DTypeFromName(to);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("unknown type '", to, "'"));
  return TensorType{*dtype, args.inputs[0].shape};
}

int EmitCast(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  DType to = args.output.dtype;
  return b.Compute("cast", args.output.shape, [&](const Vars& i) {
    Expr x = Raw(b, stages[0], i);
    if (to == DType::kBool && x->dtype != DType::kBool) return Ne(x, Literal(0, x->dtype));
    return diapason::Cast(to, x);
  });
}

bool CastIsView(const OperatorArgs& args) { return args.inputs[0].dtype == args.output.dtype; }

}  // namespace

std::vector<Operator> Cast() { return {{"cast", OperatorKind::kElementwise, 1, 1, InferCast, EmitCast, CastIsView}}; }

}  // namespace diapason::ops
