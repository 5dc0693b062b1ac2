// The buffers of one kernel: its parameters, those of stages that are computed inside it, and temporaries that are no
// stage's.
#pragma once

#include <vector>

#include "compiler/lower/kernel_context.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// Parameters of the kernel: the stages that it reads and does not compute, and its root, which it writes; by id.
std::vector<BufferDecl> ParametersOf(const KernelContext& kernel);

// Bytes of shared memory that a block needs for what is allocated in a statement.
int64_t SharedBytesOf(const Stmt& stmt);

// Buffers that are allocated in the kernel.
class KernelBuffers {
 public:
  // `next`: the next id that is no stage's; it keeps counting for the next kernel of a program. Declares the buffers of
  // the stages that are computed inside the kernel, and what is beside them: barriers, low parts, growth.
  KernelBuffers(const KernelContext& kernel, int* next);

  int NewId() { return (*next_)++; }
  void Declare(BufferDecl decl) { declared_.push_back(std::move(decl)); }
  // All that have been declared since the last time, around a statement.
  Stmt WithAllocations(Stmt body);

  // Barriers at which the tiles of a bulk copy, or of one made by tensor copies, arrive, one a slot; -1: there are
  // none.
  int arrivals(int copy) const { return arrivals_[copy]; }
  // Barriers at which threads have left the slots of a copy that a producer fills: behind those of `arrivals`, in their
  // buffer; -1: nobody does.
  int leavings(int copy) const { return leavings_[copy]; }
  // Low parts of a copy in core matrices; -1: it has none.
  int low_parts(int copy) const { return low_parts_[copy]; }
  // exp(maximum before - maximum now), of a maximum that carried reductions are relative to; -1: of no such stage.
  int growth(int maximum) const { return growth_[maximum]; }
  // Of each thread: the scale of differences from the maximum; -1: none.
  int scale(int maximum) const { return scale_[maximum]; }

 private:
  void DeclareStage(const KernelContext& kernel, int id);
  void DeclareGrowth(const KernelContext& kernel, int maximum, const Expr& scale);

  int* next_;
  std::vector<BufferDecl> declared_;
  std::vector<int> arrivals_, leavings_, low_parts_, growth_, scale_;  // by stage
};

}  // namespace diapason
