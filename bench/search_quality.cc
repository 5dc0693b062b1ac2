// How well cost models would have ranked what a history holds: trained on the first part of each task's trials, judged
// on the rest.
//
//   search_quality HISTORY NETWORK TARGET        NETWORK -: all of the history's
//
// Two figures for each model: the share of pairs of a task's candidates, more than 10% apart, that it puts in the right
// order, and how near the fastest of its first eight comes to the fastest of all (1: the same). Lines "others": each
// task is judged by a model that knows all other tasks and none of its own trials.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/history_samples.h"
#include "costmodel/cost_model.h"

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

using Samples = std::vector<Sample>;

// Adds to `figures` how a model that was trained on `known` ranks `unknown`; no label: the analytic estimate.
void Judge(const std::vector<Samples>& known, const std::vector<Samples>& unknown, const Label* label,
           Figures* figures) {
  XgbOptions options;
  options.num_features = kNumFeatures;
  options.feature_version = kFeatureVersion;
  if (label != nullptr) options.label = *label;
  XgbCostModel model(options);
  for (const Samples& samples : known) model.AddSamples(samples);
  if (label != nullptr) model.Train();
  model.Wait();
  const auto ranker = model.Current();
  for (const Samples& samples : unknown) figures->Add(samples, Scores(ranker.get(), samples));
}

void Print(const std::string& trained_on, const char* model, const Figures& figures) {
  std::printf("%-7s %-12s %6.3f  %6.3f\n", trained_on.c_str(), model,
              figures.pairs_right / std::max(1.0, figures.pairs), figures.top / std::max(1.0, figures.tasks));
}

// Trained on the first part of each task.
Figures JudgeLater(const std::vector<MeasuredTask>& tasks, double part, const Label* label) {
  std::vector<Samples> known, unknown;
  for (const MeasuredTask& task : tasks) {
    const auto cut =
        task.samples.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(task.samples.size()));
    known.push_back({task.samples.begin(), cut});
    unknown.push_back({cut, task.samples.end()});
  }
  Figures figures;
  Judge(known, unknown, label, &figures);
  return figures;
}

// Trained on the other tasks.
Figures JudgeHeldOut(const std::vector<MeasuredTask>& tasks, const Label* label) {
  Figures figures;
  for (size_t held_out = 0; held_out < tasks.size(); ++held_out) {
    std::vector<Samples> known;
    for (size_t i = 0; i < tasks.size(); ++i)
      if (i != held_out) known.push_back(tasks[i].samples);
    Judge(known, {tasks[held_out].samples}, label, &figures);
  }
  return figures;
}

absl::Status Run(const std::string& path, const std::string& name, const std::string& target_text) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(target_text));
  ASSIGN_OR_RETURN(const std::vector<MeasuredTask> tasks, LoadMeasuredTasks(path, name, target, 8));
  size_t trials = 0;
  for (const MeasuredTask& task : tasks) trials += task.samples.size();
  std::printf("%zu trials of %zu tasks\ntrained on, model, pairs in order, best of the first 8\n", trials,
              tasks.size());
  const std::pair<const char*, Label> labels[] = {
      {"residual", Label::kResidual}, {"throughput", Label::kThroughput}, {"rank", Label::kRank}};
  for (double part : {0.25, 0.5, 0.75}) {
    const std::string trained_on = absl::StrCat(100 * part, "%");
    Print(trained_on, "analytic", JudgeLater(tasks, part, nullptr));
    for (const auto& [what, label] : labels) Print(trained_on, what, JudgeLater(tasks, part, &label));
  }
  Print("others", "analytic", JudgeHeldOut(tasks, nullptr));
  for (const auto& [what, label] : labels) Print("others", what, JudgeHeldOut(tasks, &label));
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
