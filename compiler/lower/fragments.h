// What products on tensor cores have in common: by warps (tensor_products.cc) and by warpgroups (group_products.cc).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/lower/nest.h"

namespace diapason {

inline constexpr int64_t kTileSums = 4;         // sums of 16 x 8 that a lane holds
inline constexpr int64_t kLongestRunOfK = 32;   // that the tensor cores sum, before float32 adds
inline constexpr double kMostProducts = 16384;  // of one stage: they are written out

// The load that a factor is, perhaps cast to the type of the sum.
inline const Expr& LoadOfFactor(const Expr& factor) {
  return factor->kind == ExprKind::kCast ? factor->args[0] : factor;
}

// Registers that hold one operand: those of each tile once, however many products use them.
struct NestBuilder::Fragments {
  Expr load;          // of the operand, in the stage's body
  bool rows = false;  // the operand with rows of the result; else with columns
  int buffer = -1;
  int64_t elements = 0;                         // of the buffer: registers
  std::vector<std::pair<Expr, int64_t>> known;  // load of the first element, where it lies in the buffer
  std::vector<Stmt> loads;
};

}  // namespace diapason
