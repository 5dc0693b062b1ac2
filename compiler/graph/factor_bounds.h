// Bounds of the factors of products: which tensors of a network can have no element beyond a limit, whatever the inputs
// are. Products of such tensors may be computed from float16 parts (compiler/schedule/rewrite_halves.h), whose
// exponents reach less far than those of float32.
//
// The analysis follows bounds of elements and of the norms of rows from normalizations and softmax on: a row that a
// layer normalization of n elements makes has the 2-norm sqrt(n) at most, its products by the columns of a constant
// matrix are at most that times their 2-norms (Cauchy and Schwarz), and what softmax weighs is at most as large as the
// largest of it. For compiler/graph alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// By tensor: the limit that the magnitudes of its elements keep to.
using FactorBounds = std::map<int, int64_t>;

// Limits are few, so that layers whose weights differ stay one task. Those of activations are so far apart that
// float16 parts of what is up to 2^-12 of its limit have all digits of float32.
inline constexpr int64_t kMostOfWeight = 8, kMostOfActivation = 2048, kMostOfSmallActivation = 2;

// Of the float32 tensors of a network that keep to a limit and are not all far below it: the results of operators, and
// constants that products multiply bounded ones by.
FactorBounds FindFactorBounds(const Network& network);

// Gives placeholders of the subgraph's dag that are read as factors of its product their ranges (Stage::valid_min),
// where both factors are bounded. Dags without a product of matrices in float32, or with several, stay as they are, and
// so do those that read elements of a factor several times for a row (windows).
absl::Status MarkFactors(const FactorBounds& bounds, Subgraph& subgraph);

// The workload key of a dag without such ranges; empty if it has none.
std::string UnboundedKey(const ComputeDag& dag);

}  // namespace diapason
