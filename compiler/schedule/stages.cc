#include "compiler/schedule/stages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason {

ScheduledStages::ScheduledStages(const ComputeDag& dag) : outputs_(dag.outputs()) {
  for (int id = 0; id < dag.size(); ++id) {
    StageState stage;
    stage.op = dag.stage(id);
    stage.prologue = dag.is_prologue(id);
    stages_.push_back(std::move(stage));
    ResetLoops(stages_.back());
    topological_.push_back(id);
  }
}

void ScheduledStages::ResetLoops(StageState& stage) {
  stage.carry = {};
  stage.loops.clear();
  stage.order.clear();
  for (int i = 0; i < stage.axis_count(); ++i) {
    Loop loop;
    loop.name = stage.axis(i).var->name;
    loop.reduce = !stage.is_spatial_axis(i);
    loop.axis = i;
    stage.order.push_back(static_cast<int>(stage.loops.size()));
    stage.loops.push_back(std::move(loop));
  }
}

bool ScheduledStages::is_output(int id) const {
  return std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end();
}

bool ScheduledStages::IsComputedAt(int id, int target, int loop) const {
  const StageState& stage = stages_[id];
  return stage.attach == StageState::Attach::kAt && stage.attach_stage == target &&
         stage.attach_loops == std::vector<int>{loop};
}

std::vector<int> ScheduledStages::Producers(int id) const {
  std::vector<int> result;
  if (!stages_[id].op.body) return result;
  Visit(stages_[id].op.body, [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad && std::find(result.begin(), result.end(), e.buffer) == result.end())
      result.push_back(e.buffer);
  });
  return result;
}

std::vector<int> ScheduledStages::Consumers(int id) const {
  std::vector<int> result;
  for (int other : topological_) {
    if (!stages_[other].computes()) continue;
    const std::vector<int> producers = Producers(other);
    if (std::find(producers.begin(), producers.end(), id) != producers.end()) result.push_back(other);
  }
  return result;
}

std::string ScheduledStages::UniqueName(const std::string& name) const {
  std::string candidate = name;
  for (int n = 1;; ++n) {
    bool taken = false;
    for (const StageState& stage : stages_) taken |= stage.op.name == candidate;
    if (!taken) return candidate;
    candidate = absl::StrCat(name, n);
  }
}

int ScheduledStages::Add(Stage op, int before) {
  const int id = size();
  StageState stage;
  op.name = UniqueName(op.name);
  stage.op = std::move(op);
  stages_.push_back(std::move(stage));
  ResetLoops(stages_.back());
  auto place = before < 0 ? topological_.end() : std::find(topological_.begin(), topological_.end(), before);
  topological_.insert(place, id);
  return id;
}

void ScheduledStages::MoveBefore(int id, int other) {
  const auto at = std::find(topological_.begin(), topological_.end(), id);
  const auto of_other = std::find(topological_.begin(), topological_.end(), other);
  if (of_other < at) std::rotate(of_other, at, at + 1);
}

void ScheduledStages::UpdatePrologue() {
  for (int id : topological_) {
    StageState& stage = stages_[id];
    if (stage.op.placeholder) {
      stage.prologue = stage.op.constant;
      continue;
    }
    bool all = true;
    for (int producer : Producers(id)) all &= stages_[producer].prologue;
    stage.prologue = all && !is_output(id);
  }
}

}  // namespace diapason
