// The gemm rewrite (compiler/schedule/rewrite.h): one kind of thing of convolutions of any rank, dense layers and
// batched products.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// InvalidArgument, saying why, where the dag is no product of two operands reused along each other's axes.
// `k_innermost`: of constant columns, B'[b, n, k]; InvalidArgument too where they are not constant.
absl::StatusOr<ComputeDag> GemmRewrite(const ComputeDag& dag, bool k_innermost = false);

}  // namespace diapason
