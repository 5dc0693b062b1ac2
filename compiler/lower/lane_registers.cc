// Stages of a block that lie in the registers of its threads (Memory::kLanes on cuda): each has what it computes, in
// the order of its loops, and the others of its warp ask it by shuffles.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/lower/nest.h"

namespace diapason {
namespace {

constexpr int64_t kLanesOfWarp = 32;

}  // namespace

bool NestBuilder::IsHeldByLanes(int id) const {
  return state_.stage(id).memory == Memory::kLanes && target_.kind == TargetKind::kCuda;
}

// Of the buffer of an attached stage.
int64_t NestBuilder::ElementsOf(int id) const {
  return IsHeldByLanes(id) ? ElementsOfThread(state_.stage(id), bounds_.stages[id]) : bounds_.stages[id].stored();
}

// Where a thread has the element at these values of the stage's loops.
Expr NestBuilder::RegisterOf(int id, const std::vector<Expr>& values) {
  const StageState& stage = state_.stage(id);
  Expr flat = IntImm(0);
  for (int loop : stage.order) {
    const int64_t extent = bounds_.stages[id].extent[loop];
    if (stage.loops[loop].reduce || stage.loops[loop].annotation == Annotation::kThreadX || extent == 1) continue;
    flat = Add(Mul(flat, IntImm(extent)), values[loop]);
  }
  return analyzer_.Simplify(flat);
}

// The values of the loops that a loop was split into, down to those that were split no more.
void NestBuilder::AddDigits(int id, int loop, const Expr& value, std::vector<Expr>* values) {
  const std::vector<int>& pieces = state_.stage(id).loops[loop].pieces;
  const std::vector<int64_t>& extent = bounds_.stages[id].extent;
  (*values)[loop] = value;
  int64_t inside = 1;
  for (size_t p = pieces.size(); p-- > 0; inside *= extent[pieces[p]]) {
    Expr digit = FloorDiv(value, inside);
    if (p > 0) digit = FloorMod(digit, extent[pieces[p]]);
    AddDigits(id, pieces[p], extent[pieces[p]] == 1 ? IntImm(0) : analyzer_.Simplify(digit), values);
  }
}

// The number of the thread that computes what the stage's loops are at; null outside of loops over threads.
Expr NestBuilder::ThreadOf(int id) const {
  for (int up = id; up >= 0; up = state_.stage(up).attach_stage) {
    const StageState& stage = state_.stage(up);
    for (size_t p = 0; p < stage.order.size(); ++p)
      if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX) return context_[up].leaf[p];
  }
  return nullptr;
}

// The element of a stage at these coordinates of its buffer, from this thread's registers or those of the lane that has
// it.
Expr NestBuilder::LoadFromLanes(int reader, const Expr& load, const std::vector<Expr>& indices) {
  const int id = load->buffer;
  const StageState& stage = state_.stage(id);
  const auto refuse = [&](const char* why) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(
          absl::StrCat("stage ", state_.stage(reader).op.name, " reads ", stage.op.name, ", which lanes have, ", why));
    return Load(id, load->dtype, {IntImm(0)});
  };
  std::vector<Expr> values(stage.loops.size());
  for (size_t d = 0; d < indices.size(); ++d) AddDigits(id, static_cast<int>(d), indices[d], &values);
  const Expr thread = ThreadOf(reader);
  const auto over_threads = std::find_if(stage.order.begin(), stage.order.end(), [&](int loop) {
    return stage.loops[loop].annotation == Annotation::kThreadX;
  });
  if (!thread || over_threads == stage.order.end()) return refuse("outside of a loop over threads");
  const struct Loop& threads = stage.loops[*over_threads];
  const std::vector<int> parts = threads.fused.empty() ? std::vector<int>{*over_threads} : threads.fused;
  Expr lane = IntImm(0);
  bool own = true;
  int64_t inside = 1;
  for (size_t p = parts.size(); p-- > 0;) {
    const int64_t extent = bounds_.stages[id].extent[parts[p]];
    const Expr mine = analyzer_.Simplify(FloorMod(FloorDiv(thread, inside), extent));
    const bool replica = stage.loops[parts[p]].origin == Loop::Origin::kReplica;  // each has it
    if (!replica && !values[parts[p]]) return refuse("by threads that are no pieces of its axes");
    const Expr theirs = replica ? mine : values[parts[p]];
    const bool same = extent == 1 || Equal(theirs, mine);
    if (!same && inside * extent > kLanesOfWarp) return refuse("from threads of another warp");
    if (inside < kLanesOfWarp) lane = Add(lane, Mul(theirs, IntImm(inside)));
    own = own && same;
    inside *= extent;
  }
  if (inside != threads_) return refuse("and are not all threads of the block");
  for (int loop : stage.order) {
    const bool kept = !stage.loops[loop].reduce && stage.loops[loop].annotation != Annotation::kThreadX;
    if (kept && bounds_.stages[id].extent[loop] > 1 && !values[loop])
      return refuse("in loops that are no pieces of its axes");
  }
  const Expr element = Load(id, load->dtype, {RegisterOf(id, values)});
  if (own) return element;
  if (!conditions_.empty()) return refuse("under a condition, from another thread");
  const int copy = (*next_buffer_)++;
  temporaries_.push_back({copy, absl::StrCat("shuffled", copy), load->dtype, Scope::kLocal, 1, true, 0});
  shuffles_.push_back(MakeShuffle(copy, IntImm(0), element, analyzer_.Simplify(lane)));
  return Load(copy, load->dtype, {IntImm(0)});
}

// Shuffles in front of the statement that needs them; all lanes of a warp take part in them.
Stmt NestBuilder::WithShuffles(int id, std::vector<Stmt> shuffles, bool by_all, Stmt stmt) {
  if (shuffles.empty()) return stmt;
  if (!by_all && status_.ok())
    status_ = absl::InvalidArgumentError(
        absl::StrCat("stage ", state_.stage(id).op.name, " reads what other lanes have where not all of them do"));
  shuffles.push_back(std::move(stmt));
  return MakeSeq(std::move(shuffles));
}

}  // namespace diapason
