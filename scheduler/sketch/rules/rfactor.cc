// Splits a long reduction over blocks (GPU: split-K) or cores: partial results as a stage of their own with the slices
// as its first axis, then a short reduction over the slices with the epilogue (Ansor's AddRfactor, cuBLAS's split-K).
// One draft a number of slices; the number is part of the structure, since the shapes depend on it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class Rfactor : public SketchRule {
 public:
  std::string name() const override { return "rfactor"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.computes() || s.attach != StageState::Attach::kRoot || s.prologue || !NeedsTiling(draft.state(), stage))
      return Answer::kSkip;
    if (!s.op.reduces() || static_cast<int>(s.loops.size()) != s.axis_count() || IsBound(draft.state(), stage))
      return Answer::kSkip;
    // Its own product is not split again, nor what a cache write made of a stage that was seen.
    if (s.op.name.find(".rf") != std::string::npos || s.op.name.find(".acc") != std::string::npos) return Answer::kSkip;
    return Slices(draft, stage).empty() ? Answer::kSkip : Answer::kApply;
  }

  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    std::vector<Derived> result;
    for (int slices : Slices(draft, stage)) {
      Draft next = draft;
      next.Name(absl::StrCat("split", slices));
      const int axis = LongestReduceAxis(draft.state(), stage);
      const int64_t extent = draft.state().stage(stage).axis(axis).extent;
      const std::vector<int> pieces =
          next.Split(stage, axis, {Factor::Of(static_cast<int32_t>(Chunk(extent, slices)))});
      next.Do({StepKind::kRfactor, stage, {pieces[0]}, {}, -1, {}});
      result.push_back({std::move(next), true});  // the short reduction is looked at again, then the partial one
    }
    return result;
  }

 private:
  // Length of a slice: a multiple of 16 where the reduction is long, so that tiles and vectors stay aligned.
  static int64_t Chunk(int64_t extent, int slices) {
    const int64_t chunk = (extent + slices - 1) / slices;
    return chunk >= 32 ? (chunk + 15) / 16 * 16 : chunk;
  }

  static std::vector<int> Slices(const Draft& draft, int stage) {
    const StageState& s = draft.state().stage(stage);
    const int64_t space = s.op.elements(), reduce = s.op.terms();
    const int64_t extent = s.axis(LongestReduceAxis(draft.state(), stage)).extent;
    std::vector<int> slices;
    if (draft.gpu()) {
      // Worth it only while the tiles of the output alone cannot fill the device.
      const int64_t fill = static_cast<int64_t>(draft.context().facts.num_cores) * 8192;
      for (int f : {2, 4, 8, 16})
        if (extent / f >= 32 && space * f <= fill) slices.push_back(f);
    } else if (space < 64 * draft.context().facts.num_cores && reduce > 16 * space && extent >= 64) {
      slices.push_back(std::max(2, draft.context().facts.num_cores));
    }
    return slices;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeRfactor() { return std::make_unique<Rfactor>(); }

}  // namespace diapason
