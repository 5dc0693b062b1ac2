// The part of Canonicalize (passes.h) that rewrites views, transposes and slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/passes/network_editor.h"

namespace diapason {

// Applies the first of these rewrites that fits node n, and says whether one did:
// - a view, transpose or slice that changes nothing is removed;
// - of two transposes, or two reshapes, in a row one remains;
// - a constant scale between two transposes goes behind them;
// - a view that splits the axis of a slice goes in front of it, so that all slices of a tensor share the view;
// - a transpose between reshapes that together permute whole axes becomes one transpose;
// - axes of extent 1 that a view adds or drops behind a transpose of another view are those of the view in front;
// - axes of extent 1 that a reduction keeps and a view drops are dropped by the reduction.
bool CanonicalizeView(NetworkEditor& network, size_t n);

// Where each dimension of a transpose's result comes from; without an attribute "perm" the dimensions are reversed.
// REQUIRES: the node is a transpose of a tensor with `rank` dimensions.
std::vector<int64_t> PermutationOf(const Node& transpose, size_t rank);

// Where a slice of a tensor of that shape begins along an axis; nothing if it does not slice that axis.
std::optional<int64_t> StartOf(const Node& slice, const std::vector<int64_t>& shape, size_t axis);

}  // namespace diapason
