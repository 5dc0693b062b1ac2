// What was found for similar workloads, as first candidates of a task: the same sketch with the same configuration, put
// into this task's domains. A convolution with another epilogue has nearly the same best schedule, one with half the
// pixels and twice the channels often a near one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/tensor/compute_dag.h"
#include "scheduler/space.h"

namespace diapason {

// What tells similar tasks: the structure of the stage that does most of the work.
std::string KindOf(const ComputeDag& dag);

// Kind and extents of the stage that does most of the work.
struct TaskShape {
  std::string kind;
  std::vector<double> log2_extents;  // of its loops longer than 1
};
TaskShape ShapeOf(const ComputeDag& dag);

// Sum of the differences of the extents, in powers of two; infinity between kinds.
double Distance(const TaskShape& a, const TaskShape& b);

// A candidate by its sketch's name and configuration, as records have it.
struct Tuned {
  std::string sketch;
  std::vector<int32_t> configuration;
};

// A workload that was tuned: its fastest candidates, the fastest first.
struct TunedWorkload {
  TaskShape shape;
  std::vector<Tuned> best;
  std::string workload_key{};
};

// A candidate of a task that comes from another.
struct Suggestion {
  int space = 0;
  std::vector<int32_t> configuration;
};

// How many candidates of a workload are worth handing on, and how many of them of one sketch.
inline constexpr int kTunedOfWorkload = 4, kTunedOfSketch = 2;
// Those of the candidates that it is offered, the fastest first.
class FewTuned {
 public:
  bool full() const { return static_cast<int>(tuned_.size()) == kTunedOfWorkload; }
  // REQUIRES: not full.
  void Offer(const std::string& sketch, const std::vector<int32_t>& configuration) {
    if (++of_sketch_[sketch] <= kTunedOfSketch) tuned_.push_back({sketch, configuration});
  }
  const std::vector<Tuned>& tuned() const { return tuned_; }

 private:
  std::vector<Tuned> tuned_;
  std::map<std::string, int> of_sketch_;
};

// The nearest workloads are asked, if they are this near (the next stage of a residual network is at 4).
inline constexpr int kNearestWorkloads = 3;
inline constexpr double kFarthestWorkload = 8;

// The candidates of the nearest of `tuned`, as candidates of `space`: in turns, the nearest workload and the fastest
// candidate first. Nearest is the task's own workload, `workload_key`, tuned elsewhere: many others can have its shape.
// What has no sketch of that name and number of parameters here, or is not legal when put into its
// domains, is left out. No two are equal.
std::vector<Suggestion> Suggest(const TaskSpace& space, const TaskShape& shape, const std::vector<TunedWorkload>& tuned,
                                const std::string& workload_key);

}  // namespace diapason
