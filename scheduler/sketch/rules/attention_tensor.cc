// Attention in one kernel with both products on tensor cores. A block has some rows of queries: its warps make their
// scores, which go to shared memory, all threads what a softmax makes of these, and the warps the product by the
// values, whose copies are a pipeline along the keys.
//
//     y             block | warps, lanes of rows and values | tiles of a warp
//       q rows      in shared memory, of the whole block
//       scores      tiles of keys | warps, lanes | tiles       in registers, then to shared memory
//         k rows    a tile in shared memory
//       top, sum    parts of rows by all threads, then rows
//       weights     all threads, in the type of the values
//       y.acc       keys | tiles                               in registers
//         v rows    a tile in shared memory
//
// Or, for rows of any length, all but the queries is of one step of keys, and the loop over steps carries the maximum
// of a row, the sum of its weights and the product (StepKind::kCarry; Dao et al. 2022); scores and weights are then in
// shared memory, or in registers of lanes, and products made by warps or, of those, by warpgroups (Shah et al. 2024).
//
// The rows are stages of the rewrite `attention` (schedule/rewrite_attention.h), in the order that fragments are read
// in.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/tensor_of_copy.h"
#include "scheduler/sketch/rules/attention_sketch.h"
#include "scheduler/sketch/rules/tensor_tile.h"

namespace diapason {
namespace {

// Of a row's reduction where keys are streamed, so that a step has whole products.
constexpr int32_t kPartsOfStream = 16;
constexpr int32_t kQuad = 4;  // lanes that have the results of a row of a product

// The one load of a buffer in a stage's body; null if there is none or they differ.
const ExprNode* LoadOf(const Draft& draft, int stage, int buffer) {
  const ExprNode* found = nullptr;
  bool one = true;
  Visit(draft.state().stage(stage).op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != buffer) return;
    one = one && found == nullptr;
    found = &e;
  });
  return one ? found : nullptr;
}

// True if an operand is element-wise, read by this stage alone, and `innermost` is the index of its last dimension.
bool IsRows(const Draft& draft, int stage, int operand, const Expr& innermost) {
  if (operand < 0 || !IsInjective(draft.state(), operand) || !draft.IsUnscheduled(operand) ||
      draft.state().stage(operand).prologue)
    return false;
  const ExprNode* const load = LoadOf(draft, stage, operand);
  return load != nullptr && !load->args.empty() && load->args.back() == innermost &&
         draft.state().Consumers(operand).size() == 1;
}

// How keys and values come into shared memory.
enum class Copies {
  kTiles,   // the keys of a tile of scores, the values of a step of the product
  kWhole,   // all at once
  kStream,  // those of a step; scores and weights are of a step as well
  kLanes,   // as kStream, with scores and weights in the registers of lanes
  kGroups,  // as kLanes, with products by warpgroups
  kBoxes,   // as kGroups, by tensor copies
};

class TensorSketch : public AttentionSketch {
 public:
  TensorSketch(const Draft& draft, const AttentionChain& chain, Copies copies)
      : AttentionSketch(draft, chain, {chain.queries_read, chain.values_read}), copies_(copies) {}

  Draft Make() {
    draft_.Name(absl::StrCat("attention_", NameOfProducts(draft_, by_groups())));
    constexpr const char* kEndings[] = {"", "whole", "stream", "lanes", "", "boxes"};
    if (const std::string ending = kEndings[static_cast<int>(copies_)]; !ending.empty()) draft_.Name(ending);
    MakeTiles();
    const int root = a_.root, product = a_.product;
    std::vector<TensorTile> tiles(SpatialAxes(draft_.state(), root).size());
    tiles[a_.query_of_root] = rows_;
    tiles[a_.value_of_root] = values_;
    const TensorLoops loops = SplitForLanes(&draft_, root, tiles, FormOf(a_.query_of_root, a_.value_of_root));
    const int thread = BindTiles(root, loops, loops.outer);
    block_ = draft_.Fuse(root, loops.outer);
    draft_.Annotate(root, block_, Annotation::kBlockX);

    draft_.ComputeAt(product, root, {thread});
    tiles.assign(SpatialAxes(draft_.state(), product).size(), TensorTile());
    tiles[a_.query_of_product] = rows_;
    tiles[a_.value_of_product] = values_;
    if (streams()) {
      MakeStream(tiles, loops, thread);
      return std::move(draft_);
    }
    const int keys = TileTensorReduction(&draft_, product, tiles, loops).loop;
    CopyPart(a_.values_read, product, keys);

    Share(a_.weights, block_);
    Pad(a_.weights);
    RowsByWarps(a_.weights, a_.query_of_weights, a_.key_of_weights);
    for (int id : a_.reductions) ShareReduction(id, block_, threads_);
    MakeScores(a_.root, block_);
    return std::move(draft_);
  }

 private:
  bool by_groups() const { return copies_ == Copies::kGroups || copies_ == Copies::kBoxes; }
  bool by_lanes() const { return copies_ == Copies::kLanes || by_groups(); }
  bool streams() const { return copies_ == Copies::kStream || by_lanes(); }
  Memory memory() const { return by_lanes() ? Memory::kLanes : Memory::kShared; }
  GroupForm FormOf(int rows, int columns) const {
    return by_groups() ? GroupForm{.rows = rows, .columns = columns} : GroupForm{};
  }

  // A block has all values of its rows where they fit: others would make the scores again.
  void MakeTiles() {
    const auto units = [](int64_t extent, int64_t unit) { return (extent + unit - 1) / unit; };
    rows_.unit = 16;
    const bool lanes = by_lanes();
    if (by_groups()) {
      rows_.warps =
          Factor::Of(4) * draft_.TileParameter("query.groups", units(a_.queries, 64), 4, a_.queries > 64 ? 2 : 1);
    } else {
      rows_.warps = draft_.TileParameter("query.warps", units(a_.queries, 16), lanes ? 8 : 4,
                                         a_.queries > 16 ? (lanes ? 4 : 2) : 1);
      rows_.tiles = draft_.TileParameter("query.tiles", units(a_.queries, 16), 4, 1);
    }
    draft_.parameters().BoundPadding(a_.queries, rows_.all());
    const int64_t values = units(a_.values, 8);
    values_.unit = keys_.unit = 8;
    if (lanes) {
      values_.tiles = Factor::Of(static_cast<int32_t>(values));
    } else {
      values_.warps = draft_.TileParameter("value.warps", values, 8, 2);
      values_.tiles = draft_.TileParameter("value.tiles", values, 16,
                                           static_cast<int32_t>(std::min<int64_t>(16, (values + 1) / 2)));
      draft_.parameters().BoundPadding(a_.values, values_.all());
    }
    keys_.warps = values_.warps;
    if (lanes) {
      // A step is one tile of scores: two of 8 keys are a product's depth.
      step_ = by_groups() ? draft_.OptionParameter("key.step", {2, 4, 5, 6, 7, 8, 10, 12}, 4)
                          : draft_.OptionParameter("key.step", {1, 2, 3, 4, 5, 6, 7, 8}, 4);
      keys_.tiles = Factor::Of(2) * step_;
    } else if (copies_ == Copies::kStream) {
      step_ = draft_.OptionParameter("key.step", {1, 2, 4, 8}, 4);
      keys_.tiles = draft_.OptionParameter("key.tiles", {1, 2, 4, 8, 16}, 4);
    } else {
      keys_.tiles = draft_.TileParameter("key.tiles", units(a_.keys, 8), 16, 4);
      draft_.parameters().BoundPadding(a_.keys, keys_.all());
    }
    threads_ = Factor::Of(32) * rows_.warps * values_.warps;
  }

  // Orders a stage's loops over tiles and returns the loop of threads.
  int BindTiles(int stage, const TensorLoops& loops, const std::vector<int>& outer) {
    OrderTiles(&draft_, stage, loops, outer);
    const int thread = draft_.Fuse(stage, loops.threads());
    draft_.Annotate(stage, thread, Annotation::kThreadX);
    return thread;
  }

  // Everything but the queries is made at the loop over steps of keys, which carries the maximum of a row, the sum of
  // its weights and the product (StepKind::kCarry).
  void MakeStream(const std::vector<TensorTile>& tiles, const TensorLoops& loops, int thread) {
    const int product = a_.product, step = TileProduct(product, tiles, Factor::Of(kPartsOfStream) * step_, loops);
    Copy(a_.values_read, product, step);
    KeepAt(a_.weights, product, step);
    const int maximum = a_.reductions[0], sum = a_.reductions[1];
    if (by_lanes()) {
      TileByLanes(a_.weights, a_.query_of_weights, a_.key_of_weights);
    } else {
      Pad(a_.weights);
      RowsByWarps(a_.weights, a_.query_of_weights, a_.key_of_weights);
    }
    CarryParts(maximum, a_.query_of_reductions[0], product, step, -1);
    KeepAt(maximum, product, step);
    if (by_lanes()) {
      draft_.Do({StepKind::kReplicate, maximum, {}, {Factor::Of(kQuad)}, -1, {}});
      RowsByLanes(maximum, a_.query_of_reductions[0], LastLoop(draft_.state(), maximum));
    } else {
      ByThreads(maximum, SpatialAxes(draft_.state(), maximum), threads_);
    }
    CarryParts(sum, a_.query_of_reductions[1], product, step, maximum);
    draft_.ComputeAt(sum, a_.root, {thread});
    if (by_lanes())
      for (int loop : draft_.state().stage(sum).order) draft_.Annotate(sum, loop, Annotation::kUnroll);
    draft_.Do({StepKind::kCarry, product, {step}, {}, product, {step, maximum}});
    draft_.Do({StepKind::kPipeline, product, {}, {StagesParameter()}, -1, {}});
    if (copies_ == Copies::kBoxes)
      draft_.Do({StepKind::kProducer, product, {}, {draft_.OptionParameter("producer", {0, 1}, 0)}, -1, {}});
    MakeScores(product, step);
  }

  Factor StagesParameter() {
    return by_groups() ? draft_.OptionParameter("stages", {1, 2, 3, 4, 5}, 3)
                       : draft_.OptionParameter("stages", {1, 2, 3}, 2);
  }

  // Splits the sums of a product into so many terms at once, for tensor cores, and orders its loops: the returned one
  // over these, and inside it all others, unrolled.
  int TileProduct(int stage, const std::vector<TensorTile>& tiles, const Factor& terms, const TensorLoops& lanes) {
    std::vector<int> outer, tile, pair(2);
    for (int axis : SpatialAxes(draft_.state(), stage)) {
      if (!tiles[axis].has_lanes()) {
        outer.push_back(axis);
        continue;
      }
      const std::vector<int> pieces = draft_.Split(stage, axis, {Factor::Of(2)});
      tile.push_back(pieces[0]);
      pair[tiles[axis].rows() ? 0 : 1] = pieces[1];
    }
    const std::vector<int> k = draft_.Split(stage, ReduceAxes(draft_.state(), stage)[0], {terms});
    Order(stage, {{k[0]}, outer, tile, {k[1]}, pair});
    for (const auto& level : {outer, tile, {k[1]}, pair})
      for (int loop : level) draft_.Annotate(stage, loop, Annotation::kUnroll);
    const auto mode = static_cast<int32_t>(IntrinsicFor(draft_, stage, by_groups())->mode);
    draft_.Do(
        {StepKind::kTensorize, stage, {k[1], pair[0], pair[1]}, {}, lanes.stage, {mode, lanes.lane[0], lanes.lane[1]}});
    return k[0];
  }

  // A row's reduction as parts that the loop carries, side by side: one for each so many keys, or that of the lane that
  // has them. `row`: the axis of queries.
  void CarryParts(int stage, int row, int product, int step, int maximum) {
    const bool lanes = by_lanes();
    const int partial = lanes ? FactorLanes(stage) : FactorParts(stage, kPartsOfStream);
    const std::vector<int> axes = ReduceAxes(draft_.state(), partial);
    const std::vector<int> terms = draft_.Split(partial, axes[0], {lanes ? keys_.tiles : step_});
    KeepAt(partial, product, step);
    if (lanes) {
      for (int loop : {terms[1], axes[1]}) draft_.Annotate(partial, loop, Annotation::kUnroll);
      RowsByLanes(partial, row + 1, 0);
    } else {
      std::vector<int> spatial = SpatialAxes(draft_.state(), partial);
      std::rotate(spatial.begin(), spatial.begin() + 1, spatial.end());
      Order(partial, {spatial, terms});
      ByThreads(partial, spatial, threads_);
    }
    draft_.Do({StepKind::kCarry, partial, {terms[0]}, {}, product, {step, maximum}});
  }

  void KeepAt(int stage, int target, int loop) {
    draft_.Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(memory())}});
    draft_.ComputeAt(stage, target, {loop});
  }

  // Of the keys of a tile lane 4 * g + q has 2 * q and the next one: a stage with q as its first axis.
  int FactorLanes(int stage) {
    const std::vector<int> pieces =
        draft_.Split(stage, ReduceAxes(draft_.state(), stage)[0], {Factor::Of(kQuad), Factor::Of(2)});
    draft_.Do({StepKind::kRfactor, stage, {pieces[1]}, {}, -1, {}});
    return draft_.state().size() - 1;
  }

  // Rows by the lanes that have scores of them, each of the four of a row by its own piece of `across`; reduce loops
  // stay inside.
  void RowsByLanes(int stage, int row, int across) {
    std::vector<int> outer, reduce;
    for (int loop : draft_.state().stage(stage).order) {
      if (draft_.state().stage(stage).loops[loop].reduce)
        reduce.push_back(loop);
      else if (loop != row && loop != across)
        outer.push_back(loop);
    }
    const std::vector<int> rows = draft_.Split(stage, row, {rows_.warps, rows_.tiles, Factor::Of(2), Factor::Of(8)});
    outer.push_back(rows[0]);
    Order(stage, {outer, {rows[1], rows[4], across}, reduce, {rows[2], rows[3]}});
    draft_.Annotate(stage, draft_.Fuse(stage, {rows[1], rows[4], across}), Annotation::kThreadX);
    for (int loop : {rows[2], rows[3]}) draft_.Annotate(stage, loop, Annotation::kUnroll);
    for (int loop : reduce) {
      if (draft_.state().stage(stage).loops[loop].level != 0 || reduce.size() == 1)
        draft_.Annotate(stage, loop, Annotation::kUnroll);
    }
  }

  // A tile of rows and keys by the lanes that have its elements as the sums of products.
  TensorLoops TileByLanes(int stage, int row, int key) {
    std::vector<TensorTile> tiles(SpatialAxes(draft_.state(), stage).size());
    tiles[row] = rows_;
    tiles[key] = keys_;
    TensorLoops loops = SplitForLanes(&draft_, stage, tiles, FormOf(row, key));
    OrderTiles(&draft_, stage, loops, loops.outer);
    draft_.Annotate(stage, loops.pair.back(), Annotation::kUnroll);
    draft_.Annotate(stage, draft_.Fuse(stage, loops.threads()), Annotation::kThreadX);
    return loops;
  }

  // The scores of a block, or of a step, computed at the loop of the target.
  void MakeScores(int target, int target_loop) {
    KeepAt(a_.seen, target, target_loop);
    if (!by_lanes()) Pad(a_.seen);
    std::vector<TensorTile> tiles(SpatialAxes(draft_.state(), a_.seen).size());
    tiles[a_.query_of_seen] = rows_;
    tiles[a_.key_of_seen] = keys_;
    const TensorLoops loops = SplitForLanes(&draft_, a_.seen, tiles, FormOf(a_.query_of_seen, a_.key_of_seen));
    const int tile = loops.outer[a_.key_of_seen];  // one outer loop for each axis
    std::vector<int> outer = loops.outer;
    std::erase(outer, tile);
    outer.push_back(tile);
    const int thread = BindTiles(a_.seen, loops, outer);
    if (by_lanes()) draft_.Annotate(a_.seen, loops.pair.back(), Annotation::kUnroll);
    draft_.ComputeAt(local_, a_.seen, {thread});

    tiles.assign(SpatialAxes(draft_.state(), local_).size(), TensorTile());
    tiles[a_.query_of_scores] = rows_;
    tiles[a_.key_of_scores] = keys_;
    // Warpgroups take a whole score at once.
    const int k = TileProduct(local_, tiles, Factor::Of(by_groups() ? WholeSize() : Depth(local_)), loops);
    if (by_lanes()) draft_.Annotate(local_, k, Annotation::kUnroll);
    if (streams())
      Copy(a_.keys_read, target, target_loop);
    else
      CopyPart(a_.keys_read, a_.seen, tile);
    Copy(a_.queries_read, a_.root, block_);
    if (copies_ != Copies::kTiles)
      for (int rows : {a_.queries_read, a_.keys_read, a_.values_read})
        draft_.Do({StepKind::kAsyncCopy, rows, {}, {}, -1, {}});
  }

  int32_t Depth(int stage) const { return static_cast<int32_t>(IntrinsicFor(draft_, stage, by_groups())->depth()); }
  // Terms of a score, in whole products.
  int32_t WholeSize() const {
    const int32_t depth = Depth(local_);
    return (static_cast<int32_t>(a_.size) + depth - 1) / depth * depth;
  }

  // At the loop, or all for the block.
  void CopyPart(int rows, int target, int loop) {
    copies_ == Copies::kWhole ? Copy(rows, a_.root, block_) : Copy(rows, target, loop);
  }

  // Pairs of neighbours of a row by a warp, rows by the block's warps: an index is no division by the length of a row.
  void RowsByWarps(int stage, int row, int element) {
    std::vector<int> serial;
    for (int axis : SpatialAxes(draft_.state(), stage))
      if (axis != row && axis != element) serial.push_back(axis);
    const std::vector<int> rows = draft_.Split(stage, row, {rows_.warps * values_.warps});
    const std::vector<int> elements = draft_.Split(stage, element, {Factor::Of(32), Factor::Of(2)});
    serial.insert(serial.end(), {rows[0], elements[0]});
    Order(stage, {serial, {rows[1], elements[1], elements[2]}});
    draft_.Annotate(stage, draft_.Fuse(stage, {rows[1], elements[1]}), Annotation::kThreadX);
    draft_.Annotate(stage, elements[2], Annotation::kVectorize);
  }

  // Rows in shared memory, copied by all threads at a loop, 16 bytes at once.
  void Copy(int rows, int target, int loop) {
    draft_.Do({StepKind::kSetScope, rows, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
    draft_.ComputeAt(rows, target, {loop});
    const int all = draft_.Fuse(rows, SpatialAxes(draft_.state(), rows));
    const std::vector<int> pieces = draft_.Split(rows, all, {threads_, Factor::Of(Vector(rows))});
    draft_.Annotate(rows, pieces[1], Annotation::kThreadX);
    draft_.Annotate(rows, pieces[2], Annotation::kVectorize);
    draft_.Do({StepKind::kUnroll, rows, {}, {Factor::Of(8)}, -1, {}});
    if (!by_groups()) return Pad(rows);
    // Runs of what makes a product's columns, or of its terms.
    const Factor runs = rows == a_.values_read ? values_.all() : Factor::Of(WholeSize());
    draft_.Do({StepKind::kCoreMatrices, rows, {}, {runs}, -1, {}});
    if (copies_ == Copies::kBoxes && rows != a_.queries_read && TensorOfCopy(draft_.state(), rows))
      draft_.Do({StepKind::kTensorCopy, rows, {}, {}, -1, {}});
  }

  int32_t Vector(int stage) const { return 16 / static_cast<int32_t>(BytesOf(draft_.state().stage(stage).op.dtype)); }
  // Rows of a fragment begin in different banks.
  void Pad(int stage) { draft_.Do({StepKind::kPadRows, stage, {}, {Factor::Of(Vector(stage))}, -1, {}}); }

  const Copies copies_;
  TensorTile rows_, values_, keys_;
  Factor step_;  // terms of each part of a row in a step of keys
  Factor threads_;
  int block_ = -1;
};

// Whether all keys and values of a head, and the scores and weights of 16 rows, fit a block's shared memory.
bool WholeFits(const Draft& draft, const AttentionChain& chain) {
  constexpr int64_t kRows = 16;
  const int64_t bytes = BytesOf(draft.state().stage(chain.keys_read).op.dtype);
  const int64_t copies = chain.keys * (chain.size + chain.values) + kRows * chain.size;
  const int64_t scores = kRows * chain.keys * (BytesOf(DType::kFloat32) + bytes);
  return copies * bytes + scores <= draft.context().facts.max_shared_bytes;
}

}  // namespace

bool FitsAttentionOnTensorCores(const Draft& draft, const AttentionChain& chain) {
  if (chain.query_of_root < 0 || chain.value_of_root < 0 || chain.query_of_seen < 0 || chain.query_of_scores < 0)
    return false;
  if (!FitsTensorCores(draft, chain.scores, chain.query_of_scores, chain.key_of_scores) ||
      !FitsTensorCores(draft, chain.product, chain.query_of_product, chain.value_of_product))
    return false;
  const Stage &scores = draft.state().stage(chain.scores).op, &product = draft.state().stage(chain.product).op;
  const Expr& size = scores.reduce_axes[0].var;
  const ExprNode* const weights = LoadOf(draft, chain.product, chain.weights);
  return IsRows(draft, chain.scores, chain.queries_read, size) && IsRows(draft, chain.scores, chain.keys_read, size) &&
         IsRows(draft, chain.product, chain.values_read, product.axes[chain.value_of_product].var) &&
         weights != nullptr && weights->args.back() == product.reduce_axes[0].var;
}

// Whether a row's scores are worth more than one step.
bool StreamsAttention(const Draft& draft, const AttentionChain& chain) {
  constexpr int64_t kFewKeys = 32;
  return chain.divides_last && chain.reductions.size() == 2 && chain.keys > kFewKeys &&
         draft.state().stage(chain.reductions[0]).op.combiner == Combiner::kMax;
}

// Whether lanes have room for all values of their rows; float32 sums are held twice, the second time of a run of keys.
static bool LanesHoldWeights(const Draft& draft, const AttentionChain& chain) {
  const bool narrow = IsNarrowFloat(draft.state().stage(chain.values_read).op.dtype);
  return chain.values <= (narrow ? 256 : 128);
}

// Whether warpgroups can make both products: 64 queries a warpgroup, keys and values as they lie in shared memory. Of
// weights of 16 bits, which lanes have as the second product takes them.
static bool FitsWarpgroups(const Draft& draft, const AttentionChain& chain) {
  constexpr int64_t kRows = 64, kLongestScore = 256;
  if (!IsNarrowFloat(draft.state().stage(chain.values_read).op.dtype)) return false;
  if (chain.queries < kRows || chain.keys < kRows || chain.size > kLongestScore) return false;
  for (int stage : {chain.scores, chain.product}) {
    const TensorIntrinsic* const intrinsic = IntrinsicFor(draft, stage, /*groups=*/true);
    if (intrinsic == nullptr || intrinsic->parts) return false;
  }
  return true;
}

static bool HasTensorCopies(const Draft& draft) {
  const std::vector<StageState>& stages = draft.state().stages();
  return std::any_of(stages.begin(), stages.end(), [](const StageState& stage) { return stage.tensor_copy; });
}

std::vector<Draft> AttentionOnTensorCores(const Draft& draft, const AttentionChain& chain, bool rows_fit) {
  std::vector<Copies> copies;
  const bool streams = StreamsAttention(draft, chain), lanes = streams && LanesHoldWeights(draft, chain);
  if (rows_fit) copies.push_back(Copies::kTiles);
  if (rows_fit && WholeFits(draft, chain)) copies.push_back(Copies::kWhole);
  if (streams) copies.push_back(Copies::kStream);
  if (lanes) copies.push_back(Copies::kLanes);
  if (lanes && FitsWarpgroups(draft, chain)) {
    copies.push_back(Copies::kGroups);
    if (draft.context().HasTensorCopies()) copies.push_back(Copies::kBoxes);
  }
  std::vector<Draft> drafts;
  for (const Copies kind : copies) {
    drafts.push_back(TensorSketch(draft, chain, kind).Make());
    // Without keys or values that are tensors of memory it is the same as the one before.
    if (kind == Copies::kBoxes && !HasTensorCopies(drafts.back())) drafts.pop_back();
  }
  if (!MayRoundFactors(draft, chain.scores) || !MayRoundFactors(draft, chain.product)) return drafts;
  Draft rounded = draft;
  rounded.traits().rounds_factors = true;
  for (const Copies kind : copies)
    if (kind != Copies::kBoxes) drafts.push_back(TensorSketch(rounded, chain, kind).Make());
  return drafts;
}

}  // namespace diapason
