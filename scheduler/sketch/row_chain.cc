#include "scheduler/sketch/row_chain.h"

#include <algorithm>
#include <map>

namespace diapason {
namespace {

constexpr int kNotRead = -1, kMoved = -2;

// Follows indices from the root to the stages that it needs.
class Finder {
 public:
  Finder(const Draft& draft, int root) : draft_(draft), state_(draft.state()), root_(root) {}

  std::optional<RowChain> Run() {
    const Stage& op = state_.stage(root_).op;
    for (size_t a = 0; a < op.axes.size(); ++a) places_[root_].push_back(static_cast<int>(a));
    if (!Follow() || chain_.reductions.empty() || !SetRows()) return std::nullopt;
    std::reverse(chain_.reductions.begin(), chain_.reductions.end());
    for (int id : chain_.between)
      if (IsExpensive(draft_.state(), id) && state_.Consumers(id).size() > 1) chain_.dear.push_back(id);
    return chain_;
  }

 private:
  // Consumers before producers, so that all readers of a stage have been seen. False if the stages do not fit.
  bool Follow() {
    const std::vector<int>& order = state_.topological();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const int id = *it;
      const StageState& stage = state_.stage(id);
      if (places_.count(id) == 0 || !stage.computes() || stage.prologue) continue;
      if (!draft_.IsUnscheduled(id) || (state_.is_output(id) && id != root_)) return false;
      if (stage.op.reduces())
        chain_.reductions.push_back(id);
      else if (id != root_)
        chain_.between.push_back(id);
      Visit(stage.op.body, [&](const ExprNode& e) {
        if (e.kind == ExprKind::kLoad) Place(id, e);
      });
    }
    return true;
  }

  // By which axis of the root a producer's dimensions are read; kMoved if by something else, or in several ways.
  void Place(int reader, const ExprNode& load) {
    const StageState& stage = state_.stage(reader);
    std::vector<int>& places = places_[load.buffer];
    places.resize(load.args.size(), kNotRead);
    for (size_t d = 0; d < load.args.size(); ++d) {
      if (state_.stage(load.buffer).op.axes[d].extent == 1) continue;
      int place = kMoved;
      for (size_t a = 0; a < stage.op.axes.size(); ++a)
        if (load.args[d] == stage.op.axes[a].var) place = places_.at(reader)[a];
      places[d] = places[d] == kNotRead || places[d] == place ? place : kMoved;
    }
  }

  bool SetRows() {
    const Stage& op = state_.stage(root_).op;
    const std::vector<int> rows = RowsOf(chain_.reductions.front());
    const int64_t terms = state_.stage(chain_.reductions.front()).op.terms();
    for (int reduction : chain_.reductions) {
      const std::vector<int> own = RowsOf(reduction);
      if (own != rows || std::count(own.begin(), own.end(), kMoved) > 0) return false;
      if (state_.stage(reduction).op.terms() != terms) return false;
    }
    for (size_t a = 0; a < op.axes.size(); ++a) {
      const bool column =
          op.axes[a].extent > 1 && std::find(rows.begin(), rows.end(), static_cast<int>(a)) == rows.end();
      (column ? chain_.column_axes : chain_.row_axes).push_back(static_cast<int>(a));
      if (column) chain_.columns *= op.axes[a].extent;
    }
    if (!chain_.column_axes.empty()) return chain_.columns == terms;
    chain_.columns = terms;
    return chain_.reductions.size() > 1 && std::none_of(chain_.reductions.begin(), chain_.reductions.end(),
                                                        [this](int id) { return NeedsTiling(draft_.state(), id); });
  }

  // Axes of the root by which a reduction's results are told apart, ascending; a dimension that is read otherwise is
  // kMoved.
  std::vector<int> RowsOf(int reduction) const {
    std::vector<int> rows;
    const Stage& op = state_.stage(reduction).op;
    for (size_t d = 0; d < op.axes.size(); ++d)
      if (op.axes[d].extent > 1) rows.push_back(places_.at(reduction)[d]);
    std::sort(rows.begin(), rows.end());
    if (std::adjacent_find(rows.begin(), rows.end()) != rows.end()) rows.front() = kMoved;
    return rows;
  }

  const Draft& draft_;
  const State& state_;
  const int root_;
  std::map<int, std::vector<int>> places_;  // by stage: of each dimension
  RowChain chain_;
};

}  // namespace

std::optional<RowChain> FindRowChain(const Draft& draft, int root) {
  const StageState& s = draft.state().stage(root);
  if (!s.computes() || s.prologue || s.op.reduces() || s.op.axes.empty() ||
      draft.state().outputs() != std::vector<int>{root})
    return std::nullopt;
  return Finder(draft, root).Run();
}

std::vector<int> RowsReadAgain(const Draft& draft, const RowChain& chain) {
  std::vector<int> again;
  const State& state = draft.state();
  for (int id = 0; id < state.size(); ++id) {
    const StageState& s = state.stage(id);
    if (!s.op.placeholder || s.op.constant || s.op.elements() < chain.columns) continue;
    if (state.Consumers(id).size() > 1) again.push_back(id);
  }
  return again;
}

bool ReadsReductions(const Draft& draft, int stage) {
  for (int producer : draft.state().Producers(stage)) {
    const StageState& s = draft.state().stage(producer);
    if (s.computes() && !s.prologue && (s.op.reduces() || ReadsReductions(draft, producer))) return true;
  }
  return false;
}

}  // namespace diapason
