// Dot products of four bytes in C: statements that add to each lane of a vector of int32 the products of four pairs of
// neighbouring bytes, in the order in which sketches have them (scheduler/sketch/rules/byte_dots.h), become the
// instructions that do this: vpdpbusd on x86, or else pmaddwd of the even and of the odd bytes; sdot, udot and usdot on
// ARM.
#pragma once

#include <optional>
#include <string>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// store[lane] = sum[lane] + left[0..3] . right[4 * lane + 0..3]
struct ByteDot {
  const StmtNode* store = nullptr;
  Expr sum;                // its load
  Expr left, right;        // loads of the factors
  Expr left_at, right_at;  // their indices at lane 0 and byte 0
};

// What a vector loop inside a loop over `byte`, of kDotBytes iterations, computes if that is such a dot product, maybe
// under conditions.
std::optional<ByteDot> FindByteDot(const Expr& byte, const StmtNode& vector_loop, Analyzer& analyzer);

// Unrolled loops that hold dot products alone become serial ones, which are printed as a whole.
Stmt KeepByteDots(const Stmt& stmt, Analyzer& analyzer);

// Whether a serial loop holds dot products alone, of as many lanes as the functions below have, all of them computed.
bool HoldsByteDots(const StmtNode& loop, Analyzer& analyzer);

// C functions for dot products of a number of lanes, 4, 8 or 16, that call each other in the order of their names.
// `types` go in front of them, beside the vector i32xN and i32xN_set, which broadcasts.
struct ByteDotFunctions {
  std::string types;
  std::string dots_name, dots;    // vpdpbusd: (sums, unsigned bytes, signed bytes), where the processor has it
  std::string pairs_name, pairs;  // pmaddwd: (16-bit integers, 16-bit integers)
  std::string name, text;         // (sums, four left bytes as an int, pointer to the right bytes)
};
ByteDotFunctions ByteDotFunctionsFor(bool left_signed, bool right_signed, int64_t lanes);

}  // namespace diapason
