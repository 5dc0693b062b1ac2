// Sums of runs of another stage (tensor/run_sums.h), on GPUs: lowering lets the kernel that makes these elements make
// them too, where it can, so that nothing is to be searched for. Else each thread has those of a run.
#include "compiler/tensor/run_sums.h"

#include "scheduler/sketch/rules/row_totals.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

bool IsRowTotals(const Draft& draft, int stage) {
  return diapason::IsRowTotals(draft.state().stage(stage).op,
                               [&](int id) -> const Stage& { return draft.state().stage(id).op; });
}

class RunSumsOfOthers : public SketchRule {
 public:
  std::string name() const override { return "run_sums"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const State& state = draft.state();
    if (!draft.IsUnscheduled(stage) || !state.stage(stage).computes()) return Answer::kSkip;
    if (IsRowTotals(draft, stage)) return MayBeShared(draft, stage) ? Answer::kApplyAndSkipRest : Answer::kSkip;
    const auto sums = RunSumsOf(state.stage(stage).op, [&](int id) -> const Stage& { return state.stage(id).op; });
    return sums && state.stage(sums->source).computes() ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    constexpr int32_t kThreads = 128;
    Draft next = draft;
    if (IsRowTotals(draft, stage)) return {{std::move(next), false}};  // whoever tiles the product takes them
    const int reduction = next.CacheWrite(stage, Memory::kLocal);
    const int all = next.Fuse(stage, SpatialAxes(next.state(), stage));
    const std::vector<int> pieces = next.Split(stage, all, {Factor::Of(kThreads)});
    next.Annotate(stage, pieces[0], Annotation::kBlockX);
    next.Annotate(stage, pieces[1], Annotation::kThreadX);
    next.ComputeAt(reduction, stage, {pieces[1]});
    std::vector<int> order = ReduceAxes(next.state(), reduction);
    Append(&order, SpatialAxes(next.state(), reduction));
    next.Reorder(reduction, order);
    // The stage that the cache write has put in between is placed.
    return {{std::move(next), false}};
  }

 private:
  // Whether what reads them is to be tiled with a product.
  static bool MayBeShared(const Draft& draft, int stage) {
    const std::vector<int> consumers = draft.state().Consumers(stage);
    if (consumers.size() != 1 || IsBound(draft.state(), consumers[0])) return false;
    return ReadsProduct(draft, consumers[0]);
  }

  // Directly, or through what will be computed where it is read.
  static bool ReadsProduct(const Draft& draft, int stage) {
    for (int producer : draft.state().Producers(stage)) {
      if (draft.state().stage(producer).prologue) continue;
      if (NeedsTiling(draft.state(), producer)) return true;
      if (IsInjective(draft.state(), producer) && ReadsProduct(draft, producer)) return true;
    }
    return false;
  }
};

}  // namespace

void ShareRowTotals(Draft* draft, int consumer, int block, const Factor& threads) {
  for (int stage : draft->state().Producers(consumer)) {
    if (!draft->IsUnscheduled(stage) || !IsRowTotals(*draft, stage) ||
        draft->state().Consumers(stage) != std::vector<int>{consumer})
      continue;
    const int all = draft->Fuse(stage, SpatialAxes(draft->state(), stage));
    const std::vector<int> pieces = draft->Split(stage, all, {threads});
    std::vector<int> order = pieces;
    Append(&order, ReduceAxes(draft->state(), stage));
    draft->Reorder(stage, order);
    draft->Annotate(stage, pieces[1], Annotation::kThreadX);
    draft->Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
    draft->ComputeAt(stage, consumer, {block});
    draft->Do({StepKind::kUnroll, stage, {}, {Factor::Of(64)}, -1, {}});
  }
}

std::unique_ptr<SketchRule> MakeRunSums() { return std::make_unique<RunSumsOfOthers>(); }

}  // namespace diapason
