// What the proof of padding.h knows of the tensors of a network. For compiler/graph alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/network.h"
#include "compiler/graph/padding.h"
#include "compiler/graph/padding/place_in_row.h"
#include "compiler/graph/padding_values.h"
#include "compiler/graph/value_range.h"

namespace diapason {

// By axis of a tensor: how many of its elements belong to a row of the symbol, 0 where it does not grow.
using RowBlocks = std::vector<int64_t>;

inline bool Grows(const RowBlocks& blocks) {
  for (int64_t block : blocks)
    if (block > 0) return true;
  return false;
}

struct PaddingFact {
  RowBlocks blocks;
  std::vector<PaddedValue> padded;  // by axis; of those that grow
  ValueRange range;
  std::optional<double> uniform;  // of a constant
  std::optional<PlaceInRow> place;
};

// Facts of the first network's tensors, gathered node by node while its twin, the other network, is shown to be the
// same but for extents. The question outlives it.
class PaddingFacts {
 public:
  explicit PaddingFacts(const PaddingQuestion& question);

  // Folds the constants of both networks and takes their inputs. FailedPrecondition where the networks differ by more
  // than the symbol's size, as with all functions below that return a status.
  absl::Status TakeInputs();
  // Takes node n, whose inputs were taken: compares it with its twin and notes which axes of its result grow, and in
  // which range its elements lie. Says whether an axis of the result or of an input grows: then a rule (rules.h) has to
  // find what its padded elements are, and whether the real ones are right.
  absl::StatusOr<bool> TakeNode(size_t n);
  // The axes of an output of the network that grow.
  absl::StatusOr<std::vector<GrowingAxis>> TakeOutput(size_t output);

  const Network& network() const { return network_; }
  const Network& twin() const { return twin_network_; }
  const PaddingFact& of(int tensor) const { return facts_[tensor]; }
  PaddingFact& of(int tensor) { return facts_[tensor]; }
  const std::vector<int64_t>& shape(int tensor) const { return network_.tensor(tensor).type.shape; }
  const std::string& symbol() const { return question_.symbol; }
  // The smallest size that is padded: rows from this one on may be padding.
  int64_t least() const { return question_.least; }

  // The proof holds only where the first row is real, since what is padded is `low`: exponentials of -inf are 0 beside
  // anything, those of other low values beside one that is not.
  void RestOnFirst(const PaddedValue& low);
  bool needs_first() const { return needs_first_; }

  // The error of a node for which no rule shows that padding has no effect.
  absl::Status Combines(const Node& node) const;

 private:
  absl::Status OtherGraph() const;
  absl::StatusOr<RowBlocks> BlocksOf(int tensor, int twin) const;
  absl::Status Match(int tensor, int twin);
  absl::Status CompareConstants(const Tensor& tensor, const Array& other, const RowBlocks& blocks) const;
  absl::Status CompareNodes(const Node& node, const Node& twin) const;
  std::optional<PlaceInRow> PlaceOfResult(const Node& node) const;

  const PaddingQuestion& question_;
  Network network_, twin_network_;
  std::vector<PaddingFact> facts_;  // by tensor
  std::vector<int> twin_;           // by tensor: that of the twin network; -1: not seen yet
  bool needs_first_ = false;
};

// "node 'x' (add)", for errors.
std::string NameForPadding(const Node& node);

}  // namespace diapason
