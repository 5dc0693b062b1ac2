// Group normalisation is a layer normalisation between two views, and what follows it reads the second one. Views cost
// nothing, but element-wise operators behind one join no kernel in front of it. Here the normalisation and the
// operators behind it work on a shape that both views split, and the view comes last.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;

// Nodes from a normalisation to the view behind it.
constexpr int kStepsToView = 8;

std::set<int64_t> Boundaries(const Shape& shape) {
  std::set<int64_t> boundaries;
  int64_t product = 1;
  for (int64_t extent : shape) boundaries.insert(product *= extent);
  boundaries.erase(1);
  return boundaries;
}

// The coarsest shape of which each dimension of both is a product of neighbours; one of them where it is that but for
// dimensions of 1. None where there is no such shape.
std::optional<Shape> CommonRefinement(const Shape& a, const Shape& b) {
  std::set<int64_t> boundaries = Boundaries(a);
  boundaries.merge(Boundaries(b));
  Shape fine;
  int64_t before = 1;
  for (int64_t boundary : boundaries) {
    if (boundary % before != 0) return std::nullopt;
    fine.push_back(boundary / before);
    before = boundary;
  }
  for (const Shape* shape : {&b, &a}) {
    Shape plain = *shape;
    std::erase(plain, 1);
    if (plain == fine) return *shape;
  }
  return fine;
}

// A shape that broadcasts to `whole`, in terms of a refinement of that. None where it does not broadcast so.
std::optional<Shape> Refined(const Shape& shape, const Shape& whole, const Shape& fine) {
  if (shape.size() > whole.size()) return std::nullopt;
  const size_t skip = whole.size() - shape.size();
  Shape refined;
  size_t d = 0;
  int64_t rest = 1;  // of dimension d, not covered yet
  for (int64_t part : fine) {
    if (rest == 1 && part > 1) {
      while (d < whole.size() && whole[d] == 1) ++d;
      if (d == whole.size()) return std::nullopt;
      rest = whole[d++];
    }
    if (rest % part != 0) return std::nullopt;
    const bool repeated = part == 1 || d <= skip || shape[d - 1 - skip] == 1;
    if (!repeated && shape[d - 1 - skip] != whole[d - 1]) return std::nullopt;
    refined.push_back(repeated ? 1 : part);
    rest /= part;
  }
  return refined;
}

class Sinker {
 public:
  explicit Sinker(Network& network) : network_(network), consumers_(network.Consumers()) {}

  void Run() {
    for (const Node& node : std::vector<Node>(network_.nodes)) {
      if (IsNorm(node) && Refine(node)) continue;
      if (IsView(node) && fine_.count(node.inputs[0]) != 0) fine_[node.output] = fine_.at(node.inputs[0]);
      if (IsElementwise(node) && Sink(node)) continue;
      nodes_.push_back(node);
    }
    network_.nodes = std::move(nodes_);
  }

 private:
  static bool IsNorm(const Node& node) { return node.op == "layer_norm" || node.op == "rms_norm"; }
  bool IsView(const Node& node) const {
    const Operator& op = *FindOperator(node.op);
    return op.is_view && op.is_view(ArgsOf(network_, node)) &&
           TypeOf(node.inputs[0]).dtype == TypeOf(node.output).dtype;
  }
  bool IsElementwise(const Node& node) const {
    return FindOperator(node.op)->kind == OperatorKind::kElementwise && node.op != "batch_norm" && !IsView(node);
  }
  const TensorType& TypeOf(int tensor) const { return network_.tensors[tensor].type; }

  // The shape to work on: there is a view of the result, or of what element-wise operators alone make of it, and an
  // element-wise operator reads that view.
  std::optional<Shape> ShapeFor(const Node& norm) const {
    int tensor = norm.output;
    const Shape& shape = TypeOf(tensor).shape;
    for (int step = 0; step < kStepsToView && !network_.is_output(tensor) && consumers_[tensor].size() == 1; ++step) {
      const Node& reader = network_.nodes[consumers_[tensor][0]];
      if (IsView(reader)) {
        for (int behind : consumers_[reader.output])
          if (IsElementwise(network_.nodes[behind])) return CommonRefinement(shape, TypeOf(reader.output).shape);
        return std::nullopt;
      }
      if (!IsElementwise(reader) || TypeOf(reader.output).shape != shape) return std::nullopt;
      tensor = reader.output;
    }
    return std::nullopt;
  }

  bool Refine(const Node& norm) {
    const std::optional<Shape> fine = ShapeFor(norm);
    const Shape shape = TypeOf(norm.output).shape;
    if (!fine) return false;
    if (*fine == shape) {
      nodes_.push_back(norm);
      fine_[norm.output] = norm.output;
      return true;
    }
    int64_t axis = norm.attributes.Int("axis", -1), rows = 1;
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    for (int64_t d = 0; d < axis; ++d) rows *= shape[d];
    Node refined = norm;
    int64_t first = 0;
    for (int64_t product = 1; product < rows; ++first) product *= (*fine)[first];
    if (first == static_cast<int64_t>(fine->size())) return false;  // rows of one element
    refined.attributes.Set("axis", first);
    refined.inputs[0] = View(norm.inputs[0], *fine, norm.name);
    Append(std::move(refined), *fine);
    return true;
  }

  bool Sink(const Node& node) {
    const Shape shape = TypeOf(node.output).shape;
    Shape fine;
    for (int input : node.inputs)
      if (fine_.count(input) != 0 && TypeOf(input).shape == shape) fine = TypeOf(fine_.at(input)).shape;
    if (fine.empty()) return false;
    std::vector<Shape> shapes;
    for (int input : node.inputs) {
      const std::optional<Shape> refined = Refined(TypeOf(input).shape, shape, fine);
      if (!refined) return false;
      shapes.push_back(*refined);
    }
    Node sunk = node;
    for (size_t i = 0; i < sunk.inputs.size(); ++i) {
      int& input = sunk.inputs[i];
      const auto known = fine_.find(input);
      input = known != fine_.end() && TypeOf(known->second).shape == shapes[i] ? known->second
                                                                               : View(input, shapes[i], node.name);
    }
    Append(std::move(sunk), fine);
    return true;
  }

  int View(int tensor, const Shape& shape, const std::string& name) {
    if (TypeOf(tensor).shape == shape) return tensor;
    const int view = network_.AddTensor(name + "_parts", {TypeOf(tensor).dtype, shape});
    nodes_.push_back({"reshape", network_.tensors[view].name, Attributes{{"shape", shape}}, {tensor}, view});
    return view;
  }

  // A node whose result has the finer shape, and the view that gives what it gave.
  void Append(Node node, const Shape& fine) {
    const int whole = node.output;
    const TensorType type = TypeOf(whole);
    node.output = network_.AddTensor(node.name + "_parts", {type.dtype, fine});
    fine_[whole] = node.output;
    Node view{"reshape", node.name + "_view", Attributes{{"shape", type.shape}}, {node.output}, whole};
    nodes_.push_back(std::move(node));
    nodes_.push_back(std::move(view));
  }

  Network& network_;
  const std::vector<std::vector<int>> consumers_;
  std::vector<Node> nodes_;
  std::map<int, int> fine_;  // tensor: the same elements in the finer shape
};

}  // namespace

absl::Status SinkViews(Network& network) {
  Sinker(network).Run();
  return absl::OkStatus();
}

}  // namespace diapason
