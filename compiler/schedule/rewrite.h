// Rewrites: other ComputeDags that compute the same outputs (../docs/space.md). A pure rewrite: any
// machine can redo it from the name and parameters. Placeholders and outputs keep their order, element type and memory
// contents (row-major flat order), though a rewrite may give them another shape (a gemm rewrite has [pixels, channels]
// for [n, h, w, c]).
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The rewrites that apply to this dag on every target: direct always; gemm where one sum-of-products reduction has
// spatial axes of either operand alone; winograd(2) and winograd(4) for dense 3x3 stride-1 convolutions in NHWC with
// constant float32 weights; halves for float32 products of bounded factors; rows for dense convolutions of few channels
// in NHWC and float32; padded where a vector is multiplied by a constant matrix whose rows are not aligned; strassen(1)
// and strassen(2) where there is a gemm rewrite whose extents are even, or multiples of 4; attention where one product
// reads what is computed from another, and attention(1) where that is a softmax of scores times a factor.
std::vector<DagRewrite> RewritesOf(const ComputeDag& dag);

// gemm or winograd with the weights laid out at build time such that k is innermost, as tensor cores read them
// (ldmatrix): gemm_k, winograd_k(m). Nothing for other rewrites, and where the columns are no constants.
std::optional<DagRewrite> WithWeightsAlongK(const ComputeDag& dag, const DagRewrite& rewrite);

// Whether a rewrite's rounding errors are larger than those of plain sums: winograd(4), whose root mean square is 2.6
// times as large, strassen, whose errors relate to blocks, and halves, whose long sums are cut off. Such a rewrite is
// chosen by measurement, not as a fallback (docs/space.md, "Rounding errors of rewrites").
bool LosesDigits(const DagRewrite& rewrite);

// The rewrite's dag. InvalidArgument if the rewrite does not apply. Names of stages that later steps rely on: none;
// look at the structure. In the result every stage keeps a unique name.
//
// gemm: the anchor C[s] = sum_r A[i(s,r)] * B[j(s,r)] becomes C[b, m, n] = sum_k A'[b, m, k] * B'[b, k, n] (b left out
// when empty): spatial axes only in A -> m, only in B -> n, in both -> b, reduce axes -> k, each class fused in order
// (k such that the innermost runs along memory). A' and B' are stages of their own whose bodies read the original
// operands at floordiv/floormod indices, padding as a select (the pad stage is inlined into A'); an operand whose
// fused index is its plain flat order is reshaped instead (1x1 stride-1 activations, weights [kh*kw*ci, co]): then A'
// or B' is the placeholder itself, no stage. Epilogue stages are rewritten over [b, m, n] (residuals reshaped, bias
// [n]), and so is the output: its flat order must stay the same, else the rewrite does not apply. Extent-1 axes are
// dropped first.
//
// gemm_k: B' is B'[b, n, k], a prologue unless the constant lies so already.
//
// (rewrite_gemm.cc)
//
// library: the dag as it is; a library computes its anchor (StepKind::kLibrary). Not among RewritesOf, since the target
// must name the library.
//
// winograd(m), m = 2 or 4: a weight transform (prologue), input tiles, input transform, a product over [(m+2)^2, tiles,
// co, ci], inverse transform, epilogue; the matrices of F(m, 3) are choices between literals in the expressions, and
// unroll_axes name the axes that are unrolled whole to decide them. winograd_k(m): with the transformed weights' ci
// innermost. (rewrite_winograd.cc)
//
// halves: the gemm rewrite's product from float16 parts of its factors. (rewrite_halves.h)
//
// rows: C[n, y, x, co] = sum over window rows r and elements j of such a row of X'[n, sh*y + r, sw*ci*x + first + j] *
// W'[r, j, co], with rows of the input as runs of w*ci elements. (rewrite_rows.h)
//
// padded: columns of zeros behind those of a constant matrix that a vector is multiplied by. (rewrite_padded.h)
//
// strassen(levels): the gemm rewrite's product as 7 or 49 products of halves or quarters of the operands.
// (rewrite_strassen.h)
//
// attention: operands of both products as stages of their own in the order of rows, weights in the type of the values;
// attention(1): also with the scale of scores inside the exponentials. (rewrite_attention.h)
absl::StatusOr<ComputeDag> ApplyRewrite(const ComputeDag& dag, const DagRewrite& rewrite);

}  // namespace diapason
