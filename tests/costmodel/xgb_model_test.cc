#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "costmodel/cost_model.h"
#include "tests/costmodel/synthetic.h"

namespace diapason {
namespace {

std::shared_ptr<const Ranker> TrainedOn(XgbCostModel* model, std::vector<Sample> samples) {
  model->AddSamples(std::move(samples));
  model->Train();
  model->Wait();
  return model->Current();
}

TEST(XgbCostModel, HasNoModelBeforeEnoughSamples) {
  XgbCostModel model(SyntheticOptions());
  EXPECT_EQ(model.Current(), nullptr);
  EXPECT_EQ(TrainedOn(&model, SyntheticSamples(1, 0, 15)), nullptr);
  EXPECT_NE(TrainedOn(&model, SyntheticSamples(1, 15, 16)), nullptr);
  EXPECT_EQ(model.stats().trainings, 1);
  EXPECT_EQ(model.stats().samples, 16);
  EXPECT_EQ(model.stats().error, "");
}

TEST(XgbCostModel, LearnsWhatTheAnalyticEstimateDoesNotSee) {
  const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1300);
  const double analytic = PairsRight(unseen, AnalyticScores(unseen));
  EXPECT_LT(analytic, 0.85);
  for (Label label : {Label::kResidual, Label::kThroughput, Label::kRank}) {
    XgbOptions options = SyntheticOptions();
    options.label = label;
    XgbCostModel model(options);
    const auto ranker = TrainedOn(&model, SyntheticSamples(1, 0, 300));
    ASSERT_NE(ranker, nullptr) << model.stats().error;
    EXPECT_GT(PairsRight(unseen, Scores(*ranker, unseen)), label == Label::kResidual ? 0.93 : 0.89)
        << static_cast<int>(label);
  }
}

TEST(XgbCostModel, RanksNoWorseThanTheEstimateWithFewSamples) {
  const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1300);
  XgbCostModel model(SyntheticOptions());
  const auto ranker = TrainedOn(&model, SyntheticSamples(1, 0, 16));
  EXPECT_GT(PairsRight(unseen, Scores(*ranker, unseen)), PairsRight(unseen, AnalyticScores(unseen)) - 0.02);
}

TEST(XgbCostModel, CarriesOverToATaskWithoutSamples) {
  std::vector<Sample> samples = SyntheticSamples(1, 0, 200);
  for (Sample& sample : SyntheticSamples(2, 0, 200)) samples.push_back(std::move(sample));
  XgbCostModel model(SyntheticOptions());
  const auto ranker = TrainedOn(&model, samples);
  const std::vector<Sample> other = SyntheticSamples(7, 0, 300);
  EXPECT_GT(PairsRight(other, Scores(*ranker, other)), 0.9);
}

TEST(XgbCostModel, ScoresAreLogarithmsOfRelativeSpeed) {
  XgbCostModel model(SyntheticOptions());
  const std::vector<Sample> samples = SyntheticSamples(1, 0, 400);
  const auto ranker = TrainedOn(&model, samples);
  double best = 1e9, error = 0;
  for (const Sample& sample : samples) best = std::min(best, sample.seconds);
  const std::vector<double> scores = Scores(*ranker, samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    const double truth = std::max(-4.0, std::log(best / samples[i].seconds));
    error += std::abs(scores[i] - truth) / static_cast<double>(samples.size());
  }
  EXPECT_LT(error, 0.25);
}

TEST(XgbCostModel, RanksWhatFailsLast) {
  // Candidates with a large feature 3 fail, however fast the estimate says they are.
  std::vector<Sample> samples = SyntheticSamples(1, 0, 400);
  const auto fails = [](const Sample& sample) { return sample.features[3] > 5; };
  for (Sample& sample : samples)
    if (fails(sample)) sample.seconds = 0;
  XgbCostModel model(SyntheticOptions());
  const auto ranker = TrainedOn(&model, samples);
  const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1400);
  const std::vector<double> scores = Scores(*ranker, unseen);
  double good = 0, bad = 0, goods = 0, bads = 0;
  for (size_t i = 0; i < unseen.size(); ++i) {
    (fails(unseen[i]) ? bad : good) += scores[i];
    (fails(unseen[i]) ? bads : goods) += 1;
  }
  EXPECT_LT(bad / bads, good / goods - 1);
}

TEST(XgbCostModel, DoesNotDependOnTheOrderOfSamples) {
  std::vector<Sample> samples = SyntheticSamples(2, 0, 150);
  for (Sample& sample : SyntheticSamples(1, 0, 150)) samples.push_back(std::move(sample));
  std::vector<Sample> backwards(samples.rbegin(), samples.rend());
  XgbCostModel one(SyntheticOptions()), other(SyntheticOptions());
  const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1100);
  EXPECT_EQ(Scores(*TrainedOn(&one, samples), unseen), Scores(*TrainedOn(&other, backwards), unseen));
}

TEST(XgbCostModel, ReplacesASampleOfTheSameCandidate) {
  // What ran fast and turned out to be wrong becomes a failure.
  XgbCostModel model(SyntheticOptions());
  std::vector<Sample> samples = SyntheticSamples(1, 0, 100);
  TrainedOn(&model, samples);
  for (Sample& sample : samples) sample.seconds = 0;
  samples.resize(90);
  model.AddSamples(samples);
  model.AddSamples(SyntheticSamples(1, 200, 206));
  model.Train();
  model.Wait();
  EXPECT_EQ(model.stats().samples, 106);
}

TEST(XgbCostModel, TrainsAgainOnlyWithATenthMore) {
  XgbCostModel model(SyntheticOptions());
  TrainedOn(&model, SyntheticSamples(1, 0, 100));
  TrainedOn(&model, SyntheticSamples(1, 100, 109));
  EXPECT_EQ(model.stats().trainings, 1);
  TrainedOn(&model, SyntheticSamples(1, 109, 110));
  EXPECT_EQ(model.stats().trainings, 2);
}

TEST(XgbCostModel, KeepsTheNewestSamplesWhenThereAreTooMany) {
  XgbOptions options = SyntheticOptions();
  options.max_samples = 100;
  XgbCostModel model(options);
  TrainedOn(&model, SyntheticSamples(1, 0, 1000));
  EXPECT_LE(model.stats().samples, 100);
  EXPECT_GE(model.stats().samples, 90);
}

TEST(XgbCostModel, TakesFeaturesThatAreNoNumbers) {
  std::vector<Sample> samples = SyntheticSamples(1, 0, 50);
  samples[3].features[2] = std::numeric_limits<float>::infinity();
  samples[4].features[2] = std::nanf("");
  samples[5].analytic_seconds = 0;
  XgbCostModel model(SyntheticOptions());
  ASSERT_NE(TrainedOn(&model, samples), nullptr) << model.stats().error;
}

TEST(XgbCostModel, AnswersManyThreadsAlikeWhileTraining) {
  XgbCostModel model(SyntheticOptions());
  const auto ranker = TrainedOn(&model, SyntheticSamples(1, 0, 100));
  const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1200);
  const std::vector<double> expected = Scores(*ranker, unseen);
  model.AddSamples(SyntheticSamples(1, 100, 200));
  model.Train();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) wrong[t] += Scores(*ranker, unseen) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
  model.Wait();
  EXPECT_NE(model.Current(), ranker);
}

TEST(XgbCostModel, EndsWhileTraining) {
  XgbCostModel model(SyntheticOptions());
  model.AddSamples(SyntheticSamples(1, 0, 3000));
  model.Train();  // the destructor gives it up
}

}  // namespace
}  // namespace diapason
