#include "compiler/schedule/rewrite_parts.h"

#include <algorithm>
#include <utility>

#include "compiler/tensor/simplify.h"

namespace diapason {

Expr Renumbered(const Expr& body, const std::vector<int>& new_id) {
  return Rewrite(
      body, [&](const Expr& e) { return e->kind == ExprKind::kLoad ? Load(new_id[e->buffer], e->dtype, e->args) : e; });
}

absl::StatusOr<ComputeDag> Rewritten(const ComputeDag& dag, std::vector<Stage> stages, const std::vector<int>& new_id) {
  std::vector<int> outputs;
  for (int id : dag.outputs()) outputs.push_back(new_id[id]);
  return ComputeDag::Create(std::move(stages), outputs);
}

Stage OverAxes(Stage stage, const std::vector<Axis>& axes, const VarMap& map, const std::vector<int>& new_id,
               const std::vector<bool>& alike) {
  std::vector<Expr> point;
  Analyzer analyzer;
  for (const Axis& axis : axes) {
    point.push_back(axis.var);
    analyzer.Bind(axis.var, axis.extent);
  }
  stage.axes = axes;
  stage.body = analyzer.Simplify(Rewrite(Substitute(stage.body, map), [&](const Expr& e) -> Expr {
    if (e->kind != ExprKind::kLoad) return e;
    return Load(new_id[e->buffer], e->dtype, alike[e->buffer] ? point : e->args);
  }));
  return stage;
}

const char* WrongWithWeights(const ExprNode& weights, const Stage& convolution) {
  if (weights.args.size() != 4) return "the weights have no 4 dimensions";
  std::vector<Expr> wanted{convolution.axes[3].var};
  for (const Axis& axis : convolution.reduce_axes) wanted.push_back(axis.var);
  for (const Expr& var : wanted)
    if (std::count(weights.args.begin(), weights.args.end(), var) != 1) return "the weights are not dense";
  return nullptr;
}

GemmProduct::GemmProduct(const ComputeDag& gemm) : dag_(gemm) {
  for (int id = 0; id < gemm.size(); ++id)
    if (gemm.stage(id).reduces() && !gemm.is_prologue(id)) id_ = id;
}

bool GemmProduct::IsInlined(int id) const {
  const Stage& stage = dag_.stage(id);
  return !stage.placeholder && !stage.reduces() && !dag_.is_output(id) && dag_.consumers(id) == std::vector<int>{id_};
}

Expr GemmProduct::OperandAt(int id, std::vector<Expr> indices, const std::vector<int>& new_id) const {
  const Stage& operand = dag_.stage(id);
  if (!IsInlined(id)) return Load(new_id[id], operand.dtype, std::move(indices));
  VarMap map;
  for (size_t d = 0; d < indices.size(); ++d) map[operand.axes[d].var.get()] = indices[d];
  return Renumbered(Substitute(operand.body, map), new_id);
}

Axis MakeAxis(const char* name, int64_t extent) { return Axis{MakeVar(name), extent}; }

Stage SumOver(std::string name, std::vector<Axis> axes, Axis reduce, Expr body) {
  Stage stage;
  stage.name = std::move(name);
  stage.axes = std::move(axes);
  stage.reduce_axes = {std::move(reduce)};
  stage.combiner = Combiner::kSum;
  stage.body = std::move(body);
  return stage;
}

Expr AbsentTerm() { return FloatImm(-0.0); }

Expr TimesEntry(const Matrix& matrix, const Expr& row, size_t column, const Expr& value) {
  Expr result = AbsentTerm();
  for (size_t r = matrix.size(); r-- > 0;)
    if (matrix[r][column] != 0)
      result = Select(Eq(row, IntImm(static_cast<int64_t>(r))), Mul(value, FloatImm(matrix[r][column])), result);
  return result;
}

Expr TimesEntry(const Matrix& matrix, const Expr& row, const Expr& column, const Expr& value) {
  Expr present = IntImm(0, DType::kBool), factor = FloatImm(0);
  for (size_t c = matrix[0].size(); c-- > 0;) {
    Expr present_in_column = IntImm(0, DType::kBool), factor_in_column = FloatImm(0);
    for (size_t r = matrix.size(); r-- > 0;) {
      if (matrix[r][c] == 0) continue;
      const Expr here = Eq(row, IntImm(static_cast<int64_t>(r)));
      present_in_column = Or(here, present_in_column);
      factor_in_column = Select(here, FloatImm(matrix[r][c]), factor_in_column);
    }
    const Expr here = Eq(column, IntImm(static_cast<int64_t>(c)));
    present = Select(here, present_in_column, present);
    factor = Select(here, factor_in_column, factor);
  }
  return Select(present, Mul(value, factor), AbsentTerm());
}

}  // namespace diapason
