// The row that a product of one row multiplies, where it is normalised first: layer or RMS normalisation in front of a
// projection, a softmax in front of the values. The sketch "stream" computes its elements where each thread multiplies
// them; the reductions that they need (a mean, a maximum) are made here, by every block again, its threads together:
// a row is short beside the matrix, and a kernel of its own would cost more than reading it again.
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class RowOfProduct : public SketchRule {
 public:
  std::string name() const override { return "row_of_product"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!draft.gpu() || !s.op.reduces() || s.prologue || s.op.axes.empty() || !draft.IsUnscheduled(stage))
      return Answer::kSkip;
    return TileOfReaders(draft, stage) != nullptr ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }

  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const TileInfo tile = *TileOfReaders(draft, stage);
    Draft next = draft;
    const int root = RootOf(draft, tile.stage);
    next.ComputeAt(stage, root, {next.state().stage(root).order[0]});
    const std::vector<int> pieces =
        next.Split(stage, next.Fuse(stage, ReduceAxes(next.state(), stage)), {tile.threads});
    next.Annotate(stage, pieces[1], Annotation::kThreadX);
    next.Do({StepKind::kUnroll, stage, {}, {next.OptionParameter("row.unroll", {1, 4, 16}, 4)}, -1, {}});
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }

 private:
  static int RootOf(const Draft& draft, int stage) {
    while (draft.state().stage(stage).attach == StageState::Attach::kAt)
      stage = draft.state().stage(stage).attach_stage;
    return stage;
  }

  // The tile of the product in whose kernel all that reads the stage is computed, if that streams; else null.
  static const TileInfo* TileOfReaders(const Draft& draft, int stage) {
    const TileInfo* tile = nullptr;
    int root = -1;
    for (int reader : draft.state().Consumers(stage)) {
      if (draft.state().stage(reader).attach != StageState::Attach::kAt) return nullptr;
      if (root >= 0 && RootOf(draft, reader) != root) return nullptr;
      root = RootOf(draft, reader);
      const int at = draft.state().stage(reader).attach_stage;
      if (const TileInfo* const read = draft.TileOf(at); read != nullptr && read->streams) tile = read;
    }
    return tile;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeRowOfProduct() { return std::make_unique<RowOfProduct>(); }

}  // namespace diapason
