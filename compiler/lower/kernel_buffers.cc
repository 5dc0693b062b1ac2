#include "compiler/lower/kernel_buffers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/lower/element_index.h"
#include "compiler/lower/tensor_box_of_copy.h"

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

Scope ScopeOf(const KernelContext& kernel, int id) {
  return IsOfBlock(kernel.state.stage(id).memory) && !kernel.IsHeldByLanes(id) ? Scope::kShared : Scope::kLocal;
}

}  // namespace

std::vector<BufferDecl> ParametersOf(const KernelContext& kernel) {
  const State& state = kernel.state;
  std::set<int> globals;
  for (int id : state.topological()) {
    if (kernel.skeleton.root_of(id) != kernel.root) continue;
    for (int producer : state.Producers(id))
      if (kernel.skeleton.root_of(producer) != kernel.root || producer == kernel.root) globals.insert(producer);
  }
  globals.insert(kernel.root);
  std::vector<BufferDecl> parameters;
  for (int id : globals) {
    const StageState& s = state.stage(id);
    const int64_t elements = kernel.IsPlaced(id) ? kernel.place.elements : StoredElements(state, kernel.bounds, id);
    parameters.push_back({id, Identifier(s.op.name), s.op.dtype, Scope::kGlobal, elements, id == kernel.root, 0});
  }
  return parameters;
}

int64_t SharedBytesOf(const Stmt& stmt) {
  SharedBytes shared;
  shared.Add(stmt);
  return shared.all();
}

KernelBuffers::KernelBuffers(const KernelContext& kernel, int* next)
    : next_(next),
      arrivals_(kernel.state.size(), -1),
      leavings_(kernel.state.size(), -1),
      low_parts_(kernel.state.size(), -1),
      growth_(kernel.state.size(), -1),
      scale_(kernel.state.size(), -1) {
  for (int id : kernel.state.topological())
    if (kernel.skeleton.root_of(id) == kernel.root && kernel.state.stage(id).attach == StageState::Attach::kAt)
      DeclareStage(kernel, id);
  for (const StageState& s : kernel.state.stages()) {
    const int maximum = s.carry.maximum;
    if (maximum >= 0 && growth_[maximum] < 0 && kernel.skeleton.root_of(maximum) == kernel.root)
      DeclareGrowth(kernel, maximum, s.carry.scale);
  }
}

void KernelBuffers::DeclareStage(const KernelContext& kernel, int id) {
  const StageState& s = kernel.state.stage(id);
  const StageBounds& b = kernel.bounds.stages[id];
  const Scope scope = ScopeOf(kernel, id);
  BufferDecl decl{id,
                  Identifier(s.op.name) + "_",
                  s.op.dtype,
                  scope,
                  kernel.ElementsOf(id),
                  true,
                  kernel.target.is_gpu() ? 16 : 64,
                  id == kernel.split.tile};
  // The tile takes no place of what is read behind it.
  decl.apart =
      kernel.split.tile >= 0 && id != kernel.split.tile && s.memory == Memory::kShared && s.attach_stage == kernel.root;
  decl.packed = kernel.target.is_gpu() && kernel.IsReadAhead(id);
  if (b.swizzled) {
    const auto bytes = static_cast<int>(b.core_row * BytesOf(s.op.dtype));
    decl.alignment = 8 * bytes;
    decl.swizzle = bytes;
  }
  Declare(std::move(decl));
  if ((s.bulk && kernel.target.kind == TargetKind::kCuda) || BoxOfCopy(kernel, id)) {
    arrivals_[id] = NewId();
    if (!s.bulk && HasProducer(kernel, s.attach_stage)) leavings_[id] = arrivals_[id];
    Declare({arrivals_[id], Identifier(s.op.name) + "_arrival", DType::kInt64, scope, s.bulk ? b.slots : 2 * b.slots,
             true, 16, false, true});
  }
  if (kernel.state.has_low_parts(id) && kernel.target.kind == TargetKind::kCuda) {
    low_parts_[id] = NewId();
    Declare({low_parts_[id], Identifier(s.op.name) + "_low", s.op.dtype, scope, b.low_parts(), true, 16});
  }
}

void KernelBuffers::DeclareGrowth(const KernelContext& kernel, int maximum, const Expr& scale) {
  const StageState& m = kernel.state.stage(maximum);
  growth_[maximum] = NewId();
  Declare({growth_[maximum], Identifier(m.op.name) + "_growth", m.op.dtype, ScopeOf(kernel, maximum),
           kernel.ElementsOf(maximum), true, 16});
  if (!scale) return;
  scale_[maximum] = NewId();
  Declare({scale_[maximum], Identifier(m.op.name) + "_scale", scale->dtype, Scope::kLocal, 1, true, 16});
}

Stmt KernelBuffers::WithAllocations(Stmt body) {
  for (auto it = declared_.rbegin(); it != declared_.rend(); ++it) body = MakeAlloc(*it, body);
  declared_.clear();
  return body;
}

}  // namespace diapason
