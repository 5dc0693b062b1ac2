#include "compiler/graph/row_nodes.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "compiler/graph/operator.h"

namespace diapason {
namespace {

// The axes along which a node reduces its first input; empty if it does not, or drops them from its result.
std::vector<int64_t> AxesReducedBy(const Node& node, int64_t rank) {
  const auto axis = [&] {
    const int64_t given = node.attributes.Int("axis", -1);
    return given < 0 ? given + rank : given;
  };
  if (node.op == "softmax" || node.op == "log_softmax") return {axis()};
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (node.op == "layer_norm" || node.op == "rms_norm") {
    axes.erase(axes.begin(), axes.begin() + axis());
    return axes;
  }
  if (node.op.rfind("reduce_", 0) != 0 || node.attributes.Int("keepdims", 1) == 0) return {};
  axes = node.attributes.Ints("axes", axes);
  for (int64_t& a : axes) a += a < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace

std::vector<int64_t> Rows::PerRow() const {
  std::vector<int64_t> reduced = shape;
  for (int64_t axis : axes) reduced[axis] = 1;
  return reduced;
}

bool Rows::AreAlongLastAxisOf(const std::vector<int64_t>& other) const {
  return shape == other && axes == std::vector<int64_t>{static_cast<int64_t>(other.size()) - 1};
}

std::optional<Rows> RowsReducedBy(const Network& network, const Node& node) {
  Rows rows;
  rows.shape = network.tensors[node.inputs[0]].type.shape;
  rows.axes = AxesReducedBy(node, static_cast<int64_t>(rows.shape.size()));
  if (rows.PerRow() == rows.shape) return std::nullopt;
  return rows;
}

bool GoesByRows(const Network& network, const Node& node, const Rows& rows) {
  const Operator& op = *FindOperator(node.op);
  if (op.is_view && op.is_view(ArgsOf(network, node))) return false;
  if (op.kind == OperatorKind::kAnchor) return RowsReducedBy(network, node) == rows;
  if (op.kind != OperatorKind::kElementwise) return false;
  const std::vector<int64_t>& shape = network.tensors[node.output].type.shape;
  return shape == rows.shape || shape == rows.PerRow();
}

bool IsProductOfOneRow(const Network& network, const Node& node) {
  if (node.op != "matmul" && node.op != "gemm") return false;
  const std::vector<int64_t>& shape = network.tensors[node.output].type.shape;
  const TensorType &left = network.tensors[node.inputs[0]].type, &right = network.tensors[node.inputs[1]].type;
  return shape.size() > 1 && shape[shape.size() - 2] == 1 && left.shape.size() == shape.size() &&
         right.elements() >= left.elements();
}

bool IsProductOfOwnMatrix(const Network& network, const Node& node) {
  if (!IsProductOfOneRow(network, node)) return false;
  const std::vector<int64_t>&row = network.tensors[node.inputs[0]].type.shape,
        &matrix = network.tensors[node.inputs[1]].type.shape;
  return row.size() == matrix.size() && std::equal(row.begin(), row.end() - 2, matrix.begin());
}

bool AppendsRows(const Network& network, const Node& node) {
  if (node.op != "concat" || node.inputs.size() != 2) return false;
  const auto rank = static_cast<int64_t>(network.tensors[node.output].type.shape.size());
  const int64_t axis = node.attributes.Int("axis", 0);
  return axis != rank - 1 && axis != -1;
}

}  // namespace diapason
