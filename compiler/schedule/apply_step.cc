#include "compiler/schedule/apply_step.h"

#include "absl/strings/str_cat.h"

namespace diapason {

absl::Status BadStep(const StageState& stage, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": ", what));
}

bool IsMemory(int32_t number) { return number >= 0 && number <= static_cast<int32_t>(Memory::kLocal); }

Expr ReplaceLoads(const Expr& body, int from, const std::function<Expr(const Expr&)>& replacement) {
  return Rewrite(body,
                 [&](const Expr& e) { return e->kind == ExprKind::kLoad && e->buffer == from ? replacement(e) : e; });
}

}  // namespace diapason
