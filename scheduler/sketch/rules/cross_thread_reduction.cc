// A reduction with little space and much to reduce (global pooling, softmax): the threads of a block share one result's
// reduction and meet in shared memory (Ansor's CrossThreadReduction). GPU.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class CrossThreadReduction : public SketchRule {
 public:
  std::string name() const override { return "cross_thread_reduction"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.computes() || !s.op.reduces() || s.prologue || s.attach != StageState::Attach::kRoot ||
        IsBound(draft.state(), stage))
      return Answer::kSkip;
    if (static_cast<int>(s.loops.size()) != s.axis_count() || s.op.axes.empty()) return Answer::kSkip;
    const int64_t space = s.op.elements(), reduce = s.op.terms();
    const DeviceFacts& facts = draft.context().facts;
    if (NeedsTiling(draft.state(), stage) ? !(space <= 16 * facts.max_threads_per_block && reduce >= 64) : reduce < 32)
      return Answer::kSkip;
    return Answer::kApply;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.Name("cross");
    // The copy-out stage has the blocks; its first thread writes what all threads have computed.
    const int reduction = next.CacheWrite(stage, Memory::kLocal);
    const int blocks = next.Fuse(stage, SpatialAxes(next.state(), stage));
    next.Annotate(stage, blocks, Annotation::kBlockX);
    next.ComputeAt(reduction, stage, {blocks});
    const int all = next.Fuse(reduction, ReduceAxes(next.state(), reduction));
    std::vector<int32_t> widths;
    for (int32_t w : {32, 64, 128, 256, 512})
      if (w <= next.context().facts.max_threads_per_block) widths.push_back(w);
    const Factor width = next.OptionParameter(next.state().stage(stage).op.name + ".width", widths, 64);
    const std::vector<int> pieces = next.Split(reduction, all, {width});
    next.Annotate(reduction, pieces[1], Annotation::kThreadX);
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeCrossThreadReduction() { return std::make_unique<CrossThreadReduction>(); }

}  // namespace diapason
