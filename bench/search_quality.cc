// How well cost models would have ranked what a history holds: trained on the first part of each task's trials, judged
// on the rest.
//
//   search_quality HISTORY NETWORK TARGET
//
// Two figures for each model: the share of pairs of a task's candidates, more than 10% apart, that it puts in the right
// order, and how near the fastest of its first eight comes to the fastest of all (1: the same).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "compiler/graph/builtin.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/check.h"
#include "costmodel/cost_model.h"
#include "db/history.h"
#include "scheduler/task_state.h"

namespace diapason {
namespace {

struct Figures {
  double pairs_right = 0, pairs = 0, top = 0, tasks = 0;
  void Add(const std::vector<Sample>& samples, const std::vector<double>& scores) {
    std::vector<size_t> order;
    double best = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      order.push_back(i);
      if (samples[i].seconds > 0 && (best == 0 || samples[i].seconds < best)) best = samples[i].seconds;
      for (size_t j = 0; j < samples.size(); ++j) {
        const double a = samples[i].seconds, b = samples[j].seconds;
        if (a <= 0 || (b > 0 && a * 1.1 > b)) continue;  // a failure is slower than all
        pairs += 1;
        pairs_right += scores[i] > scores[j] ? 1 : 0;
      }
    }
    if (best == 0) return;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    double found = 0;
    for (size_t i = 0; i < std::min<size_t>(8, order.size()); ++i)
      if (samples[order[i]].seconds > 0) found = std::max(found, best / samples[order[i]].seconds);
    top += found;
    tasks += 1;
  }
};

std::vector<double> Scores(const Ranker* ranker, const std::vector<Sample>& samples) {
  std::vector<float> features;
  std::vector<double> analytic, scores(samples.size());
  for (const Sample& sample : samples) {
    features.insert(features.end(), sample.features.begin(), sample.features.end());
    analytic.push_back(sample.analytic_seconds);
  }
  if (ranker != nullptr) {
    ranker->Predict(samples[0].task, features, analytic, absl::MakeSpan(scores));
  } else {
    for (size_t i = 0; i < samples.size(); ++i) scores[i] = -std::log(analytic[i]);
  }
  return scores;
}

absl::StatusOr<std::vector<std::vector<Sample>>> Load(const std::string& path, const std::string& name,
                                                      const Target& target) {
  ASSIGN_OR_RETURN(auto history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const HistoryInfo info, history->Info());
  ASSIGN_OR_RETURN(Network network, BuiltinNetwork(name, {}));
  ASSIGN_OR_RETURN(network, Optimize(std::move(network), {}));
  ASSIGN_OR_RETURN(const Partition partition, PartitionNetwork(network));
  TunerOptions options;
  options.target = target;
  options.facts = DefaultFacts(target);
  options.make_space = TaskSpace::Create;
  std::vector<std::vector<Sample>> tasks;
  for (const Task& task : partition.tasks) {
    ASSIGN_OR_RETURN(auto state, TaskState::Create(0, {task.name, task.dag, task.workload_key, {}}, options));
    std::vector<Sample> samples;
    for (const auto& device : info.devices) {
      ASSIGN_OR_RETURN(const auto records, history->ForWorkload(task.workload_key, device.model));
      for (const TuningRecord& record : records) state->Restore(record, &samples);
    }
    if (samples.size() >= 8) tasks.push_back(std::move(samples));
  }
  return tasks;
}

void Judge(const std::vector<std::vector<Sample>>& tasks, double part, const char* what, const Label* label) {
  XgbOptions options;
  options.num_features = kNumFeatures;
  options.feature_version = kFeatureVersion;
  if (label != nullptr) options.label = *label;
  XgbCostModel model(options);
  std::vector<std::vector<Sample>> rest;
  for (const auto& samples : tasks) {
    const auto cut = samples.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(samples.size()));
    model.AddSamples({samples.begin(), cut});
    rest.push_back({cut, samples.end()});
  }
  if (label != nullptr) model.Train();
  model.Wait();
  const auto ranker = model.Current();
  Figures figures;
  for (const auto& samples : rest) figures.Add(samples, Scores(ranker.get(), samples));
  std::printf("%4.0f%%  %-12s %6.3f  %6.3f\n", part * 100, what, figures.pairs_right / std::max(1.0, figures.pairs),
              figures.top / std::max(1.0, figures.tasks));
}

absl::Status Run(const std::string& path, const std::string& name, const std::string& target_text) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(target_text));
  ASSIGN_OR_RETURN(const auto tasks, Load(path, name, target));
  if (tasks.empty()) return absl::NotFoundError("the history holds no trials of this network: tune it first");
  size_t trials = 0;
  for (const auto& samples : tasks) trials += samples.size();
  std::printf("%zu trials of %zu tasks\ntrained on, model, pairs in order, best of the first 8\n", trials,
              tasks.size());
  const std::pair<const char*, Label> labels[] = {
      {"residual", Label::kResidual}, {"throughput", Label::kThroughput}, {"rank", Label::kRank}};
  for (double part : {0.25, 0.5, 0.75}) {
    Judge(tasks, part, "analytic", nullptr);
    for (const auto& [what, label] : labels) Judge(tasks, part, what, &label);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: search_quality HISTORY NETWORK TARGET\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argv[2], argv[3]);
  if (!status.ok()) std::fprintf(stderr, "search_quality: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
