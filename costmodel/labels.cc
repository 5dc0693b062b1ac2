#include "costmodel/labels.h"

#include <algorithm>
#include <cmath>

namespace diapason {
namespace {

// Weight of a failure: it tells where not to go, but a hundred of them must not drown the few good ones.
constexpr double kFailureWeight = 0.05;
// How many (squared nats of the analytic estimate) of evidence the prior slope of 1 counts as.
constexpr double kPriorStrength = 4;

double LabelOf(const Sample& sample, double best_seconds) {
  if (sample.seconds <= 0 || best_seconds <= 0) return kWorstLabel;
  return std::max(kWorstLabel, std::log(best_seconds / sample.seconds));
}

// The square root of the throughput: Ansor weighs by the throughput itself, which leaves a model of few samples nothing
// to learn the bad regions from.
double WeightOf(const Sample& sample, double label) {
  return sample.seconds <= 0 ? kFailureWeight : std::max(kFailureWeight, std::exp(label / 2));
}

}  // namespace

double AnalyticPrior::Margin(uint64_t task, double analytic_seconds) const {
  const double speed = -std::log(analytic_seconds);
  const auto found = tasks.find(task);
  if (found == tasks.end()) return slope * speed;
  return found->second.mean_label + slope * (speed - found->second.mean_analytic);
}

AnalyticPrior FitPrior(const std::vector<const Sample*>& samples) {
  AnalyticPrior prior;
  std::map<uint64_t, double> weights;
  for (const Sample* sample : samples) {
    double& best = prior.tasks[sample->task].best_seconds;
    if (sample->seconds > 0 && (best == 0 || sample->seconds < best)) best = sample->seconds;
  }
  for (const Sample* sample : samples) {
    if (sample->seconds <= 0) continue;
    AnalyticPrior::Task& task = prior.tasks[sample->task];
    const double label = LabelOf(*sample, task.best_seconds), weight = WeightOf(*sample, label);
    task.mean_label += weight * label;
    task.mean_analytic -= weight * std::log(sample->analytic_seconds);
    weights[sample->task] += weight;
  }
  for (auto& [key, task] : prior.tasks) {
    if (weights[key] == 0) continue;
    task.mean_label /= weights[key];
    task.mean_analytic /= weights[key];
  }
  double together = kPriorStrength, alone = kPriorStrength;
  for (const Sample* sample : samples) {
    if (sample->seconds <= 0) continue;
    const AnalyticPrior::Task& task = prior.tasks[sample->task];
    const double label = LabelOf(*sample, task.best_seconds), weight = WeightOf(*sample, label);
    const double speed = -std::log(sample->analytic_seconds) - task.mean_analytic;
    together += weight * speed * (label - task.mean_label);
    alone += weight * speed * speed;
  }
  prior.slope = std::clamp(together / alone, 0.0, 1.5);
  return prior;
}

TrainingMatrix MakeTrainingMatrix(const std::vector<const Sample*>& samples, const AnalyticPrior& prior, Label label,
                                  int num_features) {
  TrainingMatrix matrix;
  matrix.num_features = num_features;
  uint64_t task = 0;
  for (const Sample* sample : samples) {
    const double value = LabelOf(*sample, prior.tasks.at(sample->task).best_seconds);
    matrix.features.insert(matrix.features.end(), sample->features.begin(), sample->features.end());
    if (label == Label::kResidual) {
      matrix.labels.push_back(static_cast<float>(value - prior.Margin(sample->task, sample->analytic_seconds)));
    } else {
      matrix.labels.push_back(sample->seconds <= 0 ? 0.0f : static_cast<float>(std::exp(value)));
    }
    if (label != Label::kRank) {
      matrix.weights.push_back(static_cast<float>(WeightOf(*sample, value)));
      continue;
    }
    if (matrix.group_sizes.empty() || sample->task != task) matrix.group_sizes.push_back(0);
    ++matrix.group_sizes.back();
    task = sample->task;
  }
  return matrix;
}

double ScoreOf(double output, double margin, Label label) {
  switch (label) {
    case Label::kResidual: return output + margin;
    case Label::kThroughput:
      return std::log(std::max(output, 1e-3)) + 1e-3 * std::min(output, 1e-3);  // below: still ordered
    case Label::kRank: return output;
  }
  return output;
}

}  // namespace diapason
