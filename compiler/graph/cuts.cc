#include "compiler/graph/cuts.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/grouping_changes.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/graph/task_table.h"
#include "compiler/graph/usual_ways.h"

namespace diapason {
namespace {

constexpr size_t kMaxWays = 6;       // of a boundary; forks that would make more of them are left out
constexpr size_t kForkBatches = 16;  // forks so far apart in order rarely meet

// A set of forks taken together, and what it changes.
struct Change {
  std::string name;
  Ways ways;
  std::vector<Group> removed, added;
};

// Forks to be taken together, and how that is named.
struct Choice {
  std::string name;
  Ways ways;
};

// Forks whose changes meet.
struct Region {
  int node = -1;
  std::vector<Change> changes;
  std::set<int> nodes;
};

std::string NameOfWay(const Network& network, const Fork& fork) {
  const std::string& op = network.nodes[fork.node].op;
  switch (fork.other) {
    case Way::kUsual: break;
    case Way::kKernel: return absl::StrCat(op, " by a kernel");
    case Way::kInPlace: return absl::StrCat(op, " in place");
    case Way::kApart: return absl::StrCat(op, " apart");
    case Way::kShorterBranch: return absl::StrCat(op, " in the shorter branch");
    case Way::kInProduct: return absl::StrCat(op, " in the product");
  }
  return "usual";
}

class CutFinder {
 public:
  explicit CutFinder(const Network& network) : network_(network), facts_(network) {}

  absl::StatusOr<Cuts> Find() {
    cuts_.usual = UsualWays(facts_);
    ASSIGN_OR_RETURN(cuts_.partition, PartitionInWays(network_, cuts_.usual));
    usual_.emplace(facts_, cuts_.usual);
    FindRegions();
    cuts_.groupings = usual_->groupings();
    std::vector<Task> tasks;
    TaskTable table(&tasks);
    // In the partition's order, so that its tasks get the numbers that they have there.
    for (size_t s = 0; s < usual_->base().groups.size(); ++s) {
      Subgraph copy = cuts_.partition.subgraphs[s];
      table.Assign(copy, NameOf(network_, usual_->base().groups[s]));
      DIAPASON_CHECK(copy.task == cuts_.partition.subgraphs[s].task);
    }
    cuts_.usual_tasks = tasks.size();
    for (const Region& region : regions_) RETURN_IF_ERROR(AddBoundary(region, table));
    AddTasks(std::move(tasks));
    CountFixed();
    return std::move(cuts_);
  }

 private:
  // What each of some choices changes that are likely apart.
  std::vector<Change> ChangesApart(const std::vector<Choice>& choices) {
    std::vector<Ways> ways;
    for (const Choice& choice : choices) ways.push_back(choice.ways);
    std::vector<GroupChange> found = usual_->OfEach(ways);
    std::vector<Change> changes;
    for (size_t i = 0; i < choices.size(); ++i)
      changes.push_back({choices[i].name, choices[i].ways, std::move(found[i].removed), std::move(found[i].added)});
    return changes;
  }

  // What each fork changes, those tried together that are apart.
  std::vector<Change> ChangesOfForks() {
    const std::vector<Fork>& forks = usual_->base().forks;
    std::vector<size_t> order(forks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return forks[a].node < forks[b].node; });
    std::vector<Change> changes(forks.size());
    for (size_t batch = 0; batch < std::min(kForkBatches, order.size()); ++batch) {
      std::vector<Choice> apart;
      for (size_t i = batch; i < order.size(); i += kForkBatches) {
        const Fork& fork = forks[order[i]];
        apart.push_back({NameOfWay(network_, fork), {{fork.node, fork.other}}});
      }
      std::vector<Change> found = ChangesApart(apart);
      for (size_t i = 0; i < apart.size(); ++i) changes[order[batch + i * kForkBatches]] = std::move(found[i]);
    }
    return changes;
  }

  static std::set<int> NodesOfAll(const std::vector<Change>& changes) {
    std::set<int> nodes;
    for (const Change& change : changes)
      for (const auto* groups : {&change.removed, &change.added})
        for (const Group& group : *groups)
          for (int n : NodesOf(group)) nodes.insert(n);
    return nodes;
  }

  void FindRegions() {
    std::map<int, Region> by_node;
    std::vector<Change> changes = ChangesOfForks();
    for (size_t f = 0; f < changes.size(); ++f) {
      const Fork& fork = usual_->base().forks[f];
      Change& change = changes[f];
      if (change.added.empty()) continue;
      Region& region = by_node[fork.node];
      region.node = fork.node;
      region.changes.push_back(std::move(change));
    }
    std::vector<Region> regions;
    for (auto& [node, region] : by_node) {
      region.nodes = NodesOfAll(region.changes);
      regions.push_back(std::move(region));
    }
    while (!regions.empty()) regions = InsertApart(std::move(regions));
    regions_.sort([](const Region& a, const Region& b) { return a.node < b.node; });
  }

  // Inserts regions. Those that meet become one, of the ways of both. Merging groups the whole network, so that all
  // pairs that are apart are merged together, and what meets one of them waits. Returns what is left to be inserted.
  std::vector<Region> InsertApart(std::vector<Region> regions) {
    std::vector<std::pair<Region, Region>> pairs;
    std::vector<Region> waiting;
    std::set<int> busy;  // nodes of the pairs and of what waits
    for (Region& region : regions) {
      const bool waits =
          std::any_of(region.nodes.begin(), region.nodes.end(), [&](int n) { return busy.count(n) > 0; });
      const auto met = waits ? regions_.end() : FirstThatMeets(region.nodes);
      if (waits) {
        busy.insert(region.nodes.begin(), region.nodes.end());
        waiting.push_back(std::move(region));
      } else if (met == regions_.end()) {
        regions_.push_back(std::move(region));
        for (int n : regions_.back().nodes) region_of_[n] = std::prev(regions_.end());
      } else if ((met->changes.size() + 1) * (region.changes.size() + 1) <= kMaxWays) {
        for (int n : met->nodes) region_of_.erase(n);
        busy.insert(met->nodes.begin(), met->nodes.end());
        busy.insert(region.nodes.begin(), region.nodes.end());
        pairs.emplace_back(std::move(*met), std::move(region));
        regions_.erase(met);
      }
    }
    std::vector<Region> left = Merged(pairs);
    std::move(waiting.begin(), waiting.end(), std::back_inserter(left));
    return left;
  }

  // The first of the regions that has one of these nodes; the end if none has.
  std::list<Region>::iterator FirstThatMeets(const std::set<int>& nodes) {
    auto first = regions_.end();
    for (int n : nodes) {
      const auto it = region_of_.find(n);
      if (it != region_of_.end() && (first == regions_.end() || it->second->node < first->node)) first = it->second;
    }
    return first;
  }

  // Each pair as one region. The pairs are apart.
  std::vector<Region> Merged(const std::vector<std::pair<Region, Region>>& pairs) {
    std::vector<Region> merged;
    std::vector<std::vector<Choice>> batches;   // the first choice of each pair, the second one of each, ...
    std::vector<std::vector<size_t>> pairs_of;  // of each choice
    for (size_t p = 0; p < pairs.size(); ++p) {
      const auto& [a, b] = pairs[p];
      merged.push_back({a.node, a.changes, {}});
      merged.back().changes.insert(merged.back().changes.end(), b.changes.begin(), b.changes.end());
      size_t batch = 0;
      for (const Change& of_a : a.changes)
        for (const Change& of_b : b.changes) {
          if (batch == batches.size()) batches.emplace_back(), pairs_of.emplace_back();
          Ways ways = of_a.ways;
          ways.insert(of_b.ways.begin(), of_b.ways.end());
          batches[batch].push_back({absl::StrCat(of_a.name, ", ", of_b.name), std::move(ways)});
          pairs_of[batch++].push_back(p);
        }
    }
    for (size_t batch = 0; batch < batches.size(); ++batch) {
      std::vector<Change> changes = ChangesApart(batches[batch]);
      for (size_t i = 0; i < changes.size(); ++i) merged[pairs_of[batch][i]].changes.push_back(std::move(changes[i]));
    }
    for (Region& region : merged) region.nodes = NodesOfAll(region.changes);
    return merged;
  }

  absl::Status AddBoundary(const Region& region, TaskTable& table) {
    GroupSet removed;
    for (const Change& change : region.changes) removed.insert(change.removed.begin(), change.removed.end());
    std::vector<Group> usual(removed.begin(), removed.end());  // in order, as the network has them
    Boundary boundary{network_.nodes[region.node].name, {}};
    RETURN_IF_ERROR(AddWay({"usual", {}, {}, {}}, usual, table, boundary));
    for (const Change& change : region.changes) RETURN_IF_ERROR(AddWay(change, usual, table, boundary));
    for (const auto& [task, count] : boundary.ways[0].tasks) in_boundaries_[task] += count;
    cuts_.boundaries.push_back(std::move(boundary));
    return absl::OkStatus();
  }

  absl::Status AddWay(const Change& change, const std::vector<Group>& usual, TaskTable& table, Boundary& boundary) {
    std::vector<Group> groups = Without(usual, SetOf(change.removed));
    groups.insert(groups.end(), change.added.begin(), change.added.end());
    std::map<int, int> count;
    CutWay way{change.name, change.ways, {}, false};
    for (const Group& group : groups) {
      ASSIGN_OR_RETURN(Subgraph subgraph, SubgraphOf(network_, group));
      table.Assign(subgraph, NameOf(network_, group));
      ++count[subgraph.task];
      way.writes_in_place = way.writes_in_place || !group.place.whole();
    }
    way.tasks.assign(count.begin(), count.end());
    boundary.ways.push_back(std::move(way));
    return absl::OkStatus();
  }

  // Those of ways that may win in front of the others.
  void AddTasks(std::vector<Task> tasks) {
    std::set<int> worthwhile;
    for (const Boundary& boundary : cuts_.boundaries)
      for (int w : WaysThatMayWin(boundary))
        for (const auto& [task, count] : boundary.ways[w].tasks) worthwhile.insert(task);
    const int usual = static_cast<int>(cuts_.usual_tasks), all = static_cast<int>(tasks.size());
    std::vector<int> number(tasks.size());
    for (int t = 0; t < usual; ++t) number[t] = t;
    for (bool wanted : {true, false}) {
      for (int t = usual; t < all; ++t) {
        if ((worthwhile.count(t) > 0) != wanted) continue;
        number[t] = static_cast<int>(cuts_.partition.tasks.size());
        cuts_.partition.tasks.push_back(std::move(tasks[t]));
      }
      if (wanted) cuts_.worthwhile_tasks = cuts_.partition.tasks.size();
    }
    for (Boundary& boundary : cuts_.boundaries)
      for (CutWay& way : boundary.ways) {
        for (auto& [task, count] : way.tasks) task = number[task];
        std::sort(way.tasks.begin(), way.tasks.end());
      }
  }

  void CountFixed() {
    for (size_t t = 0; t < cuts_.partition.tasks.size(); ++t)
      cuts_.fixed.push_back(cuts_.partition.tasks[t].weight - in_boundaries_[static_cast<int>(t)]);
  }

  const Network& network_;
  const GroupingFacts facts_;
  Cuts cuts_;
  std::optional<GroupChanges> usual_;
  std::list<Region> regions_;
  std::map<int, std::list<Region>::iterator> region_of_;  // by node
  std::map<int, int> in_boundaries_;                      // by task: occurrences in the default ways of boundaries
};

// A way that runs all that another one runs, and more.
bool RunsMore(const CutWay& way, const CutWay& other) {
  const std::map<int, int> mine(way.tasks.begin(), way.tasks.end());
  return way.tasks != other.tasks && std::all_of(other.tasks.begin(), other.tasks.end(), [&](const auto& one) {
           const auto it = mine.find(one.first);
           return it != mine.end() && it->second >= one.second;
         });
}

}  // namespace

absl::StatusOr<Cuts> FindCuts(const Network& network) { return CutFinder(network).Find(); }

std::vector<int> WaysThatMayWin(const Boundary& boundary) {
  std::vector<int> may;
  for (int w = 0; w < static_cast<int>(boundary.ways.size()); ++w) {
    const bool behind = std::any_of(boundary.ways.begin(), boundary.ways.end(),
                                    [&](const CutWay& other) { return RunsMore(boundary.ways[w], other); });
    if (w == 0 || !behind) may.push_back(w);
  }
  return may;
}

absl::StatusOr<Partition> PartitionAs(const Network& network, const Cuts& cuts, const std::vector<int>& chosen) {
  DIAPASON_CHECK(chosen.size() == cuts.boundaries.size());
  Ways ways = cuts.usual;
  for (size_t b = 0; b < chosen.size(); ++b)
    for (const auto& [node, way] : cuts.boundaries[b].ways[chosen[b]].ways) ways[node] = way;
  return PartitionInWays(network, ways);
}

}  // namespace diapason
