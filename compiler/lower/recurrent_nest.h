// What the parts of a recurrence's kernel (recurrent_kernel.h) have in common: variables, buffers, loops over what a
// thread has, and expressions.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/recurrent_kernel.h"
#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

class RecurrentNest {
 public:
  RecurrentNest(const RecurrentKernelContext& context, int* next_buffer);

  const RecurrentKernelContext& context;
  const ComputeDag& dag;
  const Recurrence& r;
  const RecurrentTiles tiles;
  const bool gpu, cuda;
  const std::vector<ExchangedStage> exchanged;
  // The step; the unit of a thread (in [0, tiles.units)); on cpu the number of the vector of units; the thread; the
  // block's rank in its cluster.
  const Expr step, each, block, thread, rank;
  Expr lane;    // gpu: of the threads that share sums
  Expr active;  // gpu: the thread has units of its own; others compute what the last ones do

  // A new buffer, which lives as long as the kernel runs.
  int Declare(const std::string& name, DType dtype, Scope scope, int64_t elements, bool packed = false);
  const std::vector<BufferDecl>& buffers() const { return buffers_; }
  // What a thread has of a stage, by its id, or of a carried one, by its buffer (Recurrence::BufferOf).
  int LocalOf(int key) const { return locals_.at(key); }
  // What all blocks have of an exchanged stage: its slots.
  int SharedOf(int stage) const { return shared_.at(stage); }
  // Placeholders that the kernel reads.
  const std::set<int>& read() const { return read_; }
  void Reads(int placeholder) { read_.insert(placeholder); }

  // The place of an element of the thread's units in such a buffer.
  Expr LocalIndex(const Stage& stage, RowAndGroup at) const;
  // The number among all of a row of the thread (RecurrentSchedule::RowsOfThread).
  Expr Row(int64_t of_thread) const;
  // Whether the thread has such a row, which others may compute too; null: all threads do.
  Expr HasRow(int64_t row) const;
  Expr OwnUnit() const { return Add(own_first_, each); }
  // The element of a tensor of the stage's shape.
  Expr ElementIndex(const Stage& stage, RowAndGroup at) const;

  // For each unit of the thread: unrolled, or a vector.
  Stmt ForEach(Stmt body) const;
  // The same for a stage: once where it has no units.
  Stmt ForEachOf(const Stage& stage, Stmt body) const { return r.IsUniform(stage) ? body : ForEach(std::move(body)); }
  // On cpu: for all vectors of units.
  Stmt OverUnits(Stmt body) const;
  // For all rows and groups that a thread has of a stage, one behind the other; rows by their numbers in the thread.
  using OfElement = std::function<Stmt(RowAndGroup at)>;
  Stmt OverElements(const Stage& stage, const OfElement& make) const;
  // Of all blocks; null on cpu. `meanwhile`, for clusters alone: what needs no barrier and need not be done in front of
  // it.
  Stmt Barrier(Stmt meanwhile = nullptr) const;

  bool IsGlobal(int buffer) const { return buffer >= 0 && buffer < dag.size() && dag.stage(buffer).placeholder; }
  // What an expression of a stage that does not reduce is, for one row and group. With `ahead`, what it reads of inputs
  // is asked for ahead (Ahead).
  Expr Value(const Expr& body, const Stage& stage, RowAndGroup at, bool ahead);
  // Loads for step `now` all inputs that values read ahead; in front of the first step also those that are the same in
  // all steps.
  Stmt Ahead(const Expr& now, bool first) const;
  // An expression of a sum for a row, a group and a term. Loads of other buffers than stages stay.
  Expr WithTerm(const Expr& e, const Stage& stage, RowAndGroup at, const Expr& term);

 private:
  void DeclareLocal(int key, int id, const std::string& name);
  Expr FlatIndex(const Stage& stage, const std::vector<Expr>& indices);
  Expr GlobalLoad(const ExprNode& load);
  Expr LoadAhead(const Expr& load);
  Expr SharedLoad(const ExprNode& load);

  int& next_buffer_;
  Analyzer analyzer_;
  const Expr unit_, row_;
  Expr own_first_;
  std::vector<BufferDecl> buffers_;
  std::map<int, int> locals_, shared_;
  std::set<int> read_;
  // Loads of inputs over `unit_` and Recurrence::step, and where they are kept for the units of the thread.
  std::vector<std::pair<Expr, int>> ahead_;
};

// The slot of an exchanged stage that a sum of step `step` reads through a buffer of Recurrence::expressions.
Expr SlotRead(const ExchangedStage& exchanged, int buffer, const Expr& step);

}  // namespace diapason
