// A classifier of tokens reads one row of its last layer, the class token. The other rows need not be computed: the
// slice moves in front of each operator whose rows depend only on the same rows of its inputs, while nothing else reads
// the operator's result.
#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/canonical_views.h"
#include "compiler/graph/rank.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;

// A slice moves only if that reaches an anchor; the search for one visits at most this many tensors.
constexpr size_t kMostLookedAt = 64;

// The slice [begin, end) along one axis of a tensor.
struct Part {
  int64_t axis, begin, end;
  auto operator<=>(const Part&) const = default;
};

// For each input of a node, the axis that must be sliced like a given axis of the result; -1: the whole input is read.
using InputAxes = std::vector<int64_t>;

// The axis of `to` with the elements of an axis of `from`, one shape being a view of the other; -1 if there is none.
int64_t AxisOfView(const Shape& from, int64_t axis, const Shape& to) {
  int64_t before = 1, product = 1;
  for (int64_t d = 0; d < axis; ++d) before *= from[d];
  for (size_t d = 0; d < to.size(); product *= to[d++])
    if (product == before && to[d] == from[axis]) return static_cast<int64_t>(d);
  return -1;
}

class RowDropper {
 public:
  explicit RowDropper(Network& network)
      : network_(network), producers_(network.Producers()), whole_(network.outputs.begin(), network.outputs.end()) {}

  // Whether anything changed.
  bool Run() {
    for (size_t n = network_.nodes.size(); n-- > 0;) Visit(network_.nodes[n]);
    while (!parts_.empty()) AddSlices(parts_.begin()->first);  // of inputs and constants
    std::reverse(nodes_.begin(), nodes_.end());
    if (changed_) network_.nodes = std::move(nodes_);
    return changed_;
  }

 private:
  // From the last node on, so that all that reads a node's result is known.
  void Visit(const Node& node) {
    const auto read = parts_.find(node.output);
    if (read != parts_.end() && read->second.size() == 1 && !whole_.contains(node.output)) {
      const auto [part, tensor] = *read->second.begin();
      if (const std::optional<InputAxes> axes = AxesOfInputs(node, part.axis)) {
        parts_.erase(read);
        return ComputePart(node, part, *axes, tensor);
      }
    }
    if (read != parts_.end()) AddSlices(node.output);
    if (const std::optional<Part> part = PartOf(node);
        part && LeadsToRows(node.inputs[0], part->axis) && parts_[node.inputs[0]].emplace(*part, node.output).second)
      return;
    whole_.insert(node.inputs.begin(), node.inputs.end());
    nodes_.push_back(node);
  }

  // `tensor` becomes the part of what a node computes.
  void ComputePart(Node node, const Part& part, const InputAxes& axes, int tensor) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      int& input = node.inputs[i];
      if (axes[i] >= 0)
        input = Read(input, {axes[i], part.begin, part.end});
      else
        whole_.insert(input);
    }
    if (IsView(node)) {
      node.op = "reshape";
      node.attributes = Attributes{{"shape", network_.tensors[tensor].type.shape}};
    }
    node.output = tensor;
    nodes_.push_back(std::move(node));
    changed_ = true;
  }

  // The tensor with a part of another one.
  int Read(int tensor, const Part& part) {
    const auto [it, fresh] = parts_[tensor].emplace(part, static_cast<int>(network_.tensors.size()));
    if (fresh) {
      Tensor made{absl::StrCat(network_.tensors[tensor].name, "_part"), network_.tensors[tensor].type, nullptr};
      made.type.shape[part.axis] = part.end - part.begin;
      network_.tensors.push_back(std::move(made));
    }
    return it->second;
  }

  // The parts of a tensor that are read, which is computed as a whole.
  void AddSlices(int tensor) {
    for (const auto& [part, made] : parts_.at(tensor)) {
      const Attributes where{{"axes", Shape{part.axis}}, {"starts", Shape{part.begin}}, {"ends", Shape{part.end}}};
      nodes_.push_back({"slice", network_.tensors[made].name, where, {tensor}, made});
    }
    parts_.erase(tensor);
    whole_.insert(tensor);
  }

  // What a node takes, if it is a slice along one axis and takes half of it at most.
  std::optional<Part> PartOf(const Node& node) const {
    if (node.op != "slice") return std::nullopt;
    const Shape &from = ShapeOf(node.inputs[0]), &to = ShapeOf(node.output);
    const Shape starts = node.attributes.Ints("starts", {}), steps = node.attributes.Ints("steps", {1});
    if (starts.size() != 1 || steps != Shape{1}) return std::nullopt;
    const int64_t axis = AxisFromStart(node.attributes.Ints("axes", {0})[0], from.size());
    if (to[axis] == 0 || 2 * to[axis] > from[axis]) return std::nullopt;
    const int64_t begin = *StartOf(node, from, axis);
    return Part{axis, begin, begin + to[axis]};
  }

  // Whether a part of a tensor can move up to an operator that reduces or normalises rows.
  bool LeadsToRows(int tensor, int64_t axis) const {
    std::set<std::pair<int, int64_t>> known = {{tensor, axis}};
    std::vector<std::pair<int, int64_t>> open = {{tensor, axis}};
    while (!open.empty() && known.size() < kMostLookedAt) {
      const auto [at, along] = open.back();
      open.pop_back();
      const int n = producers_[at];
      if (n < 0 || network_.is_output(at)) continue;
      const std::optional<InputAxes> axes = AxesOfInputs(network_.nodes[n], along);
      if (!axes) continue;
      if (FindOperator(network_.nodes[n].op)->kind == OperatorKind::kAnchor) return true;
      for (size_t i = 0; i < axes->size(); ++i) {
        const std::pair<int, int64_t> input = {network_.nodes[n].inputs[i], (*axes)[i]};
        if (input.second >= 0 && known.insert(input).second) open.push_back(input);
      }
    }
    return false;
  }

  // None where a place along the axis depends on other places of the inputs.
  std::optional<InputAxes> AxesOfInputs(const Node& node, int64_t axis) const {
    if (IsView(node)) {
      const int64_t of_input = AxisOfView(ShapeOf(node.output), axis, ShapeOf(node.inputs[0]));
      return of_input < 0 ? std::nullopt : std::optional(InputAxes{of_input});
    }
    const size_t rank = ShapeOf(node.output).size();
    if (node.op == "matmul") return AxesOfFactors(node, axis);
    if (node.op == "gemm" && (axis != 0 || node.attributes.Int("trans_a", 0) != 0)) return std::nullopt;
    if (node.op == "gemm") {
      InputAxes axes = Broadcast(node, 0);
      axes[1] = -1;
      return axes;
    }
    if (node.op == "transpose") return InputAxes{PermutationOf(node, rank)[axis]};
    if (GoesAlong(node, axis)) return InputAxes(node.inputs.size(), axis);
    const bool elementwise = FindOperator(node.op)->kind == OperatorKind::kElementwise && node.op != "batch_norm";
    return elementwise ? std::optional(Broadcast(node, axis)) : std::nullopt;
  }

  // Whether the result has the axis of its inputs, place by place.
  bool GoesAlong(const Node& node, int64_t axis) const {
    const size_t rank = ShapeOf(node.output).size();
    if (node.op == "softmax" || node.op == "log_softmax")
      return axis != AxisFromStart(node.attributes.Int("axis", -1), rank);
    if (node.op == "layer_norm" || node.op == "rms_norm")
      return axis < AxisFromStart(node.attributes.Int("axis", -1), rank);
    if (node.op == "concat") return axis != AxisFromStart(node.attributes.Int("axis", 0), rank);
    const bool reduction = node.op.rfind("reduce_", 0) == 0 && node.attributes.Int("keepdims", 1) != 0;
    if (!reduction && node.op != "slice") return false;
    const Shape none =
        reduction ? Shape{axis} : Shape{};  // all axes are reduced, or as many sliced as there are starts
    const Shape axes = node.attributes.Ints("axes", none);
    if (!reduction && axes.empty()) return axis >= static_cast<int64_t>(node.attributes.Ints("starts", {}).size());
    return std::none_of(axes.begin(), axes.end(), [&](int64_t other) { return AxisFromStart(other, rank) == axis; });
  }

  // Rows of the first factor; matrices of both.
  std::optional<InputAxes> AxesOfFactors(const Node& node, int64_t axis) const {
    const auto rank = static_cast<int64_t>(ShapeOf(node.output).size());
    const auto left = static_cast<int64_t>(ShapeOf(node.inputs[0]).size());
    const auto right = static_cast<int64_t>(ShapeOf(node.inputs[1]).size());
    if (left < 2 || right < 2 || axis == rank - 1) return std::nullopt;
    if (axis == rank - 2) return InputAxes{left - 2, -1};
    return Broadcast(node, axis);
  }

  // Axes are aligned at the last one, and inputs of extent 1 are read again at each place.
  InputAxes Broadcast(const Node& node, int64_t axis) const {
    InputAxes axes;
    for (int input : node.inputs) {
      const Shape& shape = ShapeOf(input);
      const int64_t of_input =
          axis - static_cast<int64_t>(ShapeOf(node.output).size()) + static_cast<int64_t>(shape.size());
      axes.push_back(of_input >= 0 && shape[of_input] > 1 ? of_input : -1);
    }
    return axes;
  }

  bool IsView(const Node& node) const {
    const Operator& op = *FindOperator(node.op);
    return op.is_view && op.is_view(ArgsOf(network_, node));
  }
  const Shape& ShapeOf(int tensor) const { return network_.tensors[tensor].type.shape; }

  Network& network_;
  const std::vector<int> producers_;
  std::map<int, std::map<Part, int>> parts_;  // by tensor: the parts that are read, and the tensors that they become
  std::set<int> whole_;                       // tensors that are read as a whole
  std::vector<Node> nodes_;                   // the last one first
  bool changed_ = false;
};

}  // namespace

bool DropUnreadRows(Network& network) { return RowDropper(network).Run(); }

}  // namespace diapason
