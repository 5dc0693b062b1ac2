// Leaves a stage as it is: placeholders, stages whose loops are settled, and those that become plain root stages.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class Skip : public SketchRule {
 public:
  std::string name() const override { return "skip"; }
  Answer Condition(const Draft& draft, int stage) const override { return Answer::kApplyAndSkipRest; }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override { return {{draft, false}}; }
};

}  // namespace

std::unique_ptr<SketchRule> MakeSkip() { return std::make_unique<Skip>(); }

}  // namespace diapason
