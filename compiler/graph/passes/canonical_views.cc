#include "compiler/graph/passes/canonical_views.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "compiler/graph/operator.h"

namespace diapason {
namespace {

// An axis longer than 1 of a tensor, and how far apart its elements are in row-major order of another one.
struct Strided {
  int64_t extent, stride;
};

std::vector<Strided> RowMajor(const std::vector<int64_t>& shape) {
  std::vector<Strided> axes(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) axes[d] = {shape[d], stride};
  return axes;
}

// The axes as those of `shape`: taken apart, and put together where their elements follow each other; nothing where
// they do not.
std::optional<std::vector<Strided>> ViewAs(std::vector<Strided> axes, const std::vector<int64_t>& shape) {
  std::erase_if(axes, [](const Strided& axis) { return axis.extent == 1; });
  std::reverse(axes.begin(), axes.end());
  std::vector<Strided> view;
  for (int64_t extent : shape) {
    if (extent == 1) {
      view.push_back({1, 0});
      continue;
    }
    if (axes.empty()) return std::nullopt;
    Strided axis = axes.back();
    axes.pop_back();
    for (; axis.extent < extent && !axes.empty(); axes.pop_back()) {
      const Strided& next = axes.back();
      if (axis.stride != next.extent * next.stride) return std::nullopt;
      axis = {axis.extent * next.extent, next.stride};
    }
    if (axis.extent % extent != 0) return std::nullopt;
    const int64_t rest = axis.extent / extent;
    view.push_back({extent, axis.stride * rest});
    if (rest > 1) axes.push_back({rest, axis.stride});
  }
  return view;
}

// The permutation of the axes of `from` that does what a reshape to `between`, a transpose by `perm` and a reshape to
// `to` do together; nothing if there is none.
std::optional<std::vector<int64_t>> TransposeThroughReshapes(const std::vector<int64_t>& from,
                                                             const std::vector<int64_t>& between,
                                                             const std::vector<int64_t>& perm,
                                                             const std::vector<int64_t>& to) {
  if (from.size() != to.size()) return std::nullopt;
  const std::vector<Strided> source = RowMajor(from), middle = RowMajor(between);
  std::vector<Strided> moved;
  for (int64_t axis : perm) moved.push_back(middle[axis]);
  const std::optional<std::vector<Strided>> result = ViewAs(moved, to);
  if (!result) return std::nullopt;
  std::vector<int64_t> whole;
  std::vector<bool> taken(from.size(), false);
  for (const Strided& axis : *result) {
    size_t d = 0;
    const auto is = [&](size_t k) {
      return !taken[k] && source[k].extent == axis.extent && (axis.extent == 1 || source[k].stride == axis.stride);
    };
    while (d < from.size() && !is(d)) ++d;
    if (d == from.size()) return std::nullopt;
    taken[d] = true;
    whole.push_back(static_cast<int64_t>(d));
  }
  return whole;
}

// REQUIRES: the result has the shape of the input.
bool IsWholeSlice(const Node& node) {
  const std::vector<int64_t> steps = node.attributes.Ints("steps", {});
  return node.op == "slice" && std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step > 0; });
}

// A view or slice that keeps type and shape.
bool DropIdentity(NetworkEditor& network, size_t n) {
  const Node& view = network.node(n);
  const Operator& op = *FindOperator(view.op);
  if (view.inputs.empty() || !(network.type(view.inputs[0]) == network.type(view.output))) return false;
  const bool is_view = op.is_view && op.is_view(ArgsOf(network.network(), view));
  return (is_view || IsWholeSlice(view)) && network.ReplaceBy(n, view.inputs[0]);
}

// transpose(transpose(x)) = one transpose, which DropIdentity may remove.
bool MergeTransposes(NetworkEditor& network, size_t n) {
  Node& outer = network.node(n);
  if (outer.op != "transpose") return false;
  const Node* inner = network.ProducerOf(outer.inputs[0], "transpose");
  if (!inner) return false;
  size_t rank = network.type(outer.output).shape.size();
  std::vector<int64_t> first = PermutationOf(*inner, rank), second = PermutationOf(outer, rank), both;
  for (int64_t axis : second) both.push_back(first[axis]);
  outer.attributes.Set("perm", both);
  network.SetInputs(n, {inner->inputs[0]});
  return true;
}

// Which operand of a product or quotient is the tensor that a constant scalar scales; -1: there is none.
int Scaled(const NetworkEditor& network, const Node& node) {
  if (node.op != "mul" && node.op != "div") return -1;
  for (int i = 0; i < (node.op == "mul" ? 2 : 1); ++i) {
    const int scale = node.inputs[1 - i];
    if (network.constant(scale) != nullptr && network.type(scale).shape.empty()) return i;
  }
  return -1;
}

// transpose(scale * transpose(x)) = scale * transpose(transpose(x)), which MergeTransposes makes one: exporters differ
// in whether keys are scaled before or after their last axes are swapped.
bool ScaleBehindTransposes(NetworkEditor& network, size_t n) {
  if (network.node(n).op != "transpose") return false;
  const int between = network.node(n).inputs[0], scale = network.producer(between);
  if (scale < 0 || !network.IsReadOnce(between)) return false;
  const int operand = Scaled(network, network.node(scale));
  if (operand < 0 || !network.ProducerOf(network.node(scale).inputs[operand], "transpose")) return false;
  std::vector<int> inputs = network.node(scale).inputs;
  const int source = inputs[operand];
  inputs[operand] = between;
  std::swap(network.node(n).op, network.node(scale).op);
  std::swap(network.node(n).attributes, network.node(scale).attributes);
  network.network().tensors[between].type.shape = network.type(network.node(n).output).shape;
  network.SetInputs(scale, {source});
  network.SetInputs(n, std::move(inputs));
  network.LookAgainAround(scale);
  return true;
}

bool IsReshape(const Node& node) {
  return node.op == "reshape" || node.op == "flatten" || node.op == "squeeze" || node.op == "unsqueeze";
}

bool MergeReshapes(NetworkEditor& network, size_t n) {
  Node& outer = network.node(n);
  if (!IsReshape(outer)) return false;
  const Node* inner = network.ProducerOf(outer.inputs[0]);
  if (!inner || !IsReshape(*inner)) return false;
  outer.op = "reshape";
  outer.attributes = Attributes{{"shape", network.type(outer.output).shape}};
  network.SetInputs(n, {inner->inputs[0]});
  return true;
}

// A slice along an axis that a view then splits is one of the split axis: what takes heads from a product that has
// queries, keys and values side by side reads them where they are. The view comes first, once for all slices.
bool SplitBeforeSlice(NetworkEditor& network, size_t n) {
  Node& view = network.node(n);
  if (!IsReshape(view)) return false;
  const int between = view.inputs[0], s = network.producer(between);
  if (s < 0 || network.node(s).op != "slice" || !network.IsReadOnce(between)) return false;
  const std::vector<int64_t> steps = network.node(s).attributes.Ints("steps", {});
  if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; })) return false;
  const std::vector<int64_t>&whole = network.type(network.node(s).inputs[0]).shape, &part = network.type(between).shape,
        &split = network.type(view.output).shape;
  size_t axis = 0;  // the only one that is cut
  while (axis < part.size() && whole[axis] == part[axis]) ++axis;
  if (axis == part.size() || !std::equal(whole.begin() + axis + 1, whole.end(), part.begin() + axis + 1)) return false;
  if (split.size() <= part.size() || !std::equal(part.begin(), part.begin() + axis, split.begin())) return false;
  if (!std::equal(part.begin() + axis + 1, part.end(), split.end() - (part.size() - axis - 1))) return false;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < split.size() - (part.size() - axis - 1); ++d) inner *= split[d];
  const std::optional<int64_t> start = StartOf(network.node(s), network.type(network.node(s).inputs[0]).shape, axis);
  if (!start || inner == 0 || whole[axis] % inner != 0 || *start % inner != 0) return false;
  std::vector<int64_t> shape = split;
  shape[axis] = whole[axis] / inner;
  const auto at = static_cast<int64_t>(axis);
  view.attributes = Attributes{{"starts", std::vector<int64_t>{*start / inner}},
                               {"ends", std::vector<int64_t>{*start / inner + split[axis]}},
                               {"axes", std::vector<int64_t>{at}}};
  view.op = "slice";
  network.node(s).op = "reshape";
  network.node(s).attributes = Attributes{{"shape", shape}};
  network.network().tensors[between].type.shape = std::move(shape);
  network.LookAgainAround(n);
  network.LookAgainAround(s);
  network.LookAgain(network.node(s).inputs[0]);
  return true;
}

// A transpose between reshapes that put axes together and apart again is one of the whole axes: how exporters swap
// the last two.
bool WidenTranspose(NetworkEditor& network, size_t n) {
  const Node& outer = network.node(n);
  const Node* transpose = IsReshape(outer) ? network.ProducerOf(outer.inputs[0], "transpose") : nullptr;
  const Node* inner = transpose ? network.ProducerOf(transpose->inputs[0]) : nullptr;
  if (!inner || !IsReshape(*inner)) return false;
  const int source = inner->inputs[0];
  const std::vector<int64_t>& between = network.type(inner->output).shape;
  const std::optional<std::vector<int64_t>> perm = TransposeThroughReshapes(
      network.type(source).shape, between, PermutationOf(*transpose, between.size()), network.type(outer.output).shape);
  if (!perm) return false;
  network.node(n).op = "transpose";
  network.node(n).attributes = Attributes{{"perm", *perm}};
  network.SetInputs(n, {source});
  return true;
}

// Axes of extent 1 that a view adds or drops behind a transpose of a view: the view in front has them instead, and the
// transpose moves them to their places. Exporters swap the last two axes with and without the batch.
bool MoveUnitAxesInFront(NetworkEditor& network, size_t n) {
  const Node& outer = network.node(n);
  const Node* transpose = IsReshape(outer) ? network.ProducerOf(outer.inputs[0], "transpose") : nullptr;
  if (!transpose || !network.IsReadOnce(transpose->output) || !network.IsReadOnce(transpose->inputs[0])) return false;
  const int view = network.producer(transpose->inputs[0]);
  if (view < 0 || !IsReshape(network.node(view))) return false;
  const std::vector<int64_t>&from = network.type(network.node(view).output).shape,
        &moved = network.type(transpose->output).shape, &to = network.type(outer.output).shape;
  const auto without_units = [](std::vector<int64_t> shape) {
    std::erase(shape, 1);
    return shape;
  };
  if (without_units(moved) != without_units(to)) return false;
  std::vector<int64_t> shape(std::count(to.begin(), to.end(), 1), 1), place(from.size());
  const auto units = static_cast<int64_t>(shape.size());
  for (size_t d = 0; d < from.size(); ++d) {
    place[d] = static_cast<int64_t>(shape.size());
    if (from[d] != 1) shape.push_back(from[d]);
  }
  std::vector<int64_t> long_axes, perm;
  for (int64_t axis : PermutationOf(*transpose, from.size()))
    if (from[axis] != 1) long_axes.push_back(place[axis]);
  int64_t unit = 0;
  for (int64_t extent : to) perm.push_back(extent == 1 ? unit++ : long_axes[perm.size() - unit]);
  DIAPASON_CHECK(unit == units);
  const int source = network.node(view).output;
  network.node(view).op = "reshape";
  network.node(view).attributes = Attributes{{"shape", shape}};
  network.network().tensors[source].type.shape = std::move(shape);
  network.node(n).op = "transpose";
  network.node(n).attributes = Attributes{{"perm", perm}};
  network.SetInputs(n, {source});
  network.LookAgainAround(view);
  return true;
}

// A reduction whose axes of extent 1 a view takes away again (a global pool and a flatten) gives them up itself: the
// same task however a model was written.
bool DropReducedAxes(NetworkEditor& network, size_t n) {
  const Node& view = network.node(n);
  if (!IsReshape(view)) return false;
  const int reduced = network.producer(view.inputs[0]), output = view.output;
  if (reduced < 0 || !network.IsReadOnce(view.inputs[0])) return false;
  Node reduce = network.node(reduced);
  if (reduce.op.rfind("reduce_", 0) != 0 || reduce.attributes.Int("keepdims", 1) == 0) return false;
  reduce.attributes.Set("keepdims", int64_t{0});
  absl::StatusOr<TensorType> dropped = InferNode(network.network(), reduce);
  if (!dropped.ok() || !(*dropped == network.type(view.output))) return false;
  network.node(reduced).attributes = std::move(reduce.attributes);
  network.SetOutput(reduced, output);
  network.Remove(n);
  return true;
}

}  // namespace

std::optional<int64_t> StartOf(const Node& slice, const std::vector<int64_t>& shape, size_t axis) {
  const int64_t extent = shape[axis], rank = static_cast<int64_t>(shape.size());
  const std::vector<int64_t> starts = slice.attributes.Ints("starts", {});
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = slice.attributes.Ints("axes", axes);
  for (size_t k = 0; k < axes.size(); ++k)
    if ((axes[k] + rank) % rank == static_cast<int64_t>(axis))
      return std::clamp<int64_t>(starts[k] < 0 ? starts[k] + extent : starts[k], 0, extent);
  return std::nullopt;
}

std::vector<int64_t> PermutationOf(const Node& transpose, size_t rank) {
  std::vector<int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  std::vector<int64_t> perm = transpose.attributes.Ints("perm", reversed);
  for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  return perm;
}

bool CanonicalizeView(NetworkEditor& network, size_t n) {
  return DropIdentity(network, n) || MergeTransposes(network, n) || ScaleBehindTransposes(network, n) ||
         MergeReshapes(network, n) || SplitBeforeSlice(network, n) || WidenTranspose(network, n) ||
         MoveUnitAxesInFront(network, n) || DropReducedAxes(network, n);
}

}  // namespace diapason
