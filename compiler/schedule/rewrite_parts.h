// What the rewrites have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/expr.h"

namespace diapason {

// The body with loads of stages by their new ids, `new_id` by old id.
Expr Renumbered(const Expr& body, const std::vector<int>& new_id);

// The dag of the stages, with the outputs of `dag` by their new ids.
absl::StatusOr<ComputeDag> Rewritten(const ComputeDag& dag, std::vector<Stage> stages, const std::vector<int>& new_id);

// The stage over other axes: `map` gives its own by these. Loads are by new ids; of stages that have these axes too
// (`alike`, by old id) they are of the same point.
Stage OverAxes(Stage stage, const std::vector<Axis>& axes, const VarMap& map, const std::vector<int>& new_id,
               const std::vector<bool>& alike);

// Null if the load, of the weights of a 2-D convolution [n, h, w, co] over three reduce axes, is indexed by each of
// these and co alone, in any order; else what is wrong.
const char* WrongWithWeights(const ExprNode& weights, const Stage& convolution);

// The product of a gemm rewrite's dag, for rewrites that lay its operands out differently.
class GemmProduct {
 public:
  // REQUIRES: the dag is GemmRewrite's, and outlives this.
  explicit GemmProduct(const ComputeDag& gemm);
  int id() const { return id_; }
  const Stage& stage() const { return dag_.stage(id_); }
  // Whether a stage computes an operand (im2col) for the product alone: it can be computed where the operand is read.
  bool IsInlined(int id) const;
  // An element of an operand, with loads of stages by their new ids. Not simplified.
  Expr OperandAt(int id, std::vector<Expr> indices, const std::vector<int>& new_id) const;

 private:
  const ComputeDag& dag_;
  int id_ = -1;
};

Axis MakeAxis(const char* name, int64_t extent);

// A float32 stage that sums `body` over one axis.
Stage SumOver(std::string name, std::vector<Axis> axes, Axis reduce, Expr body);

// The small constant matrices of fast algorithms. Loops over their rows and columns are unrolled whole
// (Stage::unroll_axes), so that every choice below is decided and what is zero vanishes.
using Matrix = std::vector<std::vector<double>>;

// What an absent term of a sum is: x + -0.0 is x for every x, so compilers drop it (x + 0.0 they may not, for x =
// -0.0).
Expr AbsentTerm();

// matrix[row][column] * value where the row is known when loops are unrolled: one choice a row with a non-zero entry.
Expr TimesEntry(const Matrix& matrix, const Expr& row, size_t column, const Expr& value);

// The same with row and column both known when loops are unrolled; `value`, which may be long, is written once.
Expr TimesEntry(const Matrix& matrix, const Expr& row, const Expr& column, const Expr& value);

}  // namespace diapason
