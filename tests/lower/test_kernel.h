// A kernel before it is emitted, for tests of the classes that emit it; and the steps that make its schedule.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/kernel_context.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"
#include "compiler/schedule/bounds.h"
#include "compiler/schedule/state.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason::testing {

inline Step SplitStep(int stage, int loop, std::vector<int32_t> factors) {
  Step step{StepKind::kSplit, stage, {loop}, {}, -1, {}};
  for (int32_t factor : factors) step.factors.push_back(Factor::Of(factor));
  return step;
}
inline Step FuseStep(int stage, std::vector<int32_t> loops) {
  return {StepKind::kFuse, stage, std::move(loops), {}, -1, {}};
}
inline Step AnnotateStep(int stage, int loop, Annotation annotation) {
  return {StepKind::kAnnotate, stage, {loop}, {}, -1, {static_cast<int>(annotation)}};
}
inline Step NumberStep(StepKind kind, int stage, int32_t number) {
  return {kind, stage, {}, {Factor::Of(number)}, -1, {}};
}
// `choice`: of the candidate loops, which are one.
inline Step ComputeAtStep(int stage, int target, int loop, int choice = 0) {
  return {StepKind::kComputeAt, stage, {loop}, {Factor::Of(choice)}, target, {}};
}
inline Step MemoryStep(int stage, Memory memory) {
  return {StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int>(memory)}};
}

// The kernel of a root stage with all that its classes share.
class TestKernel {
 public:
  TestKernel(const ComputeDag& dag, const std::vector<Step>& steps, int root, const std::string& target = "cpu",
             const OutputPlace& place = {})
      : target_(Target::Parse(target).value()),
        skeleton_(Replay(dag, steps).value()),
        bounds_(BoundsOf(skeleton_)),
        kernel_(KernelContext::Create(skeleton_, bounds_, target_, place, root).value()),
        next_(skeleton_.state().size()),
        parts_(kernel_, &next_) {}

  const KernelContext& kernel() const { return kernel_; }
  NestParts& parts() { return parts_; }
  NestState& nest() { return parts_.state; }
  const StageValues& Prepared(int id) {
    parts_.values.Prepare(id);
    return parts_.state.stages[id];
  }

 private:
  static Bounds BoundsOf(const Skeleton& skeleton) {
    Bounds bounds;
    skeleton.Infer({}, &bounds);
    return bounds;
  }

  Target target_;
  Skeleton skeleton_;
  Bounds bounds_;
  KernelContext kernel_;
  int next_;
  NestParts parts_;
};

// Stands for the nest: a stage is its name, loops are what is inside them.
class NamesOfStages : public NestEmitter {
 public:
  explicit NamesOfStages(const KernelContext& kernel) : kernel_(kernel) {}
  Stmt EmitStage(int id) override { return MakeComment(kernel_.state.stage(id).op.name); }
  Stmt EmitLoops(int, size_t, size_t, const std::function<Stmt()>& inner) override { return inner(); }

 private:
  const KernelContext& kernel_;
};

// The number that an expression is where variables have these values.
inline int64_t NumberAt(const Expr& e, const std::vector<std::pair<Expr, int64_t>>& values) {
  VarMap map;
  for (const auto& [var, value] : values) map[var.get()] = IntImm(value);
  const Expr number = Analyzer().Simplify(Substitute(e, map));
  EXPECT_EQ(number->kind, ExprKind::kIntImm) << ToString(number);
  return number->value;
}

}  // namespace diapason::testing
