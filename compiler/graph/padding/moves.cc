// Operators that say where elements lie.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/padding/rules.h"
#include "compiler/graph/passes/canonical_views.h"
#include "compiler/graph/rank.h"

namespace diapason {
namespace {

absl::Status MayBePadding(const PaddingFacts& facts, const Node& node) {
  return absl::FailedPreconditionError(
      absl::StrCat(NameForPadding(node), " takes elements from places on '", facts.symbol(), "' that may be padding"));
}

absl::Status FollowTranspose(PaddingFacts& facts, const Node& node, const Node&) {
  const size_t rank = facts.of(node.inputs[0]).blocks.size();
  const std::vector<int64_t> perm = PermutationOf(node, rank);
  std::vector<int> result_axis(rank);
  for (size_t r = 0; r < rank; ++r) result_axis[perm[r]] = static_cast<int>(r);
  return CarryPadding(facts, node, node.inputs[0], result_axis);
}

// Images and their like: rows are the first axis, and nothing else grows.
absl::Status FollowRows(PaddingFacts& facts, const Node& node, const Node&) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const RowBlocks& blocks = facts.of(node.inputs[i]).blocks;
    for (size_t d = 0; d < blocks.size(); ++d)
      if (blocks[d] > 0 && (i > 0 || d > 0)) return facts.Combines(node);
  }
  const RowBlocks& result = facts.of(node.output).blocks;
  if (result[0] != facts.of(node.inputs[0]).blocks[0]) return facts.Combines(node);
  return Grows({result.begin() + 1, result.end()}) ? facts.Combines(node) : absl::OkStatus();
}

// Each region is read from images by itself.
absl::Status FollowRegions(PaddingFacts& facts, const Node& node, const Node&) {
  const RowBlocks &regions = facts.of(node.inputs[1]).blocks, &images = facts.of(node.inputs[2]).blocks,
                  &result = facts.of(node.output).blocks;
  const bool apart = !Grows(facts.of(node.inputs[0]).blocks) && regions[1] == 0 && regions[0] == images[0] &&
                     regions[0] == result[0] && !Grows({result.begin() + 1, result.end()});
  return apart ? absl::OkStatus() : facts.Combines(node);
}

absl::Status FollowConcat(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& first = facts.of(node.inputs[0]);
  const size_t rank = first.blocks.size(), axis = AxisFromStart(node.attributes.Int("axis", 0), rank);
  if (node.inputs.size() == 1) {
    std::vector<int> same(rank);
    std::iota(same.begin(), same.end(), 0);
    return CarryPadding(facts, node, node.inputs[0], same);
  }
  PaddingFact& to = facts.of(node.output);
  for (size_t d = 0; d < rank; ++d) {
    bool equal = true, low = true;
    for (int input : node.inputs) {
      const PaddingFact& from = facts.of(input);
      if (from.blocks[d] != to.blocks[d] || (d == axis && from.blocks[d] > 0)) return facts.Combines(node);
      if (from.blocks[d] == 0) continue;
      equal = equal && from.padded[d] == first.padded[d];
      low = low && from.padded[d].low();
    }
    if (to.blocks[d] > 0) to.padded[d] = equal ? first.padded[d] : low ? PaddedValue::Low() : PaddedValue();
  }
  return absl::OkStatus();
}

absl::Status FollowPad(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  const std::vector<int64_t> pads = node.attributes.Ints("pads", {});
  const size_t rank = x.blocks.size();
  for (size_t d = 0; d < rank; ++d)
    if (x.blocks[d] > 0 && (pads[d] != 0 || pads[rank + d] != 0)) return facts.Combines(node);
  return CarryAxes(facts, node, node.inputs[0]);
}

// First element, last and step of what a slice takes of an axis.
struct Taken {
  int64_t first = 0, last = 0, step = 1;
  bool operator==(const Taken&) const = default;
};
std::vector<Taken> TakenBy(const Node& node, const std::vector<int64_t>& from, const std::vector<int64_t>& result) {
  std::vector<Taken> taken;
  for (size_t d = 0; d < from.size(); ++d) taken.push_back({0, from[d] - 1, 1});
  const std::vector<int64_t> starts = node.attributes.Ints("starts", {});
  std::vector<int64_t> all(starts.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const std::vector<int64_t> axes = node.attributes.Ints("axes", all);
  const std::vector<int64_t> steps = node.attributes.Ints("steps", std::vector<int64_t>(starts.size(), 1));
  for (size_t k = 0; k < starts.size(); ++k) {
    const size_t d = AxisFromStart(axes[k], from.size());
    const int64_t extent = from[d];
    const int64_t start =
        std::clamp<int64_t>(starts[k] < 0 ? std::max(starts[k], -extent) + extent : starts[k], 0, extent - 1);
    taken[d] = {start, start + (result[d] - 1) * steps[k], steps[k]};
  }
  return taken;
}

absl::Status FollowSlice(PaddingFacts& facts, const Node& node, const Node& twin) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  PaddingFact& to = facts.of(node.output);
  const std::vector<Taken> mine = TakenBy(node, facts.shape(node.inputs[0]), facts.shape(node.output));
  const std::vector<Taken> others =
      TakenBy(twin, facts.twin().tensor(twin.inputs[0]).type.shape, facts.twin().tensor(twin.output).type.shape);
  for (size_t d = 0; d < x.blocks.size(); ++d) {
    const Taken& taken = mine[d];
    const bool whole = taken == Taken{0, facts.shape(node.inputs[0])[d] - 1, 1};
    if (x.blocks[d] > 0 && to.blocks[d] > 0) {
      if (!whole || x.blocks[d] != to.blocks[d]) return facts.Combines(node);
      to.padded[d] = x.padded[d];
      continue;
    }
    if (!(taken == others[d]) || to.blocks[d] > 0) return facts.Combines(node);
    if (x.blocks[d] > 0 && std::max(taken.first, taken.last) / x.blocks[d] >= facts.least()) {
      return MayBePadding(facts, node);
    }
  }
  return absl::OkStatus();
}

// Fails unless indices into an axis that grows by `block` are constant or places in their own rows, and those at real
// places point to real elements. Returns for each axis of the indices whether every element points to its own place
// there. Where indices have several components, only that one is looked at.
absl::StatusOr<std::vector<bool>> CheckPlaces(const PaddingFacts& facts, const Node& node, int64_t components,
                                              int64_t component, int64_t block) {
  const Tensor& indices = facts.network().tensor(node.inputs[1]);
  const RowBlocks& blocks = facts.of(node.inputs[1]).blocks;
  if (!indices.constant()) {
    const std::optional<PlaceInRow>& place = facts.of(node.inputs[1]).place;
    if (components != 1 || !place.has_value() || !place->IsOfRowsOf(block)) return MayBePadding(facts, node);
    std::vector<bool> own_row(blocks.size(), false);
    own_row[place->axis] = true;
    return own_row;
  }
  const Array& values = *indices.data;
  std::vector<int64_t> index(values.shape.size(), 0);
  std::vector<bool> own_place(values.shape.size(), true);
  for (int64_t e = 0, n = values.elements(); e < n; ++e) {
    if (components == 1 || index.back() == component) {
      int64_t row = facts.least() - 1;
      const int64_t value = values.int_at(e);
      for (size_t d = 0; d < index.size(); ++d) {
        if (blocks[d] == 0 || index[d] / blocks[d] != value / block) own_place[d] = false;
        if (blocks[d] > 0) row = std::max(row, index[d] / blocks[d]);
      }
      if (value < 0 || value / block > row) return MayBePadding(facts, node);
    }
    for (size_t d = index.size(); d-- > 0 && ++index[d] == values.shape[d];) index[d] = 0;
  }
  return own_place;
}

// The axes of a result that come from data and from indices, which point to places on some axes of the data.
absl::Status Gathered(PaddingFacts& facts, const Node& node, const std::vector<int>& of_data,
                      const std::vector<int>& of_indices,
                      const std::vector<std::pair<size_t, std::vector<bool>>>& places) {
  const PaddingFact &x = facts.of(node.inputs[0]), &indices = facts.of(node.inputs[1]);
  PaddingFact& to = facts.of(node.output);
  for (size_t d = 0; d < of_data.size(); ++d) {
    if (of_data[d] < 0) continue;
    if (x.blocks[d] != to.blocks[of_data[d]]) return facts.Combines(node);
    to.padded[of_data[d]] = x.padded[d];
  }
  for (size_t d = 0; d < of_indices.size(); ++d) {
    if (of_indices[d] < 0) {
      if (indices.blocks[d] > 0) return facts.Combines(node);
      continue;
    }
    if (indices.blocks[d] != to.blocks[of_indices[d]]) return facts.Combines(node);
    for (const auto& [axis, own_place] : places)
      if (x.blocks[axis] > 0 && own_place[d]) to.padded[of_indices[d]] = x.padded[axis];
  }
  return absl::OkStatus();
}

absl::Status FollowGather(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact &x = facts.of(node.inputs[0]), &indices = facts.of(node.inputs[1]);
  const size_t rank = x.blocks.size(), axis = AxisFromStart(node.attributes.Int("axis", 0), rank),
               many = indices.blocks.size();
  std::vector<bool> own_place(many, false);
  if (x.blocks[axis] > 0) {
    ASSIGN_OR_RETURN(own_place, CheckPlaces(facts, node, 1, 0, x.blocks[axis]));
  }
  std::vector<int> of_data(rank, -1), of_indices(many);
  for (size_t d = 0; d < rank; ++d)
    if (d != axis) of_data[d] = static_cast<int>(d < axis ? d : d + many - 1);
  for (size_t d = 0; d < many; ++d) of_indices[d] = static_cast<int>(axis + d);
  return Gathered(facts, node, of_data, of_indices, {{axis, own_place}});
}

absl::Status FollowGatherNd(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact& x = facts.of(node.inputs[0]);
  const Tensor& indices = facts.network().tensor(node.inputs[1]);
  const size_t batch = node.attributes.Int("batch_dims", 0), many = indices.type.shape.size();
  const int64_t components = indices.type.shape.back();
  for (size_t d = 0; d < batch; ++d)
    if (x.blocks[d] != facts.of(node.inputs[1]).blocks[d]) return facts.Combines(node);
  std::vector<std::pair<size_t, std::vector<bool>>> places;
  for (int64_t c = 0; c < components; ++c) {
    const size_t axis = batch + c;
    if (x.blocks[axis] == 0) continue;
    ASSIGN_OR_RETURN(std::vector<bool> own_place, CheckPlaces(facts, node, components, c, x.blocks[axis]));
    places.emplace_back(axis, std::move(own_place));
  }
  std::vector<int> of_data(x.blocks.size(), -1), of_indices(many, -1);
  for (size_t d = 0; d + 1 < many; ++d) of_indices[d] = static_cast<int>(d);
  for (size_t d = batch + components; d < x.blocks.size(); ++d)
    of_data[d] = static_cast<int>(many - 1 + d - batch - components);
  return Gathered(facts, node, of_data, of_indices, places);
}

absl::Status FollowGatherElements(PaddingFacts& facts, const Node& node, const Node&) {
  const PaddingFact &x = facts.of(node.inputs[0]), &indices = facts.of(node.inputs[1]);
  const size_t axis = AxisFromStart(node.attributes.Int("axis", 0), x.blocks.size());
  if (x.blocks[axis] > 0) RETURN_IF_ERROR(CheckPlaces(facts, node, 1, 0, x.blocks[axis]).status());
  for (size_t d = 0; d < x.blocks.size(); ++d) {
    if (d != axis && x.blocks[d] != indices.blocks[d] && facts.shape(node.inputs[1])[d] != 1)
      return facts.Combines(node);
    if (indices.blocks[d] != facts.of(node.output).blocks[d]) return facts.Combines(node);
  }
  return absl::OkStatus();
}

}  // namespace

const std::map<std::string, PaddingRule>& PaddingRulesOfMoves() {
  static const auto& rules = *new std::map<std::string, PaddingRule>{
      {"avg_pool", FollowRows},         {"avg_pool3d", FollowRows},
      {"sum_pool", FollowRows},         {"sum_pool3d", FollowRows},
      {"max_pool_indices", FollowRows}, {"max_pool3d_indices", FollowRows},
      {"concat", FollowConcat},         {"conv2d", FollowRows},
      {"conv3d", FollowRows},           {"conv_transpose", FollowRows},
      {"gather", FollowGather},         {"gather_elements", FollowGatherElements},
      {"gather_nd", FollowGatherNd},    {"max_pool", FollowRows},
      {"max_pool3d", FollowRows},       {"pad", FollowPad},
      {"roi_align", FollowRegions},     {"slice", FollowSlice},
      {"transpose", FollowTranspose},
  };
  return rules;
}

}  // namespace diapason
