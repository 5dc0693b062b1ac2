// The learned cost model: which of a task's candidates will be fast, from their features, without building them.
//
// Ansor's cost model (Zheng et al., OSDI 2020, section 5.2) with these differences. A candidate is one row of features.
// Labels are kept as raw seconds and normalised when training, against the best of their task at that moment. The model
// learns what the analytic estimate of the space gets wrong rather than everything: with few samples the estimate
// ranks, with many the trees do. Training runs in the background and never makes a search wait.
//
// This module knows features only as numbers: their count and the version of their meaning come from scheduler/space.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace diapason {

// A measured candidate.
struct Sample {
  uint64_t task = 0;  // hash of workload, device and what its caches held: labels are comparable within a task only
  uint64_t candidate =
      0;  // hash of space and configuration: a sample of the same task and candidate replaces the older
  std::vector<float> features;
  double analytic_seconds = 0;  // Metrics::seconds; positive
  // Median as measured, also of a candidate that was stopped early (few samples, but enough to rank by); 0: the
  // candidate fails. Faults of the infrastructure are no samples.
  double seconds = 0;
};

// A trained model. Immutable; safe from any thread, one core a call.
class Ranker {
 public:
  virtual ~Ranker() = default;
  // scores[i] estimates log(best known seconds of the task / seconds of candidate i): higher is better, 0 is as fast as
  // the best that was known at training. Scores of one task can be compared; of a task without samples only their order
  // means something. features holds n rows. REQUIRES: features finite, analytic_seconds positive.
  virtual void Predict(uint64_t task, absl::Span<const float> features, absl::Span<const double> analytic_seconds,
                       absl::Span<double> scores) const = 0;
};

struct TrainingStats {
  int64_t trainings = 0;
  double seconds = 0;   // spent training, of the background thread
  int64_t samples = 0;  // that Current() was trained on
  int64_t mark = 0;     // the last one given with them (AddSamples); 0: none
  int trees = 0;
  std::string error;  // why the last training failed; empty when it did not
};

// Safe from any thread.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // The last finished model; null before the first training, when the analytic estimate ranks.
  virtual std::shared_ptr<const Ranker> Current() const = 0;
  // `mark`: what the caller wants to know a model by later; 0 leaves the one before.
  virtual void AddSamples(std::vector<Sample> samples, int64_t mark) = 0;
  void AddSamples(std::vector<Sample> samples) { AddSamples(std::move(samples), 0); }
  // Trains on all samples in the background when there are enough new ones (a tenth more than the last training saw).
  // While a training runs, asks for one more after it.
  virtual void Train() = 0;
  // Returns when no training runs or is asked for.
  virtual void Wait() = 0;
  virtual TrainingStats stats() const = 0;
};

// What the trees learn. bench/search_quality compares them.
enum class Label : uint8_t {
  kResidual,    // log(best / seconds) less what the analytic estimate explains of it
  kThroughput,  // best / seconds, in (0, 1]: Ansor's
  kRank,        // pairwise order within each task
};

struct XgbOptions {
  int num_features = 0;
  int feature_version = 0;
  std::string target_kind;  // "cpu", "cuda": by which files distinguish models
  Label label = Label::kResidual;
  int max_trees = 120;
  int max_depth = 6;
  double learning_rate = 0.12;
  int threads = 1;  // of training
  uint64_t seed = 0;
  int min_samples = 16;         // successful ones before the first training
  int64_t max_samples = 30000;  // the oldest ones of other tasks' files are dropped first
};

// Gradient-boosted trees through XGBoost's C interface. Deterministic: the same samples, in any order, and options give
// the same model.
class XgbCostModel : public CostModel {
 public:
  explicit XgbCostModel(XgbOptions options);
  ~XgbCostModel() override;  // gives up a training that runs

  std::shared_ptr<const Ranker> Current() const override;
  using CostModel::AddSamples;
  void AddSamples(std::vector<Sample> samples, int64_t mark) override;
  void Train() override;
  void Wait() override;
  TrainingStats stats() const override;

  // Writes the samples and the last model; the file is replaced whole or not at all. docs/cost-model.md has the format.
  absl::Status Save(const std::string& path) const;
  // Adds the samples of the file, and its model until the next training. NotFound: no such file. FailedPrecondition:
  // made for other features or another kind of target. DataLoss: damaged. The file is never changed or removed.
  absl::Status Load(const std::string& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
