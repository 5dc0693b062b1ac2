#include "compiler/graph/partition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/graph/grouping.h"
#include "compiler/graph/subgraph_dag.h"
#include "compiler/graph/task_name.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

// The bytes of a dag but for the names of its stages: those say which operators it was made of (a clip at 0 is a relu).
std::string BytesWithoutNames(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (size_t i = 0; i < stages.size(); ++i) stages[i].name = absl::StrCat("s", i);
  return SerializeDag(ComputeDag::Create(std::move(stages), dag.outputs()).value());
}

// Finds or makes the task of a subgraph. Equal keys with other numbers of stages would bind wrong buffers.
void AssignTask(Partition& partition, Subgraph& subgraph, const std::string& name, std::map<std::string, int>& by_key,
                std::map<std::string, int>& names) {
  std::string key = subgraph.dag.workload_key();
  auto [it, fresh] = by_key.emplace(key, static_cast<int>(partition.tasks.size()));
  if (fresh) {
    int count = ++names[name];
    std::string unique = count == 1 ? name : absl::StrCat(name, "_v", count);
    partition.tasks.push_back({unique, subgraph.dag, 0, key});
  }
  subgraph.task = it->second;
  Task& task = partition.tasks[subgraph.task];
  DIAPASON_CHECK_MSG(fresh || BytesWithoutNames(task.dag) == BytesWithoutNames(subgraph.dag),
                     "equal workloads with different stages: " + key);
  subgraph.dag = task.dag;
  ++task.weight;
}

absl::StatusOr<Subgraph> SubgraphOf(const Network& network, const Group& group) {
  if (group.nodes.empty()) return CopySubgraph(network, group.copied);
  return BuildSubgraph(network, group.nodes);
}

std::string NameOf(const Network& network, const Group& group) {
  if (!group.nodes.empty()) return TaskName(network, group.nodes, group.anchor);
  return CopyName(network, group.copied);
}

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

absl::StatusOr<Partition> PartitionNetwork(const Network& network) {
  Partition partition;
  std::map<std::string, int> by_key, names;
  Grouping grouping = GroupNodes(network, UsualWays(network));
  for (const Group& group : grouping.groups) {
    ASSIGN_OR_RETURN(Subgraph subgraph, SubgraphOf(network, group));
    subgraph.outputs = {group.output};
    AssignTask(partition, subgraph, NameOf(network, group), by_key, names);
    partition.subgraphs.push_back(std::move(subgraph));
  }
  partition.alias_of = std::move(grouping.alias_of);
  AssignPrograms(partition, grouping.groups);
  return partition;
}

}  // namespace diapason
