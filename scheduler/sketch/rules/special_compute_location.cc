// What a product with a small constant matrix reads (Winograd's input tile) is gathered once into registers right
// outside its unrolled loops, instead of being inlined into each of them (Ansor's SpecialComputeLocationGPU).
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class SpecialComputeLocation : public SketchRule {
 public:
  std::string name() const override { return "special_compute_location"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!IsInjective(draft.state(), stage) || s.prologue || draft.state().is_output(stage)) return Answer::kSkip;
    if (s.attach != StageState::Attach::kRoot || draft.state().Consumers(stage).size() != 1) return Answer::kSkip;
    const TileInfo* reader = TiledReader(draft, stage);
    if (!reader || reader->reduce_loop >= 0 || reader->attach.empty()) return Answer::kSkip;
    if (!draft.state().stage(reader->stage).op.reduces()) return Answer::kSkip;  // too large to unroll
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const TileInfo reader = *TiledReader(draft, stage);
    Draft next = draft;
    next.ComputeAt(stage, reader.consumer, {reader.attach.front()});
    const std::vector<int> axes = SpatialAxes(next.state(), stage);
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool last = i + 1 == axes.size();
      next.Annotate(stage, axes[i], last && !next.gpu() ? Annotation::kVectorize : Annotation::kUnroll);
    }
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeSpecialComputeLocation() { return std::make_unique<SpecialComputeLocation>(); }

}  // namespace diapason
