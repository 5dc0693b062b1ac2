// The sums of a recurrence's steps (recurrent_kernel.h) as products on tensor cores, and what these read: weights as
// operands of 16 columns, which stay on chip, and the state as operands of 8 rows, which all blocks send to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "compiler/lower/recurrent_nest.h"
#include "compiler/schedule/recurrent_products.h"

namespace diapason {

// Of a product, lane 4 * g + q of a warp has columns of unit g (its own), two groups at a time as rows g and g + 8 of
// the instruction, and rows 2q and 2q + 1 of the state as its columns. So a thread has two of each 8 rows, whose number
// is RecurrentNest::Row, of all groups of its unit.
class RecurrentProducts {
 public:
  // REQUIRES, but for KeepWeights where the tiles have no fragments: CheckRecurrentProducts.
  explicit RecurrentProducts(RecurrentNest* nest) : nest_(*nest) {}

  // Declares what blocks exchange, and brings the weights to where they stay. Once, before all others.
  Stmt KeepWeights();
  // Stage number `i` of the body, a sum, of the thread's unit and rows.
  Stmt Emit(size_t i);
  // What the thread has of a stage, in buffer `from`, to all blocks.
  Stmt Send(const ExchangedStage& e, int from, const Expr& slot);

 private:
  // A stage as all blocks have it: [slots][parts][eights of rows][units][8 rows].
  struct Exchange {
    int buffer = -1, parts = 1;
    int64_t units = 0;
    DType dtype = DType::kFloat16;
  };
  struct Product {
    RecurrentProduct product;
    int64_t steps = 0, pairs = 0;  // products along k, and pairs of groups
    int weights = -1;              // [pairs][steps][4 words], of each thread
  };
  // Registers of a thread while it makes products.
  struct Operands {
    int sums = -1, state = -1;
    int words = -1;  // of weights in shared memory
  };

  int64_t Eights() const;
  const ExchangedStage& StateOf(const Product& p) const;
  Expr ExchangeIndex(const Exchange& exchange, const Expr& slot, int64_t part, int64_t eight, const Expr& unit) const;
  Expr WeightIndex(const Product& p, int64_t pair, const Expr& k) const;
  void DeclareExchange(const Product& p);
  Stmt Keep(const Product& p, const Stage& stage);
  Stmt LoadState(const Product& p, int to, const Expr& k, int64_t matrices) const;
  Stmt Multiply(const Product& p, const Operands& to, const Expr& k, int64_t count) const;
  // Where the sums of a tile are, among those of a thread.
  int64_t SumOf(const Product& p, int64_t chain, int64_t pair, int64_t eight) const;

  RecurrentNest& nest_;
  std::map<int, Exchange> exchanges_;   // by stage
  std::map<size_t, Product> products_;  // by position in the body
};

// The number in its lane of a row of the state.
inline int64_t RowOfLane(int64_t row) { return row / kRowsOfProduct * kRowsOfLane + row % kRowsOfLane; }

}  // namespace diapason
