#include "compiler/codegen/c/byte_lanes.h"

#include "compiler/codegen/c/vector_library.h"

namespace diapason {

bool ByteLanes::HaveForm(const Expr& e) const {
  if (!IsByte(e->dtype)) return false;
  if (!lanes_.Differ(e)) return true;
  switch (e->kind) {
    case ExprKind::kLoad: return From(e) != nullptr;
    case ExprKind::kCast: return CVectorLibrary::Holds(e->args[0]->dtype) || HaveForm(e->args[0]);
    case ExprKind::kMin:
    case ExprKind::kMax: return HaveForm(e->args[0]) && HaveForm(e->args[1]);
    case ExprKind::kSelect: return !lanes_.Differ(e->args[0]) && HaveForm(e->args[1]) && HaveForm(e->args[2]);
    default: return false;
  }
}

Expr ByteLanes::From(const Expr& load) const {
  if (load->kind != ExprKind::kLoad || !IsByte(load->dtype) || access_.HasSlots(load->buffer)) return nullptr;
  const Stride stride = lanes_.StrideAlong(load->args[0]);
  return stride.affine && stride.stride == 1 && IsByte(access_.decl(load->buffer).dtype) ? stride.base : nullptr;
}

}  // namespace diapason
