// Nodes that reduce the rows of a tensor, and what may join them in one kernel: normalisations as exporters of old
// write them, node by node.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/network.h"

namespace diapason {

// Tensors of `shape` in rows along `axes`, ascending.
struct Rows {
  std::vector<int64_t> shape, axes;
  // Of tensors with one element a row: 1 along the axes.
  std::vector<int64_t> PerRow() const;
  // Whether they are the rows of a tensor of `other` along its last axis.
  bool AreAlongLastAxisOf(const std::vector<int64_t>& other) const;
  bool operator==(const Rows&) const = default;
};

// The rows that a node reduces: reductions that keep their axes, softmax, layer and RMS normalisation. None for other
// nodes, and where a row is one element.
std::optional<Rows> RowsReducedBy(const Network& network, const Node& node);

// Whether a node may be computed in a kernel that goes row by row: it reduces these rows, or is element-wise with a
// result of as many elements or one a row.
bool GoesByRows(const Network& network, const Node& node, const Rows& rows);

// Whether a node is a product of one row in each batch, so that it reads each element of its second operand once.
bool IsProductOfOneRow(const Network& network, const Node& node);

// The same where no batch of the product shares its second operand with another one.
bool IsProductOfOwnMatrix(const Network& network, const Node& node);

// Whether a node puts rows of two tensors one behind the other.
bool AppendsRows(const Network& network, const Node& node);

}  // namespace diapason
