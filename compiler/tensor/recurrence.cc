#include "compiler/tensor/recurrence.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

constexpr int64_t kLeastUnits = 2;
constexpr size_t kMostSumsOfStep = 4;

// The stages of a dag that compute, without those that only move elements of placeholders. In order of the sums behind
// which they come: what reads one of them alone stands beside it, wherever it is read.
struct ComputingStages {
  explicit ComputingStages(const ComputeDag& of) : dag(of), position(of.size(), -1), bodies(of.size()) {
    for (int id = 0; id < dag.size(); ++id) {
      const Stage& stage = dag.stage(id);
      if (stage.placeholder) continue;
      bodies[id] = Inlined(stage);
      if (!stage.reduces() && !dag.is_output(id) && MovesPlaceholders(bodies[id])) {
        moved.insert(id);
        continue;
      }
      ids.push_back(id);
    }
    const std::vector<int> sums = SumsInFront();
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return sums[a] < sums[b]; });
    for (size_t i = 0; i < ids.size(); ++i) position[ids[i]] = static_cast<int>(i);
  }

  // By stage: the sums on the longest path to it, itself included.
  std::vector<int> SumsInFront() const {
    std::vector<int> sums(dag.size(), 0);
    for (int id : ids) {
      for (int producer : ProducersOf(id)) sums[id] = std::max(sums[id], sums[producer]);
      sums[id] += dag.stage(id).reduces();
    }
    return sums;
  }
  std::vector<int> ProducersOf(int id) const {
    std::vector<int> producers;
    Visit(bodies[id], [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad) producers.push_back(e.buffer);
    });
    return producers;
  }

  Expr Inlined(const Stage& stage) const {
    bool reads_moved = false;
    Visit(stage.body, [&](const ExprNode& e) {
      reads_moved = reads_moved || (e.kind == ExprKind::kLoad && moved.contains(e.buffer));
    });
    if (!reads_moved) return stage.body;
    Analyzer analyzer;
    for (const auto* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) analyzer.Bind(axis.var, axis.extent);
    return analyzer.Simplify(Rewrite(stage.body, [&](const Expr& e) -> Expr {
      if (e->kind != ExprKind::kLoad || !moved.contains(e->buffer)) return e;
      VarMap axes;
      for (size_t d = 0; d < e->args.size(); ++d) axes[dag.stage(e->buffer).axes[d].var.get()] = e->args[d];
      return Substitute(bodies[e->buffer], axes);
    }));
  }

  bool MovesPlaceholders(const Expr& body) const {
    bool moves = true;
    Visit(body, [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad) moves = moves && dag.stage(e.buffer).placeholder;
      if (e.kind == ExprKind::kCall || (IsArithmetic(e.kind) && IsFloat(e.dtype))) moves = false;
    });
    return moves;
  }
  static bool IsArithmetic(ExprKind kind) {
    return kind == ExprKind::kAdd || kind == ExprKind::kSub || kind == ExprKind::kMul || kind == ExprKind::kDiv ||
           kind == ExprKind::kMin || kind == ExprKind::kMax;
  }

  const ComputeDag& dag;
  std::vector<int> ids;
  std::vector<int> position;  // by stage: its number in `ids`, or -1
  std::vector<Expr> bodies;   // by stage, with the others inlined
  std::set<int> moved;
};

// Compares the stages of two steps, and notes what differs as it may.
class StepMatcher {
 public:
  explicit StepMatcher(const ComputingStages& stages) : stages_(stages) {}

  // Where what stage `a` of a step reads moves from step to step: by load and index, in order of the expression.
  using Moves = std::vector<std::vector<int64_t>>;

  // Where the stages lie that a step may read: its own, and others from number `first` on. If it `begins`, something
  // else may stand for what later steps read of the step before them; it is noted in `initials`.
  struct Place {
    int first = 0;
    bool begins = false;
  };

  // Whether number `b` of the stages is number `a`, at that place.
  bool Match(int a, int b, Place place) {
    distance_ = b - a;
    place_ = place;
    moves_.clear();
    const Stage &of_a = stages_.dag.stage(stages_.ids[a]), &of_b = stages_.dag.stage(stages_.ids[b]);
    if (of_a.dtype != of_b.dtype || of_a.combiner != of_b.combiner || of_a.shape() != of_b.shape() ||
        !BindAxes(of_a, of_b))
      return false;
    return Same(stages_.bodies[stages_.ids[a]], Substitute(stages_.bodies[stages_.ids[b]], axes_of_b_));
  }
  const Moves& moves() const { return moves_; }
  // By what a later step reads (of the step before it): what the first one reads, over the axes of the former.
  const std::map<int, Expr>& initials() const { return initials_; }

 private:
  bool BindAxes(const Stage& a, const Stage& b) {
    if (a.reduce_axes.size() != b.reduce_axes.size()) return false;
    axes_of_b_.clear();
    for (size_t i = 0; i < a.axes.size(); ++i) Bind(a.axes[i], b.axes[i]);
    for (size_t i = 0; i < a.reduce_axes.size(); ++i) {
      if (a.reduce_axes[i].extent != b.reduce_axes[i].extent) return false;
      Bind(a.reduce_axes[i], b.reduce_axes[i]);
    }
    return true;
  }
  void Bind(const Axis& a, const Axis& b) {
    analyzer_.Bind(a.var, a.extent);
    axes_of_b_[b.var.get()] = a.var;
  }

  bool Same(const Expr& a, const Expr& b) {
    if (place_.begins && b->kind == ExprKind::kLoad && PositionOf(*b) >= place_.first && !ReadsStep(a))
      return Begins(a, *b);
    if (a->kind == ExprKind::kLoad && b->kind == ExprKind::kLoad) return SameLoad(*a, *b);
    if (a->kind != b->kind || a->dtype != b->dtype || a->args.size() != b->args.size() || a->name != b->name)
      return false;
    if (a->kind == ExprKind::kVar) return a == b;
    if (a->kind == ExprKind::kIntImm && a->value != b->value) return false;
    if (a->kind == ExprKind::kFloatImm && a->fvalue != b->fvalue) return false;
    for (size_t i = 0; i < a->args.size(); ++i)
      if (!Same(a->args[i], b->args[i])) return false;
    return true;
  }

  int PositionOf(const ExprNode& load) const { return stages_.position[load.buffer]; }
  bool ReadsStep(const Expr& e) const {
    bool reads = false;
    Visit(e, [&](const ExprNode& node) {
      reads = reads || (node.kind == ExprKind::kLoad && PositionOf(node) >= place_.first);
    });
    return reads;
  }

  bool SameLoad(const ExprNode& a, const ExprNode& b) {
    if (a.dtype != b.dtype || a.args.size() != b.args.size()) return false;
    std::vector<int64_t> moved;
    for (size_t i = 0; i < a.args.size(); ++i) {
      const Expr moves = Equal(a.args[i], b.args[i]) ? IntImm(0) : analyzer_.Simplify(Sub(b.args[i], a.args[i]));
      if (moves->kind != ExprKind::kIntImm) return false;
      moved.push_back(moves->value);
    }
    const bool still = std::all_of(moved.begin(), moved.end(), [](int64_t m) { return m == 0; });
    moves_.push_back(std::move(moved));
    if (a.buffer == b.buffer) return PositionOf(a) < place_.first;
    return still && PositionOf(a) >= place_.first && PositionOf(b) - PositionOf(a) == distance_;
  }

  // `a` stands for the load `b` of the step before.
  bool Begins(const Expr& a, const ExprNode& b) {
    const Stage& source = stages_.dag.stage(b.buffer);
    if (a->dtype != b.dtype) return false;
    VarMap to_source;
    for (size_t d = 0; d < b.args.size(); ++d) {
      if (IsInt(b.args[d], 0) && source.axes[d].extent == 1) continue;
      if (b.args[d]->kind != ExprKind::kVar) return false;
      to_source[b.args[d].get()] = source.axes[d].extent == 1 ? IntImm(0) : source.axes[d].var;
    }
    bool known = true;
    Visit(a, [&](const ExprNode& e) { known = known && (e.kind != ExprKind::kVar || to_source.contains(&e)); });
    if (!known) return false;
    moves_.push_back(std::vector<int64_t>(b.args.size(), 0));
    const Expr initial = Substitute(a, to_source);
    return Equal(initials_.emplace(b.buffer, initial).first->second, initial);
  }

  const ComputingStages& stages_;
  Analyzer analyzer_;
  VarMap axes_of_b_;
  int distance_ = 0;
  Place place_;
  Moves moves_;
  std::map<int, Expr> initials_;
};

class RecurrenceFinder {
 public:
  explicit RecurrenceFinder(const ComputeDag& dag) : dag_(dag), stages_(dag) {}

  absl::StatusOr<Recurrence> Find() {
    if (dag_.outputs().size() != 1 || computing_.empty() || dag_.outputs()[0] != computing_.back())
      return absl::InvalidArgumentError("the dag has not one result, computed last");
    absl::Status why = absl::InvalidArgumentError("no steps are alike");
    const std::vector<int> sums = LastSums();
    for (size_t i = 1; i < sums.size(); ++i) {
      const int period = sums[0] - sums[i];
      for (int end = std::min(sums[0] + period, static_cast<int>(computing_.size())); end > sums[0]; --end) {
        const int steps = StepsBefore(end, period);
        if (steps < kLeastSteps) continue;
        absl::StatusOr<Recurrence> found = Describe(end - steps * period, period, steps);
        if (found.ok()) return found;
        why = found.status();
      }
    }
    return why;
  }

 private:
  // The last one first: steps have as many stages as lie between two of them.
  std::vector<int> LastSums() const {
    std::vector<int> sums;
    for (int i = static_cast<int>(computing_.size()) - 1; i >= 0 && sums.size() <= kMostSumsOfStep; --i)
      if (dag_.stage(computing_[i]).reduces()) sums.push_back(i);
    return sums;
  }

  bool AreAlike(int at, int period, StepMatcher::Place place) const {
    StepMatcher matcher(stages_);
    for (int i = at; i < at + period; ++i)
      if (!matcher.Match(i, i + period, place)) return false;
    return true;
  }

  int StepsBefore(int end, int period) {
    int at = end - period, steps = 1;
    if (at < 0) return 0;
    while (at >= 2 * period && AreAlike(at - period, period, {at - 2 * period, false})) at -= period, ++steps;
    return at >= period && AreAlike(at - period, period, {at - period, true}) ? steps + 1 : steps;
  }

  absl::StatusOr<Recurrence> Describe(int first, int period, int steps) {
    first_ = first;
    period_ = period;
    if (first > 2 * period) return absl::InvalidArgumentError("more than two steps come before those that are alike");
    Recurrence r;
    r.steps = steps;
    r.step = MakeVar("step");
    r.start.assign(computing_.begin(), computing_.begin() + first);
    r.body.assign(computing_.begin() + first, computing_.begin() + first + period);
    RETURN_IF_ERROR(FindMoves(&r));
    RETURN_IF_ERROR(FindUnits(&r));
    for (int id : r.start) {
      r.start_expressions.push_back(stages_.bodies[id]);
      RETURN_IF_ERROR(CheckAccesses(r, dag_.stage(id), stages_.bodies[id]));
    }
    for (const Recurrence::Carried& carried : r.carried)
      RETURN_IF_ERROR(CheckUnits(r, dag_.stage(carried.source), carried.initial));
    for (size_t i = 0; i < r.body.size(); ++i)
      RETURN_IF_ERROR(CheckAccesses(r, dag_.stage(r.body[i]), r.expressions[i]));
    RETURN_IF_ERROR(FindStores(&r));
    return r;
  }

  // The expressions of all steps as those of one, from the second and third; the others are compared with it.
  absl::Status FindMoves(Recurrence* r) {
    StepMatcher from_first(stages_);
    for (int i = 0; i < period_; ++i) {
      const int second = NumberOf(1, i);
      const std::string& name = dag_.stage(computing_[second]).name;
      StepMatcher later(stages_);
      std::vector<StepMatcher::Moves> moves;
      for (int64_t k = 2; k < r->steps; ++k) {
        if (!later.Match(second, NumberOf(k, i), {first_, false}))
          return absl::InvalidArgumentError(absl::StrCat("step ", k, " differs in stage ", name));
        moves.push_back(later.moves());
      }
      for (size_t k = 0; k < moves.size(); ++k)
        for (size_t load = 0; load < moves[k].size(); ++load)
          for (size_t d = 0; d < moves[k][load].size(); ++d)
            if (moves[k][load][d] != moves[0][load][d] * static_cast<int64_t>(k + 1))
              return absl::InvalidArgumentError(absl::StrCat("stage ", name, " does not move evenly"));
      if (!from_first.Match(NumberOf(0, i), second, {first_, true}))
        return absl::InvalidArgumentError(absl::StrCat("the first step differs in stage ", name));
      if (from_first.moves() != moves[0])
        return absl::InvalidArgumentError(absl::StrCat("stage ", name, " does not move evenly at first"));
    }
    for (const auto& [source, initial] : from_first.initials()) r->carried.push_back({source, initial});
    for (int i = 0; i < period_; ++i) r->expressions.push_back(InStep(*r, i));
    return absl::OkStatus();
  }

  int NumberOf(int64_t step, int i) const { return static_cast<int>(first_ + step * period_ + i); }

  // Stage `i` of the body in step `step`, from its expression in the second step.
  Expr InStep(const Recurrence& r, int i) {
    const Stage &a = dag_.stage(computing_[NumberOf(1, i)]), &own = dag_.stage(computing_[NumberOf(0, i)]);
    StepMatcher matcher(stages_);
    matcher.Match(NumberOf(1, i), NumberOf(2, i), {first_, false});
    VarMap axes;
    for (size_t d = 0; d < a.axes.size(); ++d) axes[a.axes[d].var.get()] = own.axes[d].var;
    for (size_t d = 0; d < a.reduce_axes.size(); ++d) axes[a.reduce_axes[d].var.get()] = own.reduce_axes[d].var;
    size_t load = 0;
    const auto moved = [&](const Expr& e) -> Expr {
      std::vector<Expr> indices = e->args;
      const std::vector<int64_t>& moves = matcher.moves()[load++];
      const int at = position_[e->buffer];
      if (at < first_) {
        for (size_t d = 0; d < indices.size(); ++d)
          if (moves[d] != 0) indices[d] = Add(indices[d], Mul(Sub(r.step, IntImm(1)), IntImm(moves[d])));
        return Load(e->buffer, e->dtype, std::move(indices));
      }
      if (at >= first_ + period_) return Load(computing_[at - period_], e->dtype, std::move(indices));
      for (size_t c = 0; c < r.carried.size(); ++c)
        if (r.carried[c].source == e->buffer)
          return Load(Recurrence::BufferOf(static_cast<int>(c)), e->dtype, std::move(indices));
      return e;
    };
    return Substitute(InOrder(stages_.bodies[computing_[NumberOf(1, i)]], moved), axes);
  }

  // Replaces the loads of an expression in the order in which StepMatcher meets them: a load's indices are not
  // searched.
  Expr InOrder(const Expr& e, const std::function<Expr(const Expr&)>& replace) const {
    if (e->kind == ExprKind::kLoad) return replace(e);
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(InOrder(arg, replace));
    return Rebuild(e, std::move(args));
  }

  absl::Status FindUnits(Recurrence* r) {
    std::vector<int> all = r->start;
    all.insert(all.end(), r->body.begin(), r->body.end());
    for (int id : all) {
      const Stage& stage = dag_.stage(id);
      if (stage.axes.empty()) return Refused(stage, "it has no axes");
      if (stage.axes.back().extent > 1) r->units = std::gcd(r->units, stage.axes.back().extent);
    }
    if (r->units < kLeastUnits) return absl::InvalidArgumentError("its stages have no units in common");
    if (r->units > kMostUnits)
      return absl::InvalidArgumentError(absl::StrCat("it has more than ", kMostUnits, " units"));
    for (int id : all) {
      const Stage& stage = dag_.stage(id);
      if (r->RowsOf(stage) > kMostRows) return Refused(stage, absl::StrCat("it has more than ", kMostRows, " rows"));
      if (stage.axes.back().extent <= r->units && stage.elements() * BytesOf(stage.dtype) > kMostStateBytes)
        return Refused(stage, absl::StrCat("it has more than ", kMostStateBytes, " bytes"));
    }
    return absl::OkStatus();
  }

  static absl::Status Refused(const Stage& stage, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.name, ": ", why));
  }

  absl::Status CheckAccesses(const Recurrence& r, const Stage& stage, const Expr& body) {
    return stage.reduces() ? CheckSum(r, stage, body) : CheckUnits(r, stage, body);
  }

  // An expression over the axes of a stage reads its own units.
  absl::Status CheckUnits(const Recurrence& r, const Stage& stage, const Expr& body) const {
    Analyzer analyzer;
    const Expr unit = MakeVar("unit");
    analyzer.Bind(unit, r.units);
    for (int64_t row = 0; row < r.RowsOf(stage); ++row)
      for (int64_t group = 0; group < r.GroupsOf(stage); ++group) {
        const Expr at = analyzer.Simplify(Substitute(body, AxesAt(r, stage, {row, group}, unit)));
        bool own = true;
        Visit(at, [&](const ExprNode& e) {
          if (e.kind != ExprKind::kLoad || (e.buffer >= 0 && dag_.stage(e.buffer).placeholder)) return;
          own = own && OwnElement(r, dag_.stage(r.SourceOf(e.buffer)), e.args, unit, analyzer).has_value();
        });
        if (!own) return Refused(stage, "it reads other units");
      }
    return absl::OkStatus();
  }

  // Sums read whole rows of units.
  absl::Status CheckSum(const Recurrence& r, const Stage& stage, const Expr& body) {
    if (stage.combiner != Combiner::kSum || stage.reduce_axes.size() != 1)
      return Refused(stage, "it is no sum over one axis");
    if (position_[&stage - dag_.stages().data()] < first_) return Refused(stage, "it is a sum in front of all steps");
    bool reads_columns = false, reads_state = false;
    const ExprNode* column = stage.axes.back().var.get();
    Visit(body, [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad || (e.buffer >= 0 && dag_.stage(e.buffer).placeholder)) return;
      reads_state = true;
      for (const Expr& index : e.args) reads_columns = reads_columns || UsesVar(index, column);
    });
    if (reads_columns) return Refused(stage, "what it sums differs from unit to unit");
    return reads_state ? absl::OkStatus() : Refused(stage, "it sums nothing that steps compute");
  }

  // The output stage with what follows the steps inlined into it.
  Expr Output(int end) const {
    std::map<int, Expr> bodies;  // by stage
    for (size_t i = end; i < computing_.size(); ++i)
      bodies[computing_[i]] = Rewrite(stages_.bodies[computing_[i]], [&](const Expr& e) -> Expr {
        const auto inlined = e->kind == ExprKind::kLoad ? bodies.find(e->buffer) : bodies.end();
        if (inlined == bodies.end()) return e;
        VarMap axes;
        const Stage& stage = dag_.stage(e->buffer);
        for (size_t d = 0; d < stage.axes.size(); ++d) axes[stage.axes[d].var.get()] = e->args[d];
        return Substitute(inlined->second, axes);
      });
    return bodies.at(computing_.back());
  }

  absl::Status FindStores(Recurrence* r) {
    const int end = first_ + static_cast<int>(r->steps) * period_;
    const Stage& output = dag_.stage(computing_.back());
    if (end == static_cast<int>(computing_.size())) {
      for (int64_t row = 0; row < r->RowsOf(output); ++row)
        for (int64_t group = 0; group < r->GroupsOf(output); ++group)
          r->stores.push_back({r->body.back(), true, row, group, (row * r->GroupsOf(output) + group) * r->units, 0});
      return r->IsUniform(output) ? Refused(output, "it has no units") : absl::OkStatus();
    }
    if (output.axes.empty() || output.axes.back().extent % r->units != 0)
      return Refused(output, "it is not made of units");
    const Expr body = Output(end);
    for (size_t axis = 0; axis + 1 < output.axes.size(); ++axis)
      if (FindStoresAlong(axis, body, r)) return absl::OkStatus();
    return Refused(output, "it is not made of what the steps compute");
  }

  // The stores, if each position along an axis is one stage.
  bool FindStoresAlong(size_t axis, const Expr& body, Recurrence* r) {
    const Stage& output = dag_.stage(computing_.back());
    Analyzer analyzer;
    const Expr unit = MakeVar("unit");
    analyzer.Bind(unit, r->units);
    // By stage of the body, row and group: the offsets of all steps.
    std::map<std::tuple<int, int64_t, int64_t>, std::map<int64_t, int64_t>> of_steps;
    std::vector<Recurrence::Store> stores;
    const Expr position = output.axes[axis].var;
    for (int64_t p = 0; p < output.axes[axis].extent; ++p) {
      const Expr at_position = Substitute(body, {{position.get(), IntImm(p)}});
      for (int64_t row = 0; row < r->RowsOf(output); ++row) {
        if (CoordinateOf(output, row, axis) != p) continue;
        for (int64_t group = 0; group < r->GroupsOf(output); ++group) {
          Expr e = analyzer.Simplify(Substitute(at_position, AxesAt(*r, output, {row, group}, unit)));
          if (e->kind == ExprKind::kCast) e = e->args[0];
          if (e->kind != ExprKind::kLoad || position_[e->buffer] < 0) return false;
          const Stage& from = dag_.stage(e->buffer);
          const std::optional<RowAndGroup> own =
              r->IsUniform(from) ? std::nullopt : OwnElement(*r, from, e->args, unit, analyzer);
          if (!own) return false;
          const int64_t offset = row * output.axes.back().extent + group * r->units;
          const int at = position_[e->buffer] - first_;
          if (at < 0)
            stores.push_back({e->buffer, false, own->row, own->group, offset, 0});
          else if (!of_steps[{at % period_, own->row, own->group}].emplace(at / period_, offset).second)
            return false;
        }
      }
    }
    for (const auto& [what, offsets] : of_steps) {
      const auto& [stage, row, group] = what;
      Recurrence::Store store{r->body[stage], false, row, group, offsets.begin()->second, 0};
      store.last = offsets.size() == 1 && offsets.begin()->first == r->steps - 1;
      if (!store.last) {
        if (static_cast<int64_t>(offsets.size()) != r->steps) return false;
        store.step_stride = offsets.at(1) - offsets.at(0);
        for (const auto& [step, offset] : offsets)
          if (offset != store.offset + step * store.step_stride) return false;
      }
      stores.push_back(store);
    }
    r->stores = std::move(stores);
    return true;
  }

  static int64_t CoordinateOf(const Stage& stage, int64_t row, size_t axis) {
    int64_t inner = 1;
    for (size_t d = axis + 1; d + 1 < stage.axes.size(); ++d) inner *= stage.axes[d].extent;
    return row / inner % stage.axes[axis].extent;
  }

  const ComputeDag& dag_;
  const ComputingStages stages_;
  const std::vector<int>&computing_ = stages_.ids, &position_ = stages_.position;
  int first_ = 0, period_ = 0;
};

}  // namespace

VarMap AxesAt(const Recurrence& recurrence, const Stage& stage, const Expr& row, int64_t group, const Expr& unit) {
  VarMap axes;
  const Expr first = IntImm(group * recurrence.units);
  axes[stage.axes.back().var.get()] = recurrence.IsUniform(stage) ? IntImm(0) : Add(unit, first);
  Expr rest = row;
  for (size_t d = stage.axes.size() - 1; d-- > 0;) {
    axes[stage.axes[d].var.get()] = FloorMod(rest, stage.axes[d].extent);
    rest = FloorDiv(rest, stage.axes[d].extent);
  }
  return axes;
}

std::optional<RowAndGroup> OwnElement(const Recurrence& recurrence, const Stage& stage, absl::Span<const Expr> indices,
                                      const Expr& unit, Analyzer& analyzer) {
  RowAndGroup at;
  for (size_t d = 0; d + 1 < indices.size(); ++d) {
    const Expr index = analyzer.Simplify(indices[d]);
    if (index->kind != ExprKind::kIntImm || index->value < 0 || index->value >= stage.axes[d].extent)
      return std::nullopt;
    at.row = at.row * stage.axes[d].extent + index->value;
  }
  const bool uniform = recurrence.IsUniform(stage);
  const Expr first = analyzer.Simplify(uniform ? indices.back() : Sub(indices.back(), unit));
  if (first->kind != ExprKind::kIntImm || first->value % recurrence.units != 0) return std::nullopt;
  at.group = uniform ? 0 : first->value / recurrence.units;
  if (at.group < 0 || at.group >= recurrence.GroupsOf(stage)) return std::nullopt;
  return at;
}

absl::StatusOr<Recurrence> FindRecurrence(const ComputeDag& dag) { return RecurrenceFinder(dag).Find(); }

}  // namespace diapason
