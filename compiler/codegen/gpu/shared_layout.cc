#include "compiler/codegen/gpu/shared_layout.h"

#include <algorithm>
#include <map>

#include "compiler/tensor/program.h"

namespace diapason {
namespace {

void CollectShared(const Stmt& stmt, std::map<int, BufferDecl>& out) {
  if (stmt == nullptr) return;
  if (stmt->kind == StmtKind::kAlloc && stmt->decl.scope == Scope::kShared) out.emplace(stmt->decl.id, stmt->decl);
  for (const Stmt& child : stmt->body) CollectShared(child, out);
}

}  // namespace

int64_t GpuAlignmentOf(const BufferDecl& decl) {
  if (decl.scope == Scope::kLocal) return BytesOf(decl.dtype);
  return std::max<int64_t>(decl.alignment, decl.scope == Scope::kGlobal ? kParameterAlignment : 16);
}

SharedLayout LayOutShared(const Stmt& body) {
  std::map<int, BufferDecl> buffers;
  CollectShared(body, buffers);
  SharedLayout layout;
  int64_t end = 0, overlay_end = 0;
  const auto place = [&](const BufferDecl& decl, int64_t* bytes) {
    const int64_t alignment = GpuAlignmentOf(decl);
    const int64_t offset = (*bytes + alignment - 1) / alignment * alignment;
    layout.offsets.emplace_back(decl, offset);
    *bytes = offset + decl.elements * BytesOf(decl.dtype);
    layout.overlaid |= decl.overlay;
    layout.alignment = std::max(layout.alignment, alignment);
  };
  // Swizzled buffers, whose sizes are multiples of their alignments, come first, so that nothing is lost between
  // buffers.
  for (const int swizzle : {128, 64, 32})
    for (const auto& [id, decl] : buffers)
      if (decl.swizzle == swizzle) place(decl, &end);
  for (const auto& [id, decl] : buffers)
    if (!decl.apart && decl.swizzle == 0) place(decl, decl.overlay ? &overlay_end : &end);
  layout.bytes = std::max(end, overlay_end);
  for (const auto& [id, decl] : buffers)
    if (decl.apart) place(decl, &layout.bytes);
  return layout;
}

}  // namespace diapason
