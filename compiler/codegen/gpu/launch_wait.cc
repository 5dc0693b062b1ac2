#include "compiler/codegen/gpu/launch_wait.h"

#include <algorithm>

#include "compiler/lower/early_start.h"
#include "compiler/lower/leaves.h"

namespace diapason {

LaunchWait::LaunchWait(const KernelFunc& kernel, bool starts_early) : pending_(starts_early) {
  if (!starts_early) return;
  for (const BufferDecl& param : kernel.params)
    if (diapason::IsAwaited(param)) awaited_.insert(param.id);
}

bool LaunchWait::StandsBefore(const Stmt& stmt) const {
  return pending_ && !stmt->role && !RunsBodyOnce(*stmt, [this](int buffer) { return IsAwaited(buffer); }) &&
         Touches(stmt);
}

bool LaunchWait::Touches(const Expr& e) const {
  return LoadsFrom(e, [this](int buffer) { return IsAwaited(buffer); });
}

bool LaunchWait::Touches(const Stmt& stmt) const {
  return Contains(stmt, [this](const StmtNode& s) {
    return IsAwaited(s.buffer) || Touches(s.index) || Touches(s.value) || Touches(s.condition) ||
           std::any_of(s.operands.begin(), s.operands.end(), [this](const Expr& e) { return Touches(e); });
  });
}

}  // namespace diapason
