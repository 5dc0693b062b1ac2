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
// The rows are stages of the view `attention` (schedule/view_attention.h), in the order that fragments are read in.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/sketch/rules/attention_sketch.h"
#include "scheduler/sketch/rules/tensor_tile.h"

namespace diapason {
namespace {

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
  if (operand < 0 || !draft.IsInjective(operand) || !draft.IsUnscheduled(operand) ||
      draft.state().stage(operand).prologue)
    return false;
  const ExprNode* const load = LoadOf(draft, stage, operand);
  return load != nullptr && !load->args.empty() && load->args.back() == innermost &&
         draft.state().Consumers(operand).size() == 1;
}

class TensorSketch : public AttentionSketch {
 public:
  // `whole`: keys and values are copied all at once.
  TensorSketch(const Draft& draft, const AttentionChain& chain, bool whole)
      : AttentionSketch(draft, chain, {chain.queries_read, chain.values_read}), whole_(whole) {}

  Draft Make() {
    draft_.Name(whole_ ? "attention_tensor.whole" : "attention_tensor");
    MakeTiles();
    const int root = a_.root, product = a_.product;
    std::vector<TensorTile> tiles(draft_.SpatialAxes(root).size());
    tiles[a_.query_of_root] = rows_;
    tiles[a_.value_of_root] = values_;
    const TensorLoops loops = SplitForLanes(&draft_, root, tiles);
    const int thread = BindTiles(root, loops, loops.outer);
    block_ = draft_.Fuse(root, loops.outer);
    draft_.Annotate(root, block_, Annotation::kBlockX);

    draft_.ComputeAt(product, root, {thread});
    tiles.assign(draft_.SpatialAxes(product).size(), TensorTile());
    tiles[a_.query_of_product] = rows_;
    tiles[a_.value_of_product] = values_;
    const int keys = TileTensorReduction(&draft_, product, tiles, loops);
    CopyPart(a_.values_read, product, keys);

    Share(a_.weights, block_);
    Pad(a_.weights);
    RowsByWarps(a_.weights, a_.query_of_weights, a_.key_of_weights);
    for (int id : a_.reductions) ShareReduction(id, block_, threads_);
    MakeScores();
    return std::move(draft_);
  }

 private:
  // A block has all values of its rows where they fit: others would make the scores again.
  void MakeTiles() {
    const auto units = [](int64_t extent, int64_t unit) { return (extent + unit - 1) / unit; };
    rows_.unit = 16;
    rows_.warps = draft_.TileHole("query.warps", units(a_.queries, 16), 4, a_.queries > 16 ? 2 : 1);
    rows_.tiles = draft_.TileHole("query.tiles", units(a_.queries, 16), 4, 1);
    draft_.Tile(a_.queries, rows_.all());
    const int64_t values = units(a_.values, 8);
    values_.unit = keys_.unit = 8;
    values_.warps = draft_.TileHole("value.warps", values, 8, 2);
    values_.tiles =
        draft_.TileHole("value.tiles", values, 16, static_cast<int32_t>(std::min<int64_t>(16, (values + 1) / 2)));
    draft_.Tile(a_.values, values_.all());
    keys_.warps = values_.warps;
    keys_.tiles = draft_.TileHole("key.tiles", units(a_.keys, 8), 16, 4);
    draft_.Tile(a_.keys, keys_.all());
    threads_ = Factor::Of(32) * rows_.warps * values_.warps;
  }

  // Orders a stage's loops over tiles and returns the loop of threads.
  int BindTiles(int stage, const TensorLoops& loops, const std::vector<int>& outer) {
    OrderTiles(&draft_, stage, loops, outer);
    const int thread = draft_.Fuse(stage, loops.threads());
    draft_.Annotate(stage, thread, Annotation::kThreadX);
    return thread;
  }

  void MakeScores() {
    Share(a_.seen, block_);
    Pad(a_.seen);
    std::vector<TensorTile> tiles(draft_.SpatialAxes(a_.seen).size());
    tiles[a_.query_of_seen] = rows_;
    tiles[a_.key_of_seen] = keys_;
    const TensorLoops loops = SplitForLanes(&draft_, a_.seen, tiles);
    const int tile = loops.outer[a_.key_of_seen];  // one outer loop for each axis
    std::vector<int> outer = loops.outer;
    std::erase(outer, tile);
    outer.push_back(tile);
    const int thread = BindTiles(a_.seen, loops, outer);
    draft_.ComputeAt(local_, a_.seen, {thread});

    const std::vector<int> axes = draft_.SpatialAxes(local_);
    std::vector<int> others, tiled, pair(2);
    for (int axis : axes) {
      const bool query = axis == a_.query_of_scores, key = axis == a_.key_of_scores;
      if (!query && !key) {
        others.push_back(axis);
        continue;
      }
      const std::vector<int> pieces = draft_.Split(local_, axis, {Factor::Of(2)});
      tiled.push_back(pieces[0]);
      pair[query ? 0 : 1] = pieces[1];
    }
    const TensorIntrinsic& intrinsic = *IntrinsicFor(draft_, local_, /*groups=*/false);
    const std::vector<int> k =
        draft_.Split(local_, draft_.ReduceAxes(local_)[0], {Factor::Of(static_cast<int32_t>(intrinsic.depth()))});
    Order(local_, {{k[0]}, others, tiled, {k[1]}, pair});
    for (const auto& level : {others, tiled, {k[1]}, pair})
      for (int loop : level) draft_.Annotate(local_, loop, Annotation::kUnroll);
    draft_.Do({StepKind::kTensorize,
               local_,
               {k[1], pair[0], pair[1]},
               {},
               a_.seen,
               {static_cast<int32_t>(intrinsic.mode), loops.lane[0], loops.lane[1]}});
    CopyPart(a_.keys_read, a_.seen, tile);
    Copy(a_.queries_read, a_.root, block_);
    if (whole_)
      for (int rows : {a_.queries_read, a_.keys_read, a_.values_read})
        draft_.Do({StepKind::kAsyncCopy, rows, {}, {}, -1, {}});
  }

  // At the loop, or all for the block.
  void CopyPart(int rows, int target, int loop) { whole_ ? Copy(rows, a_.root, block_) : Copy(rows, target, loop); }

  // Pairs of neighbours of a row by a warp, rows by the block's warps: an index is no division by the length of a row.
  void RowsByWarps(int stage, int row, int element) {
    std::vector<int> serial;
    for (int axis : draft_.SpatialAxes(stage))
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
    const int all = draft_.Fuse(rows, draft_.SpatialAxes(rows));
    const std::vector<int> pieces = draft_.Split(rows, all, {threads_, Factor::Of(Vector(rows))});
    draft_.Annotate(rows, pieces[1], Annotation::kThreadX);
    draft_.Annotate(rows, pieces[2], Annotation::kVectorize);
    draft_.Do({StepKind::kUnroll, rows, {}, {Factor::Of(8)}, -1, {}});
    Pad(rows);
  }

  int32_t Vector(int stage) const { return 16 / static_cast<int32_t>(BytesOf(draft_.state().stage(stage).op.dtype)); }
  // Rows of a fragment begin in different banks.
  void Pad(int stage) { draft_.Do({StepKind::kPadRows, stage, {}, {Factor::Of(Vector(stage))}, -1, {}}); }

  const bool whole_;
  TensorTile rows_, values_, keys_;
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
  for (int stage : {chain.scores, chain.product})
    if (!FitsTensorCores(draft, stage) || !EndsInZeros(draft, stage)) return false;
  const Stage &scores = draft.state().stage(chain.scores).op, &product = draft.state().stage(chain.product).op;
  const Expr& size = scores.reduce_axes[0].var;
  const ExprNode* const weights = LoadOf(draft, chain.product, chain.weights);
  return IsRows(draft, chain.scores, chain.queries_read, size) && IsRows(draft, chain.scores, chain.keys_read, size) &&
         IsRows(draft, chain.product, chain.values_read, product.axes[chain.value_of_product].var) &&
         weights != nullptr && weights->args.back() == product.reduce_axes[0].var;
}

std::vector<Draft> AttentionOnTensorCores(const Draft& draft, const AttentionChain& chain) {
  std::vector<Draft> drafts{TensorSketch(draft, chain, false).Make()};
  if (WholeFits(draft, chain)) drafts.push_back(TensorSketch(draft, chain, true).Make());
  return drafts;
}

}  // namespace diapason
