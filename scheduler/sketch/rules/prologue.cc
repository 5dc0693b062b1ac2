// Stages of constants alone run once at build time: no tuning, a plain loop over threads.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class Prologue : public SketchRule {
 public:
  std::string name() const override { return "prologue"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    return s.computes() && s.prologue ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override { return {{draft, false}}; }
};

}  // namespace

std::unique_ptr<SketchRule> MakePrologue() { return std::make_unique<Prologue>(); }

}  // namespace diapason
