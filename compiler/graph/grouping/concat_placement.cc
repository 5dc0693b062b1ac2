#include "compiler/graph/grouping/concat_placement.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace diapason {

// Whether the kernel that makes a tensor may write it into the result of `reader`: no other node reads it or a view of
// it.
bool ConcatPlacement::IsReadOnlyBy(int tensor, int reader) const {
  const GroupingFacts& facts = table_.facts();
  const std::vector<int>& inputs = facts.network.nodes[reader].inputs;
  if (std::count(inputs.begin(), inputs.end(), tensor) > 1) return false;
  for (int t = tensor;; t = facts.network.nodes[facts.producer[t]].inputs[0]) {
    if (facts.network.is_output(t) || facts.consumers[t].size() != 1 || facts.producer[t] < 0) return false;
    if (!table_.IsView(t)) return true;
  }
}

// The parts of a concatenation, each at its place. A part that is itself a concatenation in place is replaced by its
// own parts.
std::vector<ConcatPlacement::Part> ConcatPlacement::PartsOf(int n) const {
  const Network& network = table_.network();
  const Node& node = network.nodes[n];
  const std::vector<int64_t>& shape = network.tensors[node.output].type.shape;
  int64_t axis = node.attributes.Int("axis", 0), inner = 1, begin = 0;
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t elements = network.tensors[node.output].type.elements();
  std::vector<Part> parts;
  for (int input : node.inputs) {
    const TensorType& type = network.tensors[input].type;
    const OutputPlace place{type.shape[axis] * inner, shape[axis] * inner, begin * inner, elements};
    begin += type.shape[axis];
    const int owner = table_.OwnerOf(input), from = table_.facts().producer[owner];
    const bool own = IsReadOnlyBy(input, n);
    const auto nested = from < 0 ? in_place_.end() : in_place_.find(from);
    if (own && nested != in_place_.end() && AddNested(nested->second, place, type.elements(), &parts)) continue;
    const bool written = own && from >= 0 && table_.group_of(from) >= 0;
    parts.push_back({written ? owner : input, !written, place});
  }
  return parts;
}

// Adds the parts of a concatenation that lies at `outer`. False, and nothing is added, if one of them would not be rows
// at equal distances.
bool ConcatPlacement::AddNested(const std::vector<Part>& nested, const OutputPlace& outer, int64_t elements,
                                std::vector<Part>* parts) const {
  std::vector<Part> moved;
  for (const Part& part : nested) {
    const int64_t part_elements = table_.network().tensors[part.tensor].type.elements();
    const std::optional<OutputPlace> place = Compose(outer, part.place, part_elements);
    if (!place) return false;
    moved.push_back({part.tensor, part.copied, *place});
  }
  parts->insert(parts->end(), moved.begin(), moved.end());
  return elements > 0;
}

bool ConcatPlacement::PutInPlace(int n) {
  const Network& network = table_.network();
  std::vector<Part> parts = PartsOf(n);
  const auto copies = std::count_if(parts.begin(), parts.end(), [](const Part& part) { return part.copied; });
  const bool fits = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.place.Holds(network.tensors[part.tensor].type.elements());
  });
  if (copies > 0 && table_.facts().AppendsForOneRow(n)) return false;
  if (!fits || copies > 1 || copies == static_cast<int64_t>(parts.size())) return false;
  const bool chosen = table_.ModeOf(n) == FusionMode::kInPlace;
  table_.AddOption(n, chosen ? FusionMode::kKernel : FusionMode::kInPlace);
  if (!chosen) return false;
  for (int input : network.nodes[n].inputs)
    if (const int from = table_.facts().producer[table_.OwnerOf(input)]; from >= 0 && IsReadOnlyBy(input, n))
      EraseNested(from, parts);
  in_place_[n] = std::move(parts);
  return true;
}

// Forgets concatenation `from` if its parts have become parts of another one.
void ConcatPlacement::EraseNested(int from, const std::vector<Part>& parts) {
  const int tensor = table_.network().nodes[from].output;
  const bool stays =
      std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return table_.OwnerOf(part.tensor) == tensor; });
  if (!stays) in_place_.erase(from);
}

void ConcatPlacement::AssignOutputs() const {
  for (const auto& [n, parts] : in_place_) {
    const int output = table_.network().nodes[n].output;
    for (const Part& part : parts) {
      if (part.copied) {
        table_.AddCopy(part.tensor, n, part.place);
      } else {
        table_.PlaceOutput(table_.group_of(table_.facts().producer[part.tensor]), output, part.place);
      }
    }
  }
}

}  // namespace diapason
