#include "base/check.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {
namespace {

std::vector<Axis> MakeAxes(const char* prefix, const std::vector<int64_t>& extents) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < extents.size(); ++i) axes.push_back({MakeVar(prefix + std::to_string(i)), extents[i]});
  return axes;
}

std::vector<Expr> VarsOf(const std::vector<Axis>& axes) {
  std::vector<Expr> vars;
  for (const Axis& axis : axes) vars.push_back(axis.var);
  return vars;
}

}  // namespace

int DagBuilder::Placeholder(std::string name, std::vector<int64_t> shape, DType dtype) {
  Stage stage;
  stage.name = Unique(std::move(name));
  stage.dtype = dtype;
  stage.axes = MakeAxes("i", shape);
  stage.placeholder = true;
  stages_.push_back(std::move(stage));
  return static_cast<int>(stages_.size()) - 1;
}

int DagBuilder::Constant(std::string name, std::vector<int64_t> shape, DType dtype) {
  const int id = Placeholder(std::move(name), std::move(shape), dtype);
  stages_[id].constant = true;
  return id;
}

int DagBuilder::Compute(std::string name, std::vector<int64_t> shape, const std::function<Expr(const Vars&)>& body) {
  return Reduce(std::move(name), std::move(shape), {}, Combiner::kNone,
                [&](const Vars& axes, const Vars&) { return body(axes); });
}

int DagBuilder::Reduce(std::string name, std::vector<int64_t> shape, std::vector<int64_t> reduce, Combiner combiner,
                       const std::function<Expr(const Vars&, const Vars&)>& body) {
  Stage stage;
  stage.name = Unique(std::move(name));
  stage.axes = MakeAxes("i", shape);
  stage.reduce_axes = MakeAxes("r", reduce);
  stage.combiner = reduce.empty() ? Combiner::kNone : combiner;
  stage.body = body(VarsOf(stage.axes), VarsOf(stage.reduce_axes));
  stage.dtype = stage.body->dtype;
  stages_.push_back(std::move(stage));
  return static_cast<int>(stages_.size()) - 1;
}

Expr DagBuilder::At(int stage, std::vector<Expr> indices) const {
  DIAPASON_CHECK(stage >= 0 && stage < static_cast<int>(stages_.size()));
  DIAPASON_CHECK_MSG(indices.size() == stages_[stage].axes.size(), "indices of " + stages_[stage].name);
  return Load(stage, stages_[stage].dtype, std::move(indices));
}

absl::StatusOr<ComputeDag> DagBuilder::Build(std::vector<int> outputs) {
  return ComputeDag::Create(stages_, std::move(outputs));
}

std::string DagBuilder::Unique(std::string name) {
  if (names_.emplace(name, 0).second) return name;
  for (;;) {
    std::string candidate = name + "_" + std::to_string(++names_[name]);
    if (names_.emplace(candidate, 0).second) return candidate;
  }
}

}  // namespace diapason
