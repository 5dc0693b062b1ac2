// A software pipeline over loops of a stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "compiler/lower/stmt.h"

namespace diapason {

struct SoftwarePipeline {
  int id = -1;
  size_t last = 0,
         end = 0;  // the innermost of these loops, at which copies are made; where the stage's own products begin
  int64_t slots = 1, iterations = 1;
  Expr step{}, fill{}, use{};  // variables: of the loop over steps, and the slots that are filled and read
  // Binds the loops of an iteration around a statement.
  std::function<Stmt(const Expr& iteration, Stmt body)> at{};
  std::function<Stmt()> inner{};  // the stage's loops from position `end` on
};

}  // namespace diapason
