#include "compiler/graph/default_fusion.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/graph/grouping_changes.h"

namespace diapason {
namespace {

// How many kernels there are, then how many elements they write.
std::pair<int64_t, int64_t> EffortOf(const Network& network, const std::vector<Group>& groups) {
  std::pair<int64_t, int64_t> effort;
  for (const Group& group : groups) {
    const int written = group.nodes.empty() ? group.copied : network.nodes[group.nodes.back()].output;
    ++effort.first;
    effort.second += network.tensors[written].type.elements();
  }
  return effort;
}

// The first concatenations that could be in place and were not tried, at most so many.
std::vector<int> NextConcats(const Network& network, const Grouping& grouping, const std::set<int>& tried,
                             size_t count) {
  std::vector<int> nodes;
  for (const FusionOption& option : grouping.options) {
    const bool candidate = option.other == FusionMode::kInPlace && network.nodes[option.node].inputs.size() > 1 &&
                           !tried.contains(option.node);
    if (candidate) nodes.push_back(option.node);
  }
  std::sort(nodes.begin(), nodes.end());
  if (nodes.size() > count) nodes.resize(count);
  return nodes;
}

}  // namespace

FusionModes DefaultFusion(const GroupingFacts& facts, FusionModes begin) {
  const Network& network = facts.network;
  FusionModes modes = std::move(begin);
  std::set<int> tried;
  size_t window = 1;  // how many are tried at once: more as long as they are apart
  for (std::optional<GroupChanges> changes;;) {
    if (!changes) changes.emplace(facts, modes);
    const std::vector<int> concats = NextConcats(network, changes->base(), tried, window);
    if (concats.empty()) return modes;
    std::vector<FusionModes> choices;
    for (int n : concats) choices.push_back({{n, FusionMode::kInPlace}});
    const std::optional<std::vector<GroupChange>> found =
        choices.size() > 1 ? changes->OfEachAtOnce(choices) : changes->OfEach(choices);
    if (!found) {  // one may allow the next one
      window /= 2;
      continue;
    }
    window *= 2;
    tried.insert(concats.begin(), concats.end());
    bool better = false;
    for (size_t i = 0; i < concats.size(); ++i) {
      const GroupChange& change = (*found)[i];
      if (!(EffortOf(network, change.added) < EffortOf(network, change.removed))) continue;
      modes[concats[i]] = FusionMode::kInPlace;
      better = true;
    }
    if (better) changes.reset();
  }
}

}  // namespace diapason
