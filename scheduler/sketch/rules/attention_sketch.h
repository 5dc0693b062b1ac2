// What the sketches of attention in one kernel have in common (rules/attention.cc, rules/attention_tensor.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/sketch/attention_chain.h"

namespace diapason {

class AttentionSketch {
 public:
  // Inlines what is element-wise between the stages that are scheduled, and what operands are made of; these themselves
  // only if they are neither the keys nor `kept`.
  AttentionSketch(Draft draft, AttentionChain chain, const std::vector<int>& kept = {});

 protected:
  bool IsFreeElementwise(int id) const;
  Factor Parameter(const std::string& name, std::vector<int32_t> values, int32_t start);
  std::vector<int> OtherAxes(int stage, const std::vector<int>& axes) const;
  void Order(int stage, const std::vector<std::vector<int>>& levels);
  // In shared memory, for a block.
  void Share(int stage, int block);
  // Elements, in the order of these loops, by the threads of a block in turns.
  void ByThreads(int stage, const std::vector<int>& loops, const Factor& threads);
  // Parts of a row's reduction, each of every so many keys, so that neighbouring threads read neighbours: the new stage
  // that has them.
  int FactorParts(int stage, int32_t parts);
  // A row's reduction: parts of rows by all threads, then rows.
  void ShareReduction(int stage, int block, const Factor& threads);

  Draft draft_;
  const AttentionChain a_;
  int local_;  // the sum that scores are, in registers on GPUs

 private:
  void InlineInputs(const std::vector<int>& kept);
};

// A row's reduction is made in so many parts side by side.
int64_t PartsOf(const AttentionChain& chain);

// The sketches on tensor cores: with copies of keys and values as the products need them, and of all at once, asked for
// before all else, where these fit the device, both where rows fit (`rows_fit`); and with a stream of keys and values.
// REQUIRES: FitsAttentionOnTensorCores.
std::vector<Draft> AttentionOnTensorCores(const Draft& draft, const AttentionChain& chain, bool rows_fit);
// Whether there is a sketch that streams keys and values: rows of any length.
bool StreamsAttention(const Draft& draft, const AttentionChain& chain);
// True if both products of an attention fit tensor cores and their operands are stages in the order of rows, as in the
// rewrite `attention`.
bool FitsAttentionOnTensorCores(const Draft& draft, const AttentionChain& chain);

}  // namespace diapason
