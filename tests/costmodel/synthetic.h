// A made-up device for tests of the cost model: times follow from a few features, and the analytic estimate is blind to
// one of them.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "costmodel/cost_model.h"

namespace diapason {

inline constexpr int kSyntheticFeatures = 12;

inline XgbOptions SyntheticOptions() {
  XgbOptions options;
  options.num_features = kSyntheticFeatures;
  options.feature_version = 3;
  options.target_kind = "cuda";
  return options;
}

inline Sample SyntheticSample(uint64_t task, uint64_t candidate) {
  std::mt19937_64 random(task * 1000003 + candidate);
  Sample sample;
  sample.task = task;
  sample.candidate = candidate;
  for (int i = 0; i < kSyntheticFeatures; ++i) sample.features.push_back(static_cast<float>(random() % 1024) / 128.0f);
  const double scale = 1e-4 * static_cast<double>(task);
  const double seen = 1 + sample.features[0], hidden = sample.features[1] > 4 ? 6 : 1;
  sample.analytic_seconds = scale * seen;
  sample.seconds = scale * seen * hidden * (1 + 0.1 * sample.features[2]);
  return sample;
}

inline std::vector<Sample> SyntheticSamples(uint64_t task, uint64_t begin, uint64_t end) {
  std::vector<Sample> samples;
  for (uint64_t i = begin; i < end; ++i) samples.push_back(SyntheticSample(task, i));
  return samples;
}

inline std::vector<double> Scores(const Ranker& ranker, const std::vector<Sample>& samples) {
  std::vector<float> features;
  std::vector<double> analytic, scores(samples.size());
  for (const Sample& sample : samples) {
    features.insert(features.end(), sample.features.begin(), sample.features.end());
    analytic.push_back(sample.analytic_seconds);
  }
  ranker.Predict(samples.front().task, features, analytic, absl::MakeSpan(scores));
  return scores;
}

// Share of pairs, those within 10% of each other left out, that the scores put in the right order.
inline double PairsRight(const std::vector<Sample>& samples, const std::vector<double>& scores) {
  double right = 0, all = 0;
  for (size_t a = 0; a < samples.size(); ++a) {
    for (size_t b = 0; b < samples.size(); ++b) {
      if (samples[a].seconds * 1.1 > samples[b].seconds) continue;
      all += 1;
      right += scores[a] > scores[b] ? 1 : 0;
    }
  }
  return right / all;
}

inline std::vector<double> AnalyticScores(const std::vector<Sample>& samples) {
  std::vector<double> scores;
  for (const Sample& sample : samples) scores.push_back(-std::log(sample.analytic_seconds));
  return scores;
}

}  // namespace diapason
