// From raw seconds to what trees are trained on, and back to scores.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "costmodel/booster.h"
#include "costmodel/cost_model.h"

namespace diapason {

// What of a candidate's score the analytic estimate explains:
//   log(best / seconds)  ~  mean_label + slope * (-log(analytic seconds) - mean_analytic)      within a task.
// The slope is shared by all tasks and fitted with a prior of 1, so that no samples mean "trust the estimate" and an
// estimate that says nothing ends near 0.
struct AnalyticPrior {
  struct Task {
    double mean_label = 0, mean_analytic = 0;
    double best_seconds = 0;  // 0: no candidate of the task ran
  };
  double slope = 1;
  std::map<uint64_t, Task> tasks;

  double Margin(uint64_t task, double analytic_seconds) const;
};

AnalyticPrior FitPrior(const std::vector<const Sample*>& samples);

// log(best / seconds), at least this; that of a failure. e^-4: whatever is 55 times slower is equally bad.
inline constexpr double kWorstLabel = -4;

// The matrix of these samples. REQUIRES: samples ordered by task.
TrainingMatrix MakeTrainingMatrix(const std::vector<const Sample*>& samples, const AnalyticPrior& prior, Label label,
                                  int num_features);

// What the trees said, as the score that Ranker::Predict promises.
double ScoreOf(double output, double margin, Label label);

}  // namespace diapason
