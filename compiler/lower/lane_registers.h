// Stages of a block that lie in the registers of its threads (Memory::kLanes on cuda): each has what it computes, in
// the order of its loops, and the others of its warp ask it by shuffles.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/lower/nest_state.h"

namespace diapason {

// Where elements of such stages are, and the shuffles that bring those of other lanes. All lanes of a warp take part in
// a shuffle, so it comes in front of the statement that needs its result.
class LaneRegisters {
 public:
  explicit LaneRegisters(NestState* nest) : nest_(*nest) {}

  // Where a thread has the element at these values of the stage's loops, by loop id.
  Expr RegisterOf(int id, const std::vector<Expr>& values);

  // The element of a stage at these coordinates of its buffer, for `load` in the body of `reader`: from this thread's
  // registers, or those of the lane that has it, with a shuffle for TakeShuffles. Refused: elements of which it is not
  // known which lane of the warp has them, and where not all lanes read (`conditional`) those of another lane.
  Expr LoadElement(int reader, const Expr& load, const std::vector<Expr>& indices, bool conditional);

  // The shuffles that are needed since the last call.
  std::vector<Stmt> TakeShuffles();
  // Shuffles in front of a statement of the stage; refused unless all lanes run it.
  Stmt WithShuffles(int id, std::vector<Stmt> shuffles, bool by_all, Stmt stmt);

 private:
  void AddDigits(int id, int loop, const Expr& value, std::vector<Expr>* values);

  NestState& nest_;
  std::vector<Stmt> shuffles_;
};

}  // namespace diapason
