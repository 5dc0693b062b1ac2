// Chains of row reductions (row_chain.h: normalisations, softmax) in one kernel: every stage is computed inside the
// root's loop over rows. A GPU has a block for each row, whose threads share its reductions, or a thread for each row
// where neighbours in memory belong to different rows, or rows are short. A CPU has a row at a time on each core, or a
// vector of neighbouring rows. Stages between are computed again where they are read; in a second sketch, those that
// are expensive, or else inputs that are read again, are held on chip for one row. Rows too long for that have no such
// sketch.
#include <algorithm>
#include <cstdint>

#include "scheduler/sketch/row_chain.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

// Rows up to this length are offered to single threads although neighbours in memory are of one row.
constexpr int64_t kShortRow = 64;
// Fewer rows leave most of a GPU idle when each is one thread's.
constexpr int64_t kFewRows = 4096;

// One sketch while it is made: its draft and what its stages have in common.
class Sketch {
 public:
  Sketch(Draft draft, int root, RowChain chain) : draft_(std::move(draft)), root_(root), chain_(std::move(chain)) {
    for (int axis : chain_.row_axes) rows_ *= draft_.state().stage(root).axis(axis).extent;
    unroll_ = Factor::Of(1);
  }

  int64_t rows() const { return rows_; }
  const RowChain& chain() const { return chain_; }
  Draft Take() { return std::move(draft_); }

  // Neighbours in memory belong to one row: the last index of what is read runs along rows.
  bool RunsAlongRows() const {
    const StageState& root = draft_.state().stage(root_);
    for (int axis = root.axis_count(); axis-- > 0 && !chain_.column_axes.empty();)
      if (root.axis(axis).extent > 1) return axis == chain_.column_axes.back();
    const Stage& op = draft_.state().stage(chain_.reductions.front()).op;
    bool along = false;
    Visit(op.body, [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad || e.args.empty()) return;
      for (const Axis& axis : op.reduce_axes) along |= UsesVar(e.args.back(), axis.var.get());
    });
    return along;
  }

  // Inlines the stages between, but for the dear ones when `hold`. False if there is nothing to hold.
  bool Inline(bool hold) {
    for (int id : chain_.between) {
      const bool held = hold && std::count(chain_.dear.begin(), chain_.dear.end(), id) > 0;
      if (!held) draft_.Do({StepKind::kInline, id, {}, {}, -1, {}});
    }
    if (!hold) return true;
    held_ = chain_.dear;
    if (held_.empty() && draft_.gpu()) {
      for (int input : RowsReadAgain(draft_, chain_))
        held_.push_back(draft_.CacheRead(input, Memory::kShared, draft_.state().Consumers(input)));
    }
    return !held_.empty();
  }

  void BindBlocks() {
    draft_.Name("row_block");
    std::vector<int> columns;
    const int block = RowLoop({}, &columns, {});
    draft_.Annotate(root_, block, Annotation::kBlockX);
    std::vector<int32_t> widths;
    for (int32_t w : {32, 64, 128, 256, 512, 1024})
      if (w <= draft_.context().facts.max_threads_per_block && (w == 32 || w < 2 * chain_.columns)) widths.push_back(w);
    const Factor threads = draft_.OptionParameter(
        "row.threads", widths, static_cast<int32_t>(std::clamp<int64_t>(chain_.columns / 4, 32, 1024)));
    unroll_ = draft_.OptionParameter("unroll", {1, 4, 16}, 4);
    if (!columns.empty()) BindThreads(root_, draft_.Fuse(root_, columns), threads, "row.vector");
    for (int id : held_) {
      const std::string name = draft_.state().stage(id).op.name;
      draft_.Do({StepKind::kSetScope, id, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
      draft_.ComputeAt(id, root_, {block});
      BindThreads(id, draft_.Fuse(id, SpatialAxes(draft_.state(), id)), threads, name + ".vector");
    }
    for (int id : chain_.reductions) {
      draft_.ComputeAt(id, root_, {block});
      const std::vector<int> pieces = draft_.Split(id, draft_.Fuse(id, ReduceAxes(draft_.state(), id)), {threads});
      draft_.Annotate(id, pieces[1], Annotation::kThreadX);
      Unroll(id);
    }
  }

  void BindThreadsToRows() {
    draft_.Name("row_thread");
    std::vector<int> columns;
    const int rows = RowLoop({}, &columns, {});
    std::vector<int32_t> widths;
    for (int32_t w : {32, 64, 128, 256})
      if (w <= draft_.context().facts.max_threads_per_block && (w == 32 || w < 2 * rows_)) widths.push_back(w);
    const std::vector<int> pieces = draft_.Split(root_, rows, {draft_.OptionParameter("row.threads", widths, 64)});
    draft_.Annotate(root_, pieces[0], Annotation::kBlockX);
    draft_.Annotate(root_, pieces[1], Annotation::kThreadX);
    unroll_ = draft_.OptionParameter("unroll", {1, 4, 16}, 4);
    Unroll(root_);
    for (int id : chain_.reductions) {
      draft_.ComputeAt(id, root_, {pieces[1]});
      Unroll(id);
    }
  }

  // A row at a time: vectors along it, in reductions as well.
  void BindCores() {
    draft_.Name("row");
    std::vector<int> columns;
    const int row = RowLoop({}, &columns, {});
    draft_.Annotate(root_, row, Annotation::kParallel);
    const Factor vector = draft_.OptionParameter("row.vector", draft_.context().LanesUpTo(chain_.columns, 2),
                                                 draft_.context().NativeLanes());
    if (!columns.empty()) Vectorize(root_, columns.back(), vector);
    for (int id : held_) {
      draft_.ComputeAt(id, root_, {row});
      Vectorize(id, LastLong(id, SpatialAxes(draft_.state(), id)), vector);
    }
    int64_t shortest = chain_.columns;
    for (int id : chain_.reductions)
      shortest = std::min(shortest, draft_.state().stage(id).axis(LastLong(id, ReduceAxes(draft_.state(), id))).extent);
    const Factor lanes = draft_.OptionParameter("row.lanes", draft_.context().LanesUpTo(shortest, 4),
                                                2 * draft_.context().NativeLanes());
    for (int id : chain_.reductions) {
      draft_.ComputeAt(id, root_, {row});
      Vectorize(id, LastLong(id, ReduceAxes(draft_.state(), id)), lanes);
    }
  }

  // Vectors over neighbouring rows.
  void BindVectorsOfRows() {
    draft_.Name("rows");
    const int last = LastLong(root_, chain_.row_axes);
    const Factor vector = draft_.OptionParameter(
        "row.vector", draft_.context().LanesUpTo(draft_.state().stage(root_).axis(last).extent, 4),
        2 * draft_.context().NativeLanes());
    const std::vector<int> pieces = draft_.Split(root_, last, {vector});
    std::vector<int> columns;
    const int row = RowLoop(pieces, &columns, {last});
    draft_.Annotate(root_, row, Annotation::kParallel);
    draft_.Annotate(root_, pieces[1], Annotation::kVectorize);
    for (int id : held_) {
      draft_.ComputeAt(id, root_, {row});
      VectorizeInnermost(&draft_, id, LastLong(id, SpatialAxes(draft_.state(), id)));
    }
    for (int id : chain_.reductions) {
      draft_.ComputeAt(id, root_, {row});
      VectorizeInnermost(&draft_, id, LastLong(id, SpatialAxes(draft_.state(), id)));
    }
  }

 private:
  // The last of some axes that has more than one iteration; the last where none has.
  int LastLong(int stage, const std::vector<int>& axes) const {
    for (size_t a = axes.size(); a-- > 0;)
      if (draft_.state().stage(stage).axis(axes[a]).extent > 1) return axes[a];
    return axes.back();
  }

  // Orders the root's loops: rows as one loop, which is returned, then columns, which are told. A row axis that was
  // split in two before (`split`, `pieces`) has its outer piece among the rows and the inner one last.
  int RowLoop(const std::vector<int>& pieces, std::vector<int>* columns, const std::vector<int>& split) {
    std::vector<int> rows, order;
    for (int axis : chain_.row_axes)
      if (std::count(split.begin(), split.end(), axis) == 0) rows.push_back(axis);
    if (!pieces.empty()) rows.push_back(pieces[0]);
    *columns = chain_.column_axes;
    if (rows.empty()) {
      // One row: a loop of one iteration around it.
      const auto extent = static_cast<int32_t>(draft_.state().stage(root_).axis(columns->front()).extent);
      const std::vector<int> whole = draft_.Split(root_, columns->front(), {Factor::Of(extent)});
      rows = {whole[0]};
      columns->front() = whole[1];
    }
    order = rows;
    order.insert(order.end(), columns->begin(), columns->end());
    if (!pieces.empty()) order.push_back(pieces[1]);
    draft_.Reorder(root_, order);
    return draft_.Fuse(root_, rows);
  }

  void BindThreads(int stage, int loop, const Factor& threads, const std::string& name) {
    const int64_t run = draft_.state().stage(stage).op.axes.back().extent;
    std::vector<int32_t> lanes{1};
    for (int32_t v : {2, 4})
      if (run % v == 0) lanes.push_back(v);
    const Factor vector = draft_.OptionParameter(name, lanes, chain_.columns >= 512 ? 4 : 1);
    const std::vector<int> pieces = draft_.Split(stage, loop, {threads, vector});
    draft_.Annotate(stage, pieces[1], Annotation::kThreadX);
    draft_.Annotate(stage, pieces[2], Annotation::kVectorize);
    Unroll(stage);
  }

  void Vectorize(int stage, int loop, const Factor& lanes) {
    VectorizeInnermost(&draft_, stage, draft_.Split(stage, loop, {lanes})[1]);
  }

  void Unroll(int stage) { draft_.Do({StepKind::kUnroll, stage, {}, {unroll_}, -1, {}}); }

  Draft draft_;
  const int root_;
  const RowChain chain_;
  int64_t rows_ = 1;
  std::vector<int> held_;
  Factor unroll_;
};

class RowReductions : public SketchRule {
 public:
  std::string name() const override { return "row_reductions"; }
  Answer Condition(const Draft& draft, int stage) const override {
    if (!draft.state().is_output(stage)) return Answer::kSkip;
    const Draft next = EndingElementwise(draft, stage);
    return next.status().ok() && FindRowChain(next, stage).has_value() ? Answer::kApply : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    const Draft start = EndingElementwise(draft, stage);
    const RowChain chain = *FindRowChain(start, stage);
    std::vector<Derived> result;
    const auto add = [&](bool hold, void (Sketch::*bind)()) {
      Sketch sketch(start, stage, chain);
      if (!sketch.Inline(hold)) return;
      (sketch.*bind)();
      Draft next = sketch.Take();
      if (hold) next.Name("held");
      result.push_back({std::move(next), false});
    };
    const Sketch whole(start, stage, chain);
    const bool along = whole.RunsAlongRows();
    if (!draft.gpu()) {
      for (bool hold : {false, true}) add(hold, along ? &Sketch::BindCores : &Sketch::BindVectorsOfRows);
      return result;
    }
    if (along || (whole.rows() < kFewRows && chain.columns > kShortRow))
      for (bool hold : {false, true}) add(hold, &Sketch::BindBlocks);
    if (!along || chain.columns <= kShortRow) add(false, &Sketch::BindThreadsToRows);
    return result;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeRowReductions() { return std::make_unique<RowReductions>(); }

}  // namespace diapason
