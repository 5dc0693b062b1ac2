#include "compiler/graph/onnx/found_rows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;
using Names = std::set<std::string>;

const Names& Elementwise() {
  static const auto& names =
      *new Names{"Abs",     "Add",         "And",         "Cast",     "Ceil",       "Clip",    "Div",
                 "Elu",     "Equal",       "Erf",         "Exp",      "Floor",      "Greater", "GreaterOrEqual",
                 "Gelu",    "HardSigmoid", "HardSwish",   "Identity", "IsInf",      "IsNaN",   "LeakyRelu",
                 "Less",    "Log",         "LessOrEqual", "Max",      "Min",        "Mod",     "Mul",
                 "Neg",     "Not",         "Or",          "Pow",      "Reciprocal", "Relu",    "Round",
                 "Sigmoid", "Sign",        "Softplus",    "Sqrt",     "Sub",        "Tanh",    "Where",
                 "Xor"};
  return names;
}

const Names& Reshapes() {
  static const auto& names = *new Names{"Reshape", "Unsqueeze", "Squeeze", "Flatten"};
  return names;
}

bool Scatters(const std::string& op) { return op == "ScatterND" || op == "ScatterElements"; }

// What treats images apart, which are the first axis.
bool TreatsImages(const std::string& op) {
  static const auto& names = *new Names{"Conv", "ConvTranspose", "BatchNormalization", "MaxPool", "AveragePool"};
  return names.contains(op);
}

bool Combines(const std::string& op) { return op == "ReduceMax" || op == "ReduceMin" || op == "ReduceSum"; }

int64_t Rank(const ImportValue& value) { return static_cast<int64_t>(value->type.shape.size()); }

int64_t Product(const Shape& shape, int64_t end) {
  return std::accumulate(shape.begin(), shape.begin() + end, int64_t{1}, std::multiplies<>());
}

// The inputs of a node, and what is found in them.
class Inputs {
 public:
  explicit Inputs(NodeImporter& node) : node_(node), op_(node.node().domain.empty() ? node.node().op : "") {
    for (int i = 0; i < node.inputs(); ++i) {
      const ImportValue value = node.HasInput(i) ? node.Peek(i) : nullptr;
      values_.push_back(value);
      if (value == nullptr) continue;
      const FoundFact& fact = value->found;
      if (fact.rows && !rows) rows = fact.rows;
      one_kind = one_kind && (!fact.rows || fact.rows == rows);
      for (const FoundRowsPtr& other : {fact.rows, fact.positions, fact.counted}) {
        if (!other) continue;
        if (!any || (!any->bound.empty() && other->bound.empty())) any = other;
        if (!other->bound.empty()) bounds_.insert(other->bound);
      }
    }
  }

  const std::string& op() const { return op_; }
  int size() const { return static_cast<int>(values_.size()); }
  const ImportValue& value(int i) const { return values_[i]; }
  const FoundFact& fact(int i) const {
    static const auto& none = *new FoundFact();
    return i < size() && values_[i] ? values_[i]->found : none;
  }
  int64_t Axis(int64_t fallback) const {
    const int64_t axis = node_.Int("axis", fallback);
    return axis < 0 && values_[0] ? axis + Rank(values_[0]) : axis;
  }
  // Whether the padding proof can decide about all rows that the inputs have to do with.
  bool only_bounded() const { return any != nullptr && !any->bound.empty(); }
  void StopTracking() const {
    for (const std::string& symbol : bounds_) node_.rows().StopTracking(symbol);
  }
  absl::Status Refuse() const {
    return absl::InvalidArgumentError(absl::StrCat(
        "it needs to know how many rows ", any->node, " finds, which is known only when the network runs: ",
        "say how many they may be with ", any->flag, ", or export the model without what follows that node"));
  }

  FoundRowsPtr any;   // of some input, not given if there are such; null: the node has nothing to do with found rows
  FoundRowsPtr rows;  // that some input has
  bool one_kind = true;

 private:
  NodeImporter& node_;
  std::string op_;
  std::vector<ImportValue> values_;
  Names bounds_;
};

// ---- before the rule

bool IsNumber(const ImportValue& x, int64_t number) {
  return x && x->value && !IsFloat(x->type.dtype) && x->type.elements() == 1 && x->value->int_at(0) == number;
}

// Whether a Range is 0, 1, ... up to its limit.
bool CountsUp(const Inputs& in) { return in.size() == 3 && IsNumber(in.value(0), 0) && IsNumber(in.value(2), 1); }

// Whether a Slice takes as many rows as there are.
bool TakesAllRows(const Inputs& in) {
  return in.size() >= 4 && IsNumber(in.value(1), 0) && in.value(2)->type.elements() == 1 &&
         in.fact(0).rows == in.fact(2).counted &&
         (IsNumber(in.value(3), in.fact(0).axis) || IsNumber(in.value(3), in.fact(0).axis - Rank(in.value(0))));
}

bool AllNegative(const ImportValue& x) {
  if (!x || !x->value || IsFloat(x->type.dtype)) return false;
  for (int64_t i = 0; i < x->type.elements(); ++i)
    if (x->value->int_at(i) >= 0) return false;
  return true;
}

// Whether a Where chooses from two lists by a known one. PyTorch's exporter replaces -1 in a shape so.
bool ChoosesFromLists(const Inputs& in) {
  for (int i = 0; i < in.size(); ++i)
    if (!in.value(i) || !in.value(i)->value || in.value(i)->type.shape != in.value(0)->type.shape) return false;
  return in.size() == 3 && !in.fact(0).counted && Rank(in.value(0)) == 1;
}

// Numbers of rows, computed as if all were real.
absl::Status CheckCounts(const Inputs& in) {
  static const auto& of_first = *new Names{"Gather",  "Slice",      "Unsqueeze", "Squeeze", "Cast", "Identity",
                                           "Reshape", "ReduceProd", "ReduceMin", "Not",     "If",   "ConstantOfShape"};
  static const auto& of_all = *new Names{"Concat", "Min", "Equal", "Greater"};
  for (int i = 0; i < in.size(); ++i) {
    const FoundFact& fact = in.fact(i);
    if (!fact.counted) continue;
    bool allowed = of_all.contains(in.op()) || (i == 0 && of_first.contains(in.op())) ||
                   (i == 1 && (in.op() == "TopK" || in.op() == "Expand" || in.op() == "Reshape")) ||
                   (i == 1 && in.op() == "Split" && in.fact(0).rows == fact.counted) ||
                   (i == 2 && in.op() == "Slice" && TakesAllRows(in)) || (i == 1 && in.op() == "Range" && CountsUp(in));
    const bool compared = in.op() == "Equal" || in.op() == "Greater";
    if (in.op() == "Equal" && AllNegative(in.value(1 - i))) continue;  // no number of rows is
    if (in.op() == "Shape") continue;
    if (in.op() == "Add" && IsNumber(in.value(1 - i), 0) && !in.fact(1 - i).counted) continue;
    if (in.op() == "Where" && ChoosesFromLists(in)) continue;
    // Whether there are none: counts are never 0 here.
    if (compared) {
      const ImportValue& other = in.value(1 - i);
      allowed = (in.op() == "Equal" || i == 0) && other->value && other->type.elements() == 1 &&
                other->value->at(0) == 0 && in.value(i)->type.elements() == 1;
    }
    if (fact.product || fact.tests) {
      static const auto& kept = *new Names{"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"};
      allowed = allowed && i == 0 &&
                (kept.contains(in.op()) || (fact.product && compared) ||
                 (fact.tests && (in.op() == "If" || in.op() == "Not")));
    } else {
      allowed = allowed && in.op() != "If" && in.op() != "Not";
    }
    if (!allowed) return in.Refuse();
  }
  return absl::OkStatus();
}

// Whether a Concat puts other columns behind one that says the rows' own places: an index into each row.
bool JoinsColumns(const Inputs& in) {
  const FoundFact& first = in.fact(0);
  bool joins = first.own_place && first.rows && Rank(in.value(0)) == 2 && first.axis == 0 && in.Axis(0) == 1 &&
               in.value(0)->type.shape[1] == 1;
  for (int i = 1; i < in.size(); ++i)
    joins = joins && !in.fact(i).positions && in.fact(i).rows == first.rows && in.fact(i).axis == 0;
  return joins;
}

// Places among rows may only be moved, and point to elements of tensors with these rows.
absl::Status CheckPositions(const Inputs& in) {
  static const auto& moves = *new Names{"Cast",      "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten",
                                        "Transpose", "Slice",    "Split",   "Shape",     "Gather",  "Expand"};
  const bool of_one = in.size() == 1 && (in.op() == "Max" || in.op() == "Min");  // copies
  for (int i = 0; i < in.size(); ++i) {
    if (!in.fact(i).positions || of_one || (i == 0 && moves.contains(in.op()))) continue;
    if (i == 0 && in.op() == "Concat" && JoinsColumns(in)) continue;
    if (i == 1 && Scatters(in.op()) && in.fact(1).own_place && in.fact(1).rows) continue;  // CheckScatter
    const bool takes = i == 1 && ((in.op() == "Gather" && in.fact(0).axis == in.Axis(0)) ||
                                  (in.op() == "GatherND" && in.fact(0).axis == 0 &&
                                   (in.value(1)->type.shape.back() == 1 || in.fact(1).own_column)));
    if (!takes || in.fact(0).rows != in.fact(i).positions) return in.Refuse();
  }
  return absl::OkStatus();
}

// Rows that are not real get a value that changes no result.
absl::Status Hide(NodeImporter& node, const Inputs& in, int i, double value) {
  const ImportValue& x = in.value(i);
  const FoundFact& fact = x->found;
  if (!IsFloat(x->type.dtype) && value != 0) return in.Refuse();
  Shape shape(Rank(x), 1);
  shape[fact.axis] = x->type.shape[fact.axis];
  ASSIGN_OR_RETURN(ImportValue flags, node.Add("reshape", {fact.rows->flags}, {{"shape", shape}}));
  Array hidden(x->type.dtype, {});
  hidden.set(0, value);
  ASSIGN_OR_RETURN(ImportValue masked, node.Add("where", {flags, x, KnownValue(std::move(hidden), node.node().name)}));
  masked->found = fact;
  node.Replace(i, std::move(masked));
  return absl::OkStatus();
}

// The axes that a reduction takes together.
absl::StatusOr<std::vector<bool>> ReducedAxes(NodeImporter& node, const Inputs& in) {
  const int64_t rank = Rank(in.value(0));
  std::vector<int64_t> axes = node.Ints("axes", {});
  if (in.size() > 1 && in.value(1)) {
    ASSIGN_OR_RETURN(axes, node.KnownInts(1, "axes"));
  }
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes)
    if (axis >= -rank && axis < rank) reduced[axis < 0 ? axis + rank : axis] = true;
  return reduced;
}

// Whether the shape that rows are expanded to asks for one row, or for as many as there are, along their axis.
// PyTorch's exporter writes an index x as Expand(x, Shape(x)).
bool ExpandsOtherAxes(const Inputs& in) {
  const FoundFact &rows = in.fact(0), &shape = in.fact(1);
  const ImportValue& to = in.value(1);
  if (!rows.rows || to == nullptr || !to->value || Rank(to) != 1) return false;
  const int64_t axis = rows.axis + to->type.elements() - Rank(in.value(0));
  for (int64_t d = 0; d < static_cast<int64_t>(shape.counts.size()); ++d)
    if (shape.counts[d] && (d != axis || shape.counted != rows.rows)) return false;
  return axis < 0 || (shape.counted && shape.counts[axis]) || to->value->int_at(axis) == 1;
}

// Rows that a filter found among all are put back where they were. Those that are not real put back what was there.
absl::Status CheckScatter(NodeImporter& node, const Inputs& in) {
  const FoundFact &data = in.fact(0), &places = in.fact(1), &updates = in.fact(2);
  const bool fits = in.size() == 3 && places.own_place && places.rows && updates.rows == places.rows &&
                    places.axis == 0 && updates.axis == 0 && places.positions == data.rows && data.axis == 0 &&
                    !updates.positions && in.value(0)->type == in.value(2)->type &&
                    node.String("reduction", "none") == "none" &&
                    (in.op() == "ScatterND" ? in.value(1)->type.shape == Shape{in.value(0)->type.shape[0], 1}
                                            : in.Axis(0) == 0 && in.value(1)->type.shape == in.value(0)->type.shape);
  if (!fits) return in.Refuse();
  Shape shape(Rank(in.value(0)), 1);
  shape[0] = in.value(0)->type.shape[0];
  ASSIGN_OR_RETURN(ImportValue flags, node.Add("reshape", {places.rows->flags}, {{"shape", shape}}));
  ASSIGN_OR_RETURN(ImportValue kept, node.Add("where", {flags, in.value(2), in.value(0)}));
  node.Replace(2, std::move(kept));
  return absl::OkStatus();
}

absl::Status CheckRows(NodeImporter& node, const Inputs& in) {
  static const auto& apart = *new Names{"Transpose", "Concat", "Shape", "Size", "NonZero", "Split", "RoiAlign"};
  const std::string& op = in.op();
  const FoundFact& first = in.fact(0);
  if (Elementwise().contains(op)) return in.one_kind ? absl::OkStatus() : in.Refuse();
  if (Reshapes().contains(op) || apart.contains(op)) return absl::OkStatus();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (op == "TopK") {
    if (!first.rows || first.axis != in.Axis(-1)) return absl::OkStatus();
    return Rank(in.value(0)) == 1 ? Hide(node, in, 0, node.Int("largest", 1) != 0 ? -kInfinity : kInfinity)
                                  : in.Refuse();
  }
  if (Combines(op)) {
    ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(node, in));
    if (!first.rows || !reduced[first.axis]) return absl::OkStatus();
    return Hide(node, in, 0, op == "ReduceSum" ? 0 : op == "ReduceMax" ? -kInfinity : kInfinity);
  }
  // Before opset 13 a softmax takes all axes behind its own as well.
  if (op == "Softmax" || op == "LogSoftmax") return first.axis < in.Axis(-1) ? absl::OkStatus() : in.Refuse();
  if (op == "Expand") return ExpandsOtherAxes(in) ? absl::OkStatus() : in.Refuse();
  if (Scatters(op)) return CheckScatter(node, in);
  if (TreatsImages(op)) {
    bool images = first.rows && first.axis == 0;
    for (int i = 1; i < in.size(); ++i) images = images && !in.fact(i).rows;
    return images ? absl::OkStatus() : in.Refuse();
  }
  if (op == "ArgMax") return first.axis != in.Axis(0) ? absl::OkStatus() : in.Refuse();
  if (op == "Slice") {  // of the rows none may be left out, which shows behind the rule, nor change places
    if (node.opset() < 10 || in.size() < 5 || !in.value(4)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<int64_t> steps, node.KnownInts(4, "steps"));
    std::vector<int64_t> axes(steps.size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
    if (in.value(3)) {
      ASSIGN_OR_RETURN(axes, node.KnownInts(3, "axes"));
    }
    for (size_t k = 0; first.rows && k < std::min(axes.size(), steps.size()); ++k) {
      const int64_t axis = axes[k] < 0 ? axes[k] + Rank(in.value(0)) : axes[k];
      if (axis == first.axis && steps[k] != 1) return in.Refuse();
    }
    return absl::OkStatus();
  }
  if (op == "NonMaxSuppression") {
    const bool both = first.rows && first.rows == in.fact(1).rows && first.axis == 1 && in.fact(1).axis == 2;
    return both ? absl::OkStatus() : in.Refuse();
  }
  if (op == "Gather" || op == "GatherND") {
    const bool of_data = first.rows && (op == "GatherND" || first.axis == in.Axis(0));
    const bool two = first.rows && in.fact(1).rows && !in.fact(1).positions;
    return (of_data && !in.fact(1).positions) || two || node.Int("batch_dims", 0) != 0 ? in.Refuse() : absl::OkStatus();
  }
  if (op == "MatMul" || op == "Gemm") {
    const bool rows_first = first.rows && first.axis + 1 < Rank(in.value(0)) && node.Int("transA", 0) == 0;
    return rows_first && !in.fact(1).rows && !in.fact(2).rows ? absl::OkStatus() : in.Refuse();
  }
  return in.Refuse();
}

// ---- behind the rule

class Marker {
 public:
  Marker(NodeImporter& node, const Inputs& in) : node_(node), in_(in) {}

  absl::Status Mark() {
    static const auto& mark_themselves = *new Names{"TopK", "NonMaxSuppression", "If"};
    if (mark_themselves.contains(in_.op())) return absl::OkStatus();
    for (const ImportValue& result : node_.Results()) {
      if (result == nullptr) continue;
      FoundFact fact;
      if (result->found.rows) continue;  // of NonZero and Compress
      RETURN_IF_ERROR(Of(result, fact));
      result->found = fact;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Of(const ImportValue& result, FoundFact& fact) {
    const std::string& op = in_.op();
    if (op == "Shape" || op == "Size") return Count(result, fact);
    for (int i = 0; i < in_.size(); ++i)
      if (in_.fact(i).counted) RETURN_IF_ERROR(Counted(i, result, fact));
    if (op == "Concat" && in_.rows) return Concatenated(result, fact);
    if (op == "Gather" || op == "GatherND") return Gathered(fact);
    if (Combines(op) || op == "ArgMax") return Reduced(fact);
    if (Scatters(op)) {
      fact.rows = in_.fact(0).rows;
      return absl::OkStatus();
    }
    for (int i = 0; i < in_.size(); ++i) {
      const FoundFact& from = in_.fact(i);
      if (from.positions) fact.positions = from.positions;
      if (!from.rows) continue;
      int axis = from.axis;
      FoundRowsPtr rows = from.rows;
      if (Elementwise().contains(op)) {
        axis += static_cast<int>(Rank(result) - Rank(in_.value(i)));
        RETURN_IF_ERROR(OthersRepeat(axis, result));
      } else if (Reshapes().contains(op)) {
        ASSIGN_OR_RETURN(axis, Reshaped(in_.value(i), result, rows));
      } else if (op == "Transpose") {
        ASSIGN_OR_RETURN(axis, Transposed(from.axis, Rank(result)));
      } else if (op == "Expand") {
        axis += static_cast<int>(Rank(result) - Rank(in_.value(i)));
      } else if (op == "RoiAlign") {
        axis = 0;
      } else if (op == "Slice") {
        RETURN_IF_ERROR(Sliced(axis, result, rows));
      }
      if (axis >= Rank(result) || result->type.shape[axis] != rows->capacity) return in_.Refuse();
      if (op == "RoiAlign" && (i == 0 || from.axis != 0)) return in_.Refuse();
      static const auto& moves = *new Names{"Cast",    "Identity",  "Reshape", "Unsqueeze", "Squeeze",
                                            "Flatten", "Transpose", "Expand",  "Slice",     "Split"};
      const bool of_one = in_.size() == 1 && (op == "Max" || op == "Min");  // copies
      fact.own_place = from.own_place && rows == from.rows && (moves.contains(op) || of_one);
      fact.rows = std::move(rows);
      fact.axis = axis;
    }
    return absl::OkStatus();
  }

  // Inputs without found rows have one element along them.
  absl::Status OthersRepeat(int axis, const ImportValue& result) const {
    for (int i = 0; i < in_.size(); ++i) {
      if (in_.value(i) == nullptr) continue;
      const FoundFact& fact = in_.fact(i);
      const int64_t own = axis - (Rank(result) - Rank(in_.value(i)));
      if (fact.rows ? fact.axis != own : own >= 0 && in_.value(i)->type.shape[own] != 1) return in_.Refuse();
    }
    return absl::OkStatus();
  }

  // Changes `rows` where a row becomes several, one behind the other.
  absl::StatusOr<int> Reshaped(const ImportValue& x, const ImportValue& result, FoundRowsPtr& rows) const {
    const int64_t before = Product(x->type.shape, x->found.axis), capacity = rows->capacity;
    const Shape& shape = result->type.shape;
    for (int64_t d = 0; d < Rank(result); ++d)
      if (shape[d] == capacity && Product(shape, d) == before) return static_cast<int>(d);
    for (int64_t d = 0; d < Rank(result); ++d) {
      if (Product(shape, d) != before || shape[d] % capacity != 0) continue;
      ASSIGN_OR_RETURN(rows, Repeated(rows, shape[d] / capacity));
      return static_cast<int>(d);
    }
    return in_.Refuse();
  }

  absl::StatusOr<FoundRowsPtr> Repeated(const FoundRowsPtr& rows, int64_t times) const {
    FoundRowsPtr& known =
        node_.rows().Known(absl::StrCat("r", reinterpret_cast<uintptr_t>(rows.get()), " times ", times));
    if (known != nullptr) return known;
    ASSIGN_OR_RETURN(ImportValue flags, node_.Add("reshape", {rows->flags}, {{"shape", Shape{rows->capacity, 1}}}));
    ASSIGN_OR_RETURN(flags, node_.Add("expand", {flags}, {{"shape", Shape{rows->capacity, times}}}));
    FoundRows repeated = *rows;
    repeated.capacity = rows->capacity * times;
    ASSIGN_OR_RETURN(repeated.flags, node_.Add("reshape", {flags}, {{"shape", Shape{repeated.capacity}}}));
    repeated.source = rows->flags;
    repeated.first = false;
    known = std::make_shared<const FoundRows>(std::move(repeated));
    return known;
  }

  // The first of bounded rows are as good as all, at a smaller capacity. `axis` is theirs.
  absl::Status Sliced(int axis, const ImportValue& result, FoundRowsPtr& rows) const {
    const int64_t extent = result->type.shape[axis];
    if (extent == rows->capacity || !rows->first || extent == 0) return absl::OkStatus();
    std::vector<int64_t> starts = node_.Ints("starts", {}), axes = node_.Ints("axes", {});
    if (node_.opset() >= 10) {
      ASSIGN_OR_RETURN(starts, node_.KnownInts(1, "starts"));
      if (in_.size() > 3 && in_.value(3)) {
        ASSIGN_OR_RETURN(axes, node_.KnownInts(3, "axes"));
      }
    }
    for (size_t k = 0; k < starts.size(); ++k) {
      const int64_t given = axes.empty() ? static_cast<int64_t>(k) : axes[k];
      if ((given < 0 ? given + Rank(result) : given) == axis && starts[k] != 0) return in_.Refuse();
    }
    ASSIGN_OR_RETURN(rows, Front(rows, extent));
    return absl::OkStatus();
  }

  absl::StatusOr<FoundRowsPtr> Front(const FoundRowsPtr& rows, int64_t extent) const {
    FoundRowsPtr& known =
        node_.rows().Known(absl::StrCat("r", reinterpret_cast<uintptr_t>(rows.get()), " first ", extent));
    if (known != nullptr) return known;
    FoundRows front = *rows;
    front.capacity = extent;
    ASSIGN_OR_RETURN(front.flags, node_.Add("slice", {rows->flags},
                                            {{"starts", Shape{0}}, {"ends", Shape{extent}}, {"axes", Shape{0}}}));
    front.source = rows->flags;
    known = std::make_shared<const FoundRows>(std::move(front));
    return known;
  }

  absl::StatusOr<int> Transposed(int axis, int64_t rank) const {
    const std::vector<int64_t> perm = node_.Ints("perm", {});
    if (perm.empty()) return static_cast<int>(rank) - 1 - axis;
    for (size_t d = 0; d < perm.size(); ++d)
      if (perm[d] == axis) return static_cast<int>(d);
    return in_.Refuse();
  }

  absl::Status Gathered(FoundFact& fact) const {
    const FoundFact &data = in_.fact(0), &indices = in_.fact(1);
    fact.positions = data.positions;
    if (in_.fact(0).counted) return absl::OkStatus();
    const bool nd = in_.op() == "GatherND";
    const int64_t axis = nd ? 0 : in_.Axis(0);
    if (indices.rows) {
      if (nd && indices.axis + 1 == Rank(in_.value(1))) return in_.Refuse();
      fact.rows = indices.rows;
      fact.axis = static_cast<int>(axis) + indices.axis;
    } else if (data.rows && !indices.positions) {
      fact.rows = data.rows;
      fact.own_place = data.own_place;
      fact.axis = data.axis + static_cast<int>(data.axis < axis ? 0 : Rank(in_.value(1)) - 1);
    }
    return absl::OkStatus();
  }

  absl::Status Reduced(FoundFact& fact) const {
    const FoundFact& from = in_.fact(0);
    if (!from.rows || from.counted) return absl::OkStatus();
    std::vector<bool> reduced(Rank(in_.value(0)), false);
    if (in_.op() == "ArgMax") {
      reduced[in_.Axis(0)] = true;
    } else {
      ASSIGN_OR_RETURN(reduced, ReducedAxes(node_, in_));
    }
    if (reduced[from.axis]) return absl::OkStatus();
    fact.rows = from.rows;
    fact.axis = from.axis;
    if (node_.Int("keepdims", 1) == 0)
      fact.axis -= static_cast<int>(std::count(reduced.begin(), reduced.begin() + from.axis, true));
    return absl::OkStatus();
  }

  // The flags of all parts.
  absl::Status Concatenated(const ImportValue& result, FoundFact& fact) {
    const int axis = static_cast<int>(in_.Axis(0));
    bool along = true, beside = true;
    if (in_.size() > 1 && JoinsColumns(in_)) {
      fact.rows = in_.rows;
      fact.axis = 0;
      fact.positions = in_.fact(0).positions;
      fact.own_column = fact.positions == fact.rows;
      return absl::OkStatus();
    }
    std::string key = "concat";
    for (int i = 0; i < in_.size(); ++i) {
      const FoundFact& from = in_.fact(i);
      along = along && (!from.rows || from.axis == axis);
      beside = beside && from.rows == in_.rows && from.axis == in_.fact(0).axis && from.axis != axis;
      if (from.positions || (from.rows && from.rows->bound != in_.rows->bound)) return in_.Refuse();
      absl::StrAppend(&key, " ",
                      from.rows ? absl::StrCat("r", reinterpret_cast<uintptr_t>(from.rows.get()))
                                : absl::StrCat(in_.value(i)->type.shape[axis]));
    }
    if (beside || in_.size() == 1) {
      fact.rows = in_.rows;
      fact.axis = in_.fact(0).axis;
      return absl::OkStatus();
    }
    if (!along) return in_.Refuse();
    FoundRowsPtr& known = node_.rows().Known(key);
    if (known == nullptr) {
      std::vector<ImportValue> parts;
      for (int i = 0; i < in_.size(); ++i) {
        if (in_.fact(i).rows) {
          parts.push_back(in_.fact(i).rows->flags);
          continue;
        }
        Array all(DType::kBool, {in_.value(i)->type.shape[axis]});
        for (int64_t k = 0; k < all.elements(); ++k) all.set_int(k, 1);
        parts.push_back(KnownValue(std::move(all), node_.node().name));
      }
      ASSIGN_OR_RETURN(ImportValue flags, node_.Add("concat", parts, {{"axis", int64_t{0}}}));
      FoundRows joined = *in_.rows;
      joined.capacity = result->type.shape[axis];
      joined.flags = std::move(flags);
      joined.first = false;
      known = std::make_shared<const FoundRows>(std::move(joined));
    }
    fact.rows = known;
    fact.axis = axis;
    return absl::OkStatus();
  }

  // ---- numbers of rows

  absl::Status Count(const ImportValue& result, FoundFact& fact) const {
    const FoundFact& from = in_.fact(0);
    if (!from.rows) return absl::OkStatus();
    fact.counted = from.rows;
    fact.counts.assign(result->type.elements(), false);
    if (in_.op() == "Size") {
      fact.counts[0] = true;
      fact.product = Rank(in_.value(0)) > 1;
      return absl::OkStatus();
    }
    const int64_t rank = Rank(in_.value(0)), given = node_.Int("start", 0);
    const int64_t start = std::clamp<int64_t>(given < 0 ? given + rank : given, 0, rank);
    if (from.axis < start || from.axis - start >= result->type.elements())
      fact.counted = nullptr;
    else
      fact.counts[from.axis - start] = true;
    return absl::OkStatus();
  }

  // What becomes of input i, which is computed from numbers of rows.
  absl::Status Counted(int i, const ImportValue& result, FoundFact& fact) const {
    const FoundFact& from = in_.fact(i);
    const std::string& op = in_.op();
    if (fact.counted && fact.counted != from.counted && op != "Concat") return in_.Refuse();
    if (op == "ConstantOfShape" || op == "Expand" || op == "Reshape") {
      if (op != "Reshape" || i == 1) return Shaped(i, result, fact);
    }
    if (op == "TopK" || op == "If" || op == "Split" || (op == "Slice" && i == 2)) return absl::OkStatus();
    if (op == "Range") {
      if (Rank(result) != 1 || result->type.shape[0] != from.counted->capacity) return in_.Refuse();
      fact.rows = fact.positions = from.counted;
      fact.own_place = true;
      return absl::OkStatus();
    }
    if (op == "Equal" && AllNegative(in_.value(1 - i))) return absl::OkStatus();
    if (!result->value) return in_.Refuse();
    if (op == "Where") {
      fact.counts.resize(result->type.elements(), false);
      for (size_t k = 0; k < fact.counts.size(); ++k)
        if (from.counts[k] && (in_.value(0)->value->int_at(static_cast<int64_t>(k)) != 0) == (i == 1))
          fact.counts[k] = true;
      if (std::find(fact.counts.begin(), fact.counts.end(), true) != fact.counts.end()) fact.counted = from.counted;
      return absl::OkStatus();
    }
    fact.counted = from.counted;
    // The smaller one of a number and a limit: the first rows (Sliced) up to it.
    if (op == "Min" && from.counted->first && !from.product && result->type.elements() == 1 &&
        result->value->int_at(0) < from.counted->capacity && result->value->int_at(0) > 0) {
      ASSIGN_OR_RETURN(fact.counted, Front(from.counted, result->value->int_at(0)));
    }
    fact.product = from.product || op == "ReduceProd";
    fact.tests = from.tests || op == "Equal" || op == "Greater";
    fact.counts.resize(result->type.elements(), false);
    if (op == "Concat") {
      int64_t at = 0;
      for (int k = 0; k < i; ++k) at += in_.value(k)->type.elements();
      std::copy(from.counts.begin(), from.counts.end(), fact.counts.begin() + at);
    } else if (op == "Gather" || op == "Slice") {
      return Chosen(from, result, fact);
    } else if (from.counts.size() == fact.counts.size()) {
      fact.counts = from.counts;
    } else {
      fact.counts.assign(fact.counts.size(), true);
    }
    return absl::OkStatus();
  }

  absl::Status Chosen(const FoundFact& from, const ImportValue& result, FoundFact& fact) const {
    const auto extent = static_cast<int64_t>(from.counts.size());
    if (Rank(in_.value(0)) != 1) return in_.Refuse();
    ASSIGN_OR_RETURN(const std::vector<int64_t> at, node_.KnownInts(1, "the places"));
    for (int64_t k = 0; k < result->type.elements(); ++k) {
      const int64_t place = in_.op() == "Gather" ? at[k] : at[0] + k;
      if (in_.op() == "Slice" && in_.size() > 4) return in_.Refuse();
      const int64_t index = (in_.op() == "Slice" ? at[0] : at[k]) < 0 ? place + extent : place;
      fact.counts[k] = index >= 0 && index < extent && from.counts[index];
    }
    if (std::none_of(fact.counts.begin(), fact.counts.end(), [](bool c) { return c; })) {
      fact.counted = nullptr;
      fact.counts.clear();
    }
    return absl::OkStatus();
  }

  // A result of a shape that has a number of rows in it has these rows.
  absl::Status Shaped(int i, const ImportValue& result, FoundFact& fact) const {
    const FoundFact& from = in_.fact(i);
    if (std::count(from.counts.begin(), from.counts.end(), true) != 1) return in_.Refuse();
    const auto axis = std::find(from.counts.begin(), from.counts.end(), true) - from.counts.begin();
    const int64_t d = axis + Rank(result) - static_cast<int64_t>(from.counts.size());
    if (d < 0 || result->type.shape[d] != from.counted->capacity) return in_.Refuse();
    fact.rows = from.counted;
    fact.axis = static_cast<int>(d);
    return absl::OkStatus();
  }

  NodeImporter& node_;
  const Inputs& in_;
};

}  // namespace

absl::Status HideFoundRows(NodeImporter& node) {
  const Inputs in(node);
  if (in.any == nullptr) return absl::OkStatus();
  absl::Status status = CheckCounts(in);
  if (status.ok()) status = CheckPositions(in);
  if (status.ok() && in.rows) status = CheckRows(node, in);
  if (status.ok() || !in.only_bounded()) return status;
  in.StopTracking();
  return absl::OkStatus();
}

absl::Status MarkFoundRows(NodeImporter& node, const std::string& text) {
  for (const ImportValue& result : node.Results()) {  // of NonZero, Compress and NonMaxSuppression
    if (result && result->found.rows && result->found.rows->node.empty()) {
      FoundRows named = *result->found.rows;
      named.node = text;
      FoundRowsPtr& known = node.rows().Known(named.key);
      if (known == nullptr) known = std::make_shared<const FoundRows>(std::move(named));
      result->found.rows = known;
    }
  }
  const Inputs in(node);
  if (in.any == nullptr || node.rows().HasStoppedTracking()) return absl::OkStatus();
  const absl::Status status = Marker(node, in).Mark();
  if (!status.ok() && in.only_bounded()) in.StopTracking();
  return in.only_bounded() ? absl::OkStatus() : status;
}

absl::Status LoseFoundRows(const ImportedTensor& value, NodeImporter& node) {
  for (const FoundRowsPtr& rows : {value.found.rows, value.found.positions, value.found.counted}) {
    if (rows && rows->bound.empty()) return absl::InvalidArgumentError(absl::StrCat(rows->node, ": ", rows->wanted));
    if (rows) node.rows().StopTracking(rows->bound);
  }
  return absl::OkStatus();
}

absl::Status CheckFoundRowsOfOutput(const ImportedTensor& output, ImportState& state) {
  const FoundFact& found = output.found;
  for (const FoundRowsPtr& rows : {found.rows, found.positions, found.counted}) {
    if (rows && rows->bound.empty()) return absl::InvalidArgumentError(absl::StrCat(rows->node, ": ", rows->wanted));
  }
  if (found.counted) state.untracked.insert(found.counted->bound);
  if (found.rows && !found.rows->first) state.untracked.insert(found.rows->bound);
  return absl::OkStatus();
}

}  // namespace diapason
