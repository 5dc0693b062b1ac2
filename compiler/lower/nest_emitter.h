// What the parts of a loop nest ask of the whole.
#pragma once

#include <cstddef>
#include <functional>

#include "compiler/lower/stmt.h"

namespace diapason {

// Implemented by NestBuilder; a test may put something simpler in its place.
class NestEmitter {
 public:
  virtual ~NestEmitter() = default;

  // A stage with its loops, prepared anew (LoopValues). REQUIRES: the loops around it are what is emitted.
  virtual Stmt EmitStage(int id) = 0;
  // The loops at positions [position, end) of a stage that is prepared, with all that is computed at them, around what
  // `inner` makes; it is called once, or not at all after NestState::Refuse.
  virtual Stmt EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) = 0;
};

}  // namespace diapason
