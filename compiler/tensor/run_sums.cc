#include "compiler/tensor/run_sums.h"

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

Expr Wide(Expr e) { return e->dtype == DType::kFloat32 ? e : Cast(DType::kFloat32, std::move(e)); }

// The load of the element of which a stage has the sum and that of its square, by its body alone; null: none.
const ExprNode* LoadOf(const Stage& stage) {
  if (stage.combiner != Combiner::kSum || stage.reduce_axes.size() != 1 || stage.axes.size() < 2 ||
      stage.axes.back().extent != 2 || stage.dtype != DType::kFloat32 || stage.body->kind != ExprKind::kSelect)
    return nullptr;
  const Expr &condition = stage.body->args[0], &element = stage.body->args[1], &square = stage.body->args[2];
  if (!Equal(condition, Eq(stage.axes.back().var, IntImm(0))) || !Equal(square, Mul(element, element))) return nullptr;
  const ExprNode* load = element.get();
  if (load->kind == ExprKind::kCast) load = load->args[0].get();
  return load->kind == ExprKind::kLoad ? load : nullptr;
}

// Whether the elements of a run are neighbours in a source of that shape, each run once and in order.
bool AreRunsOf(const Stage& stage, const ExprNode& load, const std::vector<int64_t>& shape) {
  Analyzer analyzer;
  Expr wanted = IntImm(0), flat = IntImm(0);
  const auto append = [&](const Axis& axis) {
    analyzer.Bind(axis.var, axis.extent);
    wanted = Add(Mul(wanted, IntImm(axis.extent)), axis.var);
  };
  for (size_t d = 1; d + 1 < stage.axes.size(); ++d) append(stage.axes[d]);
  append(stage.axes[0]);
  append(stage.reduce_axes[0]);
  for (size_t d = 0; d < shape.size(); ++d) flat = Add(Mul(flat, IntImm(shape[d])), load.args[d]);
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return 2 * elements == stage.elements() * stage.reduce_axes[0].extent &&
         IsInt(analyzer.Simplify(Sub(flat, wanted)), 0);
}

}  // namespace

int AddRunSums(DagBuilder& builder, int source, int64_t run) {
  std::vector<int64_t> shape = builder.stage(source).shape();
  DIAPASON_CHECK(!shape.empty() && shape.back() % run == 0);
  shape.insert(shape.begin(), shape.back() / run);
  shape.back() = 2;
  return builder.Reduce("run_sums", shape, {run}, Combiner::kSum,
                        [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                          std::vector<Expr> at(i.begin() + 1, i.end());
                          at.back() = Add(Mul(i[0], IntImm(run)), r[0]);
                          const Expr element = Wide(builder.At(source, std::move(at)));
                          return Select(Eq(i.back(), IntImm(0)), element, Mul(element, element));
                        });
}

int AddRowTotals(DagBuilder& builder, int sums) {
  std::vector<int64_t> shape = builder.stage(sums).shape();
  DIAPASON_CHECK(shape.size() >= 2);
  const int64_t runs = shape[0];
  shape.erase(shape.begin());
  return builder.Reduce("row_totals", shape, {runs}, Combiner::kSum,
                        [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                          std::vector<Expr> at = {r[0]};
                          at.insert(at.end(), i.begin(), i.end());
                          return builder.At(sums, std::move(at));
                        });
}

bool IsRowTotals(const Stage& stage, const std::function<const Stage&(int)>& stage_of) {
  return !stage.placeholder && stage.combiner == Combiner::kSum && stage.reduce_axes.size() == 1 &&
         !stage.axes.empty() && stage.axes.back().extent == 2 && stage.dtype == DType::kFloat32 &&
         stage.body->kind == ExprKind::kLoad && stage_of(stage.body->buffer).placeholder;
}

std::optional<RunSums> RunSumsOf(const Stage& stage, const std::function<const Stage&(int)>& stage_of) {
  const ExprNode* load = stage.placeholder ? nullptr : LoadOf(stage);
  if (load == nullptr || !AreRunsOf(stage, *load, stage_of(load->buffer).shape())) return std::nullopt;
  return RunSums{load->buffer, stage.reduce_axes[0].extent, stage.axes[0].extent};
}

}  // namespace diapason
