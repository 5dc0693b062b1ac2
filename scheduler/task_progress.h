// What trials have shown of each task of a run: how many there were and are under way, and how the best one fell. Not
// safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace diapason {

struct TaskProgress {
  int64_t trials = 0, in_flight = 0;
  double best = 0;              // seconds; 0: no valid result
  std::vector<double> history;  // best after each trial
  int64_t last_gain = 0;        // trials when it was found
  bool done = false;            // gets no more trials

  int64_t had() const { return trials + in_flight; }
};

class RunProgress {
 public:
  explicit RunProgress(size_t tasks) : tasks_(tasks) {}

  // Trials begin, or come back without having been made.
  void Begin(int task, int64_t trials);
  void GiveBack(int task, int64_t trials) { Begin(task, -trials); }
  // A trial that was not in flight counts; `best` is the best of the task including it, 0 while there is none.
  void Count(int task, double best);
  // What was the best of a task proved wrong; `best` is what is left. The gains towards it were none.
  void Refute(int task, double best);
  void SetDone(int task) { tasks_[task].done = true; }

  const TaskProgress& operator[](int task) const { return tasks_[task]; }
  int size() const { return static_cast<int>(tasks_.size()); }
  int64_t trials() const { return trials_; }  // of all tasks
  int64_t in_flight() const { return in_flight_; }
  int64_t had() const { return trials_ + in_flight_; }
  // The best of each task: what an Objective takes.
  std::vector<double> Latencies() const;

 private:
  std::vector<TaskProgress> tasks_;
  int64_t trials_ = 0, in_flight_ = 0;
};

}  // namespace diapason
