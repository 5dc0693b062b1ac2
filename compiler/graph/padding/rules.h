// How the proof of padding.h follows the operators: by a rule for each, in tables by kind. For compiler/graph alone.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "compiler/graph/network.h"
#include "compiler/graph/padding/facts.h"

namespace diapason {

// FailedPrecondition unless elements of the node's result with real indices are those that the network would compute
// without padding. Else notes what is known of its padded elements. `twin` is the node in the twin network.
// REQUIRES: PaddingFacts::TakeNode was OK and said that an axis grows.
using PaddingRule = absl::Status (*)(PaddingFacts& facts, const Node& node, const Node& twin);

// Rules by operator of those that say where elements lie: concatenations, slices, gathers, transposes, images.
const std::map<std::string, PaddingRule>& PaddingRulesOfMoves();
// Of those that combine elements along axes: reductions, softmaxes, normalizations, scans.
const std::map<std::string, PaddingRule>& PaddingRulesOfReductions();
// Of products of matrices.
const std::map<std::string, PaddingRule>& PaddingRulesOfProducts();

// For views, whatever their operators, and for element-wise operators.
absl::Status FollowView(PaddingFacts& facts, const Node& node, const Node& twin);
absl::Status FollowElementwise(PaddingFacts& facts, const Node& node, const Node& twin);

// For rules. Gives the result the padded values of an input; `result_axis` says for each axis of the input which one of
// the result it becomes, -1: none. Fails unless growing axes stay, and grow alike.
absl::Status CarryPadding(PaddingFacts& facts, const Node& node, int input, const std::vector<int>& result_axis);
// The same where all axes stay, for operators that change values: nothing is known of padded ones afterwards.
absl::Status CarryAxes(PaddingFacts& facts, const Node& node, int input);
// Fails where an axis of the result grows by itself. `sources`: inputs, each with its `result_axis` as above.
absl::Status EveryAxisHasASource(const PaddingFacts& facts, const Node& node,
                                 const std::vector<std::pair<int, std::vector<int>>>& sources);

}  // namespace diapason
