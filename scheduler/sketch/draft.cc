#include "scheduler/sketch/draft.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {

bool Draft::Do(Step step) {
  if (!status().ok()) return false;
  status_ = state_.Apply(step);
  if (!status_.ok()) {
    status_ = absl::Status(status_.code(), absl::StrCat("step ", ToString(step), ": ", status_.message()));
    return false;
  }
  steps_.push_back(std::move(step));
  return true;
}

void Draft::DropPrior() {
  parameters_.DropPrior();
  for (TileInfo& tile : tiles_) tile.row_windows = false;
}

std::vector<int> Draft::Split(int stage, int loop, std::vector<Factor> factors) {
  const size_t pieces = factors.size() + 1;
  if (!Do({StepKind::kSplit, stage, {loop}, std::move(factors), -1, {}})) return std::vector<int>(pieces, 0);
  return state_.stage(stage).loops[loop].pieces;
}

int Draft::Fuse(int stage, std::vector<int> loops) {
  if (loops.size() == 1) return loops[0];
  if (!Do({StepKind::kFuse, stage, std::vector<int32_t>(loops.begin(), loops.end()), {}, -1, {}})) return 0;
  return static_cast<int>(state_.stage(stage).loops.size()) - 1;
}

void Draft::Reorder(int stage, std::vector<int> loops) {
  Do({StepKind::kReorder, stage, std::vector<int32_t>(loops.begin(), loops.end()), {}, -1, {}});
}

void Draft::Annotate(int stage, int loop, Annotation annotation) {
  Do({StepKind::kAnnotate, stage, {loop}, {}, -1, {static_cast<int32_t>(annotation)}});
}

void VectorizeInnermost(Draft* draft, int stage, int loop) {
  std::vector<int> order = draft->state().stage(stage).order;
  std::erase(order, loop);
  order.push_back(loop);
  draft->Reorder(stage, order);
  draft->Annotate(stage, loop, Annotation::kVectorize);
}

void Draft::ComputeAt(int stage, int target, std::vector<int> loops, Factor choice) {
  Do({StepKind::kComputeAt, stage, std::vector<int32_t>(loops.begin(), loops.end()), {choice}, target, {}});
}

int Draft::CacheWrite(int stage, Memory memory) {
  Do({StepKind::kCacheWrite, stage, {}, {}, -1, {static_cast<int32_t>(memory)}});
  return state_.size() - 1;
}

int Draft::CacheRead(int stage, Memory memory, std::vector<int> readers) {
  std::vector<int32_t> ints{static_cast<int32_t>(memory)};
  ints.insert(ints.end(), readers.begin(), readers.end());
  Do({StepKind::kCacheRead, stage, {}, {}, -1, std::move(ints)});
  return state_.size() - 1;
}

std::vector<int32_t> SketchContext::LanesUpTo(int64_t extent, int vectors) const {
  std::vector<int32_t> lanes{1};
  for (int32_t w = 2; w <= vectors * NativeLanes() && w <= extent; w *= 2) lanes.push_back(w);
  return lanes;
}

bool Draft::IsUnscheduled(int id) const {
  const StageState& s = state_.stage(id);
  return s.attach == StageState::Attach::kRoot && static_cast<int>(s.loops.size()) == s.axis_count() &&
         !IsBound(state_, id) && s.library == nullptr && s.op.unroll_axes.empty() && TileOf(id) == nullptr;
}

const TileInfo* Draft::TileOf(int stage) const {
  for (const TileInfo& tile : tiles_)
    if (tile.stage == stage) return &tile;
  return nullptr;
}

const TileInfo* TiledReader(const Draft& draft, int stage) {
  for (int consumer : draft.state().Consumers(stage))
    if (const TileInfo* tile = draft.TileOf(consumer)) return tile;
  return nullptr;
}

namespace {

int BindGpu(Draft* draft, int stage, const std::string& prefix, bool hosts) {
  int64_t elements = 1;
  for (const Axis& axis : draft->state().stage(stage).op.axes) elements *= axis.extent;
  if (SpatialAxes(draft->state(), stage).empty()) return -1;
  const int all = draft->Fuse(stage, SpatialAxes(draft->state(), stage));
  std::vector<int32_t> widths;
  for (int32_t threads : {32, 64, 128, 256, 512})
    if (threads <= draft->context().facts.max_threads_per_block && (threads == 32 || threads < 2 * elements))
      widths.push_back(threads);
  Factor threads =
      draft->state().stage(stage).prologue ? Factor::Of(128) : draft->OptionParameter(prefix + ".threads", widths, 128);
  // What each thread does: one element, or a few neighbours as a vector.
  const int64_t row = draft->state().stage(stage).op.axes.back().extent;
  std::vector<int32_t> lanes{1};
  if (!hosts && !draft->state().stage(stage).prologue)
    for (int32_t v : {2, 4})
      if (row % v == 0) lanes.push_back(v);
  const Factor vector = draft->OptionParameter(prefix + ".vector", lanes, 1);
  const std::vector<int> pieces = draft->Split(stage, all, {threads, vector});
  draft->Annotate(stage, pieces[0], Annotation::kBlockX);
  draft->Annotate(stage, pieces[1], Annotation::kThreadX);
  draft->Annotate(stage, pieces[2], Annotation::kVectorize);
  return pieces[1];
}

// A reduction whose rows are whole vectors (Winograd's transform of weights): rows over threads, and of each the sums
// of a vector at a time.
int BindConstantReduction(Draft* draft, int stage, int32_t width) {
  const int sums = draft->CacheWrite(stage, Memory::kLocal);
  std::vector<int> axes = SpatialAxes(draft->state(), stage);
  const std::vector<int> pieces = draft->Split(stage, axes.back(), {Factor::Of(width)});
  axes.pop_back();
  draft->Annotate(stage, draft->Fuse(stage, axes), Annotation::kParallel);
  draft->Annotate(stage, pieces[1], Annotation::kVectorize);
  draft->ComputeAt(sums, stage, {pieces[0]});
  std::vector<int> order = ReduceAxes(draft->state(), sums);
  for (int axis : SpatialAxes(draft->state(), sums)) order.push_back(axis);
  draft->Reorder(sums, order);
  draft->Annotate(sums, order.back(), Annotation::kVectorize);
  return pieces[0];
}

constexpr int64_t kColoursOfPixel = 8, kRowsForAll = 64;

int64_t ElementsOf(const StageState& stage, const std::vector<int>& axes) {
  int64_t product = 1;
  for (int axis : axes) product *= stage.axis(axis).extent;
  return product;
}

int BindCpu(Draft* draft, int stage, const std::string& prefix) {
  std::vector<int> axes = SpatialAxes(draft->state(), stage);
  if (axes.empty()) return -1;
  const int64_t row = draft->state().stage(stage).op.axes.back().extent;
  const int32_t widest = draft->context().facts.vector_bytes / 4;
  const StageState state = draft->state().stage(stage);  // loops are added below
  if (state.prologue && state.op.reduces() && axes.size() > 1 && row % widest == 0)
    return BindConstantReduction(draft, stage, widest);
  const int32_t preferred = static_cast<int32_t>(std::min<int64_t>(widest, row));
  std::vector<int32_t> widths{1};
  for (int32_t w = 2; w <= 2 * widest && w < 2 * row; w *= 2) widths.push_back(w);
  Factor width = draft->state().stage(stage).prologue ? Factor::Of(1)
                                                      : draft->OptionParameter(prefix + ".vector", widths, preferred);
  const std::vector<int> pieces = draft->Split(stage, axes.back(), {width});
  // Rows over threads; the pieces of a row stay together unless there are no rows. Short rows (the colours of pixels)
  // are side by side in a loop of their own, so that places are not divided into axes for each of them.
  int attach = -1;
  if (axes.size() > 1) {
    axes.pop_back();
    if (row < kColoursOfPixel && axes.size() > 1 &&
        ElementsOf(state, axes) / state.axis(axes.back()).extent >= kRowsForAll)
      axes.pop_back();
    const int outer = draft->Fuse(stage, axes);
    draft->Annotate(stage, outer, Annotation::kParallel);
    attach = pieces[0];
  } else {
    draft->Annotate(stage, pieces[0], Annotation::kParallel);
    attach = pieces[0];
  }
  draft->Annotate(stage, pieces[1], Annotation::kVectorize);
  return attach;
}

}  // namespace

Draft EndingElementwise(const Draft& draft, int root) {
  Draft next = draft;
  const StageState& s = next.state().stage(root);
  const bool fresh = static_cast<int>(s.loops.size()) == s.axis_count() && s.attach == StageState::Attach::kRoot;
  if (s.op.reduces() && fresh && s.library == nullptr) next.CacheWrite(root, Memory::kLocal);
  return next;
}

int BindElementwise(Draft* draft, int stage, const std::string& prefix, bool hosts) {
  return draft->gpu() ? BindGpu(draft, stage, prefix, hosts) : BindCpu(draft, stage, prefix);
}

}  // namespace diapason
