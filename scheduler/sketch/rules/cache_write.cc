// A reduction with reuse but no element-wise consumer accumulates in registers and gets a copy-out stage to be fused
// with (Ansor's AddCacheWrite). On CPUs the variant without it stays too.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class CacheWrite : public SketchRule {
 public:
  std::string name() const override { return "cache_write"; }
  Answer Condition(const Draft& draft, int stage) const override {
    if (!NeedsTiling(draft.state(), stage) || draft.TileOf(stage) || IsBound(draft.state(), stage))
      return Answer::kSkip;
    const StageState& s = draft.state().stage(stage);
    if (s.attach != StageState::Attach::kRoot || !s.op.reduces() || static_cast<int>(s.loops.size()) != s.axis_count())
      return Answer::kSkip;
    return draft.gpu() ? Answer::kApplyAndSkipRest : Answer::kApply;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.CacheWrite(stage, Memory::kLocal);  // the new stage comes right before this one: it is looked at next
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeCacheWrite() { return std::make_unique<CacheWrite>(); }

}  // namespace diapason
