#include "compiler/graph/usual_ways.h"

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
  for (const Fork& fork : grouping.forks) {
    const bool candidate =
        fork.other == Way::kInPlace && network.nodes[fork.node].inputs.size() > 1 && !tried.contains(fork.node);
    if (candidate) nodes.push_back(fork.node);
  }
  std::sort(nodes.begin(), nodes.end());
  if (nodes.size() > count) nodes.resize(count);
  return nodes;
}

}  // namespace

Ways UsualWays(const GroupingFacts& facts) {
  const Network& network = facts.network;
  Ways ways;
  std::set<int> tried;
  size_t window = 1;  // how many are tried at once: more as long as they are apart
  for (std::optional<GroupChanges> changes;;) {
    if (!changes) changes.emplace(facts, ways);
    const std::vector<int> concats = NextConcats(network, changes->base(), tried, window);
    if (concats.empty()) return ways;
    std::vector<Ways> choices;
    for (int n : concats) choices.push_back({{n, Way::kInPlace}});
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
      ways[concats[i]] = Way::kInPlace;
      better = true;
    }
    if (better) changes.reset();
  }
}

}  // namespace diapason
