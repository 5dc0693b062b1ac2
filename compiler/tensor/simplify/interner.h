// One node for all equal expressions. Internal to compiler/tensor/simplify.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/expr.h"
#include "compiler/tensor/simplify.h"

namespace diapason::simplify {

// Keeps one node for all equal expressions of a run, so that comparing addresses is comparing structure: without it,
// comparing two deep expressions with shared parts costs exponentially in their depth.
class Interner {
 public:
  // The node that stands for all nodes like `e`. REQUIRES: e's arguments are interned or literals.
  Expr Node(const Expr& e);
  // The expression of a sum; sums that differ in the order of terms are the same.
  Expr Sum(const Affine& a);

 private:
  std::unordered_map<uint64_t, std::vector<Expr>> nodes_;
  std::unordered_map<uint64_t, std::vector<std::pair<Affine, Expr>>> sums_;
};

}  // namespace diapason::simplify
