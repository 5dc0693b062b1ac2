#include "compiler/graph/partition.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compiler/graph/default_fusion.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/graph/task_name.h"
#include "compiler/graph/task_table.h"

namespace diapason {
namespace {

// Programs by task, with the subgraphs pointing to them.
void AssignPrograms(Partition& partition, const std::vector<Group>& groups) {
  std::vector<std::vector<PlacedTask>> by_task(partition.tasks.size());
  const auto find = [&](size_t s) {
    std::vector<PlacedTask>& placed = by_task[partition.subgraphs[s].task];
    return std::find_if(placed.begin(), placed.end(), [&](const PlacedTask& p) { return p.place == groups[s].place; });
  };
  for (size_t s = 0; s < groups.size(); ++s) {
    std::vector<PlacedTask>& placed = by_task[partition.subgraphs[s].task];
    auto it = find(s);
    if (it == placed.end()) it = placed.insert(it, {partition.subgraphs[s].task, groups[s].place, 0});
    ++it->weight;
  }
  std::vector<int> first;
  for (const auto& placed : by_task) {
    first.push_back(static_cast<int>(partition.programs.size()));
    partition.programs.insert(partition.programs.end(), placed.begin(), placed.end());
  }
  for (size_t s = 0; s < groups.size(); ++s) {
    Subgraph& subgraph = partition.subgraphs[s];
    subgraph.program = first[subgraph.task] + static_cast<int>(find(s) - by_task[subgraph.task].begin());
  }
}

}  // namespace

absl::StatusOr<Subgraph> SubgraphOf(const Network& network, const Group& group, const FactorBounds& bounds) {
  ASSIGN_OR_RETURN(Subgraph subgraph, group.nodes.empty() ? CopySubgraph(network, group.copied)
                                                          : BuildSubgraph(network, group.nodes, group.follower));
  subgraph.outputs = {group.output};
  if (group.follower >= 0) subgraph.outputs.push_back(network.nodes[group.follower].output);
  if (!bounds.empty()) RETURN_IF_ERROR(MarkFactors(bounds, subgraph));
  return subgraph;
}

std::string NameOf(const Network& network, const Group& group) {
  if (group.recurrence) return RecurrenceName(network, group.nodes.back());
  if (group.follower >= 0) return absl::StrCat(TaskName(network, group.nodes, group.anchor), "_sums");
  if (!group.nodes.empty()) return TaskName(network, group.nodes, group.anchor);
  return CopyName(network, group.copied);
}

absl::StatusOr<Partition> PartitionByModes(const GroupingFacts& facts, const FusionModes& modes,
                                           const FactorBounds& bounds) {
  const Network& network = facts.network;
  Partition partition;
  TaskTable table(&partition.tasks);
  Grouping grouping = GroupNodes(facts, modes);
  for (const Group& group : grouping.groups) {
    ASSIGN_OR_RETURN(Subgraph subgraph, SubgraphOf(network, group, bounds));
    table.Assign(subgraph, NameOf(network, group));
    ++partition.tasks[subgraph.task].weight;
    partition.subgraphs.push_back(std::move(subgraph));
  }
  partition.alias_of = std::move(grouping.alias_of);
  AssignPrograms(partition, grouping.groups);
  return partition;
}

absl::StatusOr<Partition> PartitionNetwork(const Network& network) {
  const GroupingFacts facts(network);
  return PartitionByModes(facts, DefaultFusion(facts));
}

}  // namespace diapason
