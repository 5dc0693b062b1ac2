// A tuner that is killed (SIGKILL) again and again goes on with the very candidates that were under way.
#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "db/history.h"
#include "db/rounds.h"
#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

using Trial = std::tuple<std::string, std::string, std::vector<int32_t>>;  // workload, sketch, configuration

class ResumeCli : public CliTest {
 protected:
  std::vector<std::string> Tune() const {
    return OnSmallProduct("tune", {"--history", Path("h.db"), "--trials", "96", "--trials-per-round", "16",
                                   "--min-repeat-ms", "1", "--builders", "1"});
  }
  // Of the history; each trial is there once.
  std::set<Trial> Recorded() {
    std::set<Trial> recorded;
    const auto history = History::Open(Path("h.db"), HistoryMode::kReadOnly);
    if (!history.ok()) return recorded;  // not made yet
    const HistoryInfo info = (*history)->Info().value();
    for (const auto& workload : info.workloads) {
      const auto records = (*history)->ForWorkload(workload.workload_key, workload.device_model);
      for (const TuningRecord& record : *records)
        EXPECT_TRUE(recorded.insert({record.workload_key, record.sketch, record.configuration}).second)
            << "measured twice";
    }
    return recorded;
  }
  std::set<Trial> Proposed() {
    std::set<Trial> proposed;
    const auto history = History::Open(Path("h.db"), HistoryMode::kReadOnly);
    if (!history.ok() || (*history)->Runs()->empty()) return proposed;
    const auto rounds = RoundStore::Open(Path("h.db.rounds"));
    if (!rounds.ok()) return proposed;
    const auto trials = (*rounds)->Load((*history)->Runs()->back().command_line);
    for (const ProposedTrial& trial : *trials) proposed.insert({trial.workload_key, trial.sketch, trial.configuration});
    return proposed;
  }
  bool UnderWay() {
    const std::set<Trial> recorded = Recorded(), proposed = Proposed();
    return std::any_of(proposed.begin(), proposed.end(), [&](const Trial& trial) { return !recorded.contains(trial); });
  }
};

TEST_F(ResumeCli, WhatWasProposedIsMeasuredOnceWheneverTheTunerIsKilled) {
  std::mt19937 random(20261121);
  std::set<Trial> proposed;
  size_t under_way = 0;
  for (int life = 0; life < 7; ++life) {
    Process tune(Tune(), Path("tune" + std::to_string(life)));
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + random() % 1500));
    // Some are killed at any moment, also early; the others while something is measured, however slow the machine is.
    for (int i = 0; life % 2 == 1 && i < 200 && !UnderWay(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    tune.Kill();
    for (const Trial& trial : Proposed()) proposed.insert(trial);
    const std::set<Trial> recorded = Recorded();
    for (const Trial& trial : proposed) under_way += recorded.contains(trial) ? 0 : 1;
  }
  Process last(Tune(), Path("last"));
  ASSERT_EQ(last.Wait(300), 0) << last.err();  // compiles on a busy machine
  const std::set<Trial> recorded = Recorded();
  EXPECT_EQ(recorded.size(), 96u);
  for (const Trial& trial : proposed) EXPECT_TRUE(recorded.contains(trial)) << "lost: proposed and never measured";
  EXPECT_GT(under_way, 0u) << "no kill came while something was measured: the test shows nothing";
  EXPECT_EQ(Cli({"history", "check", Path("h.db"), "--json"}).json()["ok"], true);
  EXPECT_TRUE(Proposed().empty());
}

}  // namespace
}  // namespace diapason
