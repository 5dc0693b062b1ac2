#include "scheduler/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <thread>

#include "db/rounds.h"
#include "scheduler/task_state.h"
#include "scheduler/variation.h"
#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

FakeSpace::Options Spec(const std::string& name, double scale, uint64_t seed, int parameters = 8, int choices = 8) {
  FakeSpace::Options options;
  options.name = name;
  options.scale = scale;
  options.seed = seed;
  options.parameters = parameters;
  options.choices = choices;
  return options;
}

// Asks a run to stop at its record of that number; 0: never.
class StopAfter : public ProgressListener {
 public:
  StopAfter(int64_t records, std::atomic<bool>* stop) : left_(records), stop_(stop) {}
  void OnRecord(int, const TuningRecord&, bool, const TuneReport&) override {
    if (--left_ == 0) *stop_ = true;
  }

 private:
  int64_t left_;
  std::atomic<bool>* const stop_;
};

class TunerTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              absl::StrCat("tuner_test.", getpid(), ".", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    OpenHistory("h.db");
  }
  void TearDown() override {
    history_.reset();
    std::filesystem::remove_all(folder_);
  }
  void OpenHistory(const std::string& name) {
    history_.reset();
    auto opened = History::Open(folder_ / name, HistoryMode::kCreate);
    ASSERT_TRUE(opened.ok()) << opened.status();
    history_ = *std::move(opened);
  }

  static FakeNetwork TwoTasks() {
    return FakeNetwork({{"first", 1, {Spec("direct/a", 2e-4, 11), Spec("gemm/a", 1e-4, 12)}},
                        {"second", 3, {Spec("gemm/b", 3e-4, 13)}}});
  }
  TunerOptions Options(const FakeNetwork& network, int64_t trials) {
    TunerOptions options;
    options.facts.model = "fake device";
    options.facts.uuid = "fake-0";
    options.make_space = network.factory();
    options.trials = trials;
    options.trials_per_round = 16;
    options.evolution.population = 512;
    options.synchronous = true;
    options.seed = 5;
    return options;
  }
  absl::StatusOr<TuneReport> Tune(const FakeNetwork& network, const TunerOptions& options, Measurer* measurer,
                                  ProgressListener* listener = nullptr, const std::atomic<bool>* stop = nullptr) {
    auto tuner = Tuner::Create(network.tasks(), options, measurer, history_.get(), listener);
    if (!tuner.ok()) return tuner.status();
    return (*tuner)->Run(stop);
  }
  std::vector<TuningRecord> Records(const FakeNetwork& network, int task) {
    return history_->ForWorkload(network.tasks()[task].workload_key, "fake device").value();
  }

  std::filesystem::path folder_;
  std::unique_ptr<History> history_;
};

double RandomBest(const FakeNetwork& network, int task, int spaces, int trials) {
  Random random(99);
  double best = 1e9;
  std::vector<int32_t> values;
  for (int i = 0; i < trials; ++i) {
    const FakeSpace& space = network.space(task, static_cast<int>(random.Below(spaces)));
    std::vector<int32_t> configuration(space.size());
    SampleConfiguration(space, &random, absl::MakeSpan(configuration), &values);
    best = std::min(best, space.Seconds(configuration));
  }
  return best;
}

TEST_F(TunerTest, FindsNearlyTheBestAndFarBetterThanRandomSearch) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  const auto report = Tune(network, Options(network, 240), &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->estimated_us);
  EXPECT_NEAR(report->expected_us, *report->estimated_us, 1e-6) << "all tasks are timed";
  const double optimum = network.Optimum() * 1e6;
  const double random = 1e6 * (RandomBest(network, 0, 2, 120) + 3 * RandomBest(network, 1, 1, 120));
  EXPECT_LT(*report->estimated_us, 1.12 * optimum);
  EXPECT_LT(*report->estimated_us - optimum, 0.4 * (random - optimum));
  EXPECT_LT(*report->estimated_us, *report->estimated_fallback_us);
  EXPECT_EQ(report->stopped, "all trials are done");
}

// Of the task that was not measured the fallback schedule is expected, by an estimate that is as far off as that of the
// other one was.
TEST_F(TunerTest, ExpectsALatencyWhileTasksAreNotTimed) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  const auto report = Tune(network, Options(network, 1), &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->estimated_us);
  ASSERT_TRUE(report->tasks[0].best_us);
  ASSERT_FALSE(report->tasks[1].best_us);
  EXPECT_EQ(report->tasks[0].expected_us, *report->tasks[0].best_us);
  const auto analytic = [&](int task) {
    const auto space = network.factory()(network.tasks()[task].dag, Target(), DeviceFacts()).value();
    double least = 1e9;
    for (int i = 0; i < space->size(); ++i) {
      Metrics metrics;
      space->space(i).Evaluate(space->space(i).Default(), &metrics);
      least = std::min(least, metrics.seconds);
    }
    return least;
  };
  const double off = *report->tasks[0].fallback_us / analytic(0);
  EXPECT_NEAR(report->tasks[1].expected_us, off * analytic(1), 1e-6 * report->tasks[1].expected_us);
  EXPECT_NEAR(report->expected_us, report->tasks[0].expected_us + 3 * report->tasks[1].expected_us, 1e-6);
  EXPECT_NEAR(report->expected_fallback_us, *report->tasks[0].fallback_us + 3 * report->tasks[1].expected_us, 1e-6);
}

TEST_F(TunerTest, ReportsWhatTheHistoryHolds) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  const auto report = Tune(network, Options(network, 100), &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials, 100);
  EXPECT_EQ(report->measured, 100);
  EXPECT_EQ(report->failed, 0);
  int64_t records = 0;
  for (int task = 0; task < 2; ++task) {
    const TaskReport& one = report->tasks[task];
    const std::vector<TuningRecord> stored = Records(network, task);
    records += static_cast<int64_t>(stored.size());
    EXPECT_EQ(one.trials, static_cast<int64_t>(stored.size()));
    const auto best =
        history_->Best(one.id == 0 ? network.tasks()[0].workload_key : network.tasks()[1].workload_key, "fake device")
            .value();
    ASSERT_TRUE(best);
    EXPECT_EQ(one.best_record, best->id);
    EXPECT_EQ(best->verified, Verified::kOk);
    EXPECT_TRUE(one.verified);
    EXPECT_NEAR(*one.best_us, MedianSeconds(*best->timing()) * 1e6, 1e-6);
    EXPECT_NEAR(*one.gflops_per_s, network.tasks()[task].dag.flops() / *one.best_us / 1e3, 1e-6);
    // Trial 0 is the fallback schedule.
    EXPECT_EQ(stored[0].trial, 0);
    EXPECT_EQ(stored[0].configuration, std::vector<int32_t>(8, 1));
    EXPECT_NEAR(*one.fallback_us, MedianSeconds(*stored[0].timing()) * 1e6, 1e-6);
    for (size_t i = 0; i < stored.size(); ++i) {
      EXPECT_EQ(stored[i].trial, static_cast<int64_t>(i));
      EXPECT_EQ(stored[i].seed, 5u);
      EXPECT_EQ(stored[i].configuration_hash, CandidateHash(stored[i].sketch, stored[i].configuration));
      EXPECT_EQ(stored[i].device_uuid, "fake-0");
      EXPECT_EQ(stored[i].target, "cpu");
      EXPECT_TRUE(stored[i].predicted);
      EXPECT_GT(stored[i].run_id, 0);
    }
  }
  EXPECT_EQ(records, 100);
  EXPECT_NEAR(*report->estimated_us, *report->tasks[0].best_us + 3 * *report->tasks[1].best_us, 1e-6);
  EXPECT_GT(report->stages.candidates, 1000);
  EXPECT_GT(report->stages.candidates_per_s, 0);
  EXPECT_NEAR(report->stages.build_s, 10, 1e-6);
  EXPECT_GE(report->stages.trainings, 1);
  const auto runs = history_->Runs().value();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_GT(runs[0].ended_at, 0);
  EXPECT_EQ(history_->NetworkTasks("net").value().size(), 2u);
}

TEST_F(TunerTest, KeepsTheBudgetToTheTrial) {
  const FakeNetwork network = TwoTasks();
  for (int64_t trials : {1, 2, 3, 17, 64}) {
    OpenHistory(absl::StrCat(trials, ".db"));
    for (bool synchronous : {true, false}) {
      OpenHistory(absl::StrCat(trials, synchronous, ".db"));
      FakeMeasurer measurer(&network);
      TunerOptions options = Options(network, trials);
      options.synchronous = synchronous;
      const auto report = Tune(network, options, &measurer);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->measured, trials);
      EXPECT_EQ(static_cast<int64_t>(measurer.order().size()), trials);
    }
  }
}

TEST_F(TunerTest, MeasuresNothingTwice) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 300);
  options.synchronous = false;
  ASSERT_TRUE(Tune(network, options, &measurer).ok());
  for (const auto& [candidate, times] : measurer.measured()) EXPECT_EQ(times, 1);
}

TEST_F(TunerTest, ResumesWithoutMeasuringAnythingAgain) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer first(&network), second(&network), third(&network);
  const auto before = Tune(network, Options(network, 80), &first);
  ASSERT_TRUE(before.ok());
  const auto after = Tune(network, Options(network, 200), &second);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->trials, 200);
  EXPECT_EQ(after->measured, 120);
  EXPECT_LE(*after->estimated_us, *before->estimated_us);
  EXPECT_EQ(after->tasks[0].fallback_us, before->tasks[0].fallback_us);
  for (const auto& [candidate, times] : second.measured()) EXPECT_EQ(first.measured().count(candidate), 0u);
  // All trials are there: nothing is left to measure.
  const auto nothing = Tune(network, Options(network, 200), &third);
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->measured, 0);
  EXPECT_EQ(nothing->trials, 200);
  EXPECT_EQ(*nothing->estimated_us, *after->estimated_us);
}

TEST_F(TunerTest, IsAsGoodAfterAKillAsWithoutOne) {
  const FakeNetwork network = TwoTasks();
  // Twice the tuner ends in the middle, without waiting for what it has asked for.
  for (int kill = 0; kill < 2; ++kill) {
    FakeMeasurer measurer(&network);
    std::atomic<bool> stop{false};
    StopAfter killer(60, &stop);
    TunerOptions options = Options(network, 240);
    options.stop_grace_s = 0;
    ASSERT_TRUE(Tune(network, options, &measurer, &killer, &stop).ok());
  }
  FakeMeasurer measurer(&network);
  const auto report = Tune(network, Options(network, 240), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->trials, 240);
  EXPECT_LT(*report->estimated_us, 1.15e6 * network.Optimum());
}

TEST_F(TunerTest, ReproducesARunFromItsSeed) {
  const FakeNetwork network = TwoTasks();
  const auto run = [&](uint64_t seed, const std::string& name) {
    OpenHistory(name);
    FakeMeasurer measurer(&network);
    TunerOptions options = Options(network, 120);
    options.seed = seed;
    EXPECT_TRUE(Tune(network, options, &measurer).ok());
    return measurer.order();
  };
  const auto one = run(1, "1.db");
  EXPECT_EQ(one, run(1, "2.db"));
  EXPECT_NE(one, run(2, "3.db"));
}

// Answers in another order than was asked.
class ShuffledMeasurer : public FakeMeasurer {
 public:
  ShuffledMeasurer(const FakeNetwork* network, uint64_t seed) : FakeMeasurer(network), random_(seed, 1) {}
  absl::Status Submit(std::vector<MeasureRequest> requests) override {
    for (size_t i = requests.size(); i > 1; --i)
      std::swap(requests[i - 1], requests[random_.Below(static_cast<uint32_t>(i))]);
    return FakeMeasurer::Submit(std::move(requests));
  }

 private:
  Random random_;
};

TEST_F(TunerTest, TheOrderOfTheAnswersChangesNothing) {
  const FakeNetwork network = TwoTasks();
  const auto run = [&](uint64_t seed, const std::string& name) {
    OpenHistory(name);
    ShuffledMeasurer measurer(&network, seed);
    EXPECT_TRUE(Tune(network, Options(network, 120), &measurer).ok());
    std::vector<std::set<std::vector<int32_t>>> proposed(2);
    for (int task : {0, 1})
      for (const TuningRecord& record : Records(network, task)) proposed[task].insert(record.configuration);
    return proposed;
  };
  const auto one = run(1, "1.db");
  EXPECT_EQ(one, run(2, "2.db"));
  EXPECT_GE(one[0].size() + one[1].size(), 100u);
}

// A run that is cut off again and again, each time at another moment, proposes what an unbroken one does.
TEST_F(TunerTest, ContinuedRunsProposeWhatAnUnbrokenOneDoes) {
  const FakeNetwork network = TwoTasks();
  // Some of the bests prove wrong, which changes what comes next.
  const auto script = [&](int64_t, int task, const MeasureRequest& request,
                          const Schedule& schedule) -> std::optional<MeasureOutcome> {
    if (request.verify) return FakeMeasurer::Judge(schedule.configuration[0] % 4 != 0);
    return FakeMeasurer::Time(network.Seconds(task, schedule));
  };
  const auto proposals = [&] {
    std::vector<std::vector<std::vector<int32_t>>> all(2);
    for (int task : {0, 1})
      for (const TuningRecord& record : Records(network, task)) all[task].push_back(record.configuration);
    return all;
  };
  // What other runs have left before.
  const auto before = [&] {
    FakeMeasurer measurer(&network);
    TunerOptions options = Options(network, 30);
    options.seed = 77;
    ASSERT_TRUE(Tune(network, options, &measurer).ok());
  };
  before();
  FakeMeasurer unbroken(&network);
  unbroken.set_script(script);
  const auto whole = Tune(network, Options(network, 200), &unbroken);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_GT(history_->Info()->errors.size() + static_cast<size_t>(whole->tasks[0].failed + whole->tasks[1].failed), 0u);
  const auto expected = proposals();

  OpenHistory("cut.db");
  before();
  std::vector<int64_t> runs;
  int64_t measured = 0;
  for (int64_t limit : {3, 0, 40, 17, 1, 1000}) {
    FakeMeasurer measurer(&network);
    measurer.set_script(script);
    std::atomic<bool> stop{limit == 0};
    StopAfter killer(limit, &stop);
    TunerOptions options = Options(network, 200);
    options.stop_grace_s = 0;
    options.continued_runs = runs;
    const auto report = Tune(network, options, &measurer, &killer, &stop);
    ASSERT_TRUE(report.ok()) << report.status();
    measured += report->measured;
    runs.push_back(history_->Runs()->back().id);
    // Also when it was cut off before it had replayed them.
    EXPECT_EQ(report->trials, history_->Info()->records);
    if (limit == 1000) {
      EXPECT_EQ(report->trials, 200);
    }
  }
  EXPECT_EQ(measured, 170);
  EXPECT_EQ(proposals(), expected);
  // With nothing left to measure.
  FakeMeasurer idle(&network);
  TunerOptions options = Options(network, 200);
  options.continued_runs = runs;
  const auto again = Tune(network, options, &idle);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->measured, 0);
  EXPECT_EQ(again->trials, 200);
  EXPECT_EQ(*again->estimated_us, *whole->estimated_us);
}

// Keeps what was submitted, answered or not; takes its time.
class NotingMeasurer : public FakeMeasurer {
 public:
  explicit NotingMeasurer(const FakeNetwork* network) : FakeMeasurer(network, /*slots=*/1), network_(network) {}
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return FakeMeasurer::Next(timeout_s);
  }
  absl::Status Submit(std::vector<MeasureRequest> requests) override {
    for (const MeasureRequest& request : requests)
      if (!request.verify)
        submitted_.push_back({network_->TaskOf(*request.workload), ParseSchedule(request.schedule)->configuration});
    return FakeMeasurer::Submit(std::move(requests));
  }
  const std::vector<std::pair<int, std::vector<int32_t>>>& submitted() const { return submitted_; }

 private:
  const FakeNetwork* const network_;
  std::vector<std::pair<int, std::vector<int32_t>>> submitted_;
};

// Without `synchronous`: what was proposed when a run was cut off is what the next one measures first, once.
TEST_F(TunerTest, ACutRunGoesOnWithTheRoundsThatWereUnderWay) {
  const FakeNetwork network = TwoTasks();
  const auto rounds = RoundStore::Open(folder_ / "h.db.rounds").value();
  using Trial = std::pair<int, std::vector<int32_t>>;
  std::set<Trial> under_way;
  std::map<int, int64_t> last_round;
  int64_t resumed = 0;
  for (int64_t limit : {1, 5, 30, 23, 40, 1, 1000}) {
    NotingMeasurer measurer(&network);
    std::atomic<bool> stop{false};
    StopAfter killer(limit, &stop);
    TunerOptions options = Options(network, 200);
    options.synchronous = false;
    options.stop_grace_s = 0;
    options.rounds = rounds.get();
    options.rounds_run = "a run";
    const auto report = Tune(network, options, &measurer, &killer, &stop);
    ASSERT_TRUE(report.ok()) << report.status();
    const std::vector<Trial>& submitted = measurer.submitted();
    ASSERT_GE(submitted.size(), under_way.size());
    EXPECT_EQ(std::set<Trial>(submitted.begin(), submitted.begin() + static_cast<std::ptrdiff_t>(under_way.size())),
              under_way);
    resumed += static_cast<int64_t>(under_way.size());
    under_way.insert(submitted.begin(), submitted.end());
    std::set<Trial> recorded;
    for (int task : {0, 1})
      for (const TuningRecord& record : Records(network, task))
        EXPECT_TRUE(recorded.insert({task, record.configuration}).second) << "measured twice";
    for (const Trial& trial : recorded) under_way.erase(trial);
    if (limit == 1000) {
      EXPECT_EQ(recorded.size(), 200u);
      EXPECT_TRUE(under_way.empty());
      EXPECT_TRUE(rounds->Load("a run")->empty());
      continue;
    }
    // Rounds are numbered on.
    const std::vector<ProposedTrial> noted = rounds->Load("a run").value();
    for (int task : {0, 1}) {
      int64_t last = 0;
      for (const ProposedTrial& trial : noted)
        if (trial.workload_key == network.tasks()[task].workload_key) last = std::max(last, trial.round);
      EXPECT_GE(last, last_round[task]);
      last_round[task] = last;
    }
  }
  EXPECT_GT(resumed, 5);  // how many depends on the speed of the machine
  EXPECT_GT(last_round[0] + last_round[1], 4);
}

// Another run's proposals are its own, and a limit that was lowered holds.
TEST_F(TunerTest, WhatOthersProposedIsLeftAlone) {
  const FakeNetwork network = TwoTasks();
  const auto rounds = RoundStore::Open(folder_ / "h.db.rounds").value();
  ProposedTrial trial;
  trial.workload_key = network.tasks()[0].workload_key;
  trial.target = Options(network, 1).target.ToString();
  trial.device_model = "fake device";
  trial.round = 3;
  trial.sketch = "direct/a";
  trial.configuration.assign(network.space(0, 0).size(), 2);
  network.space(0, 0).Clamp(0, absl::MakeSpan(trial.configuration));
  ProposedTrial gone = trial, elsewhere = trial;
  gone.sketch = "of another version";
  elsewhere.device_model = "another device";
  ASSERT_TRUE(rounds->Add("other", {trial}).ok());
  ASSERT_TRUE(rounds->Add("mine", {gone, elsewhere}).ok());
  const auto first_of = [&](const std::string& run, int64_t trials) {
    OpenHistory(run + ".db");
    NotingMeasurer measurer(&network);
    TunerOptions options = Options(network, trials);
    options.synchronous = false;
    options.rounds = rounds.get();
    options.rounds_run = run;
    EXPECT_TRUE(Tune(network, options, &measurer).ok());
    EXPECT_EQ(static_cast<int64_t>(measurer.submitted().size()), trials);
    return measurer.submitted().front().second;
  };
  EXPECT_NE(first_of("mine", 10), trial.configuration);
  EXPECT_EQ(rounds->Load("other")->size(), 1u);
  EXPECT_EQ(first_of("other", 1), trial.configuration);
}

// The first trials behind the default of a task, as configurations.
std::vector<std::vector<int32_t>> FirstTrials(const FakeMeasurer& measurer, int task, size_t count) {
  std::vector<std::vector<int32_t>> trials;
  for (const auto& [of, configuration] : measurer.order())
    if (of == task) trials.push_back(configuration);
  trials.resize(std::min(trials.size(), count + 1));
  trials.erase(trials.begin());
  return trials;
}

TEST_F(TunerTest, BeginsWithWhatTheHistoryFoundForANearWorkload) {
  const FakeNetwork earlier({{"other", 1, {Spec("gemm/x", 1e-4, 22)}}, {"near", 1, {Spec("gemm/x", 1e-4, 21)}}});
  FakeMeasurer first(&earlier);
  TunerOptions options = Options(earlier, 150);
  options.only = {1};
  const auto tuned = Tune(earlier, options, &first);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  const std::vector<int32_t> best = history_->Get(tuned->tasks[1].best_record)->configuration;

  // The same places of the best candidate, another task and another speed.
  const FakeNetwork now({{"now", 1, {Spec("gemm/x", 7e-4, 21)}}});
  history_.reset();
  std::filesystem::copy_file(folder_ / "h.db", folder_ / "cold.db");
  for (bool warm : {true, false}) {
    OpenHistory(warm ? "h.db" : "cold.db");
    FakeMeasurer measurer(&now);
    options = Options(now, 17);
    options.warm_start = warm;
    const auto report = Tune(now, options, &measurer);
    ASSERT_TRUE(report.ok()) << report.status();
    const auto trials = FirstTrials(measurer, 0, 16);
    EXPECT_EQ(std::count(trials.begin(), trials.end(), best), warm ? 1 : 0);
    if (warm) {
      EXPECT_NEAR(*report->estimated_us, 7 * *tuned->tasks[1].best_us, 1e-6);
    }
  }
}

TEST_F(TunerTest, TasksOfARunLearnFromEachOther) {
  const auto total = [&](bool warm) {
    double sum = 0;  // of several seeds: one alone says little
    for (uint64_t seed : {5, 6, 7}) {
      OpenHistory(absl::StrCat(warm ? "warm" : "cold", seed, ".db"));
      std::vector<FakeNetwork::Task> tasks;
      for (const char* name : {"a", "b", "c", "d"}) tasks.push_back({name, 1, {Spec("gemm/x", 1e-4, 33, 14)}});
      const FakeNetwork network(std::move(tasks));
      FakeMeasurer measurer(&network);
      TunerOptions options = Options(network, 240);
      options.seed = seed;
      options.warm_start = warm;
      sum += *Tune(network, options, &measurer)->estimated_us / (network.Optimum() * 1e6) - 1;
    }
    return sum;
  };
  EXPECT_LT(total(true), 0.7 * total(false));
}

TEST_F(TunerTest, RacesAgainstTheBestSoFar) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  ASSERT_TRUE(Tune(network, Options(network, 100), &measurer).ok());
  const std::vector<MeasureRequest> requests = measurer.requests();
  std::map<std::string, double> raced;
  int with_best = 0;
  for (const MeasureRequest& request : requests) {
    if (request.verify) continue;
    double& before = raced[*request.workload];
    EXPECT_TRUE(before == 0 || request.best_seconds <= before);
    if (request.best_seconds > 0) {
      before = request.best_seconds;
      ++with_best;
    }
  }
  EXPECT_EQ(with_best, 98);  // all but the two defaults
  OpenHistory("classic.db");
  FakeMeasurer classic(&network);
  TunerOptions options = Options(network, 40);
  options.measure.race = false;
  ASSERT_TRUE(Tune(network, options, &classic).ok());
  for (const MeasureRequest& request : classic.requests()) EXPECT_EQ(request.best_seconds, 0);
}

TEST_F(TunerTest, ARacedOutCandidateIsNeverTheBestWhileThereIsAContender) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        const double seconds = network.Seconds(task, schedule);
        // Half the time, as a short and cold measurement may be wrong.
        if (request.best_seconds > 0 && seconds > 1.2 * request.best_seconds)
          return FakeMeasurer::Time(seconds / 4, true);
        return FakeMeasurer::Time(seconds);
      });
  const auto report = Tune(network, Options(network, 120), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(history_->Get(report->tasks[0].best_record)->timing()->stopped_early);
  EXPECT_FALSE(history_->Get(report->tasks[1].best_record)->timing()->stopped_early);
}

TEST_F(TunerTest, AWrongResultIsNeverTheBest) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  // Whatever has a 4 or more in parameter 3 looks fast and is wrong.
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        const bool wrong = schedule.configuration[3] >= 4;
        if (request.verify) return FakeMeasurer::Judge(!wrong);
        return FakeMeasurer::Time(network.Seconds(task, schedule) * (wrong ? 0.1 : 1));
      });
  const auto report = Tune(network, Options(network, 160), &measurer);
  ASSERT_TRUE(report.ok());
  for (int task = 0; task < 2; ++task) {
    const TaskReport& one = report->tasks[task];
    EXPECT_TRUE(one.verified);
    const TuningRecord best = history_->Get(one.best_record).value();
    EXPECT_LT(best.configuration[3], 4);
    EXPECT_EQ(best.verified, Verified::kOk);
    int refuted = 0;
    for (const TuningRecord& record : Records(network, task)) {
      if (record.verified != Verified::kFailed) continue;
      ++refuted;
      EXPECT_GE(record.configuration[3], 4);
      EXPECT_EQ(record.verify_text, "element 7 is 4.5 and should be 1");
      EXPECT_EQ(record.max_error, 3.5);
    }
    EXPECT_GE(refuted, 1);
    EXPECT_EQ(one.failed, refuted);
  }
  ASSERT_FALSE(report->errors.empty());
  EXPECT_EQ(report->errors[0].first, "wrong_result");
}

TEST_F(TunerTest, ABestThatCrashesWhileVerifiedIsRefuted) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (!request.verify) return FakeMeasurer::Time(network.Seconds(task, schedule));
        if (schedule.configuration[2] > 2) return FakeMeasurer::Error(ErrorKind::kRunCrash, "signal 11");
        return FakeMeasurer::Judge(true);
      });
  const auto report = Tune(network, Options(network, 80), &measurer);
  ASSERT_TRUE(report.ok());
  for (const TaskReport& task : report->tasks) EXPECT_LE(history_->Get(task.best_record)->configuration[2], 2);
  int refuted = 0;
  for (int task : {0, 1}) {
    for (const TuningRecord& record : Records(network, task)) {
      if (record.verified != Verified::kFailed) continue;
      ++refuted;
      EXPECT_EQ(record.verify_text, "run_crash while verifying: signal 11");
    }
  }
  EXPECT_GE(refuted, 1);
}

TEST_F(TunerTest, FailuresAreRecordedAndLearned) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        if (schedule.configuration[5] >= 32)
          return FakeMeasurer::Error(ErrorKind::kLaunchFailure, "too many registers");
        return FakeMeasurer::Time(network.Seconds(task, schedule));
      });
  const auto report = Tune(network, Options(network, 200), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->trials, 200);
  EXPECT_GT(report->failed, 0);
  EXPECT_LT(report->failed, 60);  // by chance it would be three in eight
  EXPECT_EQ(report->errors[0], std::make_pair(std::string("launch_failure"), report->failed));
}

TEST_F(TunerTest, ATaskThatAlwaysFailsLeavesItsTrialsToTheOthers) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        if (task == 0) return FakeMeasurer::Error(ErrorKind::kCompile, "no");
        return FakeMeasurer::Time(network.Seconds(task, schedule));
      });
  const auto report = Tune(network, Options(network, 240), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->trials, 240);
  EXPECT_LE(report->tasks[0].trials, 64);
  EXPECT_FALSE(report->tasks[0].best_us);
  EXPECT_FALSE(report->estimated_us);
  EXPECT_TRUE(report->tasks[1].best_us);
}

TEST_F(TunerTest, AllTasksFailingEndsTheRun) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script([&](int64_t, int, const MeasureRequest&, const Schedule&) -> std::optional<MeasureOutcome> {
    return FakeMeasurer::Error(ErrorKind::kCompile, "no compiler");
  });
  const auto report = Tune(network, Options(network, 100000), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_LE(report->trials, 2 * 64);
  EXPECT_EQ(report->stopped, "no task has anything left to try");
}

TEST_F(TunerTest, FaultsOfTheInfrastructureAreTriedAgainAndNeverCount) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script([&](int64_t number, int task, const MeasureRequest& request,
                          const Schedule& schedule) -> std::optional<MeasureOutcome> {
    if (number % 3 == 1) return FakeMeasurer::Error(ErrorKind::kInfrastructure, "connection lost");
    if (request.verify) return FakeMeasurer::Judge(true);
    return FakeMeasurer::Time(network.Seconds(task, schedule));
  });
  const auto report = Tune(network, Options(network, 120), &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials, 120);
  EXPECT_EQ(report->measured, 120);
  EXPECT_EQ(report->failed, 0);
  size_t records = 0;
  for (int task = 0; task < 2; ++task) {
    for (const TuningRecord& record : Records(network, task)) EXPECT_NE(record.timing(), nullptr);
    records += Records(network, task).size();
  }
  EXPECT_EQ(records, 120u);
  EXPECT_TRUE(report->tasks[0].verified && report->tasks[1].verified);
}

TEST_F(TunerTest, EndsWhenOnlyFaultsComeBack) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script([&](int64_t number, int task, const MeasureRequest& request,
                          const Schedule& schedule) -> std::optional<MeasureOutcome> {
    if (number >= 20) return FakeMeasurer::Error(ErrorKind::kInfrastructure, "no route to host");
    if (request.verify) return FakeMeasurer::Judge(true);
    return FakeMeasurer::Time(network.Seconds(task, schedule));
  });
  TunerOptions options = Options(network, 120);
  options.synchronous = false;
  const auto report = Tune(network, options, &measurer);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      report.status().message(),
      "the last 25 measurements were lost to faults of the workers (no route to host): see to the workers and run "
      "the same command again, what was measured is kept");
  EXPECT_GT(Records(network, 0).size() + Records(network, 1).size(), 10u);
}

TEST_F(TunerTest, EndsWhenTheMeasurerIsGone) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  struct Breaker : ProgressListener {
    FakeMeasurer* measurer;
    std::string stopped;
    void OnRecord(int, const TuningRecord& record, bool, const TuneReport& report) override {
      if (report.measured == 30) measurer->Break(absl::UnavailableError("no worker is left"));
    }
    void OnFinish(const TuneReport& report) override { stopped = report.stopped; }
  } breaker;
  breaker.measurer = &measurer;
  const auto report = Tune(network, Options(network, 120), &measurer, &breaker);
  EXPECT_EQ(report.status().message(), "no worker is left");
  EXPECT_EQ(breaker.stopped, "no worker is left");
  EXPECT_GE(Records(network, 0).size() + Records(network, 1).size(), 30u);
}

TEST_F(TunerTest, AMeasurerThatStaysSilentEndsTheRun) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script([](int64_t, int, const MeasureRequest&, const Schedule&) { return std::nullopt; });
  TunerOptions options = Options(network, 120);
  options.stall_s = 0.3;
  const auto report = Tune(network, options, &measurer);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(TunerTest, AnswersTwiceAndAnswersToNothingAreIgnored) {
  const FakeNetwork network = TwoTasks();
  class Echo : public FakeMeasurer {
   public:
    using FakeMeasurer::FakeMeasurer;
    absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) override {
      auto outcomes = FakeMeasurer::Next(timeout_s);
      const size_t count = outcomes->size();
      for (size_t i = 0; i < count; ++i) outcomes->push_back((*outcomes)[i]);
      outcomes->push_back(Time(1e-9));
      outcomes->back().id = 123456789;
      return outcomes;
    }
  };
  Echo measurer(&network);
  const auto report = Tune(network, Options(network, 60), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->measured, 60);
  EXPECT_EQ(Records(network, 0).size() + Records(network, 1).size(), 60u);
}

TEST_F(TunerTest, StopsByRequestAndKeepsWhatWasMeasured) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  std::atomic<bool> stop{false};
  struct Stopper : ProgressListener {
    std::atomic<bool>* stop;
    void OnRecord(int, const TuningRecord&, bool, const TuneReport& report) override {
      if (report.measured >= 50) *stop = true;
    }
  } stopper;
  stopper.stop = &stop;
  const auto report = Tune(network, Options(network, 100000), &measurer, &stopper, &stop);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stopped, "stopped by request");
  EXPECT_LT(report->measured, 150);
  EXPECT_EQ(static_cast<int64_t>(Records(network, 0).size() + Records(network, 1).size()), report->measured);
}

TEST_F(TunerTest, StopsInTimeAndVerifiesAfterwards) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  FakeClock clock;
  measurer.set_clock(&clock, 0.5);
  TunerOptions options = Options(network, 100000);
  options.seconds = 60;
  options.clock = [&] { return clock.Now(); };
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->stopped, "time limit reached");
  EXPECT_GT(report->measured, 80);
  EXPECT_LE(report->measured, 124);
  EXPECT_TRUE(report->tasks[0].verified && report->tasks[1].verified);
}

// Verifying takes ten times as long as measuring here: without a reserve the run would end half a minute late.
TEST_F(TunerTest, VerifiesTheBestsWithinTheTime) {
  const FakeNetwork network({{"a", 1, {Spec("direct/a", 2e-4, 11)}},
                             {"b", 1, {Spec("direct/b", 1e-4, 12)}},
                             {"c", 1, {Spec("direct/c", 1e-4, 13)}},
                             {"d", 1, {Spec("direct/d", 1e-4, 14)}}});
  for (bool synchronous : {true, false}) {
    OpenHistory(absl::StrCat(synchronous, ".db"));
    FakeMeasurer measurer(&network);
    FakeClock clock;
    measurer.set_clock(&clock, 0.5);
    measurer.set_script([&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) {
      if (request.verify) clock.Advance(4.5);
      return request.verify ? FakeMeasurer::Judge(true) : FakeMeasurer::Time(network.Seconds(task, schedule));
    });
    TunerOptions options = Options(network, 100000);
    options.synchronous = synchronous;
    options.seconds = 200;
    options.clock = [&] { return clock.Now(); };
    const double start = clock.Now();
    const auto report = Tune(network, options, &measurer);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->stopped, "time limit reached");
    // The trials that run at the end may bring new bests, with 5 s of verification each.
    EXPECT_LE(clock.Now() - start, 215);
    EXPECT_GE(clock.Now() - start, 160);
    for (const TaskReport& task : report->tasks) EXPECT_TRUE(task.verified) << task.name;
  }
}

TEST_F(TunerTest, StopsEarlyWhenLittleGainIsExpected) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 100000);
  options.early_stop = 0.005;
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->stopped, "little more gain is expected");
  EXPECT_LT(report->measured, 1500);
  EXPECT_LT(*report->estimated_us, 1.15e6 * network.Optimum());
}

TEST_F(TunerTest, LosesPatienceAndVerifiesAllTheSame) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 100000);
  options.patience = 60;
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->stopped, "no gain in 60 trials");
  EXPECT_GE(report->measured, 60);
  EXPECT_LT(report->measured, 3000);
  for (int task = 0; task < 2; ++task) {
    const auto best = history_->Best(network.tasks()[task].workload_key, "fake device").value();
    EXPECT_EQ(best->verified, Verified::kOk);
    // Nothing faster came in the last trials of both tasks together.
    EXPECT_EQ(report->tasks[task].best_record, best->id);
  }
}

TEST_F(TunerTest, TunesOnlyTheTasksAskedFor) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 40);
  options.only = {1};
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(Records(network, 0).empty());
  EXPECT_EQ(Records(network, 1).size(), 40u);
  EXPECT_EQ(report->tasks.size(), 2u);
  EXPECT_FALSE(report->tasks[0].selected);
  EXPECT_FALSE(report->estimated_us);
}

TEST_F(TunerTest, ASmallSpaceIsExhaustedAndTheRunEnds) {
  const FakeNetwork network(
      {{"tiny", 1, {Spec("direct/tiny", 1e-4, 3, 2, 3)}}, {"fixed", 1, {Spec("direct/one", 1e-4, 4, 0)}}});
  FakeMeasurer measurer(&network);
  const auto report = Tune(network, Options(network, 1000), &measurer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->trials, 9 + 1);
  EXPECT_EQ(report->stopped, "no task has anything left to try");
  EXPECT_NEAR(*report->tasks[0].best_us, 100, 0.01);
}

TEST_F(TunerTest, KeepsAboutARoundAheadOfTheMeasurer) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network, 8);
  TunerOptions options = Options(network, 400);
  options.synchronous = false;
  ASSERT_TRUE(Tune(network, options, &measurer).ok());
  EXPECT_GE(measurer.most_in_flight(), 16u);
  EXPECT_LE(measurer.most_in_flight(), 50u);
}

TEST_F(TunerTest, KeepsTheModelBesideTheHistory) {
  const FakeNetwork network = TwoTasks();
  TunerOptions options = Options(network, 60);
  options.model_path = folder_ / "h.db.model";
  FakeMeasurer first(&network);
  ASSERT_TRUE(Tune(network, options, &first).ok());
  EXPECT_TRUE(std::filesystem::exists(options.model_path));
  // Another history, as of another network: the model is there from the first round.
  OpenHistory("other.db");
  FakeMeasurer second(&network);
  const auto report = Tune(network, options, &second);
  ASSERT_TRUE(report.ok());
  EXPECT_LT(*report->estimated_us, 1.25e6 * network.Optimum());
}

TEST_F(TunerTest, ARefusedModelIsReportedAndLeftAlone) {
  const FakeNetwork network = TwoTasks();
  TunerOptions options = Options(network, 20);
  options.model_path = folder_ / "h.db.model";
  std::ofstream(options.model_path) << "something else";
  struct Listener : ProgressListener {
    std::string warning;
    void OnWarning(const std::string& text) override { warning = text; }
  } listener;
  FakeMeasurer measurer(&network);
  ASSERT_TRUE(Tune(network, options, &measurer, &listener).ok());
  EXPECT_EQ(listener.warning,
            "the cost model " + options.model_path +
                " is damaged: name another file or remove it, a new model is trained from the history");
  std::ifstream in(options.model_path);
  std::string contents;
  std::getline(in, contents);
  EXPECT_EQ(contents, "something else");
}

TEST_F(TunerTest, RecordsOfSpacesThatAreGoneStillCount) {
  const FakeNetwork old({{"task", 1, {Spec("direct/old", 1e-6, 21)}}});
  const FakeNetwork now({{"task", 1, {Spec("direct/new", 1e-4, 22)}}});
  FakeMeasurer first(&old), second(&now);
  ASSERT_TRUE(Tune(old, Options(old, 30), &first).ok());
  const auto report = Tune(now, Options(now, 60), &second);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->measured, 30);
  EXPECT_EQ(report->tasks[0].sketch, "direct/old");
}

TEST_F(TunerTest, RefusesOptionsThatMakeNoSense) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  const auto message = [&](const std::function<void(TunerOptions*)>& change) {
    TunerOptions options = Options(network, 10);
    change(&options);
    return std::string(Tuner::Create(network.tasks(), options, &measurer, history_.get()).status().message());
  };
  EXPECT_EQ(message([](TunerOptions* o) { o->trials = 0; }), "the number of trials is 0: give at least 1");
  EXPECT_EQ(message([](TunerOptions* o) { o->trials = -3; }), "the number of trials is -3: give at least 1");
  EXPECT_EQ(message([](TunerOptions* o) { o->trials_per_round = 0; }),
            "the number of trials per round is 0: give at least 1");
  EXPECT_EQ(message([](TunerOptions* o) { o->seconds = -1; }), "the time limit is -1 seconds: give 0 for none");
  EXPECT_EQ(message([](TunerOptions* o) { o->only = {2}; }), "there is no task 2: choose from 0 to 1");
  EXPECT_EQ(message([](TunerOptions* o) { o->objective = "fast"; }),
            "the objective 'fast' is not known: write sum, or targets:NETWORK=TIME,... as in targets:resnet-18=5ms");
  EXPECT_EQ(message([](TunerOptions* o) {
              o->make_space = [](const ComputeDag&, const Target&, const DeviceFacts&) {
                return absl::FailedPreconditionError("no sketch for stage x");
              };
            }),
            "task 0 (first): no sketch for stage x");
}

// Short measurements of many candidates: the best of them is one that was lucky.
TEST_F(TunerTest, BestsAreMeasuredAgainAtTheEndAndTheLuckyOnesLoseTheirPlace) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  int64_t confirmations = 0;
  std::map<int, double> best;  // by task
  std::set<int> lucky;
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        const double seconds = network.Seconds(task, schedule);
        MeasureOutcome outcome = FakeMeasurer::Time(seconds);
        if (request.options.repeat == 5) {
          EXPECT_FALSE(request.options.race);
          EXPECT_EQ(request.best_seconds, 0);
          ++confirmations;
          std::get<Timing>(outcome.outcome).samples.assign(5, seconds);
          return outcome;
        }
        // One candidate of each task that cannot be the best of it.
        const auto [it, first] = best.emplace(task, seconds);
        const bool is_lucky = !first && seconds > 1.2 * it->second && lucky.insert(task).second;
        it->second = std::min(it->second, seconds);
        std::get<Timing>(outcome.outcome).samples = {seconds / (is_lucky ? 100 : 1)};
        return outcome;
      });
  TunerOptions options = Options(network, 160);
  options.synchronous = false;
  options.confirming_samples = 5;
  options.measure.repeat = 1;
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(lucky.size(), 2u);
  EXPECT_GE(confirmations, 4);  // two that were lucky, and what is best then
  EXPECT_LE(confirmations, 6);  // three times a task at most
  EXPECT_EQ(report->stages.confirmations, confirmations);
  EXPECT_EQ(report->measured, 160);  // they are no trials
  double honest = 0;
  for (int task = 0; task < 2; ++task) {
    const TaskReport& one = report->tasks[task];
    const auto best = history_->BestForBuild(network.tasks()[task].workload_key, "fake device").value();
    ASSERT_TRUE(best);
    EXPECT_EQ(one.best_record, best->id);
    EXPECT_TRUE(one.verified);
    const double real = network.Seconds(task, ParseSchedule(best->schedule).value());
    EXPECT_EQ(best->timing()->samples.size(), 6u);
    EXPECT_NEAR(*one.best_us, real * 1e6, real * 1e3);
    honest += one.weight * real * 1e6;
  }
  EXPECT_NEAR(*report->estimated_us, honest, 1e-3 * honest);
}

TEST_F(TunerTest, ContendersAreMeasuredInTurns) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  // All within a few percent.
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        return FakeMeasurer::Time(1e-2 + 0.1 * network.Seconds(task, schedule));
      });
  FakeClock clock;
  measurer.set_clock(&clock, 1);
  TunerOptions options = Options(network, 160);
  options.synchronous = false;
  options.confirming_samples = 5;
  options.contenders = 3;
  options.measure.repeat = 2;
  options.measure.min_repeat_ms = 0;
  options.clock = [&clock] { return clock.Now(); };
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->measured, 160);                  // they are no trials
  std::map<int, std::vector<std::string>> in_turns;  // by task
  for (const MeasureRequest& request : measurer.requests())
    if (request.options.repeat == 3) in_turns[network.TaskOf(*request.workload)].push_back(request.schedule);
  ASSERT_EQ(in_turns.size(), 2u);
  for (const auto& [task, schedules] : in_turns) {
    const size_t count = std::set<std::string>(schedules.begin(), schedules.end()).size();
    EXPECT_EQ(count, 3u);
    ASSERT_EQ(schedules.size(), 4 * count);
    for (size_t i = 0; i < schedules.size(); ++i) {
      const size_t place = i % count;
      EXPECT_EQ(schedules[i], schedules[i / count % 2 == 0 ? place : count - 1 - place]);
    }
    const auto best = history_->BestForBuild(network.tasks()[task].workload_key, "fake device").value();
    EXPECT_EQ(report->tasks[task].best_record, best->id);
    EXPECT_EQ(best->timing()->samples.size(), 15u);  // three of the trial
  }
}

// Samples of a thousand runs are long enough to be compared in turns, and those of a best alone are as others.
TEST_F(TunerTest, SamplesInTurnsAreNoLongerThanTheyNeedToBe) {
  const FakeNetwork network = TwoTasks();
  for (const auto& [target, fastest, contenders, expected] :
       std::vector<std::tuple<const char*, double, int, double>>{{"cuda", 2e-6, 3, 2},
                                                                 {"cuda", 1e-3, 3, 20},
                                                                 {"cuda", 2e-6, 1, 20},
                                                                 {"cuda -caches=flushed", 2e-6, 3, 20},
                                                                 {"cpu", 2e-6, 3, 20}}) {
    FakeMeasurer measurer(&network);
    measurer.set_script([seconds = fastest](int64_t, int, const MeasureRequest& request,
                                            const Schedule&) -> std::optional<MeasureOutcome> {
      if (request.verify) return FakeMeasurer::Judge(true);
      return FakeMeasurer::Time(seconds);
    });
    OpenHistory(absl::StrCat(target, fastest, "-", contenders, ".db"));
    FakeClock clock;
    measurer.set_clock(&clock, 1);
    TunerOptions options = Options(network, 160);
    options.target = Target::Parse(target).value();
    options.synchronous = false;
    options.confirming_samples = 5;
    options.contenders = contenders;
    options.measure.repeat = 2;
    options.measure.min_repeat_ms = 20;
    options.clock = [&clock] { return clock.Now(); };
    const auto report = Tune(network, options, &measurer);
    ASSERT_TRUE(report.ok()) << report.status();
    int confirming = 0;
    for (const MeasureRequest& request : measurer.requests()) {
      if (request.verify) continue;
      const bool confirms = request.options.repeat != 2;
      EXPECT_NEAR(request.options.min_repeat_ms, confirms ? expected : 20, 1e-9);
      confirming += confirms ? 1 : 0;
    }
    EXPECT_EQ(confirming, contenders == 1 ? 2 : 24);
  }
}

TEST_F(TunerTest, ABestThatWasMeasuredAgainIsNotMeasuredAThirdTime) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 40);
  options.synchronous = false;
  options.confirming_samples = 5;
  const auto first = Tune(network, options, &measurer);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->stages.confirmations, 2);
  const auto second = Tune(network, options, &measurer);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->stages.confirmations, 0);
  EXPECT_EQ(*second->estimated_us, *first->estimated_us);
}

TEST_F(TunerTest, AMeasurementAgainThatFailsLeavesTheTimeAsItWas) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  measurer.set_script(
      [&](int64_t, int task, const MeasureRequest& request, const Schedule& schedule) -> std::optional<MeasureOutcome> {
        if (request.verify) return FakeMeasurer::Judge(true);
        if (request.options.repeat == 5) return FakeMeasurer::Error(ErrorKind::kRunTimeout, "slow");
        return FakeMeasurer::Time(network.Seconds(task, schedule));
      });
  TunerOptions options = Options(network, 40);
  options.synchronous = false;
  options.confirming_samples = 5;
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stages.confirmations, 2);
  EXPECT_EQ(report->failed, 0);
  for (int task = 0; task < 2; ++task) {
    const auto best = history_->Best(network.tasks()[task].workload_key, "fake device").value();
    EXPECT_EQ(best->timing()->samples.size(), 3u);
    EXPECT_EQ(report->tasks[task].best_record, best->id);
  }
}

TEST_F(TunerTest, EstimatesAreCorrectedByWhatTheNetworkTook) {
  const FakeNetwork network = TwoTasks();
  FakeMeasurer measurer(&network);
  TunerOptions options = Options(network, 40);
  options.latency_network = "net@1";
  ASSERT_TRUE(history_->SetLatency({"net@1", "cpu", "fake device", 1.2e-3, 1e-3}).ok());
  ASSERT_TRUE(history_->SetLatency({"net@2", "cpu", "fake device", 5e-3, 1e-3}).ok());
  const auto report = Tune(network, options, &measurer);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NEAR(*report->tasks_us, *report->tasks[0].best_us + 3 * *report->tasks[1].best_us, 1e-6);
  EXPECT_NEAR(*report->estimated_us, 1.2 * *report->tasks_us, 1e-6);
}

TEST(Correction, IsTheRatioWithinReason) {
  EXPECT_DOUBLE_EQ(Correction(154, 147), 154.0 / 147);
  EXPECT_EQ(Correction(10, 1), 2);
  EXPECT_EQ(Correction(1, 10), 0.5);
  EXPECT_EQ(Correction(0, 10), 1);
  EXPECT_EQ(Correction(10, 0), 1);
}

}  // namespace
}  // namespace diapason
