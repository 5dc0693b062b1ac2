// Emits the loop nest of one kernel: a root stage and the stages computed inside it.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/lower/attached_stages.h"
#include "compiler/lower/carried_reductions.h"
#include "compiler/lower/group_pipelines.h"
#include "compiler/lower/group_products.h"
#include "compiler/lower/kernel_context.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"
#include "compiler/lower/software_pipelines.h"

namespace diapason {

// Puts the parts of a kernel's lowering together, and is what they ask for loops with other stages in them. For one
// kernel, which outlives it.
class NestBuilder : private NestEmitter {
 public:
  // `next_buffer` gives ids to temporaries that are no stage's buffer; it keeps counting for the next kernel.
  NestBuilder(const KernelContext& kernel, int* next_buffer);

  // Once. InvalidArgument and FailedPrecondition for what the schedule asks for and cannot have.
  absl::StatusOr<KernelFunc> Build();

 private:
  Stmt EmitStage(int id) override;
  Stmt EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) override;
  Stmt EmitStatement(int id);

  const KernelContext& kernel_;
  NestParts parts_;
  SharedCopies copies_;
  AttachedStages attached_;
  GroupHandover handover_;
  GroupPipelines groups_;
  SoftwarePipelines pipelines_;
  CarriedReductions carried_;
};

}  // namespace diapason
