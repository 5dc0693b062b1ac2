// How each kind of step changes stages: one function a kind, by what StepKind says of it. State::Apply chooses among
// them.
//
// InvalidArgument names the stage and the rule of the step that does not hold; the stages must not be used further
// then. REQUIRES: step.stage is a stage, and step.loops are loops of it (of step.target: kComputeAt).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "compiler/schedule/stages.h"
#include "compiler/schedule/step.h"

namespace diapason {

// Of one stage (apply_loops.cc): its loops, and numbers that say how it runs.
absl::Status ApplySplit(ScheduledStages& stages, const Step& step);
absl::Status ApplyFuse(ScheduledStages& stages, const Step& step);
absl::Status ApplyReorder(ScheduledStages& stages, const Step& step);
absl::Status ApplyAnnotate(ScheduledStages& stages, const Step& step);
absl::Status ApplyTensorize(ScheduledStages& stages, const Step& step);
absl::Status ApplyGroupBlocks(ScheduledStages& stages, const Step& step);
absl::Status ApplyReplicate(ScheduledStages& stages, const Step& step);
absl::Status ApplyCoreMatrices(ScheduledStages& stages, const Step& step);
// kPadRows, kOddRows, kAlignRows, kUnroll, kPipeline and kProducer.
absl::Status ApplyNumber(ScheduledStages& stages, const Step& step);

// Where a stage is computed, and where its result is (apply_places.cc).
absl::Status ApplyComputeAt(ScheduledStages& stages, const Step& step);
absl::Status ApplyInline(ScheduledStages& stages, const Step& step);
absl::Status ApplySetScope(ScheduledStages& stages, const Step& step);
absl::Status ApplyCarry(ScheduledStages& stages, const Step& step);

// New stages (apply_copies.cc).
absl::Status ApplyCacheWrite(ScheduledStages& stages, const Step& step);
absl::Status ApplyCacheRead(ScheduledStages& stages, const Step& step);
absl::Status ApplyRfactor(ScheduledStages& stages, const Step& step);
absl::Status ApplyPack(ScheduledStages& stages, const Step& step);
absl::Status ApplyBulkCopy(ScheduledStages& stages, const Step& step);
absl::Status ApplyRoundFactors(ScheduledStages& stages, const Step& step);

// apply_library.cc.
absl::Status ApplyLibrary(ScheduledStages& stages, const Step& step);

// apply_recurrence.cc.
absl::Status ApplyRecurrence(ScheduledStages& stages, const Step& step);

// For these functions: the error of a step on a stage.
absl::Status BadStep(const StageState& stage, const std::string& what);
// Whether a step can name this memory for a copy; the number may come from a peer.
bool IsMemory(int32_t number);
// A body in which each load of stage `from` is replaced.
Expr ReplaceLoads(const Expr& body, int from, const std::function<Expr(const Expr&)>& replacement);

}  // namespace diapason
