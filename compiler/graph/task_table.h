// Subgraphs that compute the same are one task. For compiler/graph alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/partition.h"

namespace diapason {

class TaskTable {
 public:
  // New tasks go to the end of `tasks`, which is empty and which the caller keeps.
  explicit TaskTable(std::vector<Task>* tasks) : tasks_(*tasks) {}

  // Finds or makes the task of a subgraph, which then has the task's dag. A new one is called `name`, with a number
  // where that is taken, and has weight 0.
  void Assign(Subgraph& subgraph, const std::string& name);

 private:
  std::vector<Task>& tasks_;
  std::map<std::string, int> by_key_, names_;
  std::vector<std::string> bytes_;  // of each task: its dag without names
};

}  // namespace diapason
