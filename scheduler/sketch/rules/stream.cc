// A reduction of what is read once, by many sets of a block's threads that read it into registers, as vectors, and over
// the blocks of a cluster where there are few results: a matrix that a vector multiplies (a classifier, one token of a
// decoder), or whose columns are summed (global pooling). Copies into shared memory would be read once.
#include <algorithm>

#include "scheduler/sketch/row_chain.h"
#include "scheduler/sketch/rules/cluster_tile.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// Of a result that threads share.
constexpr int64_t kFewTerms = 32;

// Of sketches whose blocks have many sets of threads: powers of two alone, at least one.
std::vector<int32_t> ClusterSizesOfRow(const Draft& draft, int stage) {
  std::vector<int32_t> sizes = ClusterSizes(draft, stage);
  std::erase_if(sizes, [](int32_t blocks) { return blocks > 8 || (blocks & (blocks - 1)) != 0; });
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

// How the one operand is read whose elements are needed for one result each: a matrix that a vector multiplies, or
// whose columns are summed (global pooling). Then sets of threads have nothing to do but to read it, in vectors.
enum class ReadOnce : uint8_t {
  kNone,
  kAlongResults,  // neighbours are for neighbouring results
  kAlongTerms,    // neighbours are terms of one result: keys that a query multiplies
};

ReadOnce ReadsOnce(const Draft& draft, int stage) {
  const Stage& op = draft.state().stage(stage).op;
  if (op.combiner != Combiner::kSum || op.axes.empty() || op.axes.back().extent <= 1) return ReadOnce::kNone;
  std::vector<const ExprNode*> all;
  for (const auto* axes : {&op.axes, &op.reduce_axes})
    for (const Axis& axis : *axes)
      if (axis.extent > 1) all.push_back(axis.var.get());
  ReadOnce found = ReadOnce::kNone;
  Visit(op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.args.empty()) return;
    const bool once = std::all_of(all.begin(), all.end(), [&](const ExprNode* var) {
      return std::count_if(e.args.begin(), e.args.end(), [&](const Expr& index) { return index.get() == var; }) == 1;
    });
    if (!once) return;
    const StageState& operand = draft.state().stage(e.buffer);
    const Expr& along = e.args[DimensionAlongMemory(draft.state(), e.buffer)];
    if (along == op.reduce_axes.back().var && NeedsTiling(draft.state(), stage) && !operand.prologue &&
        !operand.op.constant)
      found = ReadOnce::kAlongTerms;  // constants have the other order where that is better
    else if (e.args.back() == op.axes.back().var)
      found = ReadOnce::kAlongResults;
  });
  return found;
}

// Whether the constant that is read along results has rows that are no whole vectors of 16 bytes: single elements are
// loaded then. The padded rewrite has the same sketch with aligned rows.
bool HasUnalignedRows(const Draft& draft, int stage) {
  const Stage& op = draft.state().stage(stage).op;
  bool unaligned = false;
  Visit(op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.args.empty() || e.args.back() != op.axes.back().var) return;
    const Stage& operand = draft.state().stage(e.buffer).op;
    unaligned |= operand.constant && operand.axes.back().extent * BytesOf(operand.dtype) % 16 != 0;
  });
  return unaligned && !ReadsReductions(draft, stage);
}

// The longest reduce axis but one; that one if no other is longer than one element.
int LongestReduceAxisBut(const Draft& draft, int stage, int but) {
  const StageState& s = draft.state().stage(stage);
  int longest = but;
  for (int axis : ReduceAxes(draft.state(), stage))
    if (axis != but && s.axis(axis).extent > (longest == but ? 1 : s.axis(longest).extent)) longest = axis;
  return longest;
}

class Stream : public SketchRule {
 public:
  std::string name() const override { return "stream"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.op.reduces() || s.prologue || s.op.terms() < kFewTerms || !draft.IsUnscheduled(stage) ||
        s.op.name.find(".rf") != std::string::npos || ReadsOnce(draft, stage) == ReadOnce::kNone ||
        (ElementwiseConsumer(draft.state(), stage) < 0 && !IsLast(draft, stage)))
      return Answer::kSkip;
    if (!ReadsReductions(draft, stage)) return Answer::kApply;
    // What a row is made of belongs to this kernel, or else the row is a task of its own (graph/grouping.cc).
    return ReadsOwnRow(draft, stage, stage) ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }

  std::vector<Derived> Apply(const Draft& draft, int of) const override {
    Draft next = draft;
    next.Name("stream");
    const int stage = IsLast(draft, of) ? next.CacheWrite(of, Memory::kLocal) : of;
    std::vector<bool> batch(SpatialAxes(next.state(), stage).size(), true);
    batch.back() = false;
    const std::vector<GpuTile> tiles = MakeGpuTiles(&next, stage, batch);
    const ClusterAxis cluster = MakeSets(&next, stage);
    ReduceTiles reduce;
    TileInfo info = ShareTileOfThreads(&next, stage, tiles, cluster, &reduce);
    info.reduce_loop = reduce.inner_loop;
    info.streams = true;
    next.traits().preferred_fallback = !HasUnalignedRows(next, info.stage);
    DeclarePrior(&next, info.stage, tiles.back(), cluster, reduce);
    next.AddTile(info);
    std::vector<Derived> result;
    result.push_back({std::move(next), false});
    return result;
  }

 private:
  // Whether all reductions that `reader` is computed from, directly or through element-wise stages, are of rows that
  // `stage` multiplies: as long, and no more of them than results. Others (the parts of a long sum) are too much to
  // make again in each block.
  static bool ReadsOwnRow(const Draft& draft, int stage, int reader) {
    const Stage& own = draft.state().stage(stage).op;
    const std::vector<int> producers = draft.state().Producers(reader);
    return std::all_of(producers.begin(), producers.end(), [&](int id) {
      const StageState& producer = draft.state().stage(id);
      if (!producer.computes() || producer.prologue) return true;
      if (producer.op.reduces() && (producer.op.terms() != own.terms() || producer.op.elements() > own.elements()))
        return false;
      return ReadsOwnRow(draft, stage, id);
    });
  }

  // Nothing is computed from it.
  static bool IsLast(const Draft& draft, int stage) {
    return draft.state().is_output(stage) && draft.state().Consumers(stage).empty();
  }

  // Blocks for all cores, threads that read 16 bytes at once, and as many sets of these as make a few warps, each with
  // some loads on their way.
  static void DeclarePrior(Draft* draft, int stage, const GpuTile& tile, const ClusterAxis& cluster,
                           const ReduceTiles& reduce) {
    const StageState& s = draft->state().stage(stage);
    int64_t bytes = 4;
    Visit(s.op.body, [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad) bytes = std::min<int64_t>(bytes, BytesOf(e.dtype));
    });
    const int64_t vector = 16 / bytes, columns = s.op.elements(), terms = s.op.terms();
    const int64_t cores = draft->context().facts.num_cores;
    const bool along_terms = ReadsOnce(*draft, stage) == ReadOnce::kAlongTerms;
    const int64_t lanes = along_terms ? 1 : vector, row = (s.op.axes.back().extent + lanes - 1) / lanes;
    const int64_t threads = std::min(row, std::clamp<int64_t>(columns / (lanes * cores), along_terms ? 16 : 2, 32));
    const int64_t sets =
        along_terms ? std::clamp<int64_t>(terms / vector, 2, 16) : std::clamp<int64_t>(128 / threads, 4, 64);
    const int64_t tiles = columns / (lanes * threads);
    int64_t blocks = 1;
    for (int32_t more : ClusterSizesOfRow(*draft, stage))
      if (tiles * more <= 2 * cores && terms >= 4 * sets * more) blocks = more;
    draft->parameters().Prior(tile.s4, lanes);
    draft->parameters().Prior(tile.threads, threads);
    draft->parameters().Prior(cluster.blocks, blocks);
    draft->parameters().Prior(cluster.thread_sets, sets);
    int64_t most = 16;  // rows that a thread asks for at once
    for (auto axis = reduce.axes.rbegin(); axis != reduce.axes.rend(); ++axis) {
      const int64_t parts = (axis->axis == cluster.axis ? blocks : 1) * (axis->axis == cluster.set_axis ? sets : 1);
      const int64_t rows = std::clamp<int64_t>(s.axis(axis->axis).extent / parts, 1, most);
      draft->parameters().Prior(axis->r2, rows);
      draft->parameters().Prior(axis->r1, 1);
      most = std::max<int64_t>(1, most / rows);
    }
  }

  // Of what is read once: by as many threads of a block as are of use, and where there are two axes each takes one.
  static ClusterAxis MakeSets(Draft* draft, int stage) {
    const int axis = LongestReduceAxis(draft->state(), stage);
    const Factor blocks = draft->OptionParameter("cluster", ClusterSizesOfRow(*draft, stage), 1);
    return {axis, LongestReduceAxisBut(*draft, stage, axis), blocks,
            draft->OptionParameter("thread_sets", {2, 4, 8, 16, 32, 64}, 32), /*copies=*/false};
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeStream() { return std::make_unique<Stream>(); }

}  // namespace diapason
