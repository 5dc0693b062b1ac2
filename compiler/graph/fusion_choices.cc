#include "compiler/graph/fusion_choices.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/default_fusion.h"
#include "compiler/graph/grouping_changes.h"
#include "compiler/graph/row_nodes.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/graph/task_table.h"

namespace diapason {
namespace {

constexpr size_t kMaxAlternatives = 6;  // of a choice point; options that would make more of them are left out
constexpr size_t kOptionBatches = 16;   // options so far apart in order rarely meet

// Options taken together, and what they change.
struct Change {
  std::string name;
  FusionModes modes;
  std::vector<Group> removed, added;
};

// Options to be taken together, and the name of the alternative.
struct Choice {
  std::string name;
  FusionModes modes;
};

// Options whose changes meet.
struct Region {
  int node = -1;
  std::vector<Change> changes;
  std::set<int> nodes;
  bool recurrence = false;  // what meets it and is none is left out
};

std::string NameOfOption(const Network& network, const FusionOption& option) {
  const std::string& op = network.nodes[option.node].op;
  switch (option.other) {
    case FusionMode::kDefault: return "attention in one kernel";
    case FusionMode::kKernel: return absl::StrCat(op, " by a kernel");
    case FusionMode::kInPlace: return absl::StrCat(op, " in place");
    case FusionMode::kApart: return absl::StrCat(op, " apart");
    case FusionMode::kShorterBranch: return absl::StrCat(op, " in the shorter branch");
    case FusionMode::kInReader: return absl::StrCat(op, " in the kernel that reads it");
    case FusionMode::kInProduct: return absl::StrCat(op, " in the product");
    case FusionMode::kRecurrence: return "recurrence in one kernel";
  }
  return "";
}

class ChoicePointFinder {
 public:
  explicit ChoicePointFinder(const Network& network) : network_(network), facts_(network) {}

  absl::StatusOr<FusionChoices> Find(const FusionPreferences& preferences) {
    for (const RecurrentNodes& recurrence : facts_.recurrences)
      if (recurrence.weight_bytes <= preferences.whole_recurrence_bytes)
        fusion_.default_modes[recurrence.nodes.back()] = FusionMode::kRecurrence;
    if (preferences.one_query_apart)
      for (int n : AttentionsOfOneQuery()) fusion_.default_modes[n] = FusionMode::kApart;
    fusion_.default_modes = DefaultFusion(facts_, std::move(fusion_.default_modes));
    if (preferences.find_factor_bounds) fusion_.factor_bounds = FindFactorBounds(network_);
    ASSIGN_OR_RETURN(fusion_.partition, PartitionByModes(facts_, fusion_.default_modes, fusion_.factor_bounds));
    default_.emplace(facts_, fusion_.default_modes);
    FindRegions();
    fusion_.groupings = default_->groupings();
    std::vector<Task> tasks;
    TaskTable table(&tasks);
    // In the partition's order, so that its tasks get the numbers that they have there.
    for (size_t s = 0; s < default_->base().groups.size(); ++s) {
      Subgraph copy = fusion_.partition.subgraphs[s];
      table.Assign(copy, NameOf(network_, default_->base().groups[s]));
      DIAPASON_CHECK(copy.task == fusion_.partition.subgraphs[s].task);
    }
    fusion_.default_tasks = tasks.size();
    for (const Region& region : regions_) RETURN_IF_ERROR(AddChoicePoint(region, table));
    AddTasks(std::move(tasks));
    CountFixed();
    return std::move(fusion_);
  }

 private:
  // The products by the values of attentions of one query for each head that has keys and values of its own, many of
  // them.
  std::vector<int> AttentionsOfOneQuery() const {
    std::vector<int> products;
    for (const FusionOption& option : GroupNodes(facts_, fusion_.default_modes).options) {
      const Node& node = network_.nodes[option.node];
      if (option.other == FusionMode::kApart && IsProductOfOwnMatrix(network_, node) &&
          network_.tensors[node.inputs[0]].type.shape.back() >= kOneQueryKeys)
        products.push_back(option.node);
    }
    return products;
  }

  // What each of some choices changes that are likely apart.
  std::vector<Change> ChangesApart(const std::vector<Choice>& choices) {
    std::vector<FusionModes> modes;
    for (const Choice& choice : choices) modes.push_back(choice.modes);
    std::vector<GroupChange> found = default_->OfEach(modes);
    std::vector<Change> changes;
    for (size_t i = 0; i < choices.size(); ++i)
      changes.push_back({choices[i].name, choices[i].modes, std::move(found[i].removed), std::move(found[i].added)});
    return changes;
  }

  bool IsOfRecurrence(const FusionOption& option) const {
    const auto mode = fusion_.default_modes.find(option.node);
    return option.other == FusionMode::kRecurrence ||
           (mode != fusion_.default_modes.end() && mode->second == FusionMode::kRecurrence);
  }
  std::string TitleOf(const FusionOption& option) const {
    return IsOfRecurrence(option) && option.other != FusionMode::kRecurrence ? "recurrence unrolled"
                                                                             : NameOfOption(network_, option);
  }

  std::vector<FusionOption> OptionsOf(bool recurrences) const {
    std::vector<FusionOption> options;
    for (const FusionOption& option : default_->base().options)
      if (IsOfRecurrence(option) == recurrences) options.push_back(option);
    return options;
  }

  // What each option changes, those tried together that are apart.
  std::vector<Change> ChangesOf(const std::vector<FusionOption>& options) {
    std::vector<size_t> order(options.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return options[a].node < options[b].node; });
    std::vector<Change> changes(options.size());
    for (size_t batch = 0; batch < std::min(kOptionBatches, order.size()); ++batch) {
      std::vector<Choice> apart;
      for (size_t i = batch; i < order.size(); i += kOptionBatches) {
        const FusionOption& option = options[order[i]];
        apart.push_back({TitleOf(option), {{option.node, option.other}}});
      }
      std::vector<Change> found = ChangesApart(apart);
      for (size_t i = 0; i < apart.size(); ++i) changes[order[batch + i * kOptionBatches]] = std::move(found[i]);
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

  // Sums of a result's runs cost least where the product is made: apart, its rows would be read once more.
  bool HasRunSums(int node) const {
    const std::vector<int>& readers = facts_.consumers[network_.nodes[node].output];
    return std::any_of(readers.begin(), readers.end(), [&](int n) { return network_.nodes[n].op == "run_sums"; });
  }

  // Options inside of recurrences are not tried: there would be some in each step.
  void FindRegions() {
    std::vector<FusionOption> options = OptionsOf(true);
    InsertRegions(options, true);
    std::set<int> inside;
    for (const Region& region : regions_) inside.insert(region.nodes.begin(), region.nodes.end());
    options = OptionsOf(false);
    std::erase_if(options,
                  [&](const FusionOption& option) { return inside.contains(option.node) || HasRunSums(option.node); });
    InsertRegions(options, false);
    regions_.sort([](const Region& a, const Region& b) { return a.node < b.node; });
  }

  void InsertRegions(const std::vector<FusionOption>& options, bool recurrences) {
    std::map<int, Region> by_node;
    std::vector<Change> changes = ChangesOf(options);
    for (size_t f = 0; f < changes.size(); ++f) {
      const FusionOption& option = options[f];
      Change& change = changes[f];
      if (change.added.empty()) continue;
      Region& region = by_node[option.node];
      region.node = option.node;
      region.recurrence = recurrences;
      region.changes.push_back(std::move(change));
    }
    std::vector<Region> regions;
    for (auto& [node, region] : by_node) {
      region.nodes = NodesOfAll(region.changes);
      regions.push_back(std::move(region));
    }
    while (!regions.empty()) regions = InsertApart(std::move(regions));
  }

  // Inserts regions. Those that meet become one, of the changes of both. Merging groups the whole network, so that all
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
      } else if (met->recurrence == region.recurrence &&
                 (met->changes.size() + 1) * (region.changes.size() + 1) <= kMaxAlternatives) {
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
      merged.push_back({a.node, a.changes, {}, a.recurrence});
      merged.back().changes.insert(merged.back().changes.end(), b.changes.begin(), b.changes.end());
      size_t batch = 0;
      for (const Change& of_a : a.changes)
        for (const Change& of_b : b.changes) {
          if (batch == batches.size()) batches.emplace_back(), pairs_of.emplace_back();
          FusionModes modes = of_a.modes;
          modes.insert(of_b.modes.begin(), of_b.modes.end());
          batches[batch].push_back({absl::StrCat(of_a.name, ", ", of_b.name), std::move(modes)});
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

  absl::Status AddChoicePoint(const Region& region, TaskTable& table) {
    GroupSet removed;
    for (const Change& change : region.changes) removed.insert(change.removed.begin(), change.removed.end());
    std::vector<Group> by_default(removed.begin(), removed.end());  // in order, as the network has them
    ChoicePoint point{network_.nodes[region.node].name, {}};
    RETURN_IF_ERROR(AddAlternative({"default", {}, {}, {}}, by_default, table, point));
    for (const Change& change : region.changes) RETURN_IF_ERROR(AddAlternative(change, by_default, table, point));
    for (const auto& [task, count] : point.alternatives[0].tasks) in_choice_points_[task] += count;
    fusion_.choice_points.push_back(std::move(point));
    return absl::OkStatus();
  }

  absl::Status AddAlternative(const Change& change, const std::vector<Group>& by_default, TaskTable& table,
                              ChoicePoint& point) {
    std::vector<Group> groups = Without(by_default, SetOf(change.removed));
    groups.insert(groups.end(), change.added.begin(), change.added.end());
    std::map<int, int> count;
    FusionAlternative alternative{change.name, change.modes, {}, false};
    for (const Group& group : groups) {
      ASSIGN_OR_RETURN(Subgraph subgraph, SubgraphOf(network_, group, fusion_.factor_bounds));
      table.Assign(subgraph, NameOf(network_, group));
      ++count[subgraph.task];
      alternative.writes_in_place = alternative.writes_in_place || !group.place.whole();
    }
    alternative.tasks.assign(count.begin(), count.end());
    point.alternatives.push_back(std::move(alternative));
    return absl::OkStatus();
  }

  // Tasks of alternatives that may win come first.
  void AddTasks(std::vector<Task> tasks) {
    std::set<int> worthwhile;
    for (const ChoicePoint& point : fusion_.choice_points)
      for (int w : AlternativesThatMayWin(point))
        for (const auto& [task, count] : point.alternatives[w].tasks) worthwhile.insert(task);
    const int by_default = static_cast<int>(fusion_.default_tasks), all = static_cast<int>(tasks.size());
    std::vector<int> number(tasks.size());
    for (int t = 0; t < by_default; ++t) number[t] = t;
    for (bool wanted : {true, false}) {
      for (int t = by_default; t < all; ++t) {
        if ((worthwhile.count(t) > 0) != wanted) continue;
        number[t] = static_cast<int>(fusion_.partition.tasks.size());
        fusion_.partition.tasks.push_back(std::move(tasks[t]));
      }
      if (wanted) fusion_.worthwhile_tasks = fusion_.partition.tasks.size();
    }
    for (ChoicePoint& point : fusion_.choice_points)
      for (FusionAlternative& alternative : point.alternatives) {
        for (auto& [task, count] : alternative.tasks) task = number[task];
        std::sort(alternative.tasks.begin(), alternative.tasks.end());
      }
  }

  void CountFixed() {
    for (size_t t = 0; t < fusion_.partition.tasks.size(); ++t)
      fusion_.fixed.push_back(fusion_.partition.tasks[t].weight - in_choice_points_[static_cast<int>(t)]);
  }

  const Network& network_;
  const GroupingFacts facts_;
  FusionChoices fusion_;
  std::optional<GroupChanges> default_;
  std::list<Region> regions_;
  std::map<int, std::list<Region>::iterator> region_of_;  // by node
  std::map<int, int> in_choice_points_;                   // by task: occurrences in the default alternatives
};

// Whether an alternative runs all that another one runs, and more.
bool RunsMore(const FusionAlternative& alternative, const FusionAlternative& other) {
  const std::map<int, int> mine(alternative.tasks.begin(), alternative.tasks.end());
  return alternative.tasks != other.tasks && std::all_of(other.tasks.begin(), other.tasks.end(), [&](const auto& one) {
           const auto it = mine.find(one.first);
           return it != mine.end() && it->second >= one.second;
         });
}

}  // namespace

absl::StatusOr<FusionChoices> FindFusionChoices(const Network& network, const FusionPreferences& preferences) {
  return ChoicePointFinder(network).Find(preferences);
}

std::vector<int> AlternativesThatMayWin(const ChoicePoint& point) {
  std::vector<int> may;
  for (int w = 0; w < static_cast<int>(point.alternatives.size()); ++w) {
    const bool behind =
        std::any_of(point.alternatives.begin(), point.alternatives.end(),
                    [&](const FusionAlternative& other) { return RunsMore(point.alternatives[w], other); });
    if (w == 0 || !behind) may.push_back(w);
  }
  return may;
}

absl::StatusOr<Partition> PartitionAs(const Network& network, const FusionChoices& fusion,
                                      const std::vector<int>& chosen) {
  DIAPASON_CHECK(chosen.size() == fusion.choice_points.size());
  FusionModes modes = fusion.default_modes;
  for (size_t b = 0; b < chosen.size(); ++b)
    for (const auto& [node, mode] : fusion.choice_points[b].alternatives[chosen[b]].modes) modes[node] = mode;
  return PartitionByModes(GroupingFacts(network), modes, fusion.factor_bounds);
}

}  // namespace diapason
