// The search space of a task as numbers (docs/architecture.md, decisions 11 and 12): the interface that evolution, the
// cost model and the tuner use.
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

// Number of features of a candidate, and the version of their layout. A saved model of another version is rejected.
inline constexpr int kNumFeatures = 96;
inline constexpr int kFeatureVersion = 4;

// What is computed from the configuration of one candidate.
struct Metrics {
  bool legal = false;            // within every limit of the target
  double seconds = 0;            // analytic estimate: ranks candidates until a model is trained, then is a feature
  float features[kNumFeatures];  // fixed meaning for all tasks and sketches of a target kind; unused ones are 0
};

// The candidates of one sketch of one rewrite. A candidate is a configuration: one value for each tunable parameter
// of the sketch. Immutable, shared by threads; no call allocates IR.
class Space {
 public:
  virtual ~Space() = default;
  virtual const std::string& name() const = 0;  // "gemm/tile.fuse.shared", unique within the task
  virtual const DagRewrite& rewrite() const = 0;
  virtual int size() const = 0;  // number of parameters, at most 64
  // The name that users see: "m.threads".
  virtual const std::string& parameter_name(int parameter) const = 0;

  // Replaces `values` by the values of `parameter` with which, given configuration[0, parameter), every limit can still
  // be met; ascending, never empty. configuration has size() elements; those from `parameter` on are not read.
  virtual void Domain(int parameter, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const = 0;
  // Call after changing configuration[0, first): moves each value of configuration[first, size()) into its domain, by
  // as little as possible. The result is legal. Of several configurations that make one program, one stands for all: a
  // legal one becomes that.
  virtual void Clamp(int first, absl::Span<int32_t> configuration) const = 0;
  virtual void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const = 0;
  // The sketch with the configuration filled in. REQUIRES: the configuration is legal.
  virtual Schedule Instantiate(absl::Span<const int32_t> configuration) const = 0;
  // A sensible configuration that needs no search; legal.
  virtual std::vector<int32_t> Default() const = 0;
  // Whether its kernels call a library. Such a space is chosen by measurement alone, never as a fallback, since the
  // library may be missing where a package runs.
  virtual bool external() const { return false; }
  // Whether its results are further from exact ones than those of plain float32 sums: chosen by measurement alone too,
  // unless there is nothing else.
  virtual bool loses_digits() const { return false; }
  // Whether fallbacks choose it before others, whatever the analytic estimate says (SketchTraits::preferred_fallback).
  virtual bool preferred_fallback() const { return false; }
  // Legal configurations that are proposed first, regardless of the model, the most promising first: the prior that a
  // rule declared for its sketch (Draft::Prior), or each algorithm of a library.
  virtual std::vector<std::vector<int32_t>> Priors() const { return {}; }
};

// Rewrites that a search can exclude. The direct one cannot be excluded.
inline constexpr const char* kAlgorithms[] = {"attention", "gemm", "halves", "padded", "rows", "strassen", "winograd"};

// All spaces (rewrites x sketches) of one task on one target.
class TaskSpace {
 public:
  // FailedPrecondition, naming the stage, if no schedule exists for the task on this target. The spaces of the target's
  // libraries come last, whether or not the libraries are installed.
  static absl::StatusOr<std::unique_ptr<TaskSpace>> Create(const ComputeDag& dag, const Target& target,
                                                           const DeviceFacts& facts);
  // The same without the algorithms of `without`, which are from kAlgorithms.
  static absl::StatusOr<std::unique_ptr<TaskSpace>> CreateWithout(const ComputeDag& dag, const Target& target,
                                                                  const DeviceFacts& facts,
                                                                  const std::vector<std::string>& without);
  // `gemm_is_direct`: the gemm rewrite changes nothing, and its sketches are those of the direct one.
  TaskSpace(ComputeDag dag, std::vector<std::unique_ptr<Space>> spaces, bool gemm_is_direct = false)
      : dag_(std::move(dag)), spaces_(std::move(spaces)), gemm_is_direct_(gemm_is_direct) {}
  const ComputeDag& dag() const { return dag_; }
  int size() const { return static_cast<int>(spaces_.size()); }
  const Space& space(int i) const { return *spaces_[i]; }
  // Index of the space with that name, or of one with the same candidates (direct/tile for the gemm/tile of a record
  // from when a product had both); -1 if there is none (as with records of another version).
  int Find(const std::string& name) const {
    const bool renamed = gemm_is_direct_ && name.rfind("gemm/", 0) == 0;
    const std::string wanted = renamed ? "direct/" + name.substr(5) : name;
    for (int i = 0; i < size(); ++i)
      if (space(i).name() == wanted) return i;
    return -1;
  }
  // The default of the spaces that is best by the analytic estimate. Excludes libraries and, if there is an
  // alternative, rewrites that lose digits (schedule/rewrite.h).
  Schedule DefaultSchedule() const;

 private:
  ComputeDag dag_;
  std::vector<std::unique_ptr<Space>> spaces_;
  bool gemm_is_direct_ = false;
};

// The fallback schedule of a task: TaskSpace::DefaultSchedule, used by a build without a record and as trial 0 of
// tuning. Correct on any target.
absl::StatusOr<Schedule> DefaultSchedule(const ComputeDag& dag, const Target& target, const DeviceFacts& facts);

}  // namespace diapason
