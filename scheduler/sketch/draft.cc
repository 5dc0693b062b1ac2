#include "scheduler/sketch/draft.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/simplify.h"
#include "compiler/tensor/tree_size.h"

namespace diapason {

bool Draft::Do(Step step) {
  if (!status_.ok()) return false;
  status_ = state_.Apply(step);
  if (!status_.ok()) {
    status_ = absl::Status(status_.code(), absl::StrCat("step ", ToString(step), ": ", status_.message()));
    return false;
  }
  steps_.push_back(std::move(step));
  return true;
}

std::vector<int32_t> TileValues(int64_t extent, int32_t limit) {
  std::set<int32_t> values{1};
  for (int64_t v = 1; v <= extent && v <= limit; ++v)
    if (extent % v == 0) values.insert(static_cast<int32_t>(v));
  for (int64_t base : {1, 3})
    for (int64_t v = base; v <= limit && v < 2 * extent; v *= 2) values.insert(static_cast<int32_t>(v));
  return {values.begin(), values.end()};
}

Factor Draft::TileHole(const std::string& name, int64_t extent, int32_t limit, int32_t preferred) {
  std::vector<int32_t> values = TileValues(extent, limit);
  if (values.size() == 1) return Factor::Of(values[0]);
  holes_.push_back({name, Hole::Kind::kTile, std::move(values), preferred, std::nullopt});
  return Factor::Hole(static_cast<int>(holes_.size()) - 1);
}

Factor Draft::OptionHole(const std::string& name, std::vector<int32_t> values, int32_t preferred) {
  if (values.empty() && status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", name, " has no value"));
  if (values.empty()) return Factor::Of(1);
  if (values.size() == 1) return Factor::Of(values[0]);
  holes_.push_back({name, Hole::Kind::kOption, std::move(values), preferred, std::nullopt});
  return Factor::Hole(static_cast<int>(holes_.size()) - 1);
}

void Draft::AtLeast(const Factor& factor, int32_t least) {
  if (factor.holes[0] < 0) return;
  Hole& hole = holes_[factor.holes[0]];
  if (hole.values.back() < least) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat("parameter ", hole.name, " has no value of ", least));
    return;
  }
  std::erase_if(hole.values, [&](int32_t value) { return value < least; });
  hole.preferred = std::max(hole.preferred, least);
  if (hole.prior.has_value()) hole.prior = std::max(*hole.prior, least);
}

void Draft::Prior(const Factor& factor, int64_t wanted) {
  if (factor.holes[0] < 0) return;
  Hole& hole = holes_[factor.holes[0]];
  const auto place = std::lower_bound(hole.values.begin(), hole.values.end(), wanted);
  hole.prior = place == hole.values.end() ? hole.values.back() : *place;
}

void Draft::DropPrior() {
  for (Hole& hole : holes_) hole.prior.reset();
  for (TileInfo& tile : tiles_) tile.row_windows = false;
}

bool Draft::HasCapability(int least) const {
  if (context_.target.kind != TargetKind::kCuda) return true;
  return CudaArchNumber(context_.facts.arch) >= least;
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

void Draft::VectorizeInnermost(int stage, int loop) {
  std::vector<int> order = state_.stage(stage).order;
  std::erase(order, loop);
  order.push_back(loop);
  Reorder(stage, order);
  Annotate(stage, loop, Annotation::kVectorize);
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

std::vector<int> Draft::SpatialAxes(int stage) const {
  std::vector<int> axes;
  for (size_t a = 0; a < state_.stage(stage).op.axes.size(); ++a) axes.push_back(static_cast<int>(a));
  return axes;
}

std::vector<int> Draft::ReduceAxes(int stage) const {
  std::vector<int> axes;
  const Stage& op = state_.stage(stage).op;
  for (size_t a = 0; a < op.reduce_axes.size(); ++a) axes.push_back(static_cast<int>(op.axes.size() + a));
  return axes;
}

int Draft::LongestReduceAxis(int stage) const {
  const StageState& s = state_.stage(stage);
  int longest = -1;
  for (int axis : ReduceAxes(stage))
    if (longest < 0 || s.axis(axis).extent > s.axis(longest).extent) longest = axis;
  return longest;
}

std::vector<int32_t> Draft::LanesUpTo(int64_t extent, int vectors) const {
  std::vector<int32_t> lanes{1};
  for (int32_t w = 2; w <= vectors * NativeLanes() && w <= extent; w *= 2) lanes.push_back(w);
  return lanes;
}

bool Draft::IsRowOfWindow(int stage, int axis) const {
  const StageState& s = state_.stage(stage);
  bool slides = false;
  Visit(s.op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.args.empty()) return;
    const Affine place = ToAffine(e.args.back());
    slides |= place.terms.size() > 1 && place.CoefficientOf(s.axis(axis).var.get()) != 0;
  });
  return slides;
}

bool Draft::IsInjective(int stage) const {
  const StageState& s = state_.stage(stage);
  return s.computes() && !s.op.reduces();
}

namespace {

// Whether an index of a load in the expression is, or depends on, an element of the stage.
bool ReadsAtPlace(const Expr& body, int stage) {
  bool reads = false;
  Visit(body, [&](const ExprNode& load) {
    if (load.kind != ExprKind::kLoad) return;
    for (const Expr& index : load.args)
      Visit(index, [&](const ExprNode& e) { reads |= e.kind == ExprKind::kLoad && e.buffer == stage; });
  });
  return reads;
}

}  // namespace

bool Draft::IsExpensive(int stage) const {
  bool expensive = false;
  Visit(state_.stage(stage).op.body, [&](const ExprNode& e) {
    expensive |= e.kind == ExprKind::kCall || e.kind == ExprKind::kSelect || e.kind == ExprKind::kFloorDiv;
  });
  return expensive;
}

bool Draft::IsLongPlace(int stage) const {
  // A place of fewer nodes (a negative index that counts from the end) costs less than the kernel that it would be; one
  // that is read less often, too.
  static constexpr int64_t kLong = 64, kOften = 16;
  const Stage& own = state_.stage(stage).op;
  if (TreeSizeOf(own.body).nodes <= kLong) return false;
  for (int consumer : state_.Consumers(stage)) {
    const Stage& reader = state_.stage(consumer).op;
    if (reader.elements() * reader.terms() >= kOften * own.elements() && ReadsAtPlace(reader.body, stage)) return true;
  }
  return false;
}

bool Draft::IsBound(int stage) const {
  for (int loop : state_.stage(stage).order) {
    const Annotation a = state_.stage(stage).loops[loop].annotation;
    if (a == Annotation::kBlockX || a == Annotation::kThreadX || a == Annotation::kParallel) return true;
  }
  return false;
}

bool Draft::IsUnscheduled(int id) const {
  const StageState& s = state_.stage(id);
  return s.attach == StageState::Attach::kRoot && static_cast<int>(s.loops.size()) == s.axis_count() && !IsBound(id) &&
         s.library == nullptr && s.op.unroll_axes.empty() && TileOf(id) == nullptr;
}

bool Draft::NeedsTiling(int id) const {
  const StageState& stage = state_.stage(id);
  if (!stage.computes() || !stage.op.unroll_axes.empty()) return false;
  int producers_with_reuse = 0;
  for (int producer : state_.Producers(id)) {
    bool reuse = false;
    for (const Axis& axis : stage.op.axes) {
      if (axis.extent <= 1) continue;
      bool used = false;
      Visit(stage.op.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || e.buffer != producer) return;
        for (const Expr& index : e.args) used |= UsesVar(index, axis.var.get());
      });
      reuse |= !used;
    }
    producers_with_reuse += reuse;
  }
  return producers_with_reuse >= 2 || (producers_with_reuse >= 1 && stage.op.reduces());
}

std::vector<bool> Draft::BatchAxes(int id, bool* gemm_like) const {
  const Stage& op = state_.stage(id).op;
  std::vector<bool> in_all(op.axes.size(), true);
  int reused_operands = 0;
  for (int producer : state_.Producers(id)) {
    bool reused = false;
    for (size_t a = 0; a < op.axes.size(); ++a) {
      bool used = op.axes[a].extent == 1;
      Visit(op.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || e.buffer != producer) return;
        for (const Expr& index : e.args) used |= UsesVar(index, op.axes[a].var.get());
      });
      if (!used) in_all[a] = false;
      reused |= !used;
    }
    reused_operands += reused;
  }
  *gemm_like = reused_operands >= 2;
  if (!*gemm_like) in_all.assign(op.axes.size(), false);
  return in_all;
}

const TileInfo* Draft::TileOf(int stage) const {
  for (const TileInfo& tile : tiles_)
    if (tile.stage == stage) return &tile;
  return nullptr;
}

const TileInfo* Draft::TiledReader(int stage) const {
  for (int consumer : state_.Consumers(stage))
    if (const TileInfo* tile = TileOf(consumer)) return tile;
  return nullptr;
}

int Draft::ElementwiseConsumer(int id) const {
  if (state_.is_output(id)) return -1;
  const std::vector<int> consumers = state_.Consumers(id);
  if (consumers.size() != 1) return -1;
  const StageState& consumer = state_.stage(consumers[0]);
  const StageState& stage = state_.stage(id);
  if (consumer.op.reduces() || consumer.op.axes.size() != stage.op.axes.size()) return -1;
  if (consumer.prologue != stage.prologue) return -1;
  if (consumer.attach != StageState::Attach::kRoot || IsBound(consumers[0])) return -1;
  bool match = true;
  for (size_t a = 0; a < stage.op.axes.size(); ++a) match &= consumer.op.axes[a].extent == stage.op.axes[a].extent;
  Visit(consumer.op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != id) return;
    for (size_t a = 0; a < e.args.size(); ++a) {
      const bool same = e.args[a] == consumer.op.axes[a].var || (IsInt(e.args[a], 0) && stage.op.axes[a].extent == 1);
      match &= same;
    }
  });
  return match ? consumers[0] : -1;
}

namespace {

int BindGpu(Draft* draft, int stage, const std::string& prefix, bool hosts) {
  int64_t elements = 1;
  for (const Axis& axis : draft->state().stage(stage).op.axes) elements *= axis.extent;
  if (draft->SpatialAxes(stage).empty()) return -1;
  const int all = draft->Fuse(stage, draft->SpatialAxes(stage));
  std::vector<int32_t> widths;
  for (int32_t threads : {32, 64, 128, 256, 512})
    if (threads <= draft->context().facts.max_threads_per_block && (threads == 32 || threads < 2 * elements))
      widths.push_back(threads);
  Factor threads =
      draft->state().stage(stage).prologue ? Factor::Of(128) : draft->OptionHole(prefix + ".threads", widths, 128);
  // What each thread does: one element, or a few neighbours as a vector.
  const int64_t row = draft->state().stage(stage).op.axes.back().extent;
  std::vector<int32_t> lanes{1};
  if (!hosts && !draft->state().stage(stage).prologue)
    for (int32_t v : {2, 4})
      if (row % v == 0) lanes.push_back(v);
  const Factor vector = draft->OptionHole(prefix + ".vector", lanes, 1);
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
  std::vector<int> axes = draft->SpatialAxes(stage);
  const std::vector<int> pieces = draft->Split(stage, axes.back(), {Factor::Of(width)});
  axes.pop_back();
  draft->Annotate(stage, draft->Fuse(stage, axes), Annotation::kParallel);
  draft->Annotate(stage, pieces[1], Annotation::kVectorize);
  draft->ComputeAt(sums, stage, {pieces[0]});
  std::vector<int> order = draft->ReduceAxes(sums);
  for (int axis : draft->SpatialAxes(sums)) order.push_back(axis);
  draft->Reorder(sums, order);
  draft->Annotate(sums, order.back(), Annotation::kVectorize);
  return pieces[0];
}

int BindCpu(Draft* draft, int stage, const std::string& prefix) {
  std::vector<int> axes = draft->SpatialAxes(stage);
  if (axes.empty()) return -1;
  const int64_t row = draft->state().stage(stage).op.axes.back().extent;
  const int32_t widest = draft->context().facts.vector_bytes / 4;
  const StageState& state = draft->state().stage(stage);
  if (state.prologue && state.op.reduces() && axes.size() > 1 && row % widest == 0)
    return BindConstantReduction(draft, stage, widest);
  const int32_t preferred = static_cast<int32_t>(std::min<int64_t>(widest, row));
  std::vector<int32_t> widths{1};
  for (int32_t w = 2; w <= 2 * widest && w < 2 * row; w *= 2) widths.push_back(w);
  Factor width =
      draft->state().stage(stage).prologue ? Factor::Of(1) : draft->OptionHole(prefix + ".vector", widths, preferred);
  const std::vector<int> pieces = draft->Split(stage, axes.back(), {width});
  // Rows over threads; the pieces of a row stay together unless there are no rows.
  int attach = -1;
  if (axes.size() > 1) {
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
