// Computes an element-wise stage where it is read (Ansor's AlwaysInline). On CPUs a stage that is expensive to compute and
// read more than once is kept.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class Inline : public SketchRule {
 public:
  std::string name() const override { return "inline"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!draft.IsInjective(stage) || draft.state().is_output(stage)) return Answer::kSkip;
    if (s.attach != StageState::Attach::kRoot || static_cast<int>(s.loops.size()) != s.axis_count())
      return Answer::kSkip;
    if (draft.IsBound(stage)) return Answer::kSkip;
    const std::vector<int> consumers = draft.state().Consumers(stage);
    bool read_again = consumers.size() > 1;
    for (int consumer : consumers) read_again |= draft.state().stage(consumer).op.reduces();
    if (!draft.gpu() && read_again && draft.IsExpensive(stage)) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.Do({StepKind::kInline, stage, {}, {}, -1, {}});
    return {{std::move(next), false}};
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeInline() { return std::make_unique<Inline>(); }

}  // namespace diapason
