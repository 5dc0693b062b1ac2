#include "compiler/graph/long_reductions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/dtype.h"

namespace diapason {
namespace {

constexpr int64_t kLongSum = int64_t{1} << 14, kLongRow = int64_t{1} << 20;
// Products with more results have no rows of kLongRow terms in practice, and their tiles should not change.
constexpr int64_t kFewProducts = 64;
constexpr int64_t kShortSum = 1024;      // not split further
constexpr int64_t kManyParts = 1 << 17;  // enough to keep any device busy
constexpr int64_t kLanes = 32;

bool DependsOn(const ComputeDag& dag, int reader, int stage) {
  if (reader <= stage) return reader == stage;
  const std::vector<int> producers = dag.producers(reader);
  return std::any_of(producers.begin(), producers.end(), [&](int p) { return DependsOn(dag, p, stage); });
}

// Whether the sum is one of a row that other stages reduce too, or whose elements need it.
bool BelongsToRow(const ComputeDag& dag, int id) {
  for (int other = 0; other < dag.size(); ++other) {
    const Stage& stage = dag.stage(other);
    if (other == id || stage.placeholder || dag.is_prologue(other)) continue;
    if (stage.reduces()) return true;
    if (stage.elements() > dag.stage(id).elements() && DependsOn(dag, other, id)) return true;
  }
  return false;
}

bool IsLong(const ComputeDag& dag, int id) {
  const Stage& stage = dag.stage(id);
  const bool adds = stage.combiner == Combiner::kSum;
  if (!stage.reduces() || (adds && !IsFloat(stage.dtype)) || stage.terms() <= kLongSum) return false;
  std::vector<const ExprNode*> loads;
  Visit(stage.body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad) loads.push_back(&e);
  });
  if (loads.size() != 1) return stage.terms() > kLongRow && stage.elements() <= kFewProducts;
  // Sums over windows that overlap, and running sums, read elements many times: their parts would be as many.
  if (stage.elements() > dag.stage(loads[0]->buffer).elements() / stage.terms()) return false;
  return stage.terms() > kLongRow || !BelongsToRow(dag, id);
}

std::vector<Axis> FreshAxes(const std::vector<int64_t>& extents, const char* prefix) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < extents.size(); ++i) axes.push_back({MakeVar(absl::StrCat(prefix, i)), extents[i]});
  return axes;
}

// How an axis is split: element p * terms * lanes + r * lanes + lane belongs to part p of a lane.
struct AxisSplit {
  int64_t parts = 1, terms = 1, lanes = 1;
  bool is_exact(int64_t extent) const { return parts * terms * lanes == extent; }
};

AxisSplit SplitOf(int64_t extent, int64_t lanes, int64_t terms) {
  for (int64_t l = lanes; l >= std::min<int64_t>(lanes, 8); l /= 2)
    for (int64_t t = terms; 2 * t > terms && t > 1; --t)
      if (extent % (l * t) == 0) return {extent / (l * t), t, l};
  const int64_t most = std::min(terms, (extent + lanes - 1) / lanes), part = most * lanes;
  return {(extent + part - 1) / part, most, lanes};
}

// Takes stages of partial results off a long reduction until it is a short one.
class Splitter {
 public:
  explicit Splitter(Stage sum) : sum_(std::move(sum)) {}

  // `first` is the id that the first stage will have.
  std::vector<Stage> Run(int first) {
    std::vector<Stage> stages;
    while (sum_.terms() > kShortSum) {
      Stage part = TakePart(first + static_cast<int>(stages.size()));
      part.name = absl::StrCat(name_, "_part", stages.size());
      stages.push_back(std::move(part));
    }
    stages.push_back(std::move(sum_));
    return stages;
  }

 private:
  // Neighbours in memory are terms of one sum.
  bool RunsAlongTerms() const {
    bool along = false;
    Visit(sum_.body, [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad && !e.args.empty())
        along |= UsesVar(e.args.back(), sum_.reduce_axes.back().var.get());
    });
    return along;
  }

  // The stage of partial sums over the innermost axes; the sum becomes that of its results. Where neighbours in memory
  // are terms, the parts are the last axes of the result, so that lanes of a vector read them side by side; else they
  // are the first.
  Stage TakePart(int id) {
    std::vector<Axis> open = sum_.reduce_axes;  // not added up yet
    std::vector<Axis> taken;
    int64_t terms = 1;
    const bool along = RunsAlongTerms();
    for (; !open.empty() && terms * open.back().extent <= kShortSum; open.pop_back()) {
      terms *= open.back().extent;
      taken.insert(taken.begin(), open.back());
    }
    const int64_t wanted = std::clamp<int64_t>(sum_.elements() * sum_.terms() / kManyParts, 64, 512) / terms;
    AxisSplit split;
    const bool cut = !open.empty() && wanted > 1;
    if (cut) split = SplitOf(open.back().extent, along && terms == 1 ? kLanes : 1, wanted);

    std::vector<int64_t> parts;
    for (const Axis& axis : open) parts.push_back(axis.extent);
    if (cut) {
      parts.back() = split.parts;
      if (split.lanes > 1) parts.push_back(split.lanes);
    }
    const std::vector<Axis> rows = FreshAxes(sum_.shape(), "i"), places = FreshAxes(parts, "p");
    std::vector<int64_t> extents;
    if (cut) extents.push_back(split.terms);
    for (const Axis& axis : taken) extents.push_back(axis.extent);
    const std::vector<Axis> reduce = FreshAxes(extents, "r");

    VarMap map;
    for (size_t a = 0; a < rows.size(); ++a) map[sum_.axes[a].var.get()] = rows[a].var;
    for (size_t a = 0; a < taken.size(); ++a) map[taken[a].var.get()] = reduce[a + (cut ? 1 : 0)].var;
    Expr inside;
    for (size_t a = 0; a < open.size(); ++a) {
      Expr place = places[a].var;
      if (cut && a + 1 == open.size()) {
        place = Add(Mul(place, IntImm(split.terms)), reduce[0].var);
        if (split.lanes > 1) place = Add(Mul(place, IntImm(split.lanes)), places.back().var);
        if (!split.is_exact(open[a].extent)) inside = Lt(place, IntImm(open[a].extent));
      }
      map[open[a].var.get()] = place;
    }

    Stage part = sum_;
    part.axes = along ? Joined(rows, places) : Joined(places, rows);
    part.reduce_axes = reduce;
    part.body = Substitute(sum_.body, map);
    if (inside) part.body = Select(inside, part.body, IdentityOf(part.combiner, part.dtype));

    sum_.axes = FreshAxes(sum_.shape(), "i");
    sum_.reduce_axes = FreshAxes(parts, "r");
    std::vector<Expr> at;
    for (const Axis& axis : along ? Joined(sum_.axes, sum_.reduce_axes) : Joined(sum_.reduce_axes, sum_.axes))
      at.push_back(axis.var);
    sum_.body = Load(id, part.dtype, std::move(at));
    return part;
  }

  static std::vector<Axis> Joined(std::vector<Axis> a, const std::vector<Axis>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  Stage sum_;
  const std::string name_ = sum_.name;
};

}  // namespace

absl::StatusOr<ComputeDag> SplitLongReductions(const ComputeDag& dag) {
  bool any = false;
  for (int id = 0; id < dag.size() && !any; ++id) any = IsLong(dag, id);
  if (!any) return dag;
  std::vector<Stage> stages;
  std::vector<int> number(dag.size());
  for (int id = 0; id < dag.size(); ++id) {
    Stage stage = dag.stage(id);
    if (stage.body) {
      stage.body = Rewrite(stage.body, [&](const Expr& e) {
        return e->kind == ExprKind::kLoad ? Load(number[e->buffer], e->dtype, e->args) : e;
      });
    }
    if (!IsLong(dag, id)) {
      stages.push_back(std::move(stage));
    } else {
      for (Stage& part : Splitter(std::move(stage)).Run(static_cast<int>(stages.size())))
        stages.push_back(std::move(part));
    }
    number[id] = static_cast<int>(stages.size()) - 1;
  }
  std::vector<int> outputs;
  for (int output : dag.outputs()) outputs.push_back(number[output]);
  return ComputeDag::Create(std::move(stages), std::move(outputs));
}

}  // namespace diapason
