#include "compiler/lower/nest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Bytes of shared memory: of buffers side by side, of those in their place, and apart from both.
struct SharedBytes {
  int64_t plain = 0, overlay = 0, apart = 0;

  void Add(const Stmt& stmt) {
    if (!stmt) return;
    if (stmt->kind == StmtKind::kAlloc && stmt->decl.scope == Scope::kShared)
      (stmt->decl.apart     ? apart
       : stmt->decl.overlay ? overlay
                            : plain) += (stmt->decl.elements * BytesOf(stmt->decl.dtype) + 15) / 16 * 16;
    for (const Stmt& child : stmt->body) Add(child);
  }
  int64_t all() const { return std::max(plain, overlay) + apart; }
};

}  // namespace

NestBuilder::NestBuilder(const Skeleton& skeleton, const Bounds& bounds, const Target& target, const OutputPlace& place)
    : skeleton_(skeleton),
      state_(skeleton.state()),
      bounds_(bounds),
      target_(target),
      place_(place),
      context_(state_.size()),
      unrolled_(state_.size()),
      access_of_(state_.size()),
      arrivals_(state_.size(), -1),
      small_parts_(state_.size(), -1),
      growth_(state_.size(), -1),
      write_slot_(state_.size()),
      read_slot_(state_.size()) {}

ForKind NestBuilder::KindOf(int id, size_t position) const {
  const StageState& stage = state_.stage(id);
  if (unrolled_[id][position]) return ForKind::kUnroll;
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

// True for the innermost of the leading parallel, block and thread loops, or the outermost of them at which a stage is
// computed.
bool NestBuilder::EndsOuter(int id, size_t position) const {
  auto outer = [&](size_t p) {
    const ForKind kind = KindOf(id, p);
    return kind == ForKind::kParallel || kind == ForKind::kBlockX || kind == ForKind::kThreadX;
  };
  for (size_t p = 0; p <= position; ++p)
    if (!outer(p) || (p < position && !StagesAt(id, p).empty())) return false;
  return position + 1 == state_.stage(id).order.size() || !outer(position + 1) || !StagesAt(id, position).empty();
}

void NestBuilder::MarkUnrolled(int id) {
  const StageState& stage = state_.stage(id);
  unrolled_[id].assign(stage.order.size(), 0);
  const int64_t limit = stage.unroll.Eval({});
  int64_t product = 1;
  for (size_t p = stage.order.size(); p-- > 0;) {
    const int loop = stage.order[p];
    const Annotation annotation = stage.loops[loop].annotation;
    if (annotation != Annotation::kNone && annotation != Annotation::kUnroll) continue;
    product *= bounds_.stages[id].extent[loop];
    if (product > limit) break;
    if (annotation == Annotation::kNone) unrolled_[id][p] = 1;
  }
}

Stmt NestBuilder::Loop(int id, size_t position, Stmt body) {
  const StageState& stage = state_.stage(id);
  const int64_t extent = bounds_.stages[id].extent[stage.order[position]];
  const ForKind kind = KindOf(id, position);
  const Expr& var = context_[id].leaf[position];
  if (!body || kind == ForKind::kCluster) return body;  // the block runs for its rank alone, a thread for its set
  if (kind == ForKind::kBlockX && split_.blocks > 1) body = MakeFor(ForKind::kCluster, rank_, split_.blocks, body);
  if (kind == ForKind::kThreadX && id == split_.tile && split_.thread_sets > 1)
    return OverThreadSets(var, extent, body);
  if (kind == ForKind::kThreadX) {
    if (extent > threads_) {
      status_ = absl::FailedPreconditionError(
          absl::StrCat("stage ", stage.op.name, " needs ", extent, " threads in a block of ", threads_));
    }
    if (extent < threads_) body = MakeIf(Lt(var, IntImm(extent)), body);
  }
  for (const auto& [var, value] : context_[id].blocks)
    if (kind == ForKind::kBlockX) body = MakeLet(var, value, body);
  if (extent == 1 && kind != ForKind::kBlockX && kind != ForKind::kThreadX && kind != ForKind::kParallel) return body;
  return MakeFor(kind, var, extent, body);
}

// The threads of a block as sets of `extent`, one behind the other: `var` is a thread's number in its set.
Stmt NestBuilder::OverThreadSets(const Expr& var, int64_t extent, Stmt body) {
  if (extent * split_.thread_sets != threads_) {
    status_ = absl::InvalidArgumentError(absl::StrCat("stage ", state_.stage(split_.tile).op.name, ": ",
                                                      split_.thread_sets, " sets of ", extent, " threads are not the ",
                                                      threads_, " of the block"));
    return nullptr;
  }
  const Expr thread = MakeVar("thread");
  analyzer_.Bind(thread, threads_);
  body =
      MakeLet(var, analyzer_.Simplify(FloorMod(thread, extent)), MakeLet(thread_set_, FloorDiv(thread, extent), body));
  return MakeFor(ForKind::kThreadX, thread, threads_, body);
}

// Whether a thread keeps elements of a tensor until it computes with each of them once: a conversion before that would
// wait for them.
bool NestBuilder::IsReadAhead(int id) const {
  const StageState& stage = state_.stage(id);
  if (stage.memory != Memory::kLocal || !IsNarrowFloat(stage.op.dtype) || stage.op.reduces() ||
      stage.op.body->kind != ExprKind::kLoad)
    return false;
  const std::vector<int> readers = state_.Consumers(id);
  return std::none_of(readers.begin(), readers.end(), [&](int reader) { return state_.stage(reader).op.reduces(); });
}

// What reads memory alone comes before what has more to do, which hides the way from there.
Stmt NestBuilder::AttachedAt(int id, size_t position, bool shared) {
  std::vector<int> stages = StagesAt(id, position);
  std::stable_partition(stages.begin(), stages.end(), [&](int child) {
    const std::vector<int> producers = state_.Producers(child);
    return !state_.stage(child).op.reduces() && std::all_of(producers.begin(), producers.end(), [&](int producer) {
      return state_.stage(producer).attach == StageState::Attach::kRoot;
    });
  });
  std::vector<Stmt> all;
  for (int child : stages) {
    if (IsOfBlock(state_.stage(child).memory) != shared) continue;
    PrepareValues(child);
    all.push_back(EmitStage(child));
  }
  return MakeSeq(all);
}

Stmt NestBuilder::EmitAttached(int id, size_t position) {
  const std::vector<int> stages = StagesAt(id, position);
  const bool async =
      std::any_of(stages.begin(), stages.end(), [&](int child) { return state_.stage(child).async_copy; });
  const bool in_turn = async || std::any_of(stages.begin(), stages.end(), [&](int child) {
                         return IsOfBlock(state_.stage(child).memory) && ReadsAny(child, stages);
                       });
  const bool apart = split_.reduction < 0 && BulkCopiesAt(id, position).empty();
  if (in_turn && apart) return EmitInTurn(stages);
  if (async && status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "stage ", state_.stage(id).op.name, ": asynchronous copies stand beside bulk copies, or in a split reduction"));
  std::vector<Stmt> all;
  if (Stmt shared = MakeSeq({AttachedBulkOnce(id, position, false), AttachedAt(id, position, true)})) {
    if (serial_depth_ > 0) all.push_back(MakeBarrier());
    const bool tile =
        split_.blocks > 1 && id == root_ && bounds_.stages[split_.tile].attach_position == static_cast<int>(position);
    all.push_back(shared);
    all.push_back(FinishCoreMatrices(id, position, IntImm(0), 1));
    if (tile) all.push_back(SumOfThreadSets());
    all.push_back(tile ? MakeClusterBarrier() : MakeBarrier());
    all.push_back(AttachedBulkOnce(id, position, true));
  }
  all.push_back(AttachedAt(id, position, false));
  return MakeSeq(all);
}

// Stages computed at a loop, producers first; bulk copies are made elsewhere.
std::vector<int> NestBuilder::StagesAt(int id, size_t position) const {
  std::vector<int> stages;
  for (int child : state_.topological()) {
    const StageState& stage = state_.stage(child);
    if (!stage.computes() || stage.attach != StageState::Attach::kAt || stage.attach_stage != id || stage.bulk)
      continue;
    if (bounds_.stages[child].attach_position == static_cast<int>(position)) stages.push_back(child);
  }
  // What reads a carried reduction comes behind the stage whose loop carries it.
  std::stable_partition(stages.begin(), stages.end(), [&](int child) {
    const std::vector<int> producers = state_.Producers(child);
    return std::none_of(producers.begin(), producers.end(), [&](int producer) {
      const Carry& carry = state_.stage(producer).carry;
      return carry.is_carried() && std::count(stages.begin(), stages.end(), carry.target) > 0;
    });
  });
  return stages;
}

// Whether a stage reads one of these stages that is in shared memory, or that each thread has for itself.
bool NestBuilder::ReadsAny(int id, const std::vector<int>& stages) const {
  const std::vector<int> producers = state_.Producers(id);
  return std::any_of(producers.begin(), producers.end(),
                     [&](int producer) { return std::count(stages.begin(), stages.end(), producer) > 0; });
}

// Whether the stage, or one that is computed inside it, reads another one.
bool NestBuilder::ReadsInside(int id, int producer) const {
  if (ReadsAny(id, {producer})) return true;
  for (int child : state_.topological()) {
    const StageState& stage = state_.stage(child);
    if (stage.computes() && stage.attach == StageState::Attach::kAt && stage.attach_stage == id &&
        ReadsInside(child, producer))
      return true;
  }
  return false;
}

// Stages computed at one loop in their order, where one in shared memory needs others that are computed there: a
// barrier in front of the first that reads what other threads wrote since the last one, and of all in a loop unless one
// stands there (`after_barrier`). Asynchronous copies come first;
// a stage that reads one waits for it, and so for all that were asked for before it.
Stmt NestBuilder::EmitInTurn(std::vector<int> stages, bool after_barrier) {
  std::vector<Stmt> all;
  std::vector<int> written, asked;
  bool publish = false;  // what has been stored since the last barrier
  // Until what was asked for before `end` is there.
  const auto wait = [&](std::vector<int>::iterator end) {
    publish = publish || std::any_of(asked.begin(), end, [&](int copy) { return IsPublished(copy); });
    asked.erase(asked.begin(), end);
    all.push_back(MakeWait(static_cast<int64_t>(asked.size())));
  };
  const auto barrier = [&] {
    if (std::exchange(publish, false)) all.push_back(MakeGroupSync(GroupSync::kPublish));
    all.push_back(MakeBarrier());
  };
  if (serial_depth_ > 0 && !after_barrier) all.push_back(MakeBarrier());
  const auto others =
      std::stable_partition(stages.begin(), stages.end(), [&](int child) { return state_.stage(child).async_copy; });
  for (auto child = stages.begin(); child != others; ++child) {
    PrepareValues(*child);
    all.insert(all.end(), {EmitStage(*child), MakeCommit()});
    asked.push_back(*child);
  }
  stages.erase(stages.begin(), others);
  for (int child : stages) {
    const auto last = std::find_if(asked.rbegin(), asked.rend(), [&](int copy) { return ReadsInside(child, copy); });
    const bool waits = last != asked.rend();
    if (waits) wait(last.base());
    if (waits || std::any_of(written.begin(), written.end(), [&](int id) { return ReadsInside(child, id); })) {
      barrier();
      written.clear();
    }
    PrepareValues(child);
    all.push_back(EmitStage(child));
    publish = publish || IsPublished(child);
    if (IsOfBlock(state_.stage(child).memory) && !IsHeldByLanes(child)) written.push_back(child);
  }
  const bool asks = !asked.empty();
  if (asks) wait(asked.end());
  if (!written.empty() || asks) barrier();
  return MakeSeq(all);
}

// Slots of the shared copies whose pipeline starts at a loop, 1 if none does; `last` is the loop at which they are
// computed.
int64_t NestBuilder::PipelineSlots(int id, size_t position, size_t* last) const {
  for (int child : skeleton_.backwards()) {
    const StageState& stage = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || b.slots == 1 || b.bulk) continue;
    if (skeleton_.PipelineStart(id, b.attach_position) != static_cast<int>(position)) continue;
    *last = b.attach_position;
    return b.slots;
  }
  return 1;
}

// Names the slots of the pipelined copies of a stage, before its body that reads them is lowered.
void NestBuilder::NameSlots(int id) {
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || b.slots == 1) continue;
    if (b.bulk) {
      read_slot_[child] = MakeVar("held");
      analyzer_.Bind(read_slot_[child], b.slots);
      continue;
    }
    if (!fill) {
      fill = MakeVar("fill");
      use = MakeVar("use");
      analyzer_.Bind(fill, b.slots);
      analyzer_.Bind(use, b.slots);
    }
    write_slot_[child] = fill;
    read_slot_[child] = use;
  }
}

// The loops [first, last] as one loop of iterations + slots - 1 steps: step t starts the copies of iteration t, into
// the slot that iteration t - slots has left, and multiplies those of iteration t - slots + 1. One barrier a step:
// behind it the copies that are waited for are visible, and nobody reads the slot that is filled next any more.
Stmt NestBuilder::EmitPipeline(int id, const PipelinedLoops& loops, const std::function<Stmt()>& inner) {
  const size_t first = loops.first, last = loops.last, end = loops.end;
  const int64_t slots = loops.slots;
  const StageState& stage = state_.stage(id);
  int64_t iterations = 1;
  for (size_t p = first; p <= last; ++p) iterations *= bounds_.stages[id].extent[stage.order[p]];
  const Expr step = MakeVar("step_" + Identifier(stage.op.name));
  analyzer_.Bind(step, iterations + slots - 1);
  const bool carries = stage.carry.is_carried_by(id);
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || copy.memory != Memory::kShared) continue;
    if (b.attach_position < static_cast<int>(first) || b.attach_position > static_cast<int>(last)) continue;
    if (carries && b.slots == 1) continue;
    if (b.attach_position != static_cast<int>(last) || (b.slots != slots && !b.bulk)) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage.op.name, ": all shared copies of a pipeline are computed at its innermost loop"));
      return nullptr;
    }
    if (b.bulk) continue;
    fill = write_slot_[child];
    use = read_slot_[child];
  }
  if (!fill) {
    status_ = absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": a pipeline needs shared copies"));
    return nullptr;
  }
  // The loop variables as digits of the iteration.
  auto at = [&](const Expr& iteration, Stmt body) {
    int64_t inside = 1;
    for (size_t p = last + 1; p-- > first;) {
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent == 1) continue;
      Expr digit = FloorDiv(iteration, inside);
      if (inside * extent < iterations) digit = FloorMod(digit, extent);
      body = MakeLet(context_[id].leaf[p], analyzer_.Simplify(digit), body);
      inside *= extent;
    }
    return body;
  };
  const Pipeline pipeline{.id = id,
                          .last = last,
                          .end = end,
                          .slots = slots,
                          .iterations = iterations,
                          .step = step,
                          .fill = fill,
                          .use = use,
                          .at = at,
                          .inner = inner};
  if (OnWarpgroups(id) && !carries) return EmitGroupPipeline(pipeline);
  const Expr ahead = IntImm(slots - 1);
  std::vector<int> made_in_turn;  // beside the copies that come ahead
  Stmt copies;
  if (carries) {
    std::vector<Stmt> each;
    for (int child : StagesAt(id, last)) {
      if (bounds_.stages[child].slots == 1) {
        made_in_turn.push_back(child);
        continue;
      }
      PrepareValues(child);
      each.push_back(EmitStage(child));
    }
    copies = MakeSeq(std::move(each));
  } else {
    copies = AttachedAt(id, last, true);
  }
  const auto copies_of = [&](const Expr& iteration) {
    return MakeLet(fill, analyzer_.Simplify(FloorMod(iteration, slots)),
                   at(Min(iteration, IntImm(iterations - 1)), copies));
  };
  if (OnWarpgroups(id) && slots > 2 && iterations > 1)
    return EmitCarriedGroupPipeline(pipeline, {.copies = copies_of, .made = made_in_turn});
  const Stmt copies_if = MakeIf(Lt(step, IntImm(iterations)), copies_of(step));
  ++serial_depth_;
  const Stmt attached =
      carries ? EmitInTurn(std::move(made_in_turn), /*after_barrier=*/true) : AttachedAt(id, last, false);
  Stmt work = MakeSeq({attached, EmitLoops(id, last + 1, end, inner)});
  --serial_depth_;
  const Expr iteration = Max(Sub(step, ahead), IntImm(0));
  work = at(iteration, HoldBulk(id, last, iteration, work));
  work = MakeIf(Le(ahead, step), MakeLet(use, FloorMod(Add(step, IntImm(1)), slots), work));
  const BulkPipeline bulk = EmitBulkPipeline(pipeline);
  const Stmt publish = carries ? FinishCoreMatrices(id, last, iteration, slots) : nullptr;
  Stmt body = MakeSeq({MakeWait(slots - 2), publish, MakeBarrier(), copies_if, MakeCommit(), bulk.refill, work});
  return MakeSeq({bulk.start, MakeFor(ForKind::kSerial, step, iterations + slots - 1, body, 1)});
}

Stmt NestBuilder::EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) {
  const StageState& stage = state_.stage(id);
  if (position == end) return inner();
  size_t last = position;
  if (const int64_t slots = PipelineSlots(id, position, &last); slots > 1 && last < end)
    return EmitPipeline(id, {.first = position, .last = last, .end = end, .slots = slots}, inner);
  const ForKind kind = KindOf(id, position);
  const bool serial =
      (kind == ForKind::kSerial || kind == ForKind::kUnroll) && bounds_.stages[id].extent[stage.order[position]] > 1;
  serial_depth_ += serial;
  Stmt attached = EmitAttached(id, position);
  // The tile takes the place of the operands: all threads must have read them.
  if (attached && id == split_.tile) attached = MakeSeq({attached, MakeBarrier()});
  Stmt rest = EmitLoops(id, position + 1, end, inner);
  serial_depth_ -= serial;
  Stmt body = attached ? MakeSeq({attached, rest}) : rest;
  if (id == root_ && position == 0 && split_.blocks > 1) body = MakeSeq({body, MakeClusterBarrier()});
  // Where buffers live.
  if (id == root_ && EndsOuter(id, position)) body = WithAllocations(body);
  return Loop(id, position, body);
}

Stmt NestBuilder::WithAllocations(Stmt body) {
  for (auto it = temporaries_.rbegin(); it != temporaries_.rend(); ++it) body = MakeAlloc(*it, body);
  temporaries_.clear();
  return body;
}

// The spatial loops from a position on, with variables of their own, around a statement made for them.
Stmt NestBuilder::SpatialNest(int id, size_t first, const std::function<Stmt(const VarMap&)>& make) {
  const StageState& stage = state_.stage(id);
  VarMap fresh;
  std::vector<size_t> positions;
  for (size_t p = first; p < stage.order.size(); ++p) {
    if (stage.loops[stage.order[p]].reduce) continue;
    positions.push_back(p);
    const Expr& var = context_[id].leaf[p];
    const Expr copy = MakeVar(var->name + "_i");
    analyzer_.Bind(copy, bounds_.stages[id].extent[stage.order[p]]);
    fresh[var.get()] = copy;
  }
  Stmt stmt = make(fresh);
  for (size_t i = positions.size(); i-- > 0;) {
    const size_t p = positions[i];
    const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
    if (extent > 1 || KindOf(id, p) == ForKind::kThreadX)
      stmt = MakeFor(KindOf(id, p), fresh[context_[id].leaf[p].get()], extent, stmt);
  }
  return stmt;
}

Stmt NestBuilder::EmitStage(int id) {
  const StageState& stage = state_.stage(id);
  if (stage.op.reduces()) return EmitReduction(id);
  auto statement = [&]() -> Stmt {
    bool unsafe = false;
    const Expr index = StoreIndex(id);
    Expr value = LowerExpr(id, stage.op.body, &unsafe);
    const Guards guards = GuardsOf(id);
    // Partial results beyond the tensor are never read.
    if (!guards.domain.empty() && id != split_.tile)
      value = Select(And(guards.domain), value, IdentityOf(Combiner::kSum, stage.op.dtype));
    return WithShuffles(
        id, std::exchange(shuffles_, {}), guards.spatial.empty(),
        MakeIf(And(guards.spatial), MakeStore(id, index, value, write_slot_[id] != nullptr || stage.async_copy)));
  };
  return EmitLoops(id, 0, stage.order.size(), statement);
}

int64_t StoredElements(const State& state, const Bounds& bounds, int id) {
  const StageState& stage = state.stage(id);
  if (stage.image_of >= 0) {
    const StageBounds& tile = bounds.stages[stage.image_of];
    int64_t elements = tile.slot_stride();
    for (size_t d = 0; d < tile.buffer.size(); ++d) elements *= bounds.stages[id].buffer[d] / tile.buffer[d];
    return elements;
  }
  if (stage.layout_factors.empty()) return stage.op.elements();
  int64_t elements = 1;
  for (size_t d = 0; d < stage.layout_factors.size(); ++d) {
    const int64_t factor = std::max<int64_t>(1, stage.layout_factors[d].Eval({}));
    elements *= (stage.op.axes[d].extent + factor - 1) / factor * factor;
  }
  return elements;
}

absl::StatusOr<KernelFunc> NestBuilder::Build(int root, int* next_buffer) {
  next_buffer_ = next_buffer;
  root_ = root;
  status_ = absl::OkStatus();
  KernelFunc kernel;
  const StageState& stage = state_.stage(root);
  threads_ = blocks_ = 1;
  ASSIGN_OR_RETURN(split_, FindClusterSplit(skeleton_, bounds_, root));
  rank_ = MakeVar("rank");
  analyzer_.Bind(rank_, split_.blocks);
  thread_set_ = MakeVar("thread_set");
  analyzer_.Bind(thread_set_, split_.thread_sets);
  for (int loop : stage.order) {
    const Annotation annotation = stage.loops[loop].annotation;
    const int64_t extent = bounds_.stages[root].extent[loop];
    if (annotation == Annotation::kThreadX) threads_ = extent;
    if (annotation == Annotation::kBlockX || annotation == Annotation::kParallel) blocks_ = extent;
  }
  // Stages inside may use threads where the root uses none: a reduction across threads into a block's single result.
  for (int id : skeleton_.backwards()) {
    if (skeleton_.root_of(id) != root) continue;
    for (int loop : state_.stage(id).order)
      if (state_.stage(id).loops[loop].annotation == Annotation::kThreadX && state_.stage(id).loops[loop].reduce)
        threads_ = std::max(threads_, bounds_.stages[id].extent[loop]);
  }
  std::set<int> globals;
  for (int id : state_.topological()) {
    if (skeleton_.root_of(id) != root) continue;
    const StageState& s = state_.stage(id);
    for (int producer : state_.Producers(id))
      if (skeleton_.root_of(producer) != root || producer == root) globals.insert(producer);
    if (s.attach == StageState::Attach::kAt) {
      const Scope scope = IsOfBlock(s.memory) && !IsHeldByLanes(id) ? Scope::kShared : Scope::kLocal;
      temporaries_.push_back({id, Identifier(s.op.name) + "_", s.op.dtype, scope, ElementsOf(id), true,
                              target_.is_gpu() ? 16 : 64, id == split_.tile});
      temporaries_.back().packed = target_.is_gpu() && IsReadAhead(id);
      if (bounds_.stages[id].swizzled) {
        const auto bytes = static_cast<int>(bounds_.stages[id].core_row * BytesOf(s.op.dtype));
        temporaries_.back().alignment = 8 * bytes;
        temporaries_.back().swizzle = bytes;
      }
      if (s.bulk) RETURN_IF_ERROR(CheckBulkCopy(id));
      if (s.bulk && target_.kind == TargetKind::kCuda) {
        arrivals_[id] = (*next_buffer_)++;
        temporaries_.push_back({arrivals_[id], Identifier(s.op.name) + "_arrival", DType::kInt64, scope,
                                bounds_.stages[id].slots, true, 16, false, true});
      }
      if (state_.has_small_parts(id) && target_.kind == TargetKind::kCuda) {
        const StageBounds& b = bounds_.stages[id];
        small_parts_[id] = (*next_buffer_)++;
        temporaries_.push_back(
            {small_parts_[id], Identifier(s.op.name) + "_small", s.op.dtype, scope, b.small_parts(), true, 16});
      }
    }
  }
  for (const StageState& s : state_.stages()) {
    const int maximum = s.carry.maximum;
    if (maximum < 0 || growth_[maximum] >= 0 || skeleton_.root_of(maximum) != root) continue;
    growth_[maximum] = (*next_buffer_)++;
    const StageState& m = state_.stage(maximum);
    temporaries_.push_back({growth_[maximum], Identifier(m.op.name) + "_growth", m.op.dtype,
                            IsOfBlock(m.memory) && !IsHeldByLanes(maximum) ? Scope::kShared : Scope::kLocal,
                            ElementsOf(maximum), true, 16});
  }
  kernel.name = "k_" + Identifier(stage.op.name);
  globals.insert(root);
  PrepareValues(root);
  kernel.body = WithAllocations(EmitStage(root));
  if (!shuffles_.empty() && status_.ok())
    status_ = absl::InvalidArgumentError("what another lane has is read by a product, or by the loop that carries it");
  if (!status_.ok()) return status_;
  for (int id : globals) {
    const StageState& s = state_.stage(id);
    kernel.params.push_back({id, Identifier(s.op.name), s.op.dtype, Scope::kGlobal,
                             IsPlaced(id) ? place_.elements : StoredElements(state_, bounds_, id), id == root, 0});
  }
  kernel.blocks = blocks_ * split_.blocks;
  kernel.cluster = split_.blocks;
  kernel.threads = threads_;
  SharedBytes shared;
  shared.Add(kernel.body);
  kernel.shared_bytes = shared.all();
  return kernel;
}

}  // namespace diapason
