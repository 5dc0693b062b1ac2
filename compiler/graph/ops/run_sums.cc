// Normalizations whose statistics are sums of runs (tensor/run_sums.h) that whoever makes the rows has made: what
// DeferNorms makes of layer and RMS normalizations.
#include "compiler/tensor/run_sums.h"

#include "absl/strings/str_cat.h"
#include "compiler/graph/ops/emit.h"
#include "compiler/graph/ops/registry.h"

namespace diapason::ops {
namespace {

absl::StatusOr<TensorType> InferRunSums(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  const int64_t run = args.attributes->Int("run", 64);
  std::vector<int64_t> shape = args.inputs[0].shape;
  if (shape.empty() || run < 1 || shape.back() % run != 0)
    return absl::InvalidArgumentError(absl::StrCat("rows are not divided into runs of ", run));
  shape.insert(shape.begin(), shape.back() / run);
  shape.back() = 2;
  return TensorType{DType::kFloat32, shape};
}

int EmitRunSums(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  return AddRunSums(b, stages[0], args.attributes->Int("run", 64));
}

absl::StatusOr<TensorType> InferNormalizeBySums(const OperatorArgs& args) {
  RETURN_IF_ERROR(RequireFloat(args));
  const std::vector<int64_t>&shape = args.inputs[0].shape, &sums = args.inputs[1].shape;
  if (shape.empty() || sums.size() != shape.size() + 1 || sums.back() != 2 ||
      !std::equal(shape.begin(), shape.end() - 1, sums.begin() + 1))
    return absl::InvalidArgumentError("the sums are not those of as many rows");
  return args.inputs[0];
}

// Both statistics are a stage of their own, of each row: what reads it, reads it for all columns.
int EmitNormalizeBySums(DagBuilder& b, const OperatorArgs& args, const std::vector<int>& stages) {
  const std::vector<int64_t>& shape = args.inputs[0].shape;
  const double share = 1 / static_cast<double>(args.attributes->Int("count", 1)),
               epsilon = args.attributes->Float("epsilon", 1e-5);
  const bool centred = args.attributes->Int("centred", 1) != 0, shifts = args.attributes->Int("shifts", 0) != 0;
  const int totals = AddRowTotals(b, stages[1]);
  const auto mean_of = [&](Vars row, int64_t which) {
    row.back() = IntImm(which);
    return Mul(b.At(totals, std::move(row)), Literal(share, DType::kFloat32));
  };
  std::vector<int64_t> rows = shape;
  rows.back() = 1;
  const int deviation = b.Compute("inverse_deviation", rows, [&](const Vars& i) {
    Expr variance = mean_of(i, 1);
    if (centred) {
      const Expr mean = mean_of(i, 0);
      variance = Max(Sub(variance, Mul(mean, mean)), Literal(0, DType::kFloat32));
    }
    return Call("rsqrt", {Add(variance, Literal(epsilon, DType::kFloat32))});
  });
  const auto row_of = [](Vars i) {
    i.back() = IntImm(0);
    return i;
  };
  const int mean = shifts ? b.Compute("mean", rows, [&](const Vars& i) { return mean_of(i, 0); }) : -1;
  return b.Compute("normalize_by_sums", shape, [&](const Vars& i) {
    Expr x = Wide(b, stages[0], i);
    if (shifts) x = Sub(x, b.At(mean, row_of(i)));
    return Mul(x, b.At(deviation, row_of(i)));
  });
}

}  // namespace

std::vector<Operator> RunSums() {
  return {{"run_sums", OperatorKind::kAnchor, 1, 1, InferRunSums, EmitRunSums},
          {"normalize_by_sums", OperatorKind::kElementwise, 2, 2, InferNormalizeBySums, EmitNormalizeBySums}};
}

}  // namespace diapason::ops
