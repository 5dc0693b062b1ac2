// Small rewrites, one function each: it looks at node n and returns true if it changed the network.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

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

// Nodes keep their places while rewrites go on: one that is gone has no operator. Who reads and computes a tensor is
// kept up to date, and only nodes near a change are looked at again, so that the effort grows with the number of nodes
// and rewrites.
class Canonicalizer {
 public:
  explicit Canonicalizer(Network& network)
      : network_(network),
        consumers_(network.Consumers()),
        producers_(network.Producers()),
        is_output_(network.tensors.size(), false) {
    for (int output : network.outputs) is_output_[output] = true;
  }

  // The first node that can be rewritten goes first. Rewrites only remove nodes or make one simpler, so this ends.
  absl::Status Run() {
    for (size_t n = 0; n < network_.nodes.size(); ++n) open_.insert(open_.end(), n);
    while (!open_.empty()) {
      const size_t n = *open_.begin();
      const bool changed = DropIdentity(n) || DropNeutral(n) || PlainScalars(n) || DivToReciprocal(n) ||
                           MergeTransposes(n) || MergeReshapes(n) || SplitBeforeSlice(n) || WidenTranspose(n) ||
                           DropReducedAxes(n) || MergePad(n) || MatmulToGemm(n) || PlainGemm(n);
      if (!changed) open_.erase(n);
    }
    std::erase_if(network_.nodes, [](const Node& node) { return node.op.empty(); });
    return EliminateDeadCode(network_);
  }

 private:
  Node& node(size_t n) { return network_.nodes[n]; }
  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }
  const Node* producer(int tensor) const {
    return producers_[tensor] < 0 ? nullptr : &network_.nodes[producers_[tensor]];
  }
  const Node* ProducerOf(int tensor, const std::string& op) const {
    const Node* p = producer(tensor);
    return p && p->op == op ? p : nullptr;
  }
  bool OnlyReader(int tensor) const { return consumers_[tensor].size() == 1 && !is_output_[tensor]; }

  // What a rewrite of n, or of who computes or reads a tensor, may allow.
  void LookAgain(int tensor) {
    if (producers_[tensor] >= 0) open_.insert(producers_[tensor]);
    open_.insert(consumers_[tensor].begin(), consumers_[tensor].end());
  }
  void LookAgainAround(size_t n) {
    open_.insert(n);
    LookAgain(node(n).output);
  }

  int AddConstant(const std::string& name, Array value) {
    consumers_.emplace_back();
    producers_.push_back(-1);
    is_output_.push_back(false);
    return network_.AddConstant(name, std::move(value));
  }

  // Node n reads these instead. Nodes whose results nobody reads any more go.
  void SetInputs(size_t n, std::vector<int> inputs) {
    const std::vector<int> old = std::exchange(node(n).inputs, std::move(inputs));
    const int reader = static_cast<int>(n);
    for (int input : node(n).inputs) {
      std::vector<int>& readers = consumers_[input];
      if (std::find(readers.begin(), readers.end(), reader) == readers.end()) readers.push_back(reader);
    }
    for (int input : old) {
      const std::vector<int>& now = node(n).inputs;
      if (std::find(now.begin(), now.end(), input) != now.end()) continue;
      std::erase(consumers_[input], reader);
      LookAgain(input);
    }
    if (!node(n).op.empty()) LookAgainAround(n);
    for (int input : old) DropUnread(input);
  }

  // Takes node n out; the result must have another producer or no readers.
  void Remove(size_t n) {
    if (producers_[node(n).output] == static_cast<int>(n)) producers_[node(n).output] = -1;
    node(n).op.clear();
    open_.erase(n);
    SetInputs(n, {});
  }

  void DropUnread(int tensor) {
    const int n = producers_[tensor];
    if (n >= 0 && consumers_[tensor].empty() && !is_output_[tensor]) Remove(n);
  }

  // All who read `from` read `to`.
  void MoveReaders(int from, int to) {
    for (int reader : std::vector<int>(consumers_[from])) {
      std::vector<int> inputs = node(reader).inputs;
      std::replace(inputs.begin(), inputs.end(), from, to);
      SetInputs(reader, std::move(inputs));
    }
  }

  // Node n computes `tensor`, which has been another's result, in place of its own.
  void SetOutput(size_t n, int tensor) {
    producers_[node(n).output] = -1;
    node(n).output = tensor;
    producers_[tensor] = static_cast<int>(n);
    LookAgainAround(n);
  }

  // Node n computes nothing but `input`. False, and nothing changed, where the network gives out both: an output has a
  // node of its own.
  bool ReplaceBy(size_t n, int input) {
    const int output = node(n).output, from = producers_[input];
    if (is_output_[output]) {
      if (from < 0 || is_output_[input]) return false;
      SetOutput(from, output);  // which keeps the output's name
      MoveReaders(input, output);
    } else {
      MoveReaders(output, input);
    }
    Remove(n);
    return true;
  }

  // A view or slice that keeps type and shape.
  bool DropIdentity(size_t n) {
    const Node& view = node(n);
    const Operator& op = *FindOperator(view.op);
    if (view.inputs.empty() || !(type(view.inputs[0]) == type(view.output))) return false;
    const bool is_view = op.is_view && op.is_view(ArgsOf(network_, view));
    return (is_view || IsWholeSlice(view)) && ReplaceBy(n, view.inputs[0]);
  }

  // REQUIRES: the result has the shape of the input.
  static bool IsWholeSlice(const Node& node) {
    const std::vector<int64_t> steps = node.attributes.Ints("steps", {});
    return node.op == "slice" && std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step > 0; });
  }

  // Whether all elements of a constant are `value`. Of numbers only one-element constants: what a network is shall not
  // depend on its weights.
  bool IsAll(int tensor, double value) const {
    const Array* array = network_.tensors[tensor].data.get();
    if (!array || (array->dtype != DType::kBool && array->elements() != 1)) return false;
    for (int64_t i = 0, n = array->elements(); i < n; ++i)
      if (array->at(i) != value) return false;
    return true;
  }

  // The operand that a node hands on since the others change nothing (x and true, x * 1, a choice that is known), or
  // -1.
  int Unchanged(const Node& node) const {
    if (node.op == "where") return IsAll(node.inputs[0], 1) ? 1 : IsAll(node.inputs[0], 0) ? 2 : -1;
    const bool sum = node.op == "add" || node.op == "sub" || node.op == "or";
    const bool product = node.op == "mul" || node.op == "div" || node.op == "and";
    if (!sum && !product) return -1;
    if (IsAll(node.inputs[1], product)) return 0;
    return FindOperator(node.op)->commutative && IsAll(node.inputs[0], product) ? 1 : -1;
  }

  // A constant of one element beside an operand that has the result's shape is a scalar, however many axes an exporter
  // gave it.
  bool PlainScalars(size_t n) {
    static const auto& broadcasting =
        *new std::set<std::string>{"add",  "sub",   "mul",  "div",        "maximum", "minimum", "pow", "mod",
                                   "fmod", "equal", "less", "less_equal", "and",     "or",      "xor", "where"};
    if (broadcasting.count(node(n).op) == 0) return false;
    std::vector<int> inputs = node(n).inputs;
    const auto is_whole = [&](int input) { return type(input).shape == type(node(n).output).shape; };
    bool changed = false;
    for (int& input : inputs) {
      const TensorType& one = type(input);
      if (!network_.tensors[input].constant() || one.elements() != 1 || one.shape.empty()) continue;
      if (std::none_of(inputs.begin(), inputs.end(), [&](int other) { return other != input && is_whole(other); }))
        continue;
      input = AddConstant(network_.tensors[input].name, ReshapeArray(*network_.tensors[input].data, {}));
      changed = true;
    }
    if (changed) SetInputs(n, std::move(inputs));
    return changed;
  }

  // 1 / x.
  bool DivToReciprocal(size_t n) {
    const Node& quotient = node(n);
    if (quotient.op != "div" || !IsAll(quotient.inputs[0], 1) || !IsFloat(type(quotient.output).dtype)) return false;
    const int divisor = quotient.inputs[1];
    if (!(type(divisor) == type(quotient.output))) return false;
    node(n).op = "reciprocal";
    SetInputs(n, {divisor});
    return true;
  }

  bool DropNeutral(size_t n) {
    const int kept = Unchanged(node(n));
    if (kept < 0) return false;
    const int input = node(n).inputs[kept], output = node(n).output;
    if (type(input) == type(output)) return ReplaceBy(n, input);
    if (type(input).dtype != type(output).dtype) return false;
    node(n).op = "expand";
    node(n).attributes = Attributes{{"shape", type(output).shape}};
    SetInputs(n, {input});
    return true;
  }

  static std::vector<int64_t> PermutationOf(const Node& node, size_t rank) {
    std::vector<int64_t> reversed(rank);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    std::vector<int64_t> perm = node.attributes.Ints("perm", reversed);
    for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    return perm;
  }

  // transpose(transpose(x)) = one transpose, which DropIdentity may remove.
  bool MergeTransposes(size_t n) {
    Node& outer = node(n);
    if (outer.op != "transpose") return false;
    const Node* inner = ProducerOf(outer.inputs[0], "transpose");
    if (!inner) return false;
    size_t rank = type(outer.output).shape.size();
    std::vector<int64_t> first = PermutationOf(*inner, rank), second = PermutationOf(outer, rank), both;
    for (int64_t axis : second) both.push_back(first[axis]);
    outer.attributes.Set("perm", both);
    SetInputs(n, {inner->inputs[0]});
    return true;
  }

  static bool IsReshape(const Node& node) {
    return node.op == "reshape" || node.op == "flatten" || node.op == "squeeze" || node.op == "unsqueeze";
  }

  bool MergeReshapes(size_t n) {
    Node& outer = node(n);
    if (!IsReshape(outer)) return false;
    const Node* inner = producer(outer.inputs[0]);
    if (!inner || !IsReshape(*inner)) return false;
    outer.op = "reshape";
    outer.attributes = Attributes{{"shape", type(outer.output).shape}};
    SetInputs(n, {inner->inputs[0]});
    return true;
  }

  // A slice along an axis that a view then splits is one of the split axis: what takes heads from a product that has
  // queries, keys and values side by side reads them where they are. The view comes first, once for all slices.
  bool SplitBeforeSlice(size_t n) {
    Node& view = node(n);
    if (!IsReshape(view)) return false;
    const int between = view.inputs[0], s = producers_[between];
    if (s < 0 || node(s).op != "slice" || !OnlyReader(between)) return false;
    const std::vector<int64_t> steps = node(s).attributes.Ints("steps", {});
    if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; })) return false;
    const std::vector<int64_t>&whole = type(node(s).inputs[0]).shape, &part = type(between).shape,
          &split = type(view.output).shape;
    size_t axis = 0;  // the only one that is cut
    while (axis < part.size() && whole[axis] == part[axis]) ++axis;
    if (axis == part.size() || !std::equal(whole.begin() + axis + 1, whole.end(), part.begin() + axis + 1))
      return false;
    if (split.size() <= part.size() || !std::equal(part.begin(), part.begin() + axis, split.begin())) return false;
    if (!std::equal(part.begin() + axis + 1, part.end(), split.end() - (part.size() - axis - 1))) return false;
    int64_t inner = 1;
    for (size_t d = axis + 1; d < split.size() - (part.size() - axis - 1); ++d) inner *= split[d];
    const std::optional<int64_t> start = StartOf(node(s), axis);
    if (!start || inner == 0 || whole[axis] % inner != 0 || *start % inner != 0) return false;
    std::vector<int64_t> shape = split;
    shape[axis] = whole[axis] / inner;
    const auto at = static_cast<int64_t>(axis);
    view.attributes = Attributes{{"starts", std::vector<int64_t>{*start / inner}},
                                 {"ends", std::vector<int64_t>{*start / inner + split[axis]}},
                                 {"axes", std::vector<int64_t>{at}}};
    view.op = "slice";
    node(s).op = "reshape";
    node(s).attributes = Attributes{{"shape", shape}};
    network_.tensors[between].type.shape = std::move(shape);
    LookAgainAround(n);
    LookAgainAround(s);
    LookAgain(node(s).inputs[0]);
    return true;
  }

  // Where a slice begins along an axis; nothing if it does not say so.
  std::optional<int64_t> StartOf(const Node& slice, size_t axis) const {
    const int64_t extent = type(slice.inputs[0]).shape[axis],
                  rank = static_cast<int64_t>(type(slice.inputs[0]).shape.size());
    const std::vector<int64_t> starts = slice.attributes.Ints("starts", {});
    std::vector<int64_t> axes(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
    axes = slice.attributes.Ints("axes", axes);
    for (size_t k = 0; k < axes.size(); ++k)
      if ((axes[k] + rank) % rank == static_cast<int64_t>(axis))
        return std::clamp<int64_t>(starts[k] < 0 ? starts[k] + extent : starts[k], 0, extent);
    return std::nullopt;
  }

  // A transpose between reshapes that put axes together and apart again is one of the whole axes: how exporters swap
  // the last two.
  bool WidenTranspose(size_t n) {
    const Node& outer = node(n);
    const Node* transpose = IsReshape(outer) ? ProducerOf(outer.inputs[0], "transpose") : nullptr;
    const Node* inner = transpose ? producer(transpose->inputs[0]) : nullptr;
    if (!inner || !IsReshape(*inner)) return false;
    const int source = inner->inputs[0];
    const std::vector<int64_t>& between = type(inner->output).shape;
    const std::optional<std::vector<int64_t>> perm = TransposeThroughReshapes(
        type(source).shape, between, PermutationOf(*transpose, between.size()), type(outer.output).shape);
    if (!perm) return false;
    node(n).op = "transpose";
    node(n).attributes = Attributes{{"perm", *perm}};
    SetInputs(n, {source});
    return true;
  }

  // A reduction whose axes of extent 1 a view takes away again (a global pool and a flatten) gives them up itself: the
  // same task however a model was written.
  bool DropReducedAxes(size_t n) {
    const Node& view = node(n);
    const int reduced = producers_[view.inputs[0]], output = view.output;
    if (!IsReshape(view) || reduced < 0 || !OnlyReader(view.inputs[0])) return false;
    Node reduce = node(reduced);
    if (reduce.op.rfind("reduce_", 0) != 0 || reduce.attributes.Int("keepdims", 1) == 0) return false;
    reduce.attributes.Set("keepdims", int64_t{0});
    absl::StatusOr<TensorType> dropped = InferNode(network_, reduce);
    if (!dropped.ok() || !(*dropped == type(view.output))) return false;
    node(reduced).attributes = std::move(reduce.attributes);
    SetOutput(reduced, output);
    Remove(n);
    return true;
  }

  // A constant around an image becomes padding of the convolution that reads it, if that pads by the same.
  bool MergePad(size_t n) {
    Node& conv = node(n);
    if (conv.op != "conv2d") return false;
    const Node* pad = ProducerOf(conv.inputs[0], "pad");
    if (!pad || !OnlyReader(pad->output) || pad->attributes.String("mode", "constant") != "constant") return false;
    std::vector<int64_t> amount = pad->attributes.Ints("pads", {});
    if (pad->attributes.Float("value", 0) != conv.attributes.Float("pad_value", 0) ||
        *std::min_element(amount.begin(), amount.end()) < 0)
      return false;
    bool nhwc = conv.attributes.String("layout", "NCHW") == "NHWC";
    int h = nhwc ? 1 : 2, c = nhwc ? 3 : 1;
    if (amount[0] || amount[4] || amount[c] || amount[c + 4]) return false;
    std::vector<int64_t> pads = conv.attributes.Ints("pads", {0, 0, 0, 0});
    const int64_t more[4] = {amount[h], amount[h + 1], amount[h + 4], amount[h + 5]};
    for (int i = 0; i < 4; ++i) pads[i] += more[i];
    conv.attributes.Set("pads", pads);
    std::vector<int> inputs = conv.inputs;
    inputs[0] = pad->inputs[0];
    SetInputs(n, std::move(inputs));
    return true;
  }

  // A product of matrices by constant weights; rows of more dimensions stay a matmul.
  bool MatmulToGemm(size_t n) {
    Node& product = node(n);
    if (product.op != "matmul" || type(product.inputs[0]).shape.size() != 2) return false;
    if (type(product.inputs[1]).shape.size() != 2) return false;
    product.op = "gemm";
    LookAgainAround(n);
    return true;
  }

  void SetConstant(Node& node, int input, Array value) {
    node.inputs[input] = AddConstant(network_.tensors[node.inputs[input]].name, std::move(value));
  }

  static Array Scaled(const Array& array, double factor) {
    Array out = array;
    for (int64_t i = 0, n = out.elements(); i < n; ++i) out.set(i, array.at(i) * factor);
    return out;
  }

  // Constant operands of gemm: b as (depth, columns), scales multiplied in.
  bool PlainGemm(size_t n) {
    if (node(n).op != "gemm") return false;
    const Array* b = network_.tensors[node(n).inputs[1]].data.get();
    Node gemm = node(n);
    bool changed = false;
    if (b && gemm.attributes.Int("trans_b", 0) != 0) {
      SetConstant(gemm, 1, TransposeArray(*b, {1, 0}));
      gemm.attributes.Erase("trans_b");
      changed = true;
    }
    if (double alpha = gemm.attributes.Float("alpha", 1); b && alpha != 1) {
      SetConstant(gemm, 1, Scaled(*network_.tensors[gemm.inputs[1]].data, alpha));
      gemm.attributes.Erase("alpha");
      changed = true;
    }
    double beta = gemm.attributes.Float("beta", 1);
    if (gemm.inputs.size() == 3 && beta != 1 && network_.tensors[gemm.inputs[2]].constant()) {
      SetConstant(gemm, 2, Scaled(*network_.tensors[gemm.inputs[2]].data, beta));
      gemm.attributes.Erase("beta");
      changed = true;
    }
    if (!changed) return false;
    node(n).attributes = gemm.attributes;
    SetInputs(n, gemm.inputs);
    return true;
  }

  Network& network_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> producers_;
  std::vector<bool> is_output_;
  std::set<size_t> open_;  // nodes to look at
};

}  // namespace

absl::Status Canonicalize(Network& network) {
  RETURN_IF_ERROR(EliminateDeadCode(network));
  return Canonicalizer(network).Run();
}

}  // namespace diapason
