// Hash consing of expressions. Internal to compiler/tensor/simplify.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/expr.h"
#include "compiler/tensor/simplify.h"

namespace diapason::simplify {

// Keeps one node for all equal expressions of a run, so that expressions are equal if and only if their addresses are.
// Without this, comparing two deep expressions with shared parts takes time exponential in their depth.
class Interner {
 public:
  // The node that represents all expressions equal to `e`. REQUIRES: e's arguments are interned or literals.
  Expr Node(const Expr& e);
  // The node of a sum. The order of the terms does not matter.
  Expr Sum(const Affine& a);

 private:
  std::unordered_map<uint64_t, std::vector<Expr>> nodes_;
  std::unordered_map<uint64_t, std::vector<std::pair<Affine, Expr>>> sums_;
};

}  // namespace diapason::simplify
