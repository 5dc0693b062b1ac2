#include "compiler/lower/registers_ahead.h"

#include <algorithm>
#include <utility>

namespace diapason {

LoadedAhead LoadAhead(const ValueAhead& ahead, int* next_buffer) {
  LoadedAhead made;
  BufferDecl& decl = made.decl;
  decl.id = (*next_buffer)++;
  decl.name = ahead.name + std::to_string(decl.id);
  decl.dtype = ahead.value->dtype;
  decl.scope = Scope::kLocal;
  decl.packed = ahead.packed;
  decl.elements = 1;
  Expr place = IntImm(0);
  for (const StmtNode* loop : ahead.elements) {
    decl.elements *= loop->extent;
    place = Add(Mul(place, IntImm(loop->extent)), loop->var);
  }
  made.own = Load(decl.id, decl.dtype, {place});
  VarMap renamed;
  for (const StmtNode* loop : ahead.filled) renamed[loop->var.get()] = MakeVar(loop->var->name);
  made.fill = MakeStore(decl.id, Substitute(place, renamed), Substitute(ahead.value, renamed));
  if (ahead.condition) made.fill = MakeIf(Substitute(ahead.condition, renamed), made.fill);
  for (size_t l = ahead.filled.size(); l-- > 0;) {
    const StmtNode& loop = *ahead.filled[l];
    const ForKind kind = l + 1 == ahead.filled.size() ? ahead.innermost.value_or(loop.for_kind) : loop.for_kind;
    made.fill = MakeFor(kind, renamed[loop.var.get()], loop.extent, std::move(made.fill));
  }
  return made;
}

int64_t RegistersOf(const BufferDecl& decl) {
  const int64_t bytes = BytesOf(decl.dtype);
  return decl.packed ? (decl.elements * bytes + 3) / 4 : decl.elements * std::max<int64_t>(1, bytes / 4);
}

}  // namespace diapason
