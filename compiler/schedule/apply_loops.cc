#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/apply_step.h"
#include "compiler/tensor/tensor_intrinsic.h"

// Steps that change the loops of a stage.
namespace diapason {
namespace {

// What a step of one number sets.
Factor& NumberOf(StepKind kind, StageState& stage) {
  switch (kind) {
    case StepKind::kPadRows: return stage.pad_rows;
    case StepKind::kOddRows: return stage.odd_rows;
    case StepKind::kAlignRows: return stage.align_rows;
    case StepKind::kUnroll: return stage.unroll;
    case StepKind::kProducer: return stage.producer;
    default: return stage.pipeline;
  }
}

}  // namespace

absl::Status ApplySplit(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() != 1 || step.factors.empty()) return BadStep(stage, "a split takes one loop and factors");
  const int parent = step.loops[0];
  if (!stage.loops[parent].is_leaf()) return BadStep(stage, "only a leaf loop can be split");
  auto place = std::find(stage.order.begin(), stage.order.end(), parent);
  std::vector<int> pieces;
  for (int level = 0; level <= static_cast<int>(step.factors.size()); ++level) {
    Loop piece;
    piece.name = absl::StrCat(stage.loops[parent].name, ".", level);
    piece.reduce = stage.loops[parent].reduce;
    piece.origin = Loop::Origin::kSplit;
    piece.parent = parent;
    piece.level = level;
    if (level > 0) piece.factor = step.factors[level - 1];
    pieces.push_back(static_cast<int>(stage.loops.size()));
    stage.loops.push_back(std::move(piece));
  }
  stage.loops[parent].pieces = pieces;
  place = stage.order.erase(place);
  stage.order.insert(place, pieces.begin(), pieces.end());
  return absl::OkStatus();
}

absl::Status ApplyFuse(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() < 2) return BadStep(stage, "a fusion takes two loops or more");
  auto place = std::find(stage.order.begin(), stage.order.end(), step.loops[0]);
  Loop fused;
  fused.origin = Loop::Origin::kFuse;
  fused.fused = step.loops;
  fused.reduce = stage.loops[step.loops[0]].reduce;
  for (size_t i = 0; i < step.loops.size(); ++i) {
    if (place + i >= stage.order.end() || *(place + i) != step.loops[i])
      return BadStep(stage, "only adjacent leaf loops can be fused");
    if (stage.loops[step.loops[i]].reduce != fused.reduce)
      return BadStep(stage, "a spatial and a reduce loop cannot be fused");
    absl::StrAppend(&fused.name, i ? "@" : "", stage.loops[step.loops[i]].name);
  }
  const int id = static_cast<int>(stage.loops.size());
  for (int loop : step.loops) stage.loops[loop].fused_into = id;
  stage.loops.push_back(std::move(fused));
  place = stage.order.erase(place, place + step.loops.size());
  stage.order.insert(place, id);
  return absl::OkStatus();
}

absl::Status ApplyReorder(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  std::vector<int> sorted = step.loops, have = stage.order;
  std::sort(sorted.begin(), sorted.end());
  std::sort(have.begin(), have.end());
  if (sorted != have) return BadStep(stage, "a new order must name each leaf loop once");
  stage.order.assign(step.loops.begin(), step.loops.end());
  return absl::OkStatus();
}

absl::Status ApplyGroupBlocks(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() != 1 || step.factors.size() != 1)
    return BadStep(stage, "a group of blocks takes one loop and a number of rows");
  Loop& loop = stage.loops[step.loops[0]];
  if (!loop.is_leaf() || loop.origin != Loop::Origin::kFuse || loop.annotation != Annotation::kBlockX)
    return BadStep(stage, "blocks in groups are a loop over blocks that was made of several");
  loop.group = step.factors[0];
  return absl::OkStatus();
}

absl::Status ApplyReplicate(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.factors.size() != 1) return BadStep(stage, "one number is needed");
  Loop loop;
  loop.name = "replica";
  loop.origin = Loop::Origin::kReplica;
  loop.factor = step.factors[0];
  stage.order.push_back(static_cast<int>(stage.loops.size()));
  stage.loops.push_back(std::move(loop));
  return absl::OkStatus();
}

absl::Status ApplyTensorize(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() != 3 || step.ints.size() != 3 || step.target < 0 || step.target >= stages.size())
    return BadStep(stage, "tensor cores take loops k, m and n, a mode and two lane loops of a target");
  if (FindTensorIntrinsic(step.ints[0]) == nullptr)
    return BadStep(stage, absl::StrCat("unknown mode ", step.ints[0], " of tensor cores"));
  const StageState& lanes = stages.at(step.target);
  for (int loop : {step.ints[1], step.ints[2]})
    if (loop < 0 || loop >= static_cast<int>(lanes.loops.size()) || lanes.loops[loop].fused_into < 0)
      return BadStep(lanes, absl::StrCat("loop ", loop, " is not fused into the threads"));
  const size_t n = stage.order.size();
  if (n < 3 || !std::equal(step.loops.begin(), step.loops.end(), stage.order.end() - 3))
    return BadStep(stage, "the loops on tensor cores are the innermost three");
  if (!stage.loops[step.loops[0]].reduce || stage.loops[step.loops[1]].reduce || stage.loops[step.loops[2]].reduce)
    return BadStep(stage, "the loops on tensor cores are a reduce loop and two spatial ones");
  stage.tensor = static_cast<TensorMode>(step.ints[0]);
  stage.tensor_k = step.loops[0];
  stage.tensor_m = step.loops[1];
  stage.tensor_n = step.loops[2];
  stage.lane_stage = step.target;
  stage.lane_m = step.ints[1];
  stage.lane_n = step.ints[2];
  return absl::OkStatus();
}

absl::Status ApplyAnnotate(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.loops.size() != 1 || step.ints.size() != 1 || !stage.loops[step.loops[0]].is_leaf())
    return BadStep(stage, "an annotation takes one leaf loop and one code");
  if (step.ints[0] < 0 || step.ints[0] > static_cast<int>(Annotation::kThreadSet))
    return BadStep(stage, absl::StrCat("unknown annotation ", step.ints[0]));
  stage.loops[step.loops[0]].annotation = static_cast<Annotation>(step.ints[0]);
  return absl::OkStatus();
}

absl::Status ApplyCoreMatrices(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (stage.op.axes.size() < 2) return BadStep(stage, "core matrices have two dimensions");
  if (!stage.layout_factors.empty()) return BadStep(stage, "a packed stage is not laid out again");
  if (step.factors.size() > 1) return BadStep(stage, "core matrices have runs of one width");
  stage.core_matrices = true;
  stage.core_width = step.factors.empty() ? Factor() : step.factors[0];
  return absl::OkStatus();
}

absl::Status ApplyNumber(ScheduledStages& stages, const Step& step) {
  StageState& stage = stages.at(step.stage);
  if (step.factors.size() != 1) return BadStep(stage, "one number is needed");
  NumberOf(step.kind, stage) = step.factors[0];
  return absl::OkStatus();
}

}  // namespace diapason
