#include "scheduler/sketch/rules/attention_sketch.h"

#include <algorithm>
#include <set>
#include <utility>

namespace diapason {
namespace {

// The most parts of a row, and the least elements of one.
constexpr int64_t kMostParts = 16, kLeastPart = 4;

}  // namespace

int64_t PartsOf(const AttentionChain& chain) { return std::clamp<int64_t>(chain.keys / kLeastPart, 1, kMostParts); }

AttentionSketch::AttentionSketch(Draft draft, AttentionChain chain, const std::vector<int>& kept)
    : draft_(std::move(draft)), a_(std::move(chain)), local_(a_.scores) {
  for (const auto* inlined : {&a_.behind, &a_.between})
    for (int id : *inlined) draft_.Do({StepKind::kInline, id, {}, {}, -1, {}});
  InlineInputs(kept);
  if (a_.seen == a_.scores) local_ = draft_.CacheWrite(a_.scores, Memory::kLocal);
}

bool AttentionSketch::IsFreeElementwise(int id) const {
  const StageState& s = draft_.state().stage(id);
  return s.computes() && !s.prologue && !s.op.reduces() && draft_.IsUnscheduled(id);
}

// What queries, keys, values and masks are made of is computed where they are read; keys, if they are more than a
// tensor, once.
void AttentionSketch::InlineInputs(const std::vector<int>& kept) {
  std::set<int> behind;  // reductions and what reads them
  for (int id : std::vector<int>(draft_.state().topological())) {
    const StageState& s = draft_.state().stage(id);
    if (!s.computes() || s.prologue) continue;
    const std::vector<int> producers = draft_.state().Producers(id);
    const bool reads = std::any_of(producers.begin(), producers.end(), [&](int p) { return behind.count(p) > 0; });
    if (s.op.reduces() || reads) behind.insert(id);
    const bool keeps = id == a_.keys_read || id == a_.root || std::count(kept.begin(), kept.end(), id) > 0;
    if (behind.count(id) == 0 && !keeps && IsFreeElementwise(id)) draft_.Do({StepKind::kInline, id, {}, {}, -1, {}});
  }
}

Factor AttentionSketch::Parameter(const std::string& name, std::vector<int32_t> values, int32_t start) {
  return draft_.OptionParameter(name, std::move(values), start);
}

std::vector<int> AttentionSketch::OtherAxes(int stage, const std::vector<int>& axes) const {
  std::vector<int> others = SpatialAxes(draft_.state(), stage);
  std::erase_if(others, [&](int axis) { return std::count(axes.begin(), axes.end(), axis) > 0; });
  return others;
}

void AttentionSketch::Order(int stage, const std::vector<std::vector<int>>& levels) {
  std::vector<int> order;
  for (const std::vector<int>& level : levels) order.insert(order.end(), level.begin(), level.end());
  draft_.Reorder(stage, order);
}

void AttentionSketch::Share(int stage, int block) {
  draft_.Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
  draft_.ComputeAt(stage, a_.root, {block});
}

void AttentionSketch::ByThreads(int stage, const std::vector<int>& loops, const Factor& threads) {
  const std::vector<int> pieces = draft_.Split(stage, draft_.Fuse(stage, loops), {threads});
  draft_.Annotate(stage, pieces[1], Annotation::kThreadX);
}

int AttentionSketch::FactorParts(int stage, int32_t parts) {
  const std::vector<int> pieces = draft_.Split(stage, ReduceAxes(draft_.state(), stage)[0], {Factor::Of(parts)});
  draft_.Do({StepKind::kRfactor, stage, {pieces[1]}, {}, -1, {}});
  return draft_.state().size() - 1;
}

void AttentionSketch::ShareReduction(int stage, int block, const Factor& threads) {
  if (PartsOf(a_) > 1) {
    const int partial = FactorParts(stage, static_cast<int32_t>(PartsOf(a_)));
    std::vector<int> spatial = SpatialAxes(draft_.state(), partial);
    std::rotate(spatial.begin(), spatial.begin() + 1, spatial.end());  // neighbouring threads have parts of one row
    Order(partial, {spatial, ReduceAxes(draft_.state(), partial)});
    Share(partial, block);
    ByThreads(partial, spatial, threads);
  }
  Share(stage, block);
  ByThreads(stage, SpatialAxes(draft_.state(), stage), threads);
}

}  // namespace diapason
