// The search space of a task as numbers (docs/architecture.md, decisions 11 and 12): what evolution, the cost model and
// the tuner see of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Number of features of one candidate and their layout version: a saved model of another version is refused.
inline constexpr int kNumFeatures = 96;
inline constexpr int kFeatureVersion = 3;

// What comes out of the numbers of one candidate.
struct Metrics {
  bool legal = false;            // within every limit of the target
  double seconds = 0;            // analytic estimate: ranks before a model is trained, a feature afterwards
  float features[kNumFeatures];  // fixed meaning for all tasks and sketches of a target kind; unused ones are 0
};

// The candidates of one sketch over one rewrite. Immutable, shared by threads; no call allocates IR.
class Space {
 public:
  virtual ~Space() = default;
  virtual const std::string& name() const = 0;  // "gemm/tile.fuse.shared", unique within the task
  virtual const DagRewrite& rewrite() const = 0;
  virtual int size() const = 0;  // number of holes, at most 64
  // Name of a hole for people: "m.threads".
  virtual const std::string& hole_name(int hole) const = 0;

  // Values for `hole` that keep every limit satisfiable given configuration[0, hole), ascending; never empty.
  // configuration has size() elements; those at and behind `hole` are not read. `values` is cleared and filled.
  virtual void Domain(int hole, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const = 0;
  // Puts configuration[first..] back into its domains, moving each as little as possible, after configuration[0, first)
  // changed. The result is legal.
  virtual void Clamp(int first, absl::Span<int32_t> configuration) const = 0;
  virtual void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const = 0;
  // The schedule, with its numbers filled in. REQUIRES: the configuration is legal.
  virtual Schedule Instantiate(absl::Span<const int32_t> configuration) const = 0;
  // The configuration of a sensible candidate without any search; legal.
  virtual std::vector<int32_t> Default() const = 0;
  // Its kernels call a library, which may be missing where a package runs: chosen by measurement alone, never as a
  // default.
  virtual bool external() const { return false; }
  // Legal candidates that are proposed first, before the model has a say: what a rule declared as the prior of its
  // sketch (Draft::Prior), each algorithm of a library. The most promising first.
  virtual std::vector<std::vector<int32_t>> Priors() const { return {}; }
};

// Rewrites that a search may leave out. The direct one is always there: every task has it.
inline constexpr const char* kAlgorithms[] = {"attention", "gemm", "rows", "strassen", "winograd"};

// All spaces (rewrites x sketches) of one task on one target.
class TaskSpace {
 public:
  // FailedPrecondition if no schedule exists for the task on this target (names the stage). The spaces of the target's
  // libraries come last; whether the libraries are here is not asked.
  static absl::StatusOr<std::unique_ptr<TaskSpace>> Create(const ComputeDag& dag, const Target& target,
                                                           const DeviceFacts& facts);
  // The same without some algorithms, of kAlgorithms.
  static absl::StatusOr<std::unique_ptr<TaskSpace>> CreateWithout(const ComputeDag& dag, const Target& target,
                                                                  const DeviceFacts& facts,
                                                                  const std::vector<std::string>& without);
  TaskSpace(ComputeDag dag, std::vector<std::unique_ptr<Space>> spaces)
      : dag_(std::move(dag)), spaces_(std::move(spaces)) {}
  const ComputeDag& dag() const { return dag_; }
  int size() const { return static_cast<int>(spaces_.size()); }
  const Space& space(int i) const { return *spaces_[i]; }
  // Index of the space of that name, -1 if there is none (records of another version).
  int Find(const std::string& name) const {
    for (int i = 0; i < size(); ++i)
      if (space(i).name() == name) return i;
    return -1;
  }
  // The best of the spaces' defaults by the analytic estimate, libraries and, where there is another, rewrites that
  // lose digits (schedule/rewrite.h) left out.
  Schedule DefaultSchedule() const;

 private:
  ComputeDag dag_;
  std::vector<std::unique_ptr<Space>> spaces_;
};

// The constructive fallback schedule of a task: used by a build without a record, and as trial 0 of tuning. Correct on
// any target; the best of the spaces' defaults by the analytic estimate.
absl::StatusOr<Schedule> DefaultSchedule(const ComputeDag& dag, const Target& target, const DeviceFacts& facts);

}  // namespace diapason
