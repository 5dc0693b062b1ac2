// What another round of trials of a task is expected to gain: the gradient of Ansor's task scheduler (OSDI 2020,
// section 6). For a task with best latency g after n trials it is
//     alpha * backward + (1 - alpha) * forward    (seconds)
//     backward  what the task gained a round over the last three
//     forward   the larger of  g / rounds so far  and  g - beta * flops / (best rate of similar tasks)
#pragma once

#include <string>
#include <vector>

#include "scheduler/task_progress.h"

namespace diapason {

struct ScheduledTask {
  double flops = 0;
  std::string kind;  // of the anchor: tasks of one kind and similar flops are expected to reach similar rates
};

struct GainOptions {
  int round_size = 64;  // trials of a round
  double alpha = 0.2, beta = 2;
  int backward_window = 3;  // rounds
};

class TaskGain {
 public:
  TaskGain(std::vector<ScheduledTask> tasks, const GainOptions& options);

  // Seconds that another round makes the task faster. REQUIRES: the task has a result.
  double Expected(int task, const RunProgress& progress) const;

 private:
  double Backward(const TaskProgress& task) const;
  double Forward(int task, const RunProgress& progress) const;
  bool Similar(int a, int b) const;

  const std::vector<ScheduledTask> tasks_;
  const GainOptions options_;
};

}  // namespace diapason
