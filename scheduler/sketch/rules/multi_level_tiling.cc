// Multi-level tiling (Ansor): a reduction with data reuse is tiled "SSRSRS" on CPUs (S0 S1 R0 S2 R1 S3) and "SSSRRSRS"
// on GPUs (S0 blocks, S1 virtual threads, S2 threads, R0 R1 S3 R2 S4). With fusion the tile is computed inside its
// element-wise consumer, which carries the outer levels and writes the tile back; without, the reduction is a root
// stage. Virtual threads are a tile level of the index (strided tiles), not of the nest: regions are stored compactly,
// so the loops stay inside the thread.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/processor.h"
#include "scheduler/sketch/rules/byte_dots.h"
#include "scheduler/sketch/rules/gpu_tile.h"
#include "scheduler/sketch/rules/row_totals.h"
#include "scheduler/sketch/rules/rules.h"
#include "scheduler/sketch/rules/tensor_tile.h"
#include "scheduler/sketch/rules/window_prior.h"

namespace diapason {
namespace {

struct TileReduceLoops {
  std::vector<int> r0, r1, dot;
};

// Of the axis `dots`, if there is one, the innermost piece is that of a dot product of bytes.
TileReduceLoops SplitReduce(Draft* draft, int stage, std::optional<int> dots) {
  TileReduceLoops loops;
  for (int axis : ReduceAxes(draft->state(), stage)) {
    const int64_t dot = axis == dots ? kDotBytes : 1, extent = draft->state().stage(stage).axis(axis).extent / dot;
    const Factor inner = draft->TileParameter(AxisName(draft->state(), stage, axis) + ".r1", extent, 512,
                                              static_cast<int32_t>(std::min<int64_t>(extent, 64)));
    draft->parameters().BoundPadding(extent, inner);
    std::vector<Factor> factors = {inner};
    if (dot > 1) factors.push_back(Factor::Of(dot));
    const std::vector<int> pieces = draft->Split(stage, axis, factors);
    loops.r0.push_back(pieces[0]);
    loops.r1.push_back(pieces[1]);
    if (dot > 1) loops.dot.push_back(pieces[2]);
  }
  return loops;
}

void AnnotateAll(Draft* draft, int stage, const std::vector<int>& loops, Annotation annotation) {
  for (int loop : loops) draft->Annotate(stage, loop, annotation);
}

void TileForGpu(Draft* draft, int stage, int consumer) {
  TileInfo info;
  info.stage = stage;
  info.consumer = consumer;
  const std::vector<bool> batch = BatchAxes(draft->state(), stage, &info.gemm_like);
  const std::vector<int> axes = SpatialAxes(draft->state(), stage);
  const std::vector<GpuTile> tiles = MakeGpuTiles(draft, stage, batch);
  std::vector<int> block, vthread, thread, s3, s4;
  for (int axis : axes) {
    const GpuTile& tile = tiles[axis];
    info.threads = info.threads * tile.threads;
    const std::vector<int> pieces = draft->Split(consumer, axis, {tile.vthreads, tile.threads, tile.s3, tile.s4});
    block.push_back(pieces[0]);
    vthread.push_back(pieces[1]);
    thread.push_back(pieces[2]);
    s3.push_back(pieces[3]);
    s4.push_back(pieces[4]);
  }
  std::vector<int> order = block;
  for (const auto* level : {&thread, &vthread, &s3, &s4}) Append(&order, *level);
  draft->Reorder(consumer, order);
  for (const auto* level : {&vthread, &s3, &s4}) AnnotateAll(draft, consumer, *level, Annotation::kUnroll);
  draft->Annotate(consumer, s4.back(),
                  Annotation::kVectorize);  // neighbours are stored, and their epilogue's operands read, at once
  const int blocks = draft->Fuse(consumer, block);
  const int threads = draft->Fuse(consumer, thread);
  draft->Annotate(consumer, blocks, Annotation::kBlockX);
  OfferGroupsOfBlocks(draft, stage, consumer, blocks, batch);
  draft->Annotate(consumer, threads, Annotation::kThreadX);

  ShareRowTotals(draft, consumer, blocks, info.threads);
  draft->ComputeAt(stage, consumer, {threads});
  ReduceTiles reduce;
  info.reduce_loop = TileThreadReduction(draft, stage, tiles, {}, &reduce);
  if (info.gemm_like) info.row_windows = DeclareWindowPrior(draft, stage, tiles, reduce);
  draft->AddTile(info);
}

// The same on tensor cores: S0 blocks, warps, lanes; R0 R1, tiles of 16x8 of a warp, and in them k and the 2x2 elements
// that a lane holds of each. By warpgroups where `form` says how. Returns the loop over threads.
int TileForTensorCores(Draft* draft, int stage, int consumer, const GroupForm& form) {
  TileInfo info;
  const GroupForm groups = RoundColumns(draft, stage, form);
  info.stage = stage;
  info.consumer = consumer;
  const std::vector<bool> batch = BatchAxes(draft->state(), stage, &info.gemm_like);
  const std::vector<TensorTile> tiles = MakeTensorTiles(draft, stage, batch, groups);
  info.threads = ThreadsOf(tiles);
  const TensorLoops loops = SplitForLanes(draft, consumer, tiles, groups);
  OrderTiles(draft, consumer, loops, loops.outer);
  const int blocks = draft->Fuse(consumer, loops.outer);
  const int thread = draft->Fuse(consumer, loops.threads());
  draft->Annotate(consumer, blocks, Annotation::kBlockX);
  OfferGroupsOfBlocks(draft, stage, consumer, blocks, batch);
  draft->Annotate(consumer, thread, Annotation::kThreadX);

  ShareRowTotals(draft, consumer, blocks, info.threads);
  draft->ComputeAt(stage, consumer, {thread});
  const TensorReduction reduce = TileTensorReduction(draft, stage, tiles, loops, {.cluster = {}, .groups = groups});
  info.reduce_loop = reduce.loop;
  info.core_matrices = CoreMatricesOf(groups, tiles, reduce.tiles);
  info.row_windows = DeclareWindowPrior(draft, stage, tiles, reduce.tiles);
  draft->AddTile(info);
  return thread;
}

// What the consumer reads besides the product (bias, residual): tensors in memory, but for scalars.
std::vector<int> OtherOperands(const Draft& draft, int stage, int consumer) {
  std::vector<int> operands;
  for (int producer : draft.state().Producers(consumer)) {
    const StageState& s = draft.state().stage(producer);
    if (producer != stage && s.attach == StageState::Attach::kRoot && s.memory == Memory::kGlobal &&
        !SpatialAxes(draft.state(), producer).empty())
      operands.push_back(producer);
  }
  return operands;
}

// A thread reads what it needs of them before it makes its products, so that these hide the way from memory: two
// neighbouring columns at once.
void ReadEarly(Draft* draft, const std::vector<int>& operands, int consumer, int thread) {
  draft->Name("early");
  for (int operand : operands) {
    const int copy = draft->CacheRead(operand, Memory::kLocal, {consumer});
    draft->ComputeAt(copy, consumer, {thread});
    const std::vector<int> axes = SpatialAxes(draft->state(), copy);
    const std::vector<int> pair = draft->Split(copy, axes.back(), {Factor::Of(2)});
    AnnotateAll(draft, copy, {axes.begin(), axes.end() - 1}, Annotation::kUnroll);
    draft->Annotate(copy, pair[0], Annotation::kUnroll);
    draft->Annotate(copy, pair[1], Annotation::kVectorize);
  }
}

// The tiles of one axis on a CPU: S1, S2 and S3; of the last axis S3 is `vectors` vectors of `lanes`.
struct CpuTile {
  Factor s1, s2, s3, lanes;
};

CpuTile CpuTileParameters(Draft* draft, int stage, int axis, bool last, bool batch) {
  CpuTile tile;
  const int64_t extent = draft->state().stage(stage).axis(axis).extent;
  const std::string name = AxisName(draft->state(), stage, axis);
  if (extent == 1 || batch) return tile;
  const int32_t widest = draft->context().facts.vector_bytes / 4;
  int64_t rest = extent;
  if (last) {
    std::vector<int32_t> lanes;
    for (int32_t w = widest; w >= 1 && lanes.size() < 3; w /= 2)
      if (w < 2 * extent) lanes.insert(lanes.begin(), w);
    tile.lanes = draft->OptionParameter(name + ".lanes", lanes, lanes.back());
    rest = (extent + lanes.back() - 1) / lanes.back();
  }
  tile.s3 = draft->TileParameter(name + ".s3", rest, last ? 4 : 16, last ? 2 : 4);
  tile.s2 = draft->TileParameter(name + ".s2", rest, last ? 8 : 16, 1);
  tile.s1 = draft->TileParameter(name + ".s1", rest, 64, 1);
  draft->parameters().BoundPadding(extent, tile.s1 * tile.s2 * tile.s3 * tile.lanes);
  return tile;
}

// level 3: the tile is computed inside S2, so that what is held of it, and read by the consumer, are registers; level
// 2: inside S1; level 1: inside S0, with S1 among its own loops. A root stage (no fusion) takes all levels itself.
void TileForCpu(Draft* draft, int stage, int consumer, int level) {
  TileInfo info;
  info.stage = stage;
  info.consumer = consumer;
  const std::vector<bool> batch = BatchAxes(draft->state(), stage, &info.gemm_like);
  const std::vector<int> axes = SpatialAxes(draft->state(), stage);
  std::vector<CpuTile> tiles;
  for (int axis : axes) tiles.push_back(CpuTileParameters(draft, stage, axis, axis == axes.back(), batch[axis]));
  info.inner = tiles.back().s3 * tiles.back().lanes;
  info.dots = DotAxis(*draft, stage);
  info.in_registers = consumer != stage && level == 3;

  std::vector<int> order, outer[3], rest;
  if (consumer != stage) {
    for (int axis : axes) {
      const CpuTile& t = tiles[axis];
      std::vector<Factor> factors = level == 3   ? std::vector<Factor>{t.s1, t.s2, t.s3}
                                    : level == 2 ? std::vector<Factor>{t.s1, t.s2 * t.s3}
                                                 : std::vector<Factor>{t.s1 * t.s2 * t.s3};
      if (axis == axes.back()) factors.push_back(t.lanes);
      const std::vector<int> pieces = draft->Split(consumer, axis, factors);
      for (int l = 0; l < level; ++l) outer[l].push_back(pieces[l]);
      rest.insert(rest.end(), pieces.begin() + level, pieces.end());
    }
    for (const std::vector<int>& level_loops : outer) Append(&order, level_loops);
    Append(&order, rest);
    draft->Reorder(consumer, order);
    if (level == 3) AnnotateAll(draft, consumer, {rest.begin(), rest.end() - 1}, Annotation::kUnroll);
    draft->Annotate(consumer, order.back(), Annotation::kVectorize);
    const int parallel = draft->Fuse(consumer, outer[0]);
    draft->Annotate(consumer, parallel, Annotation::kParallel);
    if (level >= 2) info.attach.push_back(outer[1].back());
    info.attach.push_back(parallel);
    draft->ComputeAt(stage, consumer, {level == 3 ? outer[2].back() : info.attach.front()});
  }

  const bool own_s1 = level == 1 || consumer == stage;
  std::vector<int> own_s0, own1, s2, s3;
  for (int axis : axes) {
    const CpuTile& t = tiles[axis];
    std::vector<Factor> factors;
    if (consumer == stage) factors.push_back(t.s1);
    if (own_s1) factors.push_back(t.s2);
    factors.push_back(t.s3);
    if (axis == axes.back()) factors.push_back(t.lanes);
    const std::vector<int> pieces = draft->Split(stage, axis, factors);
    size_t p = 0;
    if (consumer == stage) own_s0.push_back(pieces[p++]);
    if (own_s1) own1.push_back(pieces[p++]);
    s2.push_back(pieces[p++]);
    s3.insert(s3.end(), pieces.begin() + p, pieces.end());
  }
  TileReduceLoops reduce = SplitReduce(draft, stage, info.dots);
  order.clear();
  for (const auto* l : {&own_s0, &own1, &reduce.r0, &s2, &reduce.r1, &s3}) Append(&order, *l);
  order.insert(order.end() - 1, reduce.dot.begin(), reduce.dot.end());
  draft->Reorder(stage, order);
  std::vector<int> unrolled(s3.begin(), s3.end() - 1);
  Append(&unrolled, reduce.dot);
  AnnotateAll(draft, stage, unrolled, Annotation::kUnroll);
  draft->Annotate(stage, s3.back(), Annotation::kVectorize);
  if (consumer == stage) {
    const int parallel = draft->Fuse(stage, own_s0);
    draft->Annotate(stage, parallel, Annotation::kParallel);
    info.attach = {parallel};
  }
  info.reduce_loop = reduce.r0.empty() ? -1 : reduce.r0.back();
  const Factor unroll = draft->OptionParameter("unroll", {0, 64, 512}, 0);
  draft->Do({StepKind::kUnroll, stage, {}, {unroll}, -1, {}});
  draft->AddTile(info);
}

class MultiLevelTilingWithFusion : public SketchRule {
 public:
  std::string name() const override { return "multi_level_tiling_with_fusion"; }
  Answer Condition(const Draft& draft, int stage) const override {
    if (!NeedsTiling(draft.state(), stage) || draft.TileOf(stage) || IsBound(draft.state(), stage))
      return Answer::kSkip;
    if (ElementwiseConsumer(draft.state(), stage) < 0) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const int consumer = ElementwiseConsumer(draft.state(), stage);
    std::vector<Derived> result;
    if (draft.gpu()) {
      Draft next = draft;
      next.Name("tile");
      TileForGpu(&next, stage, consumer);
      result.push_back({std::move(next), false});
      if (FitsTensorCores(draft, stage)) {
        OfferAllOnTensorCores(draft, stage, consumer, &result);
        if (MayRoundFactors(draft, stage)) {
          Draft rounded = draft;
          rounded.traits().rounds_factors = true;
          OfferAllOnTensorCores(rounded, stage, consumer, &result);
        }
      }
      return result;
    }
    for (int level : {2, 1, 3}) {
      Draft next = draft;
      next.Name(absl::StrCat("tile", level));
      TileForCpu(&next, stage, consumer, level);
      result.push_back({std::move(next), false});
    }
    return result;
  }

 private:
  static void OfferAllOnTensorCores(const Draft& draft, int stage, int consumer, std::vector<Derived>* result) {
    OfferOnTensorCores(draft, stage, consumer, {}, result);
    for (const GroupForm& groups : FindGroupForms(draft, stage))
      OfferOnTensorCores(draft, stage, consumer, groups, result);
  }

  // By warps, or warpgroups; of factors without low parts once more with operands that are read early.
  static void OfferOnTensorCores(const Draft& draft, int stage, int consumer, const GroupForm& groups,
                                 std::vector<Derived>* result) {
    const bool by_groups = groups.rows >= 0;
    Draft next = draft;
    next.Name(NameOfProducts(draft, by_groups));
    if (groups.turned) next.Name("turned");
    const int thread = TileForTensorCores(&next, stage, consumer, groups);
    const std::vector<int> operands = OtherOperands(draft, stage, consumer);
    if (!IntrinsicFor(draft, stage, by_groups)->parts && !operands.empty()) {
      Draft early = next;
      ReadEarly(&early, operands, consumer, thread);
      result->push_back({std::move(early), false});
    }
    result->push_back({std::move(next), false});
  }
};

class MultiLevelTiling : public SketchRule {
 public:
  std::string name() const override { return "multi_level_tiling"; }
  Answer Condition(const Draft& draft, int stage) const override {
    if (!NeedsTiling(draft.state(), stage) || draft.TileOf(stage) || IsBound(draft.state(), stage))
      return Answer::kSkip;
    if (draft.state().stage(stage).attach != StageState::Attach::kRoot) return Answer::kSkip;
    return Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.Name("tile0");
    TileForCpu(&next, stage, stage, 2);
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeMultiLevelTilingWithFusion() { return std::make_unique<MultiLevelTilingWithFusion>(); }
std::unique_ptr<SketchRule> MakeMultiLevelTiling() { return std::make_unique<MultiLevelTiling>(); }

}  // namespace diapason
