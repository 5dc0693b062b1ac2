#include "compiler/schedule/state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/apply_step.h"

namespace diapason {
namespace {

using ApplyStep = absl::Status (*)(ScheduledStages&, const Step&);

// Null: the step is none of these.
ApplyStep FunctionOf(StepKind kind) {
  switch (kind) {
    case StepKind::kSplit: return ApplySplit;
    case StepKind::kFuse: return ApplyFuse;
    case StepKind::kReorder: return ApplyReorder;
    case StepKind::kAnnotate: return ApplyAnnotate;
    case StepKind::kComputeAt: return ApplyComputeAt;
    case StepKind::kInline: return ApplyInline;
    case StepKind::kCacheWrite: return ApplyCacheWrite;
    case StepKind::kCacheRead: return ApplyCacheRead;
    case StepKind::kRfactor: return ApplyRfactor;
    case StepKind::kPack: return ApplyPack;
    case StepKind::kBulkCopy: return ApplyBulkCopy;
    case StepKind::kRoundFactors: return ApplyRoundFactors;
    case StepKind::kTensorize: return ApplyTensorize;
    case StepKind::kLibrary: return ApplyLibrary;
    case StepKind::kRecurrence: return ApplyRecurrence;
    case StepKind::kPadRows:
    case StepKind::kOddRows:
    case StepKind::kUnroll:
    case StepKind::kPipeline:
    case StepKind::kProducer:
    case StepKind::kAlignRows: return ApplyNumber;
    case StepKind::kGroupBlocks: return ApplyGroupBlocks;
    case StepKind::kCarry: return ApplyCarry;
    case StepKind::kReplicate: return ApplyReplicate;
    case StepKind::kCoreMatrices: return ApplyCoreMatrices;
    case StepKind::kSetScope: return ApplySetScope;
    case StepKind::kOverlap:
    case StepKind::kAsyncCopy:
    case StepKind::kTensorCopy: break;
  }
  return nullptr;
}

std::string FactorText(const Factor& factor) {
  std::string text = factor.value != 1 || factor.is_constant() ? absl::StrCat(factor.value) : "";
  for (int16_t parameter : factor.parameters)
    if (parameter >= 0) absl::StrAppend(&text, text.empty() ? "" : "*", "h", parameter);
  return text;
}

const char* AnnotationText(Annotation annotation) {
  switch (annotation) {
    case Annotation::kNone: return "for";
    case Annotation::kUnroll: return "unroll";
    case Annotation::kVectorize: return "vectorize";
    case Annotation::kParallel: return "parallel";
    case Annotation::kBlockX: return "block";
    case Annotation::kThreadX: return "thread";
    case Annotation::kCluster: return "cluster";
    case Annotation::kThreadSet: return "thread set";
  }
  return "for";
}

}  // namespace

// The products by warpgroups that a copy in core matrices is made for; null if it is none.
const TensorIntrinsic* State::ReaderOfCoreMatrices(int copy) const {
  const StageState& stage = stages_.at(copy);
  if (!stage.core_matrices || stage.attach != StageState::Attach::kAt) return nullptr;
  const TensorIntrinsic* products = FindTensorIntrinsic(static_cast<int>(stages_.at(stage.attach_stage).tensor));
  return products != nullptr && products->groups ? products : nullptr;
}

bool State::has_low_parts(int copy) const {
  const TensorIntrinsic* products = ReaderOfCoreMatrices(copy);
  return products != nullptr && products->parts;
}

bool State::is_rounded_in_place(int copy) const {
  const TensorIntrinsic* products = ReaderOfCoreMatrices(copy);
  const Expr& body = stages_.at(copy).op.body;
  return products != nullptr && products->rounds_factors() &&
         !(body->kind == ExprKind::kLoad && stages_.at(body->buffer).rounded);
}

bool State::reads_core_matrices(int products) const {
  const std::vector<int> copies = Producers(products);
  return std::all_of(copies.begin(), copies.end(), [&](int copy) { return stages_.at(copy).core_matrices; });
}

absl::Status State::Apply(const Step& step) {
  if (step.stage < 0 || step.stage >= size())
    return absl::InvalidArgumentError(absl::StrCat("there is no stage ", step.stage));
  const bool of_target = step.kind == StepKind::kComputeAt && step.target >= 0 && step.target < size();
  const StageState& owner = stage(of_target ? step.target : step.stage);
  for (int loop : step.loops)
    if (loop < 0 || loop >= static_cast<int>(owner.loops.size()))
      return BadStep(owner, absl::StrCat("there is no loop ", loop));
  if (const ApplyStep apply = FunctionOf(step.kind); apply != nullptr) return apply(stages_, step);
  switch (step.kind) {
    case StepKind::kOverlap:
      if (step.factors.size() != 1) return BadStep(stage(step.stage), "one number is needed");
      has_overlap_ = true;
      overlap_ = step.factors[0];
      return absl::OkStatus();
    case StepKind::kAsyncCopy: stages_.at(step.stage).async_copy = true; return absl::OkStatus();
    case StepKind::kTensorCopy: stages_.at(step.stage).tensor_copy = true; return absl::OkStatus();
    default: return absl::InvalidArgumentError(absl::StrCat("unknown step kind ", static_cast<int>(step.kind)));
  }
}

std::string State::ToString() const {
  std::string text;
  for (int id : topological()) {
    const StageState& stage = stages_.at(id);
    if (!stage.computes()) continue;
    absl::StrAppend(&text, stage.op.name);
    if (stage.attach == StageState::Attach::kAt) {
      absl::StrAppend(&text, " at ", stages_.at(stage.attach_stage).op.name);
      for (int loop : stage.attach_loops) absl::StrAppend(&text, " ", stages_.at(stage.attach_stage).loops[loop].name);
    }
    absl::StrAppend(&text, "\n");
    if (stage.library != nullptr) {
      absl::StrAppend(&text, "  by ", stage.library->ToString(), " ", FactorText(stage.library_algorithm), "\n");
      continue;
    }
    for (int loop : stage.order) {
      absl::StrAppend(&text, "  ", AnnotationText(stage.loops[loop].annotation), " ", stage.loops[loop].name);
      if (stage.loops[loop].origin == Loop::Origin::kSplit && stage.loops[loop].level > 0)
        absl::StrAppend(&text, " (", FactorText(stage.loops[loop].factor), ")");
      if (!stage.loops[loop].group.is_constant() || stage.loops[loop].group.value > 1)
        absl::StrAppend(&text, " in groups of ", FactorText(stage.loops[loop].group), " rows");
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

absl::StatusOr<State> Replay(const ComputeDag& dag, const std::vector<Step>& steps) {
  State state(dag);
  for (size_t i = 0; i < steps.size(); ++i) {
    absl::Status status = state.Apply(steps[i]);
    if (!status.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("schedule step ", i, " (", ToString(steps[i]), "): ", status.message()));
  }
  return state;
}

}  // namespace diapason
