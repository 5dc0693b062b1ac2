// Attention (attention_chain.h) in one kernel. A block, or a core, has some rows of queries: their scores, what a
// softmax makes of them and its sums are held on chip, so memory sees queries, keys, values and the result only. Rows
// that do not fit one at a time are streamed on tensor cores, some keys after the others, and have no such sketch
// elsewhere.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "compiler/tensor/simplify.h"
#include "scheduler/sketch/metrics.h"
#include "scheduler/sketch/rules/attention_sketch.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// Rows of a tile of sums in registers, on processors.
constexpr int64_t kRegisterRows = 8;

// Where the configuration of a GPU's sketch starts from: rows of threads, rows of a thread, threads along keys and
// values, keys of a thread.
struct Start {
  int32_t query_threads, query_rows, lanes, keys;
};

int64_t SharedBytes(const AttentionChain& a, const Start& s) {
  const int64_t rows = int64_t{s.query_threads} * s.query_rows;
  const int64_t per_row = 2 * a.keys + 2 * PartsOf(a) + 2;
  const int64_t copy = a.keys_read < 0 ? 0 : (int64_t{s.lanes} * s.keys + 1) * (a.size + 1);
  return 4 * (rows * per_row + copy) + 256;
}

// Of one row of a core, as SharedBytes; more than what its sketch takes at least.
int64_t StackBytes(const AttentionChain& a) { return 4 * (2 * a.keys + a.values) + (4 << 10); }

class RowsOfAttention : public AttentionSketch {
 public:
  using AttentionSketch::AttentionSketch;

  Draft Take() { return std::move(draft_); }

  void BindBlocks(const Start& start) {
    draft_.Name("attention_block");
    const bool rows = a_.queries > 1;
    const Factor ti = rows ? Parameter("query.threads", {1, 2, 4, 8, 16}, start.query_threads) : Factor::Of(1);
    const Factor ri = rows ? Parameter("query.rows", {1, 2, 4, 8}, start.query_rows) : Factor::Of(1);
    const Factor lanes = Parameter("lanes", {16, 32, 64, 128}, start.lanes);
    const Factor keys = Parameter("keys", {1, 2, 4, 8}, start.keys);
    const Factor threads = rows ? ti * lanes : lanes;

    // The result: rows of threads by lanes along a value.
    std::vector<int> outer = OtherAxes(a_.root, {RowsIn(a_.query_of_root), a_.value_of_root}), across, inside;
    SplitQueries(a_.root, RowsIn(a_.query_of_root), {ti, ri}, {&outer, &across, &inside});
    const std::vector<int> e = draft_.Split(a_.root, a_.value_of_root, {lanes});
    across.push_back(e[1]);
    inside.insert(inside.begin(), e[0]);
    if (outer.empty()) outer.push_back(WholeLoop(a_.root, &inside[0]));
    Order(a_.root, {outer, across, inside});
    const int block = draft_.Fuse(a_.root, outer), thread = draft_.Fuse(a_.root, across);
    draft_.Annotate(a_.root, block, Annotation::kBlockX);
    draft_.Annotate(a_.root, thread, Annotation::kThreadX);
    for (int loop : inside) draft_.Annotate(a_.root, loop, Annotation::kUnroll);
    draft_.ComputeAt(a_.product, a_.root, {thread});
    SumInRegisters(a_.product, "product.unroll");

    Share(a_.weights, block);
    ByThreads(a_.weights, SpatialAxes(draft_.state(), a_.weights), threads);
    for (int id : a_.reductions) ShareReduction(id, block, threads);
    BindScores(block, {.ti = ti, .ri = ri, .lanes = lanes, .keys = keys, .threads = threads});
  }

  // Whether the scores read keys from a stage that transposes them, whose neighbours belong to different keys.
  bool TransposesKeys() const {
    if (a_.keys_read < 0 || !IsFreeElementwise(a_.keys_read) || !KeysRunAlongHead()) return false;
    const Stage& scores = draft_.state().stage(local_).op;
    bool across = true;
    Visit(scores.body, [&](const ExprNode& e) {
      if (e.kind == ExprKind::kLoad && e.buffer == a_.keys_read)
        across &= !UsesVar(e.args.back(), scores.reduce_axes[0].var.get());
    });
    return across;
  }

  // `keys_apart`: a kernel in front writes the keys transposed; else each score is a sum of vectors along its key.
  // REQUIRES: TransposesKeys() if so.
  void BindCores(bool keys_apart) {
    draft_.Name("attention_row");
    if (keys_apart) {
      draft_.Name("keys");
      BindElementwise(&draft_, a_.keys_read, draft_.state().stage(a_.keys_read).op.name, false);
    }
    const bool holds_queries = keys_apart && a_.queries_read >= 0 && IsFreeElementwise(a_.queries_read);
    const Factor rows = Parameter("query.rows", {1, 2, 4, 8, 16, 32}, 8),
                 ri = Parameter("product.rows", {1, 2, 4, 8}, 4);
    const Factor vector =
        Parameter("value.vector", draft_.context().LanesUpTo(a_.values, 2), draft_.context().NativeLanes());
    if (keys_apart && a_.queries >= kRegisterRows) {
      // Registers full of sums, whatever the estimate says of rows beyond the last one.
      draft_.traits().preferred_fallback = true;
      draft_.parameters().Prior(rows, 1);
      PreferFullTiles(ri, vector);
    }
    std::vector<int> outer = OtherAxes(a_.root, {RowsIn(a_.query_of_root), a_.value_of_root}), middle, inside;
    SplitQueries(a_.root, RowsIn(a_.query_of_root), {rows, ri}, {&outer, &middle, &inside});
    const std::vector<int> e = draft_.Split(a_.root, a_.value_of_root, {vector});
    middle.push_back(e[0]);
    inside.push_back(e[1]);
    if (outer.empty()) outer.push_back(WholeLoop(a_.root, &middle[0]));
    Order(a_.root, {outer, middle, inside});
    const int core = draft_.Fuse(a_.root, outer);
    draft_.Annotate(a_.root, core, Annotation::kParallel);
    draft_.Annotate(a_.root, inside.back(), Annotation::kVectorize);
    draft_.ComputeAt(a_.product, a_.root, {middle.back()});
    SumInRegisters(a_.product, "product.unroll");
    draft_.Annotate(a_.product, a_.value_of_product, Annotation::kVectorize);

    draft_.ComputeAt(a_.weights, a_.root, {core});
    Vectorize(a_.weights, a_.key_of_weights, draft_.context().NativeLanes());
    for (int id : a_.reductions) {
      draft_.ComputeAt(id, a_.root, {core});
      Vectorize(id, ReduceAxes(draft_.state(), id)[0], draft_.context().NativeLanes());
    }
    BindScoresOfCore(core, keys_apart);
    if (!holds_queries) return;
    draft_.ComputeAt(a_.queries_read, a_.root, {core});
    Vectorize(a_.queries_read, SpatialAxes(draft_.state(), a_.queries_read).back(), draft_.context().NativeLanes());
  }

 private:
  // The axis of keys along which they are read from memory: that of their last index, or of what they are made of; -1:
  // unknown.
  int InnermostOfKeys() const {
    const Stage& keys = draft_.state().stage(a_.keys_read).op;
    if (!IsFreeElementwise(a_.keys_read)) return static_cast<int>(keys.axes.size()) - 1;
    int innermost = -1;
    Analyzer analyzer;
    for (const Axis& axis : keys.axes) analyzer.Bind(axis.var, axis.extent);
    Visit(keys.body, [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad || e.args.empty()) return;
      const Affine index = ToAffine(analyzer.Simplify(e.args.back()));
      for (size_t a = 0; a < keys.axes.size(); ++a)
        if (keys.axes[a].extent > 1 && std::abs(index.CoefficientOf(keys.axes[a].var.get())) == 1)
          innermost = std::max(innermost, static_cast<int>(a));
    });
    return innermost;
  }

  // Whether neighbours in memory belong to one key.
  bool KeysRunAlongHead() const {
    const Stage& scores = draft_.state().stage(local_).op;
    bool along = false;
    Visit(scores.body, [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad || e.buffer != a_.keys_read) return;
      const int axis = InnermostOfKeys();
      along |= axis >= 0 && UsesVar(e.args[axis], scores.reduce_axes[0].var.get());
    });
    return along;
  }

  // A stage's query axis if it has several.
  int RowsIn(int axis) const { return a_.queries > 1 ? axis : -1; }

  // Adds the pieces of a stage's query axis, if it has one, to a level each, outer to inner.
  void SplitQueries(int stage, int axis, const std::vector<Factor>& factors,
                    const std::vector<std::vector<int>*>& levels) {
    if (axis < 0) return;
    const std::vector<int> pieces = draft_.Split(stage, axis, factors);
    for (size_t p = 0; p < pieces.size(); ++p) levels[p]->push_back(pieces[p]);
  }

  // A loop of one iteration around a loop, which becomes its inner piece.
  int WholeLoop(int stage, int* loop) {
    const std::vector<int> pieces =
        draft_.Split(stage, *loop, {Factor::Of(static_cast<int32_t>(std::max(a_.values, a_.keys)))});
    *loop = pieces[1];
    return pieces[0];
  }

  // A sum whose elements all stay in registers: some terms of each after those of the others.
  void SumInRegisters(int stage, const std::string& name) {
    const std::vector<int> terms =
        draft_.Split(stage, ReduceAxes(draft_.state(), stage)[0], {Parameter(name, {1, 2, 4, 8}, 4)});
    const std::vector<int> spatial = SpatialAxes(draft_.state(), stage);
    Order(stage, {terms, spatial});
    draft_.Annotate(stage, terms[1], Annotation::kUnroll);
    for (int loop : spatial) draft_.Annotate(stage, loop, Annotation::kUnroll);
  }

  struct ScoreTile {
    Factor ti, ri;       // threads along queries, and queries of each
    Factor lanes, keys;  // threads along keys, and keys of each
    Factor threads;      // all
  };

  void BindScores(int block, const ScoreTile& tile) {
    Share(a_.seen, block);
    std::vector<int> outer = OtherAxes(a_.seen, {RowsIn(a_.query_of_seen), a_.key_of_seen}), across, inside;
    SplitQueries(a_.seen, RowsIn(a_.query_of_seen), {tile.ti, tile.ri}, {&outer, &across, &inside});
    const std::vector<int> j = draft_.Split(a_.seen, a_.key_of_seen, {tile.keys, tile.lanes});
    outer.push_back(j[0]);
    across.push_back(j[2]);
    inside.push_back(j[1]);
    Order(a_.seen, {outer, across, inside});
    const int thread = draft_.Fuse(a_.seen, across);
    draft_.Annotate(a_.seen, thread, Annotation::kThreadX);
    for (int loop : inside) draft_.Annotate(a_.seen, loop, Annotation::kUnroll);
    draft_.ComputeAt(local_, a_.seen, {thread});
    SumInRegisters(local_, "score.unroll");
    if (a_.keys_read >= 0) CopyKeys(j[0], tile.threads);
  }

  // Threads read keys across, and many read the same: by way of a copy, read as it lies in memory, whose rows begin in
  // different banks.
  void CopyKeys(int loop, const Factor& threads) {
    const int innermost = InnermostOfKeys();
    const bool made = IsFreeElementwise(a_.keys_read);
    if (!made && !KeysRunAlongHead()) return;
    const int copy = made ? a_.keys_read : draft_.CacheRead(a_.keys_read, Memory::kShared, {local_});
    draft_.Do({StepKind::kSetScope, copy, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
    draft_.ComputeAt(copy, a_.seen, {loop});
    std::vector<int> order = SpatialAxes(draft_.state(), copy);
    if (innermost >= 0) {
      std::erase(order, innermost);
      order.push_back(innermost);
      draft_.Reorder(copy, order);
    }
    ByThreads(copy, order, threads);
    draft_.Do({StepKind::kPadRows, copy, {}, {Factor::Of(1)}, -1, {}});
  }

  void BindScoresOfCore(int core, bool keys_apart) {
    draft_.ComputeAt(a_.seen, a_.root, {core});
    const bool along_head = a_.keys_read >= 0 && !keys_apart && KeysRunAlongHead();
    if (a_.keys_read >= 0 && IsFreeElementwise(a_.keys_read))
      draft_.Do({StepKind::kInline, a_.keys_read, {}, {}, -1, {}});
    std::vector<int> outer = OtherAxes(a_.seen, {RowsIn(a_.query_of_seen), a_.key_of_seen}), inside;
    const bool has_rows = RowsIn(a_.query_of_seen) >= 0;
    const Factor rows = has_rows ? Parameter("score.rows", {1, 2, 4, 8}, along_head ? 1 : 4) : Factor::Of(1);
    const Factor vector =
        Parameter("score.vector", draft_.context().LanesUpTo(a_.keys, 2), draft_.context().NativeLanes());
    if (has_rows) {
      const std::vector<int> i = draft_.Split(a_.seen, a_.query_of_seen, {rows});
      outer.push_back(i[0]);
      inside.push_back(i[1]);
    }
    if (keys_apart && a_.queries >= kRegisterRows) PreferFullTiles(rows, vector);
    const std::vector<int> j = draft_.Split(a_.seen, a_.key_of_seen, {vector});
    outer.push_back(j[0]);
    inside.push_back(j[1]);
    Order(a_.seen, {outer, inside});
    draft_.Annotate(a_.seen, inside.back(), Annotation::kVectorize);
    draft_.ComputeAt(local_, a_.seen, {j[0]});
    if (along_head) {
      Vectorize(local_, ReduceAxes(draft_.state(), local_)[0],
                static_cast<int32_t>(std::min<int64_t>(draft_.context().NativeLanes(), a_.size)));
      return;
    }
    SumInRegisters(local_, "score.unroll");
    draft_.Annotate(local_, SpatialAxes(draft_.state(), local_).back(), Annotation::kVectorize);
  }

  // As many sums as half of the registers hold: rows by vectors.
  void PreferFullTiles(const Factor& rows, const Factor& vector) {
    const bool many_registers = draft_.context().facts.vector_bytes >= 64;
    draft_.parameters().Prior(rows, kRegisterRows);
    draft_.parameters().Prior(vector, (many_registers ? 2 : 1) * draft_.context().NativeLanes());
  }

  // The innermost loop becomes a vector of so many elements of an axis.
  void Vectorize(int stage, int axis, int32_t lanes) {
    VectorizeInnermost(&draft_, stage, draft_.Split(stage, axis, {Factor::Of(lanes)})[1]);
  }
};

// The queries if arithmetic makes them (a scale) for the scores alone: made once for the rows of a core, they are
// broadcast from memory, which is cheaper than from a register.
std::vector<int> ScaledQueries(const Draft& draft, const AttentionChain& chain) {
  if (chain.queries_read < 0) return {};
  const StageState& queries = draft.state().stage(chain.queries_read);
  const bool scaled = queries.computes() && !queries.op.reduces() && queries.op.body->kind != ExprKind::kLoad;
  return scaled && draft.state().Consumers(chain.queries_read).size() == 1 ? std::vector<int>{chain.queries_read}
                                                                           : std::vector<int>{};
}

class Attention : public SketchRule {
 public:
  std::string name() const override { return "attention"; }
  Answer Condition(const Draft& draft, int stage) const override {
    if (!draft.state().is_output(stage)) return Answer::kSkip;
    const Draft next = EndingElementwise(draft, stage);
    if (!next.status().ok()) return Answer::kSkip;
    const std::optional<AttentionChain> chain = FindAttention(next, stage);
    if (!chain) return Answer::kSkip;
    const bool on_tensor_cores = draft.gpu() && FitsAttentionOnTensorCores(next, *chain);
    if (chain->divides_last && !on_tensor_cores) return Answer::kSkip;
    const bool fits = draft.gpu() ? Fits(draft, *chain) : StackBytes(*chain) <= kStackBytes;
    return fits || (on_tensor_cores && StreamsAttention(next, *chain)) ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const Draft start = EndingElementwise(draft, stage);
    const AttentionChain chain = *FindAttention(start, stage);
    std::vector<Derived> result;
    if (!chain.divides_last) {
      RowsOfAttention sketch(start, chain);
      const bool transposes = !draft.gpu() && sketch.TransposesKeys();
      if (draft.gpu())
        sketch.BindBlocks(*StartOf(chain, draft.context().facts));
      else
        sketch.BindCores(false);
      result.push_back({sketch.Take(), false});
      if (transposes) {
        RowsOfAttention apart(start, chain, ScaledQueries(start, chain));
        apart.BindCores(true);
        result.push_back({apart.Take(), false});
      }
    }
    if (draft.gpu() && FitsAttentionOnTensorCores(start, chain)) {
      for (Draft& made : AttentionOnTensorCores(start, chain, Fits(start, chain))) {
        // Rows by threads have been slower in every task with both, and the estimate does not see all of it.
        made.traits().preferred_fallback = draft.context().target.kind == TargetKind::kCuda;
        result.push_back({std::move(made), false});
      }
    }
    return result;
  }

 private:
  static bool Fits(const Draft& draft, const AttentionChain& chain) {
    return StartOf(chain, draft.context().facts).has_value();
  }

  // The largest that fit; nothing if one row does not.
  static std::optional<Start> StartOf(const AttentionChain& chain, const DeviceFacts& facts) {
    constexpr Start kStarts[] = {{4, 4, 32, 4}, {4, 4, 32, 2},  {4, 4, 32, 1},  {4, 2, 32, 4},
                                 {4, 2, 32, 1}, {4, 1, 32, 4},  {4, 1, 32, 1},  {2, 1, 32, 2},
                                 {2, 1, 32, 1}, {1, 1, 128, 2}, {1, 1, 128, 1}, {1, 1, 32, 1}};
    for (const Start& start : kStarts) {
      const int64_t rows = int64_t{start.query_threads} * start.query_rows;
      if ((rows > 1 && rows >= 2 * chain.queries) || start.query_threads * start.lanes > facts.max_threads_per_block)
        continue;
      if (SharedBytes(chain, start) <= facts.max_shared_bytes) return start;
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeAttention() { return std::make_unique<Attention>(); }

}  // namespace diapason
