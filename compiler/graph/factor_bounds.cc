#include "compiler/graph/factor_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/graph/value_range.h"

namespace diapason {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// Factors by which rounding may push results beyond the bounds of exact ones: over a whole network, and in one
// normalization or product, whose absolute error remains when a difference cancels the rest.
constexpr double kSlack = 1.01, kRounded = 1 + 0x1p-10;
// Products with fewer rows or columns do not run on tensor cores.
constexpr int64_t kLeastRows = 8;
// Activations that are known to be smaller would lose digits even with the least limit, and so would columns of weights
// whose root mean square is smaller.
constexpr double kLeastBound = 0x1p-10, kLeastColumn = 0x1p-14;
// Norms of the rows of larger constants, which are factors of products, are not asked for.
constexpr int64_t kMostOfOperand = int64_t{1} << 20;

// What the elements of a tensor and of its rows, along the last axis, are at most.
struct Bound {
  double most = kUnknown;  // magnitude of an element
  double norm = kUnknown;  // square root of the sum of squares of a row
  double sum = kUnknown;   // sum of magnitudes of a row
};

double WidthOf(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : static_cast<double>(shape.back()); }

// Each bound follows from the others.
Bound Tightened(Bound bound, const std::vector<int64_t>& shape) {
  const double width = WidthOf(shape);
  bound.norm = std::min({bound.norm, bound.sum, std::sqrt(width) * bound.most});
  bound.most = std::min(bound.most, bound.norm);
  bound.sum = std::min({bound.sum, std::sqrt(width) * bound.norm, width * bound.most});
  return bound;
}

Bound Larger(const Bound& a, const Bound& b) {
  return {std::max(a.most, b.most), std::max(a.norm, b.norm), std::max(a.sum, b.sum)};
}
Bound Sum(const Bound& a, const Bound& b) { return {a.most + b.most, a.norm + b.norm, a.sum + b.sum}; }
Bound Times(const Bound& a, double factor) { return {a.most * factor, a.norm * factor, a.sum * factor}; }
Bound OfMagnitude(double most) { return {most, kUnknown, kUnknown}; }

// What is not known, as 0 times an unknown bound, says nothing.
Bound WithoutNan(Bound bound) {
  for (double* value : {&bound.most, &bound.norm, &bound.sum})
    if (std::isnan(*value)) *value = kUnknown;
  return bound;
}

// Bounds of the largest columns of a factor, and the least root mean square of a column that is not 0.
struct Columns {
  Bound bound;
  double least = 0;
};
Columns Merged(const Columns& a, const Columns& b) { return {Larger(a.bound, b.bound), std::min(a.least, b.least)}; }

// Of a constant matrix of `columns` columns, element (k, j) at k * stride_k + j * stride_j.
Columns OfColumns(const float* values, int64_t k, int64_t columns, int64_t stride_k, int64_t stride_j) {
  Bound bound{0, 0, 0};
  std::vector<double> squares(static_cast<size_t>(columns)), sums(static_cast<size_t>(columns));
  for (int64_t row = 0; row < k; ++row) {
    for (int64_t j = 0; j < columns; ++j) {
      const double value = std::abs(static_cast<double>(values[row * stride_k + j * stride_j]));
      if (std::isnan(value)) return {};
      squares[j] += value * value;
      sums[j] += value;
      bound.most = std::max(bound.most, value);
    }
  }
  bound.norm = std::sqrt(*std::max_element(squares.begin(), squares.end()));
  bound.sum = *std::max_element(sums.begin(), sums.end());
  double least = kUnknown;
  for (const double square : squares)
    if (square > 0) least = std::min(least, std::sqrt(square / static_cast<double>(k)));
  return {bound, least};
}

const float* FloatsOf(const Array& array) { return reinterpret_cast<const float*>(array.data.data()); }

// Of a row of `left` by a column of `right`.
double OfProduct(const Bound& left, const Bound& right) {
  return kRounded * std::min({left.norm * right.norm, left.sum * right.most, left.most * right.sum});
}

// Rows that are divided by the roots of their mean squares, node by node, as exporters write RMS normalizations.
class NormalizedRows {
 public:
  // `ranges` of constants, by tensor, are known when it is asked.
  NormalizedRows(const Network& network, const std::vector<ValueRange>& ranges)
      : network_(network), ranges_(ranges), producers_(network.Producers()) {}

  // Whether a product or quotient of two tensors gives such rows.
  bool Are(const Node& node) const {
    const int a = node.inputs[0], b = node.inputs[1];
    if (node.op == "div") return IsRootOfMeanSquare(b, a);
    return IsInverseRoot(b, a) || IsInverseRoot(a, b);
  }

 private:
  const Node* ProducerOf(int tensor, const char* op) const {
    const int producer = producers_[tensor];
    return producer >= 0 && network_.nodes[producer].op == op ? &network_.nodes[producer] : nullptr;
  }
  bool IsConstant(int tensor, double value) const {
    return network_.tensors[tensor].constant() && ranges_[tensor].lower == value && ranges_[tensor].upper == value;
  }
  // 1 / sqrt(mean of x^2 along the last axis + a positive constant).
  bool IsInverseRoot(int tensor, int x) const {
    if (const Node* root = ProducerOf(tensor, "rsqrt")) return IsMeanSquare(root->inputs[0], x);
    if (const Node* inverse = ProducerOf(tensor, "reciprocal")) return IsRootOfMeanSquare(inverse->inputs[0], x);
    const Node* power = ProducerOf(tensor, "pow");
    return power != nullptr && IsConstant(power->inputs[1], -0.5) && IsMeanSquare(power->inputs[0], x);
  }
  bool IsRootOfMeanSquare(int tensor, int x) const {
    const Node* root = ProducerOf(tensor, "sqrt");
    return root != nullptr && IsMeanSquare(root->inputs[0], x);
  }
  bool IsMeanSquare(int tensor, int x) const {
    const Node* sum = ProducerOf(tensor, "add");
    if (sum == nullptr) return false;
    const size_t epsilon = network_.tensors[sum->inputs[0]].constant() ? 0 : 1;
    const ValueRange& added = ranges_[sum->inputs[epsilon]];
    const Node* mean = ProducerOf(sum->inputs[1 - epsilon], "reduce_mean");
    if (mean == nullptr || !network_.tensors[sum->inputs[epsilon]].constant() || !(added.lower >= kLeastOnDevices) ||
        network_.tensors[mean->inputs[0]].type.shape != network_.tensors[x].type.shape)
      return false;
    const std::vector<int64_t> axes = mean->attributes.Ints("axes", {});
    const auto last = static_cast<int64_t>(network_.tensors[x].type.shape.size()) - 1;
    if (axes.size() != 1 || (axes[0] != last && axes[0] != -1) || mean->attributes.Int("keepdims", 1) == 0)
      return false;
    if (const Node* square = ProducerOf(mean->inputs[0], "mul"))
      return square->inputs[0] == x && square->inputs[1] == x;
    const Node* power = ProducerOf(mean->inputs[0], "pow");
    return power != nullptr && power->inputs[0] == x && IsConstant(power->inputs[1], 2);
  }

  const Network& network_;
  const std::vector<ValueRange>& ranges_;
  const std::vector<int> producers_;
};

class BoundFinder {
 public:
  explicit BoundFinder(const Network& network)
      : network_(network),
        bounds_(network.tensors.size()),
        ranges_(network.tensors.size()),
        normalized_rows_(network, ranges_) {
    for (int input : network.inputs) ranges_[input] = ValueRange::Finite();
  }

  FactorBounds Find() {
    for (size_t t = 0; t < network_.tensors.size(); ++t)
      if (network_.tensors[t].constant()) AddConstant(static_cast<int>(t));
    for (const Node& node : network_.nodes) AddNode(node);
    FactorBounds found;
    for (size_t t = 0; t < network_.tensors.size(); ++t) {
      const int64_t limit = LimitOf(static_cast<int>(t));
      if (limit > 0) found[static_cast<int>(t)] = limit;
    }
    return found;
  }

 private:
  const std::vector<int64_t>& ShapeOf(int tensor) const { return network_.tensors[tensor].type.shape; }

  // 0: none.
  int64_t LimitOf(int t) const {
    const Tensor& tensor = network_.tensors[t];
    const double most = kSlack * bounds_[t].most;
    if (tensor.type.dtype != DType::kFloat32 || !(most <= static_cast<double>(kMostOfActivation))) return 0;
    if (tensor.constant())
      return most <= static_cast<double>(kMostOfWeight) && even_.contains(t) && !uneven_.contains(t) ? kMostOfWeight
                                                                                                     : 0;
    if (most < kLeastBound) return 0;
    return most <= static_cast<double>(kMostOfSmallActivation) ? kMostOfSmallActivation : kMostOfActivation;
  }

  void AddConstant(int t) {
    const Tensor& tensor = network_.tensors[t];
    if (tensor.type.elements() == 0) return;
    ranges_[t] = RangeOf(*tensor.data);
    Bound& bound = bounds_[t];
    bound.most = MostOf(ranges_[t]);
    const int64_t width = static_cast<int64_t>(WidthOf(tensor.type.shape)), n = tensor.type.elements();
    if (tensor.type.dtype == DType::kFloat32 && n <= kMostOfOperand)  // its rows are columns of its transpose
      bound = OfColumns(FloatsOf(*tensor.data), width, n / width, 1, width).bound;
    bound = Tightened(bound, tensor.type.shape);
  }

  bool IsBounded(int tensor) const { return bounds_[tensor].most < kUnknown; }

  static double MostOf(const ValueRange& range) {
    return range.finite() ? std::max(std::abs(range.lower), std::abs(range.upper)) : kUnknown;
  }

  void AddNode(const Node& node) {
    std::vector<ValueRange> ranges;
    for (int input : node.inputs) ranges.push_back(ranges_[input]);
    ValueRange& range = ranges_[node.output];
    range = RangeOf(network_, node, ranges);
    // What integers are beyond their type's range wraps, as RangeOf knows.
    Bound bound = IsFloat(network_.tensors[node.output].type.dtype) ? WithoutNan(OfNode(node)) : Bound();
    bound.most = std::min(bound.most, MostOf(range));
    bound = bounds_[node.output] = Tightened(bound, ShapeOf(node.output));
    range.lower = std::max(range.lower, -bound.most);
    range.upper = std::min(range.upper, bound.most);
  }

  Bound OfNode(const Node& node) {
    const std::string& op = node.op;
    if (op == "layer_norm" || op == "rms_norm") return OfNormalization(node);
    if (op == "softmax") return OfSoftmax(node);
    if (op == "matmul") return OfMatmul(node);
    if (op == "gemm") return OfGemm(node);
    if (op == "conv2d") return OfConvolution(node);
    if (op == "add" || op == "sub") return Sum(OfRows(node, 0), OfRows(node, 1));
    if (op == "mul") return normalized_rows_.Are(node) ? OfNormalizedRow(node) : OfMultiplication(node);
    if (op == "div" && normalized_rows_.Are(node)) return OfNormalizedRow(node);
    if (op == "where") return Sum(OfRows(node, 1), OfRows(node, 2));
    if (op == "concat") return OfConcatenation(node);
    if (ShrinksValues(op)) return bounds_[node.inputs[0]];
    if (MovesRows(node)) return OfMove(node);
    return {};
  }

  // |f(x)| <= |x|.
  static bool ShrinksValues(const std::string& op) {
    static const std::set<std::string> kShrinking = {"identity",   "relu", "gelu", "gelu_tanh", "swish",
                                                     "hard_swish", "mish", "neg",  "abs",       "tanh"};
    return kShrinking.contains(op);
  }

  // Rows of the result are parts of the input's rows, whole ones, or several one behind the other.
  bool MovesRows(const Node& node) const {
    static const std::set<std::string> kViews = {"reshape", "flatten", "squeeze", "unsqueeze", "slice"};
    if (kViews.contains(node.op)) return true;
    if (node.op == "transpose") {
      const auto rank = static_cast<int64_t>(ShapeOf(node.output).size());
      const std::vector<int64_t> order = node.attributes.Ints("perm", {});
      return !order.empty() && (order.back() == rank - 1 || order.back() == -1);
    }
    return false;
  }

  Bound OfMove(const Node& node) const {
    const Bound& x = bounds_[node.inputs[0]];
    const double in = WidthOf(ShapeOf(node.inputs[0])), out = WidthOf(ShapeOf(node.output));
    if (node.op == "slice" || std::fmod(in, out) == 0) return x;
    if (std::fmod(out, in) != 0) return OfMagnitude(x.most);
    return {x.most, std::sqrt(out / in) * x.norm, out / in * x.sum};
  }

  // Of an operand of an element-wise operator, as rows of its result.
  Bound OfRows(const Node& node, size_t input) const {
    const int tensor = node.inputs[input];
    return WidthOf(ShapeOf(tensor)) == WidthOf(ShapeOf(node.output)) ? bounds_[tensor]
                                                                     : OfMagnitude(bounds_[tensor].most);
  }

  Bound OfMultiplication(const Node& node) const {
    const Bound a = OfRows(node, 0), b = OfRows(node, 1);
    const Bound left = Times(a, b.most), right = Times(b, a.most);
    return {left.most, std::min(left.norm, right.norm), std::min(left.sum, right.sum)};
  }

  Bound OfConcatenation(const Node& node) const {
    const auto rank = static_cast<int64_t>(ShapeOf(node.output).size()), axis = node.attributes.Int("axis", 0);
    const bool along_rows = axis == rank - 1 || axis == -1;
    Bound all{0, 0, 0};
    for (int input : node.inputs) {
      const Bound larger = Larger(all, bounds_[input]), sum = Sum(all, bounds_[input]);
      all = along_rows ? Bound{larger.most, sum.norm, sum.sum} : larger;
    }
    return all;
  }

  Bound OfNormalization(const Node& node) const {
    const std::vector<int64_t>& shape = ShapeOf(node.output);
    const auto rank = static_cast<int64_t>(shape.size());
    int64_t axis = node.attributes.Int("axis", -1), elements = 1;
    for (axis = axis < 0 ? axis + rank : axis; axis < rank; ++axis) elements *= shape[axis];
    if (node.attributes.Float("epsilon", 1e-5) < kLeastOnDevices) return {};  // rows of equal elements are 0/0
    return {kUnknown, kRounded * std::sqrt(static_cast<double>(elements)), kUnknown};
  }

  Bound OfNormalizedRow(const Node& node) const {
    return {kUnknown, kRounded * std::sqrt(WidthOf(ShapeOf(node.output))), kUnknown};
  }

  Bound OfSoftmax(const Node& node) const {
    const int64_t axis = node.attributes.Int("axis", -1), rank = static_cast<int64_t>(ShapeOf(node.output).size());
    return axis == -1 || axis == rank - 1 ? Bound{1, 1, 1} : OfMagnitude(1);
  }

  // Of all columns of a factor, of `k` elements each; in the rows of the tensor where it is transposed.
  Bound ColumnsOf(int tensor, int64_t k, bool transposed) {
    const Tensor& t = network_.tensors[tensor];
    const auto terms = static_cast<double>(k);
    const double most = bounds_[tensor].most;
    if (!t.constant() || t.type.dtype != DType::kFloat32)
      return transposed ? bounds_[tensor] : Bound{most, std::sqrt(terms) * most, terms * most};
    const std::vector<int64_t>& shape = t.type.shape;
    if (transposed) return Noted(tensor, OfColumns(FloatsOf(*t.data), k, t.type.elements() / k, 1, k));
    const int64_t columns = shape.size() < 2 ? 1 : shape.back(), matrix = k * columns;
    Columns all{{0, 0, 0}, kUnknown};
    for (int64_t first = 0; first < t.type.elements(); first += matrix)
      all = Merged(all, OfColumns(FloatsOf(*t.data) + first, k, columns, columns, 1));
    return Noted(tensor, all);
  }

  // Notes whether float16 parts of the constant keep the digits of all columns.
  Bound Noted(int tensor, const Columns& columns) {
    (columns.least >= kLeastColumn ? even_ : uneven_).insert(tensor);
    return columns.bound;
  }

  Bound OfMatmul(const Node& node) {
    if (!IsBounded(node.inputs[0])) return {};
    const int64_t k = ShapeOf(node.inputs[0]).back();
    return OfMagnitude(OfProduct(bounds_[node.inputs[0]], ColumnsOf(node.inputs[1], k, false)));
  }

  Bound OfGemm(const Node& node) {
    if (!IsBounded(node.inputs[0])) return {};
    const bool left = node.attributes.Int("trans_a", 0) != 0, right = node.attributes.Int("trans_b", 0) != 0;
    const int64_t k = ShapeOf(node.inputs[0])[left ? 0 : 1];
    const Bound rows = left ? ColumnsOf(node.inputs[0], k, false) : bounds_[node.inputs[0]];
    const double product = OfProduct(rows, ColumnsOf(node.inputs[1], k, right));
    Bound sum = OfMagnitude(product * std::abs(node.attributes.Float("alpha", 1)));
    if (node.inputs.size() > 2) sum.most += bounds_[node.inputs[2]].most * std::abs(node.attributes.Float("beta", 1));
    return sum;
  }

  // The sum of the weights' magnitudes for an output channel, times the largest element.
  Bound OfConvolution(const Node& node) {
    const Tensor& weights = network_.tensors[node.inputs[1]];
    if (!IsBounded(node.inputs[0]) || !weights.constant() || weights.type.dtype != DType::kFloat32) return {};
    const bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
    const int64_t out = nhwc ? weights.type.shape.back() : weights.type.shape.front();
    const int64_t terms = weights.type.elements() / out;
    const Bound filters =
        Noted(node.inputs[1], OfColumns(FloatsOf(*weights.data), terms, out, nhwc ? out : 1, nhwc ? 1 : terms));
    const double padding = std::abs(node.attributes.Float("pad_value", 0));
    Bound bound = OfMagnitude(std::max(bounds_[node.inputs[0]].most, padding) * kRounded * filters.sum);
    if (node.inputs.size() > 2) bound.most += bounds_[node.inputs[2]].most;
    return bound;
  }

  const Network& network_;
  std::vector<Bound> bounds_;
  std::vector<ValueRange> ranges_;
  const NormalizedRows normalized_rows_;
  std::set<int> even_, uneven_;  // constants that products read, with all columns and without some large enough
};

// The stage that multiplies and sums, where there is one alone, in float32.
std::optional<int> ProductOf(const ComputeDag& dag) {
  std::optional<int> product;
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (!stage.reduces()) continue;
    const bool is_product =
        stage.combiner == Combiner::kSum && stage.body->kind == ExprKind::kMul && stage.dtype == DType::kFloat32;
    if (product || !is_product) return std::nullopt;
    product = id;
  }
  return product;
}

// Adds the placeholders that an expression has elements of, or zeros. False where it computes.
bool CollectSources(const ComputeDag& dag, const Expr& e, std::set<int>& sources) {
  if (e->kind == ExprKind::kSelect)
    return CollectSources(dag, e->args[1], sources) && CollectSources(dag, e->args[2], sources);
  if (IsZero(e)) return true;
  if (e->kind != ExprKind::kLoad) return false;
  const Stage& stage = dag.stage(e->buffer);
  if (stage.placeholder) {
    sources.insert(e->buffer);
    return true;
  }
  return !stage.reduces() && CollectSources(dag, stage.body, sources);
}

// Elements of a factor, as the product reads them, and of the other factor's share of the result.
struct FactorShape {
  int64_t read = 1, own = 1;  // own: along axes of the result that are in this factor alone
};
FactorShape ShapeOfFactor(const Stage& product, const Expr& factor, const Expr& other) {
  const auto uses = [](const Expr& load, const Axis& axis) {
    return std::any_of(load->args.begin(), load->args.end(),
                       [&](const Expr& index) { return UsesVar(index, axis.var.get()); });
  };
  FactorShape shape;
  for (const Axis& axis : product.axes) {
    if (!uses(factor, axis)) continue;
    shape.read *= axis.extent;
    if (!uses(other, axis)) shape.own *= axis.extent;
  }
  for (const Axis& axis : product.reduce_axes)
    if (uses(factor, axis)) shape.read *= axis.extent;
  return shape;
}

}  // namespace

FactorBounds FindFactorBounds(const Network& network) { return BoundFinder(network).Find(); }

absl::Status MarkFactors(const FactorBounds& bounds, Subgraph& subgraph) {
  const std::optional<int> product = ProductOf(subgraph.dag);
  if (!product) return absl::OkStatus();
  std::set<int> sources;
  const Stage& stage = subgraph.dag.stage(*product);
  for (const size_t side : {0, 1}) {
    const Expr &factor = stage.body->args[side], &other = stage.body->args[1 - side];
    std::set<int> own;
    if (other->kind != ExprKind::kLoad || !CollectSources(subgraph.dag, factor, own)) return absl::OkStatus();
    const FactorShape shape = ShapeOfFactor(stage, factor, other);
    int64_t elements = 0;
    for (int source : own) elements += subgraph.dag.stage(source).elements();
    if (shape.own < kLeastRows || shape.read > elements) return absl::OkStatus();
    sources.merge(own);
  }
  std::vector<Stage> stages = subgraph.dag.stages();
  const std::vector<int> placeholders = subgraph.dag.inputs();
  for (size_t i = 0; i < placeholders.size(); ++i) {
    if (!sources.contains(placeholders[i])) continue;
    const auto bound = bounds.find(subgraph.inputs[i]);
    if (bound == bounds.end()) return absl::OkStatus();
    stages[placeholders[i]].valid_min = -bound->second;
    stages[placeholders[i]].valid_max = bound->second;
  }
  ASSIGN_OR_RETURN(subgraph.dag, ComputeDag::Create(std::move(stages), subgraph.dag.outputs()));
  return absl::OkStatus();
}

std::string UnboundedKey(const ComputeDag& dag) {
  const auto is_bounded = [](const Stage& stage) { return IsFloat(stage.dtype) && stage.has_valid_range(); };
  if (std::none_of(dag.stages().begin(), dag.stages().end(), is_bounded)) return "";
  std::vector<Stage> stages = dag.stages();
  for (Stage& stage : stages)
    if (is_bounded(stage)) stage.valid_min = stage.valid_max = 0;
  return ComputeDag::Create(std::move(stages), dag.outputs()).value().workload_key();
}

}  // namespace diapason
