// Permutation of the dimensions: dimension d of the result is dimension perm[d] of the input.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

std::vector<int64_t> PermutationOf(const OperatorArgs& args) {
  std::vector<int64_t> reversed(args.inputs[0].shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return args.attributes->Ints("perm", reversed);
}

absl::StatusOr<TensorType> InferTranspose(const OperatorArgs& args) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  std::vector<int64_t> perm = PermutationOf(args);
  ASSIGN_OR_RETURN(std::vector<int64_t> sorted, NormalAxes(perm, shape.size()));
  if (sorted.size() != shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat("perm must name all ", shape.size(), " dimensions"));
  }
  TensorType out{args.inputs[0].dtype, {}};
  for (int64_t axis : perm) out.shape.push_back(shape[NormalAxis(axis, shape.size()).value()]);
  return out;
}

int EmitTranspose(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  std::vector<int64_t> perm = PermutationOf(args);
  return b.Compute("transpose", args.output.shape, [&](const Vars& i) {
    Vars at(i.size());
    for (size_t d = 0; d < i.size(); ++d) at[NormalAxis(perm[d], i.size()).value()] = i[d];
    return Raw(b, stages[0], at);
  });
}

// The order in memory stays if the dimensions longer than 1 keep their order.
bool TransposeIsView(const OperatorArgs& args) {
  int64_t last = -1;
  for (int64_t axis : PermutationOf(args)) {
    int64_t normal = NormalAxis(axis, args.inputs[0].shape.size()).value();
    if (args.inputs[0].shape[normal] == 1) continue;
    if (normal < last) return false;
    last = normal;
  }
  return true;
}

}  // namespace

std::vector<Operator> Transpose() {
  return {{"transpose", OperatorKind::kInjective, 1, 1, InferTranspose, EmitTranspose, TransposeIsView}};
}

}  // namespace diapason::ops
