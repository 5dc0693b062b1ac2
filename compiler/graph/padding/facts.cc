#include "compiler/graph/padding/facts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/passes.h"

namespace diapason {

std::string NameForPadding(const Node& node) { return absl::StrCat("node '", node.name, "' (", node.op, ")"); }

PaddingFacts::PaddingFacts(const PaddingQuestion& question)
    : question_(question), network_(question.network), twin_network_(question.other) {}

absl::Status PaddingFacts::OtherGraph() const {
  return absl::FailedPreconditionError(
      absl::StrCat("the graph is another one with ", question_.symbol, "=", question_.other_size));
}

absl::Status PaddingFacts::Combines(const Node& node) const {
  return absl::FailedPreconditionError(
      absl::StrCat(NameForPadding(node), " combines values along '", question_.symbol, "', those of padding included"));
}

void PaddingFacts::RestOnFirst(const PaddedValue& low) {
  needs_first_ = needs_first_ || !low.is(-std::numeric_limits<double>::infinity());
}

absl::Status PaddingFacts::TakeInputs() {
  for (Network* network : {&network_, &twin_network_}) {
    RETURN_IF_ERROR(FoldConstants(*network));
    RETURN_IF_ERROR(EliminateDeadCode(*network));
  }
  facts_.resize(network_.tensors.size());
  twin_.assign(network_.tensors.size(), -1);
  if (network_.inputs.size() != twin_network_.inputs.size() || network_.nodes.size() != twin_network_.nodes.size() ||
      network_.outputs.size() != twin_network_.outputs.size())
    return OtherGraph();
  for (size_t i = 0; i < network_.inputs.size(); ++i) {
    const int input = network_.inputs[i];
    RETURN_IF_ERROR(Match(input, twin_network_.inputs[i]));
    PaddingFact& fact = facts_[input];
    for (size_t d = 0; d < fact.blocks.size(); ++d)
      if (network_.tensor(input).name == question_.mask && fact.blocks[d] > 0) fact.padded[d] = PaddedValue::Known(0);
    fact.range = ValueRange::Finite();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PaddingFacts::TakeNode(size_t n) {
  const Node &node = network_.nodes[n], &twin = twin_network_.nodes[n];
  RETURN_IF_ERROR(CompareNodes(node, twin));
  for (size_t i = 0; i < node.inputs.size(); ++i) RETURN_IF_ERROR(Match(node.inputs[i], twin.inputs[i]));
  RETURN_IF_ERROR(Match(node.output, twin.output));
  bool grows = Grows(facts_[node.output].blocks);
  std::vector<ValueRange> ranges;
  for (int input : node.inputs) {
    grows = grows || Grows(facts_[input].blocks);
    ranges.push_back(facts_[input].range);
  }
  ValueRange& range = facts_[node.output].range;
  range = RangeOf(network_, node, ranges);
  // Where nothing is padded, what is finite without padding is what it is with it.
  const bool finite = std::all_of(ranges.begin(), ranges.end(), [](const ValueRange& r) { return r.finite(); });
  if (!grows && finite && !range.finite()) range = ValueRange::Finite();
  facts_[node.output].place = PlaceOfResult(node);
  return grows;
}

// Copies, and the sum with a tensor whose bounds are known, in a type that holds all indices.
std::optional<PlaceInRow> PaddingFacts::PlaceOfResult(const Node& node) const {
  const DType type = network_.tensor(node.output).type.dtype;
  if (type != DType::kInt32 && type != DType::kInt64) return std::nullopt;
  if (node.op == "cast" || node.op == "identity") return facts_[node.inputs[0]].place;
  if (node.op != "add") return std::nullopt;
  const int first = facts_[node.inputs[0]].place.has_value() ? 0 : 1;
  const PaddingFact &placed = facts_[node.inputs[first]], &other = facts_[node.inputs[1 - first]];
  if (!placed.place.has_value() || other.place.has_value()) return std::nullopt;
  PlaceInRow sum = *placed.place;
  sum.axis += facts_[node.output].blocks.size() - placed.blocks.size();
  sum.lower += other.range.lower;
  sum.upper += other.range.upper;
  return sum;
}

absl::StatusOr<std::vector<GrowingAxis>> PaddingFacts::TakeOutput(size_t output) {
  const int tensor = network_.outputs[output];
  RETURN_IF_ERROR(Match(tensor, twin_network_.outputs[output]));
  const RowBlocks& blocks = facts_[tensor].blocks;
  std::vector<GrowingAxis> axes;
  for (size_t d = 0; d < blocks.size(); ++d)
    if (blocks[d] > 0) axes.push_back({static_cast<int>(d), blocks[d]});
  return axes;
}

// Which axes grow, by both shapes.
absl::StatusOr<RowBlocks> PaddingFacts::BlocksOf(int tensor, int twin) const {
  const Tensor &first = network_.tensor(tensor), &second = twin_network_.tensor(twin);
  const std::vector<int64_t>&x = first.type.shape, &y = second.type.shape;
  if (x.size() != y.size() || first.type.dtype != second.type.dtype || first.constant() != second.constant())
    return OtherGraph();
  RowBlocks blocks(x.size(), 0);
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d] == y[d]) continue;
    blocks[d] = x[d] / question_.size;
    if (blocks[d] < 1 || x[d] != blocks[d] * question_.size || y[d] != blocks[d] * question_.other_size) {
      return absl::FailedPreconditionError(absl::StrCat("an extent of tensor '", first.name, "' is ", x[d], " with ",
                                                        question_.symbol, "=", question_.size, " and ", y[d], " with ",
                                                        question_.symbol, "=", question_.other_size));
    }
  }
  return blocks;
}

// Makes them twins, with what follows from the shapes, and for constants from the values.
absl::Status PaddingFacts::Match(int tensor, int twin) {
  if (twin_[tensor] >= 0) return twin_[tensor] == twin ? absl::OkStatus() : OtherGraph();
  twin_[tensor] = twin;
  PaddingFact& fact = facts_[tensor];
  ASSIGN_OR_RETURN(fact.blocks, BlocksOf(tensor, twin));
  fact.padded.resize(fact.blocks.size());
  const Tensor& own = network_.tensor(tensor);
  if (!own.constant()) return absl::OkStatus();
  RETURN_IF_ERROR(CompareConstants(own, *twin_network_.tensor(twin).data, fact.blocks));
  fact.uniform = UniformValue(*own.data);
  fact.range = RangeOf(*own.data);
  fact.place = PlaceOfConstant(*own.data, fact.blocks);
  for (size_t d = 0; d < fact.blocks.size(); ++d)
    if (fact.blocks[d] > 0) fact.padded[d] = PaddedValueOf(*own.data, fact.blocks, d, question_.least);
  return absl::OkStatus();
}

// As far as both have elements.
absl::Status PaddingFacts::CompareConstants(const Tensor& tensor, const Array& other, const RowBlocks& blocks) const {
  const Array& array = *tensor.data;
  if (&array == &other) return absl::OkStatus();
  bool same = true;
  if (!Grows(blocks)) {
    same = array.data == other.data;
  } else {
    const Array& smaller = question_.size < question_.other_size ? array : other;
    const Array& larger = question_.size < question_.other_size ? other : array;
    const size_t bytes = BytesOf(array.dtype);
    std::vector<int64_t> index(smaller.shape.size(), 0);
    for (int64_t e = 0, n = smaller.elements(); e < n && same; ++e) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at = at * larger.shape[d] + index[d];
      same = std::memcmp(smaller.data.data() + e * bytes, larger.data.data() + at * bytes, bytes) == 0;
      for (size_t d = index.size(); d-- > 0 && ++index[d] == smaller.shape[d];) index[d] = 0;
    }
  }
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the constant '", tensor.name, "' has other values with ",
                                                    question_.symbol, "=", question_.other_size));
}

// Attributes that say shapes and ends may differ: results have the shapes that they have.
absl::Status PaddingFacts::CompareNodes(const Node& node, const Node& twin) const {
  if (node.op != twin.op || node.inputs.size() != twin.inputs.size())
    return absl::FailedPreconditionError(
        absl::StrCat(std::string(OtherGraph().message()), ", from ", NameForPadding(node), " on"));
  static const std::set<std::string> kOfShapes = {"shape", "starts", "ends"};
  for (const auto& [name, value] : node.attributes.values()) {
    const auto other = twin.attributes.values().find(name);
    const bool present = other != twin.attributes.values().end();
    if (present && (other->second == value || kOfShapes.contains(name))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("attribute '", name, "' of ", NameForPadding(node), " depends on '", question_.symbol, "'"));
  }
  return absl::OkStatus();
}

}  // namespace diapason
