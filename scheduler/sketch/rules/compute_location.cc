// An element-wise stage that is too dear to inline (padding) and is read by a tiled reduction: computed as a whole
// before it, or for each tile inside the loops around it (Ansor's random compute location; which loop is a tunable
// parameter). Padding of what register tiles read may also be no stage at all: a product that would have a padded
// factor is left out (compiler/lower/reductions.cc). CPU.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// What is read, or zero.
bool IsPadding(const Expr& body) {
  return body->kind == ExprKind::kSelect && body->args[2]->kind == ExprKind::kFloatImm && body->args[2]->fvalue == 0;
}

class ComputeLocation : public SketchRule {
 public:
  std::string name() const override { return "compute_location"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const TileInfo* tile = TiledReader(draft, stage);
    const StageState& s = draft.state().stage(stage);
    if (!tile || tile->reduce_loop < 0 || tile->consumer == tile->stage || !IsInjective(draft.state(), stage) ||
        draft.state().is_output(stage))
      return Answer::kSkip;
    if (s.attach != StageState::Attach::kRoot || draft.state().Consumers(stage).size() != 1 ||
        !IsExpensive(draft.state(), stage))
      return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const TileInfo tile = *TiledReader(draft, stage);
    std::vector<Derived> result;
    Draft whole = draft;
    whole.Name("whole");
    BindElementwise(&whole, stage, draft.state().stage(stage).op.name, false);
    result.push_back({std::move(whole), false});
    Draft inside = draft;
    inside.Name("inside");
    std::vector<int32_t> choices;
    for (size_t i = 0; i < tile.attach.size(); ++i) choices.push_back(static_cast<int32_t>(i));
    const Factor choice =
        choices.size() == 1 ? Factor{0} : inside.OptionParameter("location", choices, choices.front());
    inside.ComputeAt(stage, tile.consumer, tile.attach, choice);
    const int32_t lanes = inside.context().facts.vector_bytes / 4;
    const int64_t row = inside.state().stage(stage).op.axes.back().extent;
    if (row % lanes == 0) {
      const std::vector<int> pieces =
          inside.Split(stage, SpatialAxes(inside.state(), stage).back(), {Factor::Of(lanes)});
      inside.Annotate(stage, pieces[1], Annotation::kVectorize);
    }
    result.push_back({std::move(inside), false});
    if (tile.in_registers && IsPadding(draft.state().stage(stage).op.body)) {
      Draft folded = draft;
      folded.Name("folded");
      folded.Do({StepKind::kInline, stage, {}, {}, -1, {}});
      result.push_back({std::move(folded), false});
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeComputeLocation() { return std::make_unique<ComputeLocation>(); }

}  // namespace diapason
