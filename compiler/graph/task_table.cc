#include "compiler/graph/task_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/factor_bounds.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

// The bytes of a dag but for the names of its stages: those say which operators it was made of (a clip at 0 is a relu).
std::string BytesWithoutNames(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (size_t i = 0; i < stages.size(); ++i) stages[i].name = absl::StrCat("s", i);
  return SerializeDag(ComputeDag::Create(std::move(stages), dag.outputs()).value());
}

}  // namespace

void TaskTable::Assign(Subgraph& subgraph, const std::string& name) {
  std::string key = subgraph.dag.workload_key();
  auto [it, fresh] = by_key_.emplace(key, static_cast<int>(tasks_.size()));
  if (fresh) {
    int count = ++names_[name];
    std::string unique = count == 1 ? name : absl::StrCat(name, "_v", count);
    tasks_.push_back({unique, subgraph.dag, 0, key, UnboundedKey(subgraph.dag)});
    bytes_.push_back(BytesWithoutNames(subgraph.dag));
  }
  subgraph.task = it->second;
  // Equal keys with other numbers of stages would bind wrong buffers.
  DIAPASON_CHECK_MSG(fresh || bytes_[subgraph.task] == BytesWithoutNames(subgraph.dag),
                     "equal workloads with different stages: " + key);
  subgraph.dag = tasks_[subgraph.task].dag;
}

}  // namespace diapason
