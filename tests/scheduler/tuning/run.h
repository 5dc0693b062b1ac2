// The parts of a tuning run over made-up tasks, with a history of their own, and without the run itself.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/tuning/replays.h"
#include "scheduler/tuning/reporter.h"
#include "scheduler/tuning/requests.h"
#include "scheduler/tuning/results.h"
#include "scheduler/tuning/resumption.h"
#include "scheduler/tuning/round_notes.h"
#include "scheduler/tuning/run_clock.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"
#include "scheduler/tuning/verifications.h"
#include "scheduler/tuning/warm_starts.h"
#include "tests/scheduler/fakes.h"

namespace diapason::tuning {

class RunTest : public testing::Test {
 protected:
  RunTest() { BeginRun(); }
  ~RunTest() override {
    history_.reset();
    std::filesystem::remove_all(folder_);
  }

  static FakeSpace::Options Sketch(const std::string& name, double scale, uint64_t seed) {
    FakeSpace::Options options;
    options.name = name;
    options.scale = scale;
    options.seed = seed;
    return options;
  }
  TunerOptions Options() {
    TunerOptions options;
    options.facts.model = "fake device";
    options.make_space = network_.factory();
    options.trials = 100;
    options.clock = [this] { return clock_now_.Now(); };
    return options;
  }
  static std::string MakeFolder() {
    std::string pattern = testing::TempDir() + "run-XXXXXX";
    return mkdtemp(pattern.data());
  }
  void BeginRun() { results_.BeginRun(history_->StartRun({}).value()); }

  // A candidate of the task that is not its default; equal for equal numbers.
  Proposal Propose(int task, int32_t number) {
    const TaskState& state = tasks_.at(task);
    std::vector<int32_t> configuration = state.space().space(0).Default();
    configuration[2] = 1 << (number % 8);
    configuration[3] = 1 << (number / 8);
    return MakeProposal(state, *state.Find(state.space().space(0).name(), configuration));
  }
  // Measures it: the result is in the history and concluded. Its index in the results of the task.
  int Measure(int task, int32_t number, double seconds) {
    Pending pending;
    pending.task = task;
    pending.proposal = Propose(task, number);
    results_.Add(std::move(pending), FakeMeasurer::Time(seconds));
    EXPECT_TRUE(results_.Store().ok());
    results_.Conclude();
    return static_cast<int>(tasks_.at(task).results().size()) - 1;
  }

  struct Recorded {
    int task;
    bool best;
  };

  const std::string folder_ = MakeFolder();
  const FakeNetwork network_{
      {{"first", 1, {Sketch("direct/a", 2e-4, 11)}}, {"second", 3, {Sketch("direct/a", 3e-4, 13)}}}};
  FakeMeasurer measurer_{&network_};
  FakeClock clock_now_;
  TunerOptions options_ = Options();
  Tasks tasks_ = MakeTasks(network_.tasks(), options_).value();
  std::unique_ptr<History> history_ = History::Open(folder_ + "/h.db", HistoryMode::kCreate).value();
  StageReport stages_;
  std::vector<Recorded> recorded_;
  const RunContext context_{options_, tasks_, *history_, nullptr, stages_};
  RunClock clock_{options_};
  Replays replays_{tasks_.all.size()};
  Requests requests_{measurer_, tasks_.all.size()};
  Results results_{context_, [this](int task, const TuningRecord&, bool best) { recorded_.push_back({task, best}); }};
  Verifications verifications_{context_, requests_, results_, replays_};
  WarmStarts warm_starts_{context_};
  const RoundNotes notes_{context_};
  Resumption resumption_{context_, notes_, results_, replays_, warm_starts_};
  Reporter reporter_{context_, clock_, requests_, results_, replays_};
};

}  // namespace diapason::tuning
