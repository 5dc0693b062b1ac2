// The attention rewrite: softmax(f(q k)) v with its operands laid out for tensor cores.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Where the factor of scores that nothing else is added to is multiplied.
enum class ScoreScale : uint8_t {
  kInScores,     // as the dag has it
  kInExponents,  // with differences from the maximum
};

// Two sums of products over one axis each, of which the second reads what is computed from the first (weights w) and an
// operand that is not:
//
//     S[b, i, j] = sum over d of q[..] * k[..],    Y[b, i, e] = sum over j of w[b, i, j] * v[..]
//
// Each of q, k and v becomes a stage of its own, indexed by [b, i, d], [b, j, d] and [b, j, e] (axes that an operand is
// not read by are left out), which stands for all that only moves it, so that a copy of it in shared memory has the
// order that tensor cores read. Weights, and queries and keys that are computed in float32, are rounded to the type of
// v where that is narrower: of float16 networks they are float16, as where the kernels of an attention are apart.
//
// Weights that are exponentials divided by the sum of their row are the exponentials alone; the sum divides the row of
// the product (FlashAttention, Dao et al. 2022). So an exponential is computed once, and nobody waits for the sum but
// the end.
//
// kInExponents: exponentials of scores that only a factor c scales, exp(c S - max(c S)), become exp(|c| (S' - max S'))
// with S' = sign(c) S, the sign being that of the rows of q, where it is exact. The product's results are then what the
// maximum is taken of, and scaling a difference costs nothing where exp is a power of two. InvalidArgument where
// anything else is between scores and exponentials.
//
// InvalidArgument where the dag has another form.
absl::StatusOr<ComputeDag> AttentionRewrite(const ComputeDag& dag, ScoreScale scale = ScoreScale::kInScores);

}  // namespace diapason
