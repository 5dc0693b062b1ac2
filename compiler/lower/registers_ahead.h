// Registers that hold what a statement would load, filled at an earlier place: what passes that move loads have in
// common (early_operands.h, overlapped_loads.h, remote_loads.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/lower/stmt.h"

namespace diapason {

// What is to be loaded at another place than that of the statement whose loops these are.
struct ValueAhead {
  std::string name{};  // the buffer's, in front of its id
  Expr value{};        // in terms of what is known where the registers are filled, and of variables of `filled`
  Expr condition{};    // under which it is; null: always
  // Loops around the statement, the outermost first: all that value and condition use, as they are to be around what
  // fills the registers, and those of them whose iterations have a register each.
  std::vector<const StmtNode*> filled{}, elements{};
  std::optional<ForKind> innermost{};  // of `filled`; nothing: as it is
  bool packed = false;                 // BufferDecl
};

struct LoadedAhead {
  BufferDecl decl;
  Stmt fill;  // with variables of its own in place of those of `filled`
  Expr own;   // what the statement reads in place of the value
};

// Takes the id `*next_buffer` and leaves the next one there. The caller declares the buffer and places what fills it.
LoadedAhead LoadAhead(const ValueAhead& ahead, int* next_buffer);

// Registers of a thread that a buffer of its own takes.
int64_t RegistersOf(const BufferDecl& decl);

// Registers of a thread: of the producer's, and of one that is none; 0: as they come.
struct RegistersOfRole {
  int64_t producer = 0, others = 0;
};
// The fewest for the producer's warpgroup that are enough for a loop of copies, and what `threads` others then have.
RegistersOfRole RegistersWithProducer(int64_t threads);

// Registers that a thread of the kernel, no producer, can have. `blocks`: that share a multiprocessor, where the kernel
// does not say how many.
int64_t RegistersOfThread(const KernelFunc& kernel, int64_t blocks);

}  // namespace diapason
