// A reduction without reuse (pooling, sums): each thread, or each vector, reduces its own elements in registers inside
// the element-wise stage that uses them, or a copy-out stage where there is none.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class PlainReduction : public SketchRule {
 public:
  std::string name() const override { return "plain_reduction"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.computes() || !s.op.reduces() || s.attach != StageState::Attach::kRoot || IsBound(draft.state(), stage))
      return Answer::kSkip;
    if (static_cast<int>(s.loops.size()) != s.axis_count() || s.op.axes.empty()) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    int consumer = ElementwiseConsumer(next.state(), stage);
    int reduction = stage;
    if (consumer < 0) {
      reduction = next.CacheWrite(stage, Memory::kLocal);
      consumer = stage;
    }
    next.Name("reduce");
    const int loop = BindElementwise(&next, consumer, next.state().stage(consumer).op.name, true);
    next.ComputeAt(reduction, consumer, {loop});
    std::vector<int> order = ReduceAxes(next.state(), reduction);
    const std::vector<int> spatial = SpatialAxes(next.state(), reduction);
    order.insert(order.end(), spatial.begin(), spatial.end());
    next.Reorder(reduction, order);
    if (!next.gpu()) {
      for (size_t i = 0; i + 1 < spatial.size(); ++i) next.Annotate(reduction, spatial[i], Annotation::kUnroll);
      next.Annotate(reduction, spatial.back(), Annotation::kVectorize);
    }
    const Factor unroll = next.OptionParameter("unroll", {0, 16, 64}, 16);
    next.Do({StepKind::kUnroll, reduction, {}, {unroll}, -1, {}});
    // The stage before: skip over the stage that the cache write put in between.
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakePlainReduction() { return std::make_unique<PlainReduction>(); }

}  // namespace diapason
