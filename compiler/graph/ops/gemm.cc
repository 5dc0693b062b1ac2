// General matrix product: alpha * op(a) * op(b) + beta * c.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/products.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferGemm(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFactors(args));
  const bool scaled = args.attributes->Float("alpha", 1) != 1 || args.attributes->Float("beta", 1) != 1;
  if (scaled) RETURN_IF_ERROR(RequireFloat(args));
  RETURN_IF_ERROR(RequireRank(args, 0, 2));
  RETURN_IF_ERROR(RequireRank(args, 1, 2));
  bool ta = args.attributes->Int("trans_a", 0) != 0, tb = args.attributes->Int("trans_b", 0) != 0;
  const std::vector<int64_t>&a = args.inputs[0].shape, &b = args.inputs[1].shape;
  if (a[ta ? 0 : 1] != b[tb ? 1 : 0]) {
    return absl::InvalidArgumentError(absl::StrCat("matrices ", absl::StrJoin(a, "x"), ta ? " (transposed)" : "",
                                                   " and ", absl::StrJoin(b, "x"), tb ? " (transposed)" : "",
                                                   " do not multiply"));
  }
  TensorType out{SumTypeOf(args), {a[ta ? 1 : 0], b[tb ? 0 : 1]}};
  if (args.inputs.size() < 3) return out;
  ASSIGN_OR_RETURN(std::vector<int64_t> sum, BroadcastShapes(out.shape, args.inputs[2].shape));
  if (sum != out.shape) {
    return absl::InvalidArgumentError(absl::StrCat("the third input (", absl::StrJoin(args.inputs[2].shape, "x"),
                                                   ") does not broadcast to ", absl::StrJoin(out.shape, "x")));
  }
  return out;
}

int EmitGemm(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  bool ta = args.attributes->Int("trans_a", 0) != 0, tb = args.attributes->Int("trans_b", 0) != 0;
  double alpha = args.attributes->Float("alpha", 1), beta = args.attributes->Float("beta", 1);
  int64_t depth = args.inputs[0].shape[ta ? 0 : 1];
  int result = b.Reduce("gemm", args.output.shape, {depth}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(Factor(b, stages[0], ta ? Vars{r[0], i[0]} : Vars{i[0], r[0]}),
               Factor(b, stages[1], tb ? Vars{i[1], r[0]} : Vars{r[0], i[1]}));
  });
  DType type = b.stage(result).dtype;
  if (alpha != 1) {
    int product = result;
    result = b.Compute("scale", args.output.shape,
                       [&](const Vars& i) { return Mul(Wide(b, product, i), Literal(alpha, type)); });
  }
  if (stages.size() < 3) return result;
  return b.Compute("bias", args.output.shape, [&](const Vars& i) {
    Expr c = Wide(b, stages[2], BroadcastIndex(i, args.inputs[2].shape));
    return Add(Wide(b, result, i), beta == 1 ? c : Mul(c, Literal(beta, type)));
  });
}

}  // namespace

std::vector<Operator> Gemm() { return {{"gemm", OperatorKind::kAnchor, 2, 3, InferGemm, EmitGemm}}; }

}  // namespace diapason::ops
