#include "compiler/lower/registers_ahead.h"

#include <algorithm>
#include <utility>

#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

constexpr int64_t kRegisterFile = 65536;  // of a multiprocessor
constexpr int64_t kUnit = 8, kMostOfThread = 255, kMostSet = 240;

// Registers of a thread, in units, where so many threads share those of a multiprocessor.
int64_t EvenShare(int64_t threads) { return std::min(kMostOfThread, kRegisterFile / threads) / kUnit * kUnit; }

}  // namespace

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

RegistersOfRole RegistersWithProducer(int64_t threads) {
  const int64_t each = EvenShare(threads + kLanesOfGroup), few = threads > 2 * kLanesOfGroup ? 32 : 24;
  const int64_t rest = (each * (threads + kLanesOfGroup) - few * kLanesOfGroup) / threads / kUnit * kUnit;
  const int64_t others = std::min(kMostSet, rest);
  return others > each && few < each ? RegistersOfRole{few, others} : RegistersOfRole{};
}

int64_t RegistersOfThread(const KernelFunc& kernel, int64_t blocks) {
  const int64_t threads = std::max<int64_t>(1, kernel.threads);
  if (kernel.producer != nullptr)
    if (const int64_t others = RegistersWithProducer(threads).others; others > 0) return others;
  return std::min(kMostSet, kRegisterFile / (threads * (kernel.resident > 0 ? kernel.resident : blocks)));
}

}  // namespace diapason
