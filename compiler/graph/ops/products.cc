#include "compiler/graph/ops/products.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason::ops {

DType SumTypeOf(const OperatorArgs& args) {
  const DType first = args.inputs[0].dtype;
  return IsFloat(first) || first == DType::kInt64 ? first : DType::kInt32;
}

absl::Status RequireFactors(const OperatorArgs& args) {
  const DType sum = SumTypeOf(args), first = args.inputs[0].dtype;
  if (!IsFloat(first) && first != sum && !IsByte(first)) return RequireFloat(args);
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const DType type = args.inputs[i].dtype;
    if (type == sum || (sum == DType::kInt32 && i < 2 && IsByte(type))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs must have one type, not ", NameOf(first), " and ", NameOf(type)));
  }
  return absl::OkStatus();
}

Expr Factor(DagBuilder& builder, int stage, Vars indices) {
  Expr x = Wide(builder, stage, std::move(indices));
  return IsByte(x->dtype) ? diapason::Cast(DType::kInt32, x) : x;
}

}  // namespace diapason::ops
