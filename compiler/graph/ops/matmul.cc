// numpy.matmul: batch dimensions broadcast; a vector on the left is a row, on the right a column, dropped from the
// result.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/products.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

std::vector<int64_t> BatchOf(const std::vector<int64_t>& shape) {
  return shape.size() < 2 ? std::vector<int64_t>{} : std::vector<int64_t>(shape.begin(), shape.end() - 2);
}

absl::StatusOr<TensorType> InferMatmul(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFactors(args));
  const std::vector<int64_t>&a = args.inputs[0].shape, &b = args.inputs[1].shape;
  if (a.empty() || b.empty()) return absl::InvalidArgumentError("a scalar cannot be multiplied as a matrix");
  if (a.back() != b[b.size() < 2 ? 0 : b.size() - 2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrices ", absl::StrJoin(a, "x"), " and ", absl::StrJoin(b, "x"), " do not multiply"));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, BroadcastShapes(BatchOf(a), BatchOf(b)));
  if (a.size() > 1) shape.push_back(a[a.size() - 2]);
  if (b.size() > 1) shape.push_back(b.back());
  return TensorType{SumTypeOf(args), shape};
}

int EmitMatmul(DagBuilder& builder, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>&a = args.inputs[0].shape, &b = args.inputs[1].shape;
  return builder.Reduce("matmul", args.output.shape, {a.back()}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    size_t rows = a.size() > 1, columns = b.size() > 1;
    Vars batch(i.begin(), i.end() - (rows + columns));
    Vars left = BroadcastIndex(batch, BatchOf(a)), right = BroadcastIndex(batch, BatchOf(b));
    if (rows) left.push_back(i[batch.size()]);
    left.push_back(r[0]);
    right.push_back(r[0]);
    if (columns) right.push_back(i.back());
    return Mul(Factor(builder, stages[0], left), Factor(builder, stages[1], right));
  });
}

}  // namespace

std::vector<Operator> Matmul() { return {{"matmul", OperatorKind::kAnchor, 2, 2, InferMatmul, EmitMatmul}}; }

}  // namespace diapason::ops
