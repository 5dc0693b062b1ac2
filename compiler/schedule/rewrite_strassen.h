// The Strassen rewrite (compiler/schedule/rewrite.h): seven products of halves instead of eight, after Strassen,
// "Gaussian Elimination is not Optimal" (1969); twice over, 49 products of quarters instead of 64.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The gemm rewrite's C[m, n] = sum_k A[m, k] * B[k, n] becomes, with h = 2^levels, P = 7^levels, m' = m/h, n' = n/h and
// k' = k/h:
//   blocks     the h x h blocks of A (and of B), gathered; an operand's im2col is computed here
//   left       S[P, m', k']     sums and differences of blocks of A
//   right      T[P, k', n']     the same of B; a prologue where B is constant
//   product    M[P, m', n']     = sum over k' of S * T
//   combined   Y[h, m', h, n']  sums and differences of products
// followed by the epilogue, over Y's shape (the same memory as [m, n]).
//
// Every product is still a multiply-add in float32, but sums and differences come first, so that rounding errors relate
// to the largest blocks rather than to each element (Higham, "Accuracy and Stability of Numerical Algorithms", 23.2.2,
// has the bound; docs/space.md what was measured).
//
// InvalidArgument, saying why, unless the gemm rewrite applies without a batch and in float32, levels is 1 or 2, and h
// divides m, n and k.
absl::StatusOr<ComputeDag> StrassenRewrite(const ComputeDag& dag, int64_t levels);

// Whether StrassenRewrite applies and saves at least so many operations for every byte that its sums move to memory and
// back: a device's peak over its bandwidth. With 14 of them (an H200) products of 2048 and more do, by and large.
bool StrassenMayPay(const ComputeDag& dag, int64_t levels, double operations_per_byte);

}  // namespace diapason
