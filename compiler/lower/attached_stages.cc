#include "compiler/lower/attached_stages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/lower/split_sums.h"
#include "compiler/tensor/run_sums.h"

namespace diapason {

Stmt AttachedStages::EmitThose(int id, size_t position, bool shared, const std::vector<int>& but) {
  const State& state = nest_.kernel.state;
  std::vector<int> stages = nest_.kernel.StagesAt(id, position);
  // First those that read nothing but global memory: element-wise stages, and totals of rows.
  std::stable_partition(stages.begin(), stages.end(), [&](int child) {
    const std::vector<int> producers = state.Producers(child);
    const bool totals = IsRowTotals(state.stage(child).op, [&](int of) -> const Stage& { return state.stage(of).op; });
    return (totals || !state.stage(child).op.reduces()) &&
           std::all_of(producers.begin(), producers.end(),
                       [&](int producer) { return state.stage(producer).attach == StageState::Attach::kRoot; });
  });
  std::vector<Stmt> all;
  for (int child : stages)
    if (IsOfBlock(state.stage(child).memory) == shared && std::count(but.begin(), but.end(), child) == 0)
      all.push_back(emitter_.EmitStage(child));
  return MakeSeq(all);
}

std::vector<int> AttachedStages::NeededByBlock(const std::vector<int>& stages) const {
  const KernelContext& kernel = nest_.kernel;
  std::vector<int> needed;
  for (auto own = stages.rbegin(); own != stages.rend(); ++own) {
    if (IsOfBlock(kernel.state.stage(*own).memory)) continue;
    const bool reads = std::any_of(stages.begin(), stages.end(), [&](int child) {
      const bool first =
          IsOfBlock(kernel.state.stage(child).memory) || std::count(needed.begin(), needed.end(), child) > 0;
      return first && kernel.ReadsInside(child, *own);
    });
    if (reads) needed.insert(needed.begin(), *own);
  }
  return needed;
}

Stmt AttachedStages::Emit(int id, size_t position) {
  const KernelContext& kernel = nest_.kernel;
  const std::vector<int> stages = kernel.StagesAt(id, position);
  const bool async =
      std::any_of(stages.begin(), stages.end(), [&](int child) { return kernel.state.stage(child).async_copy; });
  const bool in_turn = async || std::any_of(stages.begin(), stages.end(), [&](int child) {
                         return IsOfBlock(kernel.state.stage(child).memory) && kernel.ReadsAny(child, stages);
                       });
  const bool apart = kernel.split.reduction < 0 && kernel.BulkCopiesAt(id, position).empty();
  if (in_turn && apart) return EmitInTurn(stages);
  if (async)
    nest_.Refuse(absl::InvalidArgumentError(
        absl::StrCat("stage ", kernel.state.stage(id).op.name,
                     ": asynchronous copies stand beside bulk copies, or in a split reduction")));
  const std::vector<int> needed = NeededByBlock(stages);
  std::vector<Stmt> all;
  for (int child : needed) all.push_back(emitter_.EmitStage(child));
  all.push_back(EmitBetweenBarriers(id, position));
  all.push_back(EmitThose(id, position, false, needed));
  return MakeSeq(all);
}

// The stages of the block, and its bulk copies.
Stmt AttachedStages::EmitBetweenBarriers(int id, size_t position) {
  const KernelContext& kernel = nest_.kernel;
  const Stmt asked = bulk_.AskOnce(id, position), shared = MakeSeq({asked, EmitShared(id, position)});
  if (!shared) return nullptr;
  std::vector<Stmt> all;
  if (nest_.serial_depth > 0) all.push_back(MakeBarrier());
  const bool tile = kernel.split.parts() > 1 && id == kernel.root &&
                    kernel.bounds.stages[kernel.split.tile].attach_position == static_cast<int>(position);
  all.push_back(shared);
  all.push_back(core_matrices_.Finish(id, position, IntImm(0), 1));
  if (tile) all.push_back(SumOfThreadSets(nest_));
  all.push_back(tile && kernel.split.blocks > 1 ? MakeClusterBarrier() : MakeBarrier());
  all.push_back(bulk_.AwaitOnce(id, position));
  return MakeSeq(all);
}

Stmt AttachedStages::EmitInTurn(std::vector<int> stages, bool after_barrier) {
  const KernelContext& kernel = nest_.kernel;
  std::vector<Stmt> all;
  std::vector<int> written, asked;
  bool publish = false;  // what has been stored since the last barrier
  // Until what was asked for before `end` is there.
  const auto wait = [&](std::vector<int>::iterator end) {
    publish = publish || std::any_of(asked.begin(), end, [&](int copy) { return kernel.IsPublished(copy); });
    asked.erase(asked.begin(), end);
    all.push_back(MakeWait(static_cast<int64_t>(asked.size())));
  };
  const auto barrier = [&] {
    if (std::exchange(publish, false)) all.push_back(MakeGroupSync(GroupSync::kPublish));
    all.push_back(MakeBarrier());
  };
  if (nest_.serial_depth > 0 && !after_barrier) all.push_back(MakeBarrier());
  const auto others = std::stable_partition(stages.begin(), stages.end(),
                                            [&](int child) { return kernel.state.stage(child).async_copy; });
  for (auto child = stages.begin(); child != others; ++child) {
    all.insert(all.end(), {emitter_.EmitStage(*child), MakeCommit()});
    asked.push_back(*child);
  }
  stages.erase(stages.begin(), others);
  for (int child : stages) {
    const auto last =
        std::find_if(asked.rbegin(), asked.rend(), [&](int copy) { return kernel.ReadsInside(child, copy); });
    const bool waits = last != asked.rend();
    if (waits) wait(last.base());
    if (waits || std::any_of(written.begin(), written.end(), [&](int id) { return kernel.ReadsInside(child, id); })) {
      barrier();
      written.clear();
    }
    all.push_back(emitter_.EmitStage(child));
    publish = publish || kernel.IsPublished(child);
    if (IsOfBlock(kernel.state.stage(child).memory) && !kernel.IsHeldByLanes(child)) written.push_back(child);
  }
  const bool asks = !asked.empty();
  if (asks) wait(asked.end());
  if (!written.empty() || asks) barrier();
  return MakeSeq(all);
}

}  // namespace diapason
