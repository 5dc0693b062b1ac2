// Weights are laid out at build time in the order in which the tiles read them: the dimension of the last axis is split
// by the innermost tile, whose elements lie together behind all others (Ansor's layout rewrite). Behind each of these
// lie the bytes of its dot product, where the tile has such (rules/byte_dots.h). CPU.
#include "compiler/tensor/processor.h"
#include "scheduler/sketch/rules/byte_dots.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// The dimension of the constant that is indexed by the reader's last spatial axis alone; -1 if there is none.
int DimensionOfLastAxis(const Draft& draft, int stage, int reader) {
  return DimensionOf(draft, stage, reader, draft.state().stage(reader).op.axes.back().var);
}

class PackConstant : public SketchRule {
 public:
  std::string name() const override { return "pack_constant"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    const TileInfo* tile = TiledReader(draft, stage);
    if (!tile || tile->reduce_loop < 0 || !s.prologue || s.op.axes.size() < 2) return Answer::kSkip;
    if (draft.state().Consumers(stage).size() != 1) return Answer::kSkip;
    return DimensionOfLastAxis(draft, stage, tile->stage) < 0 ? Answer::kSkip : Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const TileInfo tile = *TiledReader(draft, stage);
    const StageState& reader = draft.state().stage(tile.stage);
    const int last = DimensionOfLastAxis(draft, stage, tile.stage);
    const int dots = tile.dots ? DimensionOf(draft, stage, tile.stage, reader.axis(*tile.dots).var) : -1;
    const int rank = static_cast<int>(draft.state().stage(stage).op.axes.size());
    Draft next = draft;
    Step step{StepKind::kPack, tile.stage, {}, {}, stage, {2 * last}};
    for (int d = 0; d < rank; ++d) {
      step.factors.push_back(d == last ? tile.inner : Factor::Of(d == dots ? kDotBytes : 1));
      if (d == last) continue;
      step.ints.push_back(2 * d);
      if (d != dots) step.ints.push_back(2 * d + 1);
    }
    step.ints.push_back(2 * last + 1);
    if (dots >= 0) step.ints.push_back(2 * dots + 1);
    next.Do(std::move(step));
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakePackConstant() { return std::make_unique<PackConstant>(); }

}  // namespace diapason
