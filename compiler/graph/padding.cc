#include "compiler/graph/padding.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/padding_values.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/value_range.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;
using Blocks = std::vector<int64_t>;  // by axis: its block, 0 where it does not grow

bool Grows(const Blocks& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](int64_t block) { return block > 0; });
}

int64_t Normal(int64_t axis, size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; }

// What is known of a tensor of the first network.
struct Fact {
  Blocks blocks;
  std::vector<PaddedValue> padded;  // by axis; of those that grow
  ValueRange range;
  std::optional<double> uniform;  // of a constant
};

class Prover {
 public:
  explicit Prover(const PaddingQuestion& question) : question_(question), a_(question.network), b_(question.other) {}

  absl::StatusOr<PaddingProof> Prove() {
    for (Network* network : {&a_, &b_}) {
      RETURN_IF_ERROR(FoldConstants(*network));
      RETURN_IF_ERROR(EliminateDeadCode(*network));
    }
    facts_.resize(a_.tensors.size());
    twin_.assign(a_.tensors.size(), -1);
    if (a_.inputs.size() != b_.inputs.size() || a_.nodes.size() != b_.nodes.size() ||
        a_.outputs.size() != b_.outputs.size())
      return Refuse(absl::StrCat("the graph is another one with ", question_.symbol, "=", question_.other_size));
    for (size_t i = 0; i < a_.inputs.size(); ++i) RETURN_IF_ERROR(TakeInput(a_.inputs[i], b_.inputs[i]));
    for (size_t n = 0; n < a_.nodes.size(); ++n) RETURN_IF_ERROR(Follow(a_.nodes[n], b_.nodes[n]));
    for (size_t i = 0; i < a_.outputs.size(); ++i) {
      RETURN_IF_ERROR(Match(a_.outputs[i], b_.outputs[i]));
      proof_.outputs.push_back(AxesOf(FactOf(a_.outputs[i]).blocks));
    }
    return proof_;
  }

 private:
  // ---- the same in both networks

  static absl::Status Refuse(const std::string& why) { return absl::FailedPreconditionError(why); }
  static std::string Name(const Node& node) { return absl::StrCat("node '", node.name, "' (", node.op, ")"); }
  absl::Status Combines(const Node& node) const {
    return Refuse(
        absl::StrCat(Name(node), " combines values along '", question_.symbol, "', those of padding included"));
  }

  const Fact& FactOf(int tensor) const { return facts_[tensor]; }
  const Shape& ShapeOf(int tensor) const { return a_.tensor(tensor).type.shape; }

  static std::vector<GrowingAxis> AxesOf(const Blocks& blocks) {
    std::vector<GrowingAxis> axes;
    for (size_t d = 0; d < blocks.size(); ++d)
      if (blocks[d] > 0) axes.push_back({static_cast<int>(d), blocks[d]});
    return axes;
  }

  // Which axes grow, by both shapes.
  absl::StatusOr<Blocks> BlocksOf(int a, int b) const {
    const Tensor &first = a_.tensor(a), &second = b_.tensor(b);
    const Shape &x = first.type.shape, &y = second.type.shape;
    if (x.size() != y.size() || first.type.dtype != second.type.dtype || first.constant() != second.constant())
      return Refuse(absl::StrCat("the graph is another one with ", question_.symbol, "=", question_.other_size));
    Blocks blocks(x.size(), 0);
    for (size_t d = 0; d < x.size(); ++d) {
      if (x[d] == y[d]) continue;
      blocks[d] = x[d] / question_.size;
      if (blocks[d] < 1 || x[d] != blocks[d] * question_.size || y[d] != blocks[d] * question_.other_size) {
        return Refuse(absl::StrCat("an extent of tensor '", first.name, "' is ", x[d], " with ", question_.symbol, "=",
                                   question_.size, " and ", y[d], " with ", question_.symbol, "=",
                                   question_.other_size));
      }
    }
    return blocks;
  }

  // Makes b the twin of a, with what follows from the shapes, and for constants from the values.
  absl::Status Match(int a, int b) {
    if (twin_[a] >= 0) {
      return twin_[a] == b
                 ? absl::OkStatus()
                 : Refuse(absl::StrCat("the graph is another one with ", question_.symbol, "=", question_.other_size));
    }
    twin_[a] = b;
    Fact& fact = facts_[a];
    ASSIGN_OR_RETURN(fact.blocks, BlocksOf(a, b));
    fact.padded.resize(fact.blocks.size());
    if (!a_.tensor(a).constant()) return absl::OkStatus();
    RETURN_IF_ERROR(CompareConstants(a_.tensor(a), *b_.tensor(b).data, fact.blocks));
    fact.uniform = UniformValue(*a_.tensor(a).data);
    fact.range = RangeOf(*a_.tensor(a).data);
    for (size_t d = 0; d < fact.blocks.size(); ++d)
      if (fact.blocks[d] > 0) fact.padded[d] = PaddedValueOf(*a_.tensor(a).data, fact.blocks, d, question_.least);
    return absl::OkStatus();
  }

  // As far as both have elements.
  absl::Status CompareConstants(const Tensor& tensor, const Array& other, const Blocks& blocks) const {
    const Array& array = *tensor.data;
    if (&array == &other) return absl::OkStatus();
    bool same = true;
    if (!Grows(blocks)) {
      same = array.data == other.data;
    } else {
      const Array& smaller = question_.size < question_.other_size ? array : other;
      const Array& larger = question_.size < question_.other_size ? other : array;
      const size_t bytes = BytesOf(array.dtype);
      Shape index(smaller.shape.size(), 0);
      for (int64_t e = 0, n = smaller.elements(); e < n && same; ++e) {
        int64_t at = 0;
        for (size_t d = 0; d < index.size(); ++d) at = at * larger.shape[d] + index[d];
        same = std::memcmp(smaller.data.data() + e * bytes, larger.data.data() + at * bytes, bytes) == 0;
        for (size_t d = index.size(); d-- > 0 && ++index[d] == smaller.shape[d];) index[d] = 0;
      }
    }
    return same ? absl::OkStatus()
                : Refuse(absl::StrCat("the constant '", tensor.name, "' has other values with ", question_.symbol, "=",
                                      question_.other_size));
  }

  absl::Status TakeInput(int a, int b) {
    RETURN_IF_ERROR(Match(a, b));
    for (size_t d = 0; d < FactOf(a).blocks.size(); ++d)
      if (a_.tensor(a).name == question_.mask && FactOf(a).blocks[d] > 0) facts_[a].padded[d] = PaddedValue::Known(0);
    facts_[a].range = ValueRange::Finite();
    return absl::OkStatus();
  }

  // Attributes that say shapes and ends may differ: results have the shapes that they have.
  absl::Status CompareNodes(const Node& a, const Node& b) const {
    if (a.op != b.op || a.inputs.size() != b.inputs.size())
      return Refuse(absl::StrCat("the graph is another one with ", question_.symbol, "=", question_.other_size,
                                 ", from ", Name(a), " on"));
    static const std::set<std::string> kOfShapes = {"shape", "starts", "ends"};
    for (const auto& [name, value] : a.attributes.values()) {
      const auto other = b.attributes.values().find(name);
      const bool present = other != b.attributes.values().end();
      if (present && (other->second == value || kOfShapes.contains(name))) continue;
      return Refuse(absl::StrCat("attribute '", name, "' of ", Name(a), " depends on '", question_.symbol, "'"));
    }
    return absl::OkStatus();
  }

  // ---- operators

  absl::Status Follow(const Node& node, const Node& other) {
    RETURN_IF_ERROR(CompareNodes(node, other));
    for (size_t i = 0; i < node.inputs.size(); ++i) RETURN_IF_ERROR(Match(node.inputs[i], other.inputs[i]));
    RETURN_IF_ERROR(Match(node.output, other.output));
    bool grows = Grows(FactOf(node.output).blocks);
    std::vector<ValueRange> ranges;
    for (int input : node.inputs) {
      grows = grows || Grows(FactOf(input).blocks);
      ranges.push_back(FactOf(input).range);
    }
    ValueRange& range = facts_[node.output].range;
    range = RangeOf(a_, node, ranges);
    // Where nothing is padded, what is finite without padding is what it is with it.
    const bool finite = std::all_of(ranges.begin(), ranges.end(), [](const ValueRange& r) { return r.finite(); });
    if (!grows && finite && !range.finite()) range = ValueRange::Finite();
    return grows ? FollowGrowing(node, other) : absl::OkStatus();
  }

  absl::Status FollowGrowing(const Node& node, const Node& other) {
    using Rule = absl::Status (Prover::*)(const Node&);
    static const std::map<std::string, Rule> kRules = {{"batch_norm", &Prover::BatchNorm},
                                                       {"concat", &Prover::Concat},
                                                       {"gather", &Prover::Gather},
                                                       {"gather_nd", &Prover::GatherNd},
                                                       {"gemm", &Prover::Gemm},
                                                       {"layer_norm", &Prover::NormAxes},
                                                       {"log_softmax", &Prover::Softmax},
                                                       {"matmul", &Prover::Matmul},
                                                       {"pad", &Prover::Pad},
                                                       {"reduce_max", &Prover::Reduce},
                                                       {"reduce_mean", &Prover::Reduce},
                                                       {"reduce_min", &Prover::Reduce},
                                                       {"reduce_prod", &Prover::Reduce},
                                                       {"reduce_sum", &Prover::Reduce},
                                                       {"rms_norm", &Prover::NormAxes},
                                                       {"softmax", &Prover::Softmax},
                                                       {"transpose", &Prover::Transpose},
                                                       {"expand", &Prover::Elementwise},
                                                       {"where", &Prover::Elementwise},
                                                       {"conv2d", &Prover::Rows},
                                                       {"conv3d", &Prover::Rows},
                                                       {"conv_transpose", &Prover::Rows},
                                                       {"roi_align", &Prover::Regions},
                                                       {"max_pool", &Prover::Rows},
                                                       {"avg_pool", &Prover::Rows},
                                                       {"sum_pool", &Prover::Rows},
                                                       {"max_pool_indices", &Prover::Rows},
                                                       {"max_pool3d", &Prover::Rows},
                                                       {"avg_pool3d", &Prover::Rows},
                                                       {"sum_pool3d", &Prover::Rows},
                                                       {"max_pool3d_indices", &Prover::Rows},
                                                       {"arg_max", &Prover::AlongAxis},
                                                       {"arg_min", &Prover::AlongAxis},
                                                       {"top_k_indices", &Prover::AlongAxis},
                                                       {"cumulative_sum", &Prover::AlongAxis},
                                                       {"gather_elements", &Prover::GatherElements}};
    if (node.op == "slice") return Slice(node, other);
    if (const auto rule = kRules.find(node.op); rule != kRules.end()) return (this->*rule->second)(node);
    const Operator& op = *FindOperator(node.op);
    if (op.is_view != nullptr && op.kind == OperatorKind::kInjective) return View(node, other);
    if (op.kind == OperatorKind::kElementwise) return Elementwise(node);
    return Refuse(absl::StrCat(Name(node), " is not known to keep what lies along '", question_.symbol, "' apart"));
  }

  // Result axis by input axis, -1 where the input's axis has no counterpart; the axes must grow alike, and padded
  // values stay.
  absl::Status Carry(const Node& node, int input, const std::vector<int>& result_axis) {
    const Fact& from = FactOf(input);
    Fact& to = facts_[node.output];
    for (size_t d = 0; d < from.blocks.size(); ++d) {
      if (from.blocks[d] == 0) continue;
      if (result_axis[d] < 0 || to.blocks[result_axis[d]] != from.blocks[d]) return Combines(node);
      to.padded[result_axis[d]] = from.padded[d];
    }
    return EveryAxisHasASource(node, {{input, result_axis}});
  }

  // An axis of the result may not grow by itself.
  absl::Status EveryAxisHasASource(const Node& node,
                                   const std::vector<std::pair<int, std::vector<int>>>& sources) const {
    const Blocks& blocks = FactOf(node.output).blocks;
    for (size_t r = 0; r < blocks.size(); ++r) {
      bool found = blocks[r] == 0;
      for (const auto& [input, result_axis] : sources)
        for (size_t d = 0; d < result_axis.size(); ++d)
          found = found || (result_axis[d] == static_cast<int>(r) && FactOf(input).blocks[d] == blocks[r]);
      if (!found) return Combines(node);
    }
    return absl::OkStatus();
  }

  static std::vector<int> Same(size_t rank) {
    std::vector<int> axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    return axes;
  }

  void Forget(const Node& node) {
    for (PaddedValue& value : facts_[node.output].padded) value = {};
  }

  // Also expand: axes are aligned at the end, and an input of extent 1 is repeated.
  absl::Status Elementwise(const Node& node) {
    Fact& to = facts_[node.output];
    const size_t rank = to.blocks.size();
    for (size_t r = 0; r < rank; ++r) {
      std::vector<PaddedValue> values;
      std::vector<bool> finite;
      for (int input : node.inputs) {
        const Fact& from = FactOf(input);
        finite.push_back(from.range.finite());
        const size_t missing = rank - from.blocks.size();
        values.push_back(from.uniform.has_value() ? PaddedValue::Known(*from.uniform) : PaddedValue());
        if (r < missing || ShapeOf(input)[r - missing] == 1) continue;
        if (from.blocks[r - missing] != to.blocks[r]) return Combines(node);
        if (to.blocks[r] > 0) values.back() = from.padded[r - missing];
      }
      if (to.blocks[r] > 0) to.padded[r] = node.op == "expand" ? values[0] : CombinePadded(a_, node, values, finite);
    }
    return absl::OkStatus();
  }

  // Elements keep their order. A growing axis stays one when as many elements lie in front of it.
  absl::Status View(const Node& node, const Node& other) {
    const Fact& from = FactOf(node.inputs[0]);
    std::vector<int> result_axis(from.blocks.size(), -1);
    const auto outer = [](const Shape& shape, size_t axis) {
      return std::accumulate(shape.begin(), shape.begin() + static_cast<int64_t>(axis), int64_t{1},
                             std::multiplies<>());
    };
    const Shape &x = ShapeOf(node.inputs[0]), &y = ShapeOf(node.output);
    const Shape &x2 = b_.tensor(other.inputs[0]).type.shape, &y2 = b_.tensor(other.output).type.shape;
    Blocks& blocks = facts_[node.output].blocks;
    for (size_t d = 0; d < x.size(); ++d) {
      if (from.blocks[d] == 0) continue;
      for (size_t r = 0; r < y.size(); ++r)
        if (blocks[r] > 0 && outer(x, d) == outer(y, r) && outer(x2, d) == outer(y2, r))
          result_axis[d] = static_cast<int>(r);
      if (result_axis[d] < 0) {
        return Refuse(absl::StrCat(Name(node), " mixes '", question_.symbol, "' with other axes"));
      }
      facts_[node.output].padded[result_axis[d]] = from.padded[d];
    }
    const auto growing = [](const Blocks& all) {
      return std::count_if(all.begin(), all.end(), [](int64_t block) { return block > 0; });
    };
    if (growing(from.blocks) != growing(blocks))
      return Refuse(absl::StrCat(Name(node), " mixes '", question_.symbol, "' with other axes"));
    return absl::OkStatus();
  }

  absl::Status Transpose(const Node& node) {
    const size_t rank = FactOf(node.inputs[0]).blocks.size();
    std::vector<int64_t> perm = node.attributes.Ints("perm", {});
    if (perm.empty()) {
      for (size_t d = rank; d-- > 0;) perm.push_back(static_cast<int64_t>(d));
    }
    std::vector<int> result_axis(rank);
    for (size_t r = 0; r < rank; ++r) result_axis[Normal(perm[r], rank)] = static_cast<int>(r);
    return Carry(node, node.inputs[0], result_axis);
  }

  // Images and their like: rows are the first axis, and nothing else grows.
  absl::Status Rows(const Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Blocks& blocks = FactOf(node.inputs[i]).blocks;
      for (size_t d = 0; d < blocks.size(); ++d)
        if (blocks[d] > 0 && (i > 0 || d > 0)) return Combines(node);
    }
    const Blocks& result = FactOf(node.output).blocks;
    if (result[0] != FactOf(node.inputs[0]).blocks[0]) return Combines(node);
    return Grows({result.begin() + 1, result.end()}) ? Combines(node) : absl::OkStatus();
  }

  // Each region is read from images by itself.
  absl::Status Regions(const Node& node) {
    const Blocks &regions = FactOf(node.inputs[1]).blocks, &images = FactOf(node.inputs[2]).blocks,
                 &result = FactOf(node.output).blocks;
    const bool apart = !Grows(FactOf(node.inputs[0]).blocks) && regions[1] == 0 && regions[0] == images[0] &&
                       regions[0] == result[0] && !Grows({result.begin() + 1, result.end()});
    return apart ? absl::OkStatus() : Combines(node);
  }

  absl::Status BatchNorm(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    if (x.blocks[Normal(node.attributes.Int("axis", 1), x.blocks.size())] > 0) return Combines(node);
    for (size_t i = 1; i < node.inputs.size(); ++i)
      if (Grows(FactOf(node.inputs[i]).blocks)) return Combines(node);
    RETURN_IF_ERROR(Carry(node, node.inputs[0], Same(x.blocks.size())));
    Forget(node);
    return absl::OkStatus();
  }

  absl::Status NormAxes(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    for (size_t d = Normal(node.attributes.Int("axis", -1), x.blocks.size()); d < x.blocks.size(); ++d)
      if (x.blocks[d] > 0) return Combines(node);
    RETURN_IF_ERROR(Carry(node, node.inputs[0], Same(x.blocks.size())));
    Forget(node);
    return absl::OkStatus();
  }

  absl::Status Softmax(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    const size_t axis = Normal(node.attributes.Int("axis", -1), x.blocks.size());
    if (x.blocks[axis] > 0 && !x.padded[axis].low()) return Combines(node);
    if (x.blocks[axis] > 0) RestOnFirst(x.padded[axis]);
    RETURN_IF_ERROR(Carry(node, node.inputs[0], Same(x.blocks.size())));
    Forget(node);
    if (x.blocks[axis] > 0 && node.op == "softmax") facts_[node.output].padded[axis] = PaddedValue::Known(0);
    return absl::OkStatus();
  }

  // Exponentials of -inf are 0 beside anything; those of low values beside one that is not.
  void RestOnFirst(const PaddedValue& low) {
    proof_.needs_first = proof_.needs_first || !low.is(-std::numeric_limits<double>::infinity());
  }

  // Whether values of the padding change nothing when they are reduced with the real ones.
  static bool Neutral(const std::string& op, const PaddedValue& value) {
    if (op == "reduce_sum") return value.is(0);
    if (op == "reduce_prod") return value.is(1);
    if (op == "reduce_max" || op == "arg_max") return value.low();
    if (op == "reduce_min" || op == "arg_min") return value.kind == PaddedValue::Kind::kKnown && value.value >= 1e4;
    return false;
  }

  absl::Status Reduce(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    const size_t rank = x.blocks.size();
    std::vector<bool> reduced(rank, !node.attributes.has("axes"));
    for (int64_t axis : node.attributes.Ints("axes", {})) reduced[Normal(axis, rank)] = true;
    const bool keep = node.attributes.Int("keepdims", 1) != 0;
    bool over_padding = false;
    std::vector<int> result_axis(rank, -1);
    int next = 0;
    Fact& to = facts_[node.output];
    for (size_t d = 0; d < rank; ++d) {
      if (reduced[d] && x.blocks[d] > 0) {
        if (!Neutral(node.op, x.padded[d])) return Combines(node);
        if (node.op == "reduce_max" || node.op == "reduce_min") RestOnFirst(x.padded[d]);
        over_padding = true;
      }
      if (!reduced[d]) {
        if (x.blocks[d] != to.blocks[next]) return Combines(node);
        result_axis[d] = next;
      }
      if (!reduced[d] || keep) ++next;
    }
    for (size_t d = 0; d < rank; ++d) {
      if (reduced[d] || x.blocks[d] == 0) continue;
      const bool stays = !over_padding && x.padded[d].kind == PaddedValue::Kind::kKnown &&
                         (x.padded[d].value == 0 || (node.op != "reduce_sum" && node.op != "reduce_prod"));
      to.padded[result_axis[d]] = stays ? x.padded[d] : PaddedValue();
    }
    return absl::OkStatus();
  }

  // Scans and searches along one axis.
  absl::Status AlongAxis(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    const size_t axis = Normal(node.attributes.Int("axis", 0), x.blocks.size());
    if (x.blocks[axis] > 0) {
      const bool forward = node.op == "cumulative_sum" && node.attributes.Int("reverse", 0) == 0;
      if (node.op == "cumulative_sum" ? !forward && !x.padded[axis].is(0) : !Neutral(node.op, x.padded[axis]))
        return Combines(node);
      if (node.op != "cumulative_sum") RestOnFirst(x.padded[axis]);
    }
    for (size_t d = 0; d < x.blocks.size(); ++d)
      if ((d != axis || node.op == "cumulative_sum") && x.blocks[d] != FactOf(node.output).blocks[d])
        return Combines(node);
    if (node.op != "cumulative_sum" && FactOf(node.output).blocks[axis] > 0) return Combines(node);
    return absl::OkStatus();
  }

  // ---- products

  // Along the axis that is summed up: zeros in one of the operands, and nothing in the other that is not finite.
  absl::Status Contract(const Node& node, int left, size_t left_axis, int right, size_t right_axis) const {
    const Fact &a = FactOf(left), &b = FactOf(right);
    if (a.blocks[left_axis] == 0 && b.blocks[right_axis] == 0) return absl::OkStatus();
    if (a.blocks[left_axis] != b.blocks[right_axis]) return Combines(node);
    const PaddedValue &x = a.padded[left_axis], &y = b.padded[right_axis];
    if (!x.is(0) && !y.is(0)) return Combines(node);
    if (x.finite(a.range.finite()) && y.finite(b.range.finite())) return absl::OkStatus();
    return Refuse(absl::StrCat(Name(node), " multiplies zeros of padding along '", question_.symbol,
                               "' by values that may be infinite"));
  }

  absl::Status Matmul(const Node& node) {
    const int left = node.inputs[0], right = node.inputs[1];
    const size_t a = FactOf(left).blocks.size(), b = FactOf(right).blocks.size(),
                 rank = FactOf(node.output).blocks.size();
    RETURN_IF_ERROR(Contract(node, left, a - 1, right, b < 2 ? 0 : b - 2));
    const size_t batch = rank - (a > 1) - (b > 1);
    // Batch axes are aligned at the end; those of extent 1 are repeated.
    const auto axes_of = [&](int input, size_t own) {
      std::vector<int> result_axis(own, -1);
      for (size_t d = 0; d + 2 < own; ++d)
        if (ShapeOf(input)[d] != 1) result_axis[d] = static_cast<int>(batch - (own - 2) + d);
      return result_axis;
    };
    std::vector<std::pair<int, std::vector<int>>> sources = {{left, axes_of(left, a)}, {right, axes_of(right, b)}};
    if (a > 1) sources[0].second[a - 2] = static_cast<int>(batch);
    if (b > 1) sources[1].second[b - 1] = static_cast<int>(rank) - 1;
    for (const auto& [input, result_axis] : sources)
      for (size_t d = 0; d < result_axis.size(); ++d)
        if (result_axis[d] >= 0 && FactOf(input).blocks[d] != FactOf(node.output).blocks[result_axis[d]])
          return Combines(node);
    return EveryAxisHasASource(node, sources);
  }

  absl::Status Gemm(const Node& node) {
    const bool left_turned = node.attributes.Int("trans_a", 0) != 0,
               right_turned = node.attributes.Int("trans_b", 0) != 0;
    RETURN_IF_ERROR(Contract(node, node.inputs[0], left_turned ? 0 : 1, node.inputs[1], right_turned ? 1 : 0));
    const Blocks& result = FactOf(node.output).blocks;
    if (FactOf(node.inputs[0]).blocks[left_turned ? 1 : 0] != result[0] ||
        FactOf(node.inputs[1]).blocks[right_turned ? 0 : 1] != result[1])
      return Combines(node);
    if (node.inputs.size() < 3) return absl::OkStatus();
    const Blocks& c = FactOf(node.inputs[2]).blocks;
    for (size_t d = 0; d < c.size(); ++d)
      if (ShapeOf(node.inputs[2])[d] != 1 && c[d] != result[2 - c.size() + d]) return Combines(node);
    return absl::OkStatus();
  }

  // ---- moves

  absl::Status Concat(const Node& node) {
    const Fact& first = FactOf(node.inputs[0]);
    const size_t rank = first.blocks.size(), axis = Normal(node.attributes.Int("axis", 0), rank);
    if (node.inputs.size() == 1) return Carry(node, node.inputs[0], Same(rank));
    Fact& to = facts_[node.output];
    for (size_t d = 0; d < rank; ++d) {
      bool equal = true, low = true;
      for (int input : node.inputs) {
        const Fact& from = FactOf(input);
        if (from.blocks[d] != to.blocks[d] || (d == axis && from.blocks[d] > 0)) return Combines(node);
        if (from.blocks[d] == 0) continue;
        equal = equal && from.padded[d] == first.padded[d];
        low = low && from.padded[d].low();
      }
      if (to.blocks[d] > 0) to.padded[d] = equal ? first.padded[d] : low ? PaddedValue::Low() : PaddedValue();
    }
    return absl::OkStatus();
  }

  absl::Status Pad(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    const std::vector<int64_t> pads = node.attributes.Ints("pads", {});
    const size_t rank = x.blocks.size();
    for (size_t d = 0; d < rank; ++d)
      if (x.blocks[d] > 0 && (pads[d] != 0 || pads[rank + d] != 0)) return Combines(node);
    RETURN_IF_ERROR(Carry(node, node.inputs[0], Same(rank)));
    Forget(node);
    return absl::OkStatus();
  }

  // First element, last and step of what a slice takes of an axis.
  struct Taken {
    int64_t first = 0, last = 0, step = 1;
    bool operator==(const Taken&) const = default;
  };
  static std::vector<Taken> TakenBy(const Node& node, const Shape& from, const Shape& result) {
    std::vector<Taken> taken;
    for (size_t d = 0; d < from.size(); ++d) taken.push_back({0, from[d] - 1, 1});
    const std::vector<int64_t> starts = node.attributes.Ints("starts", {});
    std::vector<int64_t> all(starts.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    const std::vector<int64_t> axes = node.attributes.Ints("axes", all);
    const std::vector<int64_t> steps = node.attributes.Ints("steps", std::vector<int64_t>(starts.size(), 1));
    for (size_t k = 0; k < starts.size(); ++k) {
      const size_t d = Normal(axes[k], from.size());
      const int64_t extent = from[d];
      const int64_t start =
          std::clamp<int64_t>(starts[k] < 0 ? std::max(starts[k], -extent) + extent : starts[k], 0, extent - 1);
      taken[d] = {start, start + (result[d] - 1) * steps[k], steps[k]};
    }
    return taken;
  }

  absl::Status Slice(const Node& node, const Node& other) {
    const Fact& x = FactOf(node.inputs[0]);
    Fact& to = facts_[node.output];
    const std::vector<Taken> mine = TakenBy(node, ShapeOf(node.inputs[0]), ShapeOf(node.output));
    const std::vector<Taken> others =
        TakenBy(other, b_.tensor(other.inputs[0]).type.shape, b_.tensor(other.output).type.shape);
    for (size_t d = 0; d < x.blocks.size(); ++d) {
      const Taken& taken = mine[d];
      const bool whole = taken == Taken{0, ShapeOf(node.inputs[0])[d] - 1, 1};
      if (x.blocks[d] > 0 && to.blocks[d] > 0) {
        if (!whole || x.blocks[d] != to.blocks[d]) return Combines(node);
        to.padded[d] = x.padded[d];
        continue;
      }
      if (!(taken == others[d]) || to.blocks[d] > 0) return Combines(node);
      if (x.blocks[d] > 0 && std::max(taken.first, taken.last) / x.blocks[d] >= question_.least) {
        return Refuse(
            absl::StrCat(Name(node), " takes elements from places on '", question_.symbol, "' that may be padding"));
      }
    }
    return absl::OkStatus();
  }

  // Constant indices into a growing axis: those at real places point to real elements. Tells of
  // each axis of the indices whether every element points to its own place there. Where indices have several
  // components, only that one is looked at.
  absl::StatusOr<std::vector<bool>> CheckIndices(const Node& node, int64_t components, int64_t component,
                                                 int64_t block) const {
    const Tensor& indices = a_.tensor(node.inputs[1]);
    const absl::Status refusal =
        Refuse(absl::StrCat(Name(node), " takes elements from places on '", question_.symbol, "' that may be padding"));
    if (!indices.constant()) return refusal;
    const Blocks& blocks = FactOf(node.inputs[1]).blocks;
    const Array& values = *indices.data;
    Shape index(values.shape.size(), 0);
    std::vector<bool> own_place(values.shape.size(), true);
    for (int64_t e = 0, n = values.elements(); e < n; ++e) {
      if (components == 1 || index.back() == component) {
        int64_t row = question_.least - 1;
        const int64_t value = values.int_at(e);
        for (size_t d = 0; d < index.size(); ++d) {
          if (blocks[d] == 0 || index[d] / blocks[d] != value / block) own_place[d] = false;
          if (blocks[d] > 0) row = std::max(row, index[d] / blocks[d]);
        }
        if (value < 0 || value / block > row) return refusal;
      }
      for (size_t d = index.size(); d-- > 0 && ++index[d] == values.shape[d];) index[d] = 0;
    }
    return own_place;
  }

  absl::Status Gather(const Node& node) {
    const Fact &x = FactOf(node.inputs[0]), &indices = FactOf(node.inputs[1]);
    const size_t rank = x.blocks.size(), axis = Normal(node.attributes.Int("axis", 0), rank),
                 many = indices.blocks.size();
    std::vector<bool> own_place(many, false);
    if (x.blocks[axis] > 0) {
      ASSIGN_OR_RETURN(own_place, CheckIndices(node, 1, 0, x.blocks[axis]));
    }
    std::vector<int> of_data(rank, -1), of_indices(many);
    for (size_t d = 0; d < rank; ++d)
      if (d != axis) of_data[d] = static_cast<int>(d < axis ? d : d + many - 1);
    for (size_t d = 0; d < many; ++d) of_indices[d] = static_cast<int>(axis + d);
    return Gathered(node, of_data, of_indices, {{axis, own_place}});
  }

  // The axes of a result that come from data and from indices, which point to places on some axes of the data.
  absl::Status Gathered(const Node& node, const std::vector<int>& of_data, const std::vector<int>& of_indices,
                        const std::vector<std::pair<size_t, std::vector<bool>>>& places) {
    const Fact &x = FactOf(node.inputs[0]), &indices = FactOf(node.inputs[1]);
    Fact& to = facts_[node.output];
    for (size_t d = 0; d < of_data.size(); ++d) {
      if (of_data[d] < 0) continue;
      if (x.blocks[d] != to.blocks[of_data[d]]) return Combines(node);
      to.padded[of_data[d]] = x.padded[d];
    }
    for (size_t d = 0; d < of_indices.size(); ++d) {
      if (of_indices[d] < 0) {
        if (indices.blocks[d] > 0) return Combines(node);
        continue;
      }
      if (indices.blocks[d] != to.blocks[of_indices[d]]) return Combines(node);
      for (const auto& [axis, own_place] : places)
        if (x.blocks[axis] > 0 && own_place[d]) to.padded[of_indices[d]] = x.padded[axis];
    }
    return absl::OkStatus();
  }

  absl::Status GatherNd(const Node& node) {
    const Fact& x = FactOf(node.inputs[0]);
    const Tensor& indices = a_.tensor(node.inputs[1]);
    const size_t batch = node.attributes.Int("batch_dims", 0), many = indices.type.shape.size();
    const int64_t components = indices.type.shape.back();
    for (size_t d = 0; d < batch; ++d)
      if (x.blocks[d] != FactOf(node.inputs[1]).blocks[d]) return Combines(node);
    std::vector<std::pair<size_t, std::vector<bool>>> places;
    for (int64_t c = 0; c < components; ++c) {
      const size_t axis = batch + c;
      if (x.blocks[axis] == 0) continue;
      ASSIGN_OR_RETURN(std::vector<bool> own_place, CheckIndices(node, components, c, x.blocks[axis]));
      places.emplace_back(axis, std::move(own_place));
    }
    std::vector<int> of_data(x.blocks.size(), -1), of_indices(many, -1);
    for (size_t d = 0; d + 1 < many; ++d) of_indices[d] = static_cast<int>(d);
    for (size_t d = batch + components; d < x.blocks.size(); ++d)
      of_data[d] = static_cast<int>(many - 1 + d - batch - components);
    return Gathered(node, of_data, of_indices, places);
  }

  absl::Status GatherElements(const Node& node) {
    const Fact &x = FactOf(node.inputs[0]), &indices = FactOf(node.inputs[1]);
    const size_t axis = Normal(node.attributes.Int("axis", 0), x.blocks.size());
    std::vector<bool> own_place;
    if (x.blocks[axis] > 0) {
      ASSIGN_OR_RETURN(own_place, CheckIndices(node, 1, 0, x.blocks[axis]));
    }
    for (size_t d = 0; d < x.blocks.size(); ++d) {
      if (d != axis && x.blocks[d] != indices.blocks[d] && ShapeOf(node.inputs[1])[d] != 1) return Combines(node);
      if (indices.blocks[d] != FactOf(node.output).blocks[d]) return Combines(node);
    }
    return absl::OkStatus();
  }

  const PaddingQuestion& question_;
  Network a_, b_;
  std::vector<Fact> facts_;  // by tensor of a_
  std::vector<int> twin_;    // by tensor of a_; -1: not seen yet
  PaddingProof proof_;
};

}  // namespace

absl::StatusOr<PaddingProof> ProvePadding(const PaddingQuestion& question) { return Prover(question).Prove(); }

}  // namespace diapason
