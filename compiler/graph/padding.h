// Whether a model may run on inputs that were made larger along a symbolic dimension: with rows appended to a batch, or
// with positions appended to a sequence of which a mask says that they are none.
//
// The proof looks at one network at two sizes of the symbol. Axes whose extents differ grow with the symbol; everything
// else must be the same in both: nodes, attributes, and constants as far as both have them. Then every node is followed
// with this invariant: elements with real indices on all growing axes are those that the network would compute at the
// real size. An operator that combines values along a growing axis keeps it only where what is padded has no effect
// there: zeros in sums and products, values far below all others in maxima and softmaxes. Where a mask is 0, or a
// constant (a causal mask), the values of padded elements are followed through element-wise operators; they are unknown
// elsewhere. A zero counts in a product only where the other factor is shown to be finite at padded elements
// (value_range.h), so that 1/0 or log(0) of padding is found out.
//
// What is low, but not -inf, has no effect only beside something that is not low. So a mask must not be 0 at the first
// position of a sequence where the proof says so (needs_first): who pads checks it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/network.h"

namespace diapason {

// An axis of `block` times as many elements as the symbol's size; element i belongs to row i / block.
struct GrowingAxis {
  int axis = 0;
  int64_t block = 1;
  bool operator==(const GrowingAxis&) const = default;
};

struct PaddingQuestion {
  std::string symbol;
  // The model as it was imported (LoadModel), at two sizes of the symbol, each at least 2; other symbols have the same
  // sizes in both.
  const Network& network;
  int64_t size = 0;
  const Network& other;
  int64_t other_size = 0;
  int64_t least = 1;  // the smallest real size that is to be padded to `size`
  std::string mask;   // an input that is 0 where there is padding; empty: none
};

struct PaddingProof {
  // By output of the network: the axes along which it has rows of padding behind the real ones.
  std::vector<std::vector<GrowingAxis>> outputs;
  // Whether it holds only where the mask is not 0 at the first position of each sequence.
  bool needs_first = false;
};

// FailedPrecondition, with a clause that names the node, when it cannot be shown that padding is harmless.
absl::StatusOr<PaddingProof> ProvePadding(const PaddingQuestion& question);

// Whether inputs of a model may be padded along a symbol, for one size of it.
struct SymbolPadding {
  int64_t least = 1;                              // from this real size on
  std::string why_not;                            // empty: they may
  std::vector<std::vector<GrowingAxis>> outputs;  // of PaddingProof, then
  bool needs_first = false;                       // of PaddingProof
};

}  // namespace diapason
