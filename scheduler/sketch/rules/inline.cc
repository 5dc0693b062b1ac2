// Computes an element-wise stage where it is read (Ansor's AlwaysInline), unless its rewrite keeps it. On CPUs a stage
// that is expensive to compute and read more than once is kept. A stage is also kept where what reads it would become
// too large an expression, or would compute a long one for the place of each of many loads (the samples of regions, the
// points of a grid). Padding of a reduction that is not tiled (a pool) is not expensive: its terms are left out
// (compiler/lower/reductions.cc).
#include "compiler/tensor/tree_size.h"
#include "scheduler/sketch/rules/rules.h"

namespace diapason {
namespace {

class Inline : public SketchRule {
 public:
  std::string name() const override { return "inline"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!IsInjective(draft.state(), stage) || draft.state().is_output(stage) || s.op.kept) return Answer::kSkip;
    if (s.attach != StageState::Attach::kRoot || static_cast<int>(s.loops.size()) != s.axis_count())
      return Answer::kSkip;
    if (IsBound(draft.state(), stage)) return Answer::kSkip;
    const std::vector<int> consumers = draft.state().Consumers(stage);
    bool read_again = consumers.size() > 1;
    for (int consumer : consumers) read_again |= draft.state().stage(consumer).op.reduces();
    if (!draft.gpu() && read_again && IsExpensive(draft.state(), stage) && !IsPaddingOfPool(draft, stage))
      return Answer::kSkip;
    return IsLongPlace(draft.state(), stage) || GrowsTooLarge(draft, stage) ? Answer::kSkip : Answer::kApplyAndSkipRest;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.Do(StepOf(stage));
    return {{std::move(next), false}};
  }

 private:
  static constexpr int64_t kMostNodes = 1 << 15;  // of real networks' bodies, the largest have some thousand

  // What is read, or what changes nothing in the reduction that is its only reader, by conditions that all lanes of a
  // vector share.
  static bool IsPaddingOfPool(const Draft& draft, int stage) {
    const std::vector<int> consumers = draft.state().Consumers(stage);
    const Stage& own = draft.state().stage(stage).op;
    if (consumers.size() != 1 || own.body->kind != ExprKind::kSelect || own.axes.empty()) return false;
    const Stage& reader = draft.state().stage(consumers[0]).op;
    if (!reader.reduces() || draft.TileOf(consumers[0]) != nullptr || NeedsTiling(draft.state(), consumers[0]))
      return false;
    return reader.body->kind == ExprKind::kLoad && !UsesVar(own.body->args[0], own.axes.back().var.get()) &&
           Equal(own.body->args[2], IdentityOf(reader.combiner, own.dtype));
  }

  static Step StepOf(int stage) { return {StepKind::kInline, stage, {}, {}, -1, {}}; }

  // Whether what reads the stage would become an expression that takes compilers seconds. A chain of stages that read
  // the one before them twice doubles with each.
  static bool GrowsTooLarge(const Draft& draft, int stage) {
    const auto too_large = [](const TreeSize& size) { return size.nodes > kMostNodes || size.depth > kMaxTreeDepth; };
    const std::vector<int> consumers = draft.state().Consumers(stage);
    const TreeSize inner = TreeSizeOf(draft.state().stage(stage).op.body);
    bool may = false;  // cheaper to say than it is to try: sizes at most multiply
    for (int consumer : consumers) {
      const TreeSize outer = TreeSizeOf(draft.state().stage(consumer).op.body);
      may |= inner.nodes > kMostNodes / outer.nodes || inner.depth + outer.depth > kMaxTreeDepth;
    }
    if (!may) return false;
    State inlined = draft.state();
    if (!inlined.Apply(StepOf(stage)).ok()) return true;
    for (int consumer : consumers)
      if (too_large(TreeSizeOf(inlined.stage(consumer).op.body))) return true;
    return false;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeInline() { return std::make_unique<Inline>(); }

}  // namespace diapason
