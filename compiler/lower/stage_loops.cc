#include "compiler/lower/stage_loops.h"

#include "absl/strings/str_cat.h"

namespace diapason {

ForKind StageLoops::KindOf(int id, size_t position) const {
  const StageState& stage = nest_.kernel.state.stage(id);
  if (nest_.stages[id].unrolled[position]) return ForKind::kUnroll;
  switch (stage.loops[stage.order[position]].annotation) {
    case Annotation::kNone: return ForKind::kSerial;
    case Annotation::kUnroll: return ForKind::kUnroll;
    // Lanes run together: only an innermost loop can be a vector.
    case Annotation::kVectorize: return position + 1 == stage.order.size() ? ForKind::kVectorize : ForKind::kUnroll;
    case Annotation::kParallel: return ForKind::kParallel;
    case Annotation::kBlockX: return ForKind::kBlockX;
    case Annotation::kThreadX: return ForKind::kThreadX;
    case Annotation::kCluster:
    case Annotation::kThreadSet: return ForKind::kCluster;  // one iteration, whose number is known
  }
  return ForKind::kSerial;
}

Stmt StageLoops::Around(int id, size_t position, Stmt body) {
  const KernelContext& kernel = nest_.kernel;
  const int64_t extent = kernel.extent(id, position);
  const ForKind kind = KindOf(id, position);
  const Expr& var = nest_.stages[id].leaf[position];
  if (!body || kind == ForKind::kCluster) return body;  // the block runs for its rank alone, a thread for its set
  if (kind == ForKind::kBlockX && kernel.split.blocks > 1)
    body = MakeFor(ForKind::kCluster, nest_.rank, kernel.split.blocks, body);
  if (kind == ForKind::kThreadX && id == kernel.split.tile && kernel.split.thread_sets > 1)
    return OverThreadSets(var, extent, body);
  if (kind == ForKind::kThreadX) {
    if (extent > kernel.threads) {
      nest_.Refuse(absl::FailedPreconditionError(absl::StrCat("stage ", kernel.state.stage(id).op.name, " needs ",
                                                              extent, " threads in a block of ", kernel.threads)));
    }
    if (extent < kernel.threads) body = MakeIf(Lt(var, IntImm(extent)), body);
  }
  for (const auto& [part, value] : nest_.stages[id].blocks)
    if (kind == ForKind::kBlockX) body = MakeLet(part, value, body);
  if (extent == 1 && kind != ForKind::kBlockX && kind != ForKind::kThreadX && kind != ForKind::kParallel) return body;
  return MakeFor(kind, var, extent, body);
}

// The threads of a block as sets of `extent`, one behind the other: `var` is a thread's number in its set.
Stmt StageLoops::OverThreadSets(const Expr& var, int64_t extent, Stmt body) {
  const KernelContext& kernel = nest_.kernel;
  if (extent * kernel.split.thread_sets != kernel.threads) {
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat("stage ", kernel.state.stage(kernel.split.tile).op.name, ": ",
                                                         kernel.split.thread_sets, " sets of ", extent,
                                                         " threads are not the ", kernel.threads, " of the block")));
    return nullptr;
  }
  const Expr thread = MakeVar("thread");
  nest_.analyzer.Bind(thread, kernel.threads);
  body = MakeLet(var, nest_.analyzer.Simplify(FloorMod(thread, extent)),
                 MakeLet(nest_.thread_set, FloorDiv(thread, extent), body));
  return MakeFor(ForKind::kThreadX, thread, kernel.threads, body);
}

Stmt StageLoops::SpatialNest(int id, size_t first, const std::function<Stmt(const VarMap& fresh)>& make) {
  const StageState& stage = nest_.kernel.state.stage(id);
  const std::vector<Expr>& leaf = nest_.stages[id].leaf;
  VarMap fresh;
  std::vector<size_t> positions;
  for (size_t p = first; p < stage.order.size(); ++p) {
    if (stage.loops[stage.order[p]].reduce) continue;
    positions.push_back(p);
    const Expr copy = MakeVar(leaf[p]->name + "_i");
    nest_.analyzer.Bind(copy, nest_.kernel.extent(id, p));
    fresh[leaf[p].get()] = copy;
  }
  Stmt stmt = make(fresh);
  for (size_t i = positions.size(); i-- > 0;) {
    const size_t p = positions[i];
    const int64_t extent = nest_.kernel.extent(id, p);
    if (extent > 1 || KindOf(id, p) == ForKind::kThreadX)
      stmt = MakeFor(KindOf(id, p), fresh[leaf[p].get()], extent, stmt);
  }
  return stmt;
}

bool StageLoops::EndsOuter(int id, size_t position) const {
  const KernelContext& kernel = nest_.kernel;
  auto outer = [&](size_t p) {
    const ForKind kind = KindOf(id, p);
    return kind == ForKind::kParallel || kind == ForKind::kBlockX || kind == ForKind::kThreadX;
  };
  for (size_t p = 0; p <= position; ++p)
    if (!outer(p) || (p < position && !kernel.StagesAt(id, p).empty())) return false;
  return position + 1 == kernel.state.stage(id).order.size() || !outer(position + 1) ||
         !kernel.StagesAt(id, position).empty();
}

size_t StageLoops::FirstReduction(int id) const {
  const StageState& stage = nest_.kernel.state.stage(id);
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  return first;
}

bool StageLoops::HasReduction(int id, size_t from) const {
  const StageState& stage = nest_.kernel.state.stage(id);
  for (size_t p = from; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].reduce && nest_.kernel.extent(id, p) > 1) return true;
  return false;
}

size_t StageLoops::RegisterPosition(int id, size_t first) const {
  const StageState& stage = nest_.kernel.state.stage(id);
  size_t position = stage.order.size();
  while (position > first) {
    const ForKind kind = KindOf(id, position - 1);
    const bool reduce = stage.loops[stage.order[position - 1]].reduce;
    const bool single = nest_.kernel.extent(id, position - 1) == 1;
    if (!reduce && !single && kind != ForKind::kUnroll && kind != ForKind::kVectorize) break;
    --position;
  }
  return position;
}

bool StageLoops::InSerialLoops(int id, size_t first) const {
  for (size_t p = 0; p < first; ++p)
    if (nest_.kernel.extent(id, p) > 1 && KindOf(id, p) == ForKind::kSerial) return true;
  return false;
}

}  // namespace diapason
