// A run that was killed, and its files, as they were at that moment, taken up by another one: it proposes what the run
// would have proposed had it not been killed.
//
// Proposals depend on what a search knows when it begins, and that on when results come. Here results come one by one,
// at moments that the number of results tells: every seventh lets the search end that is under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "db/rounds.h"
#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

constexpr char kRun[] = "a run";
constexpr int kResultsPerSearch = 7;
constexpr int64_t kTrials = 140;

// Where searches wait until they are let through, one at a time.
class Gate {
 public:
  void Pass() {
    if (std::this_thread::get_id() == tuner_) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  void Set(bool open) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

 private:
  const std::thread::id tuner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class GatedSpace : public FakeSpace {
 public:
  GatedSpace(const Options& options, Gate* gate) : FakeSpace(options), gate_(gate) {}
  void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override {
    gate_->Pass();
    FakeSpace::Evaluate(configuration, metrics);
  }

 private:
  Gate* const gate_;
};

// Answers one request at a time, when nothing else happens in the tuner, and lets searches end in between.
class PacedMeasurer : public FakeMeasurer, public ProgressListener {
 public:
  PacedMeasurer(const FakeNetwork* network, RoundStore* rounds, Gate* gate, int64_t results)
      : FakeMeasurer(network, /*slots=*/1), network_(network), rounds_(rounds), gate_(gate), results_(results) {}

  absl::Status Submit(std::vector<MeasureRequest> requests) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (MeasureRequest& request : requests) queue_.push_back(std::move(request));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double) override {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::lock_guard<std::mutex> lock(mutex_);
    // An answer to nothing, so that the tuner goes round.
    const std::vector<MeasureOutcome> nudge(1);
    if (busy_ || (turns_ < quiet_at_ && results_ < kTrials)) return nudge;  // the end has no turns
    const bool searching = rounds_->LoadBegun(kRun)->has_value();
    if (searching && (queue_.empty() || results_ % kResultsPerSearch == 3)) {
      busy_ = true;  // until OnRound
      gate_->Set(true);
      return nudge;
    }
    if (queue_.empty()) return nudge;
    busy_ = true;  // until OnRecord or OnVerified
    const MeasureRequest request = std::move(queue_.front());
    queue_.pop_front();
    if (!request.verify) ++results_;
    MeasureOutcome outcome =
        request.verify ? Judge(true)
                       : Time(network_->Seconds(network_->TaskOf(*request.workload), *ParseSchedule(request.schedule)));
    outcome.id = request.id;
    return std::vector<MeasureOutcome>{outcome};
  }
  void Cancel() override {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.clear();
    gate_->Set(true);
  }
  // Asked at the beginning of each of the tuner's turns.
  int slots() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++turns_;
    return 1;
  }

  void OnRound(int, int, const TuneReport&) override {
    gate_->Set(false);
    Through();
    if (at_moment) at_moment();
  }
  void OnRecord(int, const TuningRecord&, bool, const TuneReport&) override {
    Through();
    if (at_moment) at_moment();
  }
  void OnVerified(int, int64_t, bool, const std::string&) override { Through(); }

  std::function<void()> at_moment;  // when something was written

 private:
  // What was begun is through when the tuner has come to the end of the turn after this one.
  void Through() {
    std::lock_guard<std::mutex> lock(mutex_);
    busy_ = false;
    quiet_at_ = turns_ + 2;
  }

  const FakeNetwork* const network_;
  RoundStore* const rounds_;
  Gate* const gate_;
  mutable std::mutex mutex_;  // guards all below
  std::deque<MeasureRequest> queue_;
  int64_t results_;
  mutable int64_t turns_ = 0;
  int64_t quiet_at_ = 2;
  bool busy_ = false;
};

class BrokenRunTest : public testing::Test {
 protected:
  using Trials = std::vector<std::pair<std::string, std::vector<int32_t>>>;  // workload and sketch, configuration

  void SetUp() override {
    std::string pattern = testing::TempDir() + "broken-run-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::vector<FakeNetwork::Task> Tasks() {
    FakeSpace::Options a, b, small;
    a.name = "direct/a", a.scale = 2e-4, a.seed = 11;
    b.name = "gemm/b", b.scale = 1e-4, b.seed = 12;
    small.name = "direct/small", small.parameters = 3, small.choices = 4, small.scale = 3e-4,
    small.seed = 13;  // is listed
    return {{"first", 1, {a, b}}, {"second", 3, {b, small}}};
  }
  // Runs to the end with the files of that folder; `at_moment`: as PacedMeasurer's.
  void Tune(const std::string& folder, bool learn, std::function<void()> at_moment = nullptr) {
    const FakeNetwork network(Tasks());
    const auto history = History::Open(folder + "/h.db", HistoryMode::kCreate).value();
    const auto rounds = RoundStore::Open(folder + "/h.db.rounds").value();
    Gate gate;
    PacedMeasurer measurer(&network, rounds.get(), &gate, history->Info()->records);
    measurer.at_moment = std::move(at_moment);
    TunerOptions options;
    options.facts.model = "fake device";
    options.make_space = [&](const ComputeDag& dag, const Target&, const DeviceFacts&) {
      std::vector<std::unique_ptr<Space>> spaces;
      for (const FakeNetwork::Task& task : Tasks())
        if (network.tasks()[task.name == "first" ? 0 : 1].workload_key == dag.workload_key())
          for (const FakeSpace::Options& one : task.spaces) spaces.push_back(std::make_unique<GatedSpace>(one, &gate));
      return absl::StatusOr<std::unique_ptr<TaskSpace>>(std::make_unique<TaskSpace>(dag, std::move(spaces)));
    };
    options.trials = kTrials;
    options.trials_per_round = 16;
    options.evolution.population = 256;
    options.seed = 5;
    options.learn = learn;
    options.rounds = rounds.get();
    options.rounds_run = kRun;
    auto tuner = Tuner::Create(network.tasks(), options, &measurer, history.get(), &measurer);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    const auto report = (*tuner)->Run();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->trials, kTrials);
  }
  // What a kill leaves: the tuner writes nothing meanwhile.
  std::string Copy(const std::string& from, const std::string& name) {
    const std::string to = folder_ + "/" + name;
    std::filesystem::create_directories(to);
    for (const char* file : {"h.db", "h.db-wal", "h.db.rounds", "h.db.rounds-wal"})
      if (std::filesystem::exists(from + "/" + file)) std::filesystem::copy_file(from + "/" + file, to + "/" + file);
    return to;
  }
  // In the order in which they were measured.
  static Trials Measured(const std::string& folder) {
    const auto history = History::Open(folder + "/h.db", HistoryMode::kReadOnly).value();
    std::vector<TuningRecord> all;
    const FakeNetwork network(Tasks());
    for (const TuningTask& task : network.tasks()) {
      const std::vector<TuningRecord> records = history->ForWorkload(task.workload_key, "fake device").value();
      all.insert(all.end(), records.begin(), records.end());
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    Trials trials;
    for (const TuningRecord& record : all)
      trials.emplace_back(record.workload_key + " " + record.sketch, record.configuration);
    return trials;
  }

  std::string folder_;
};

TEST_F(BrokenRunTest, ProposesWhatAnUnbrokenOneDoes) {
  const std::string whole = folder_ + "/whole";
  std::filesystem::create_directories(whole);
  std::vector<std::string> left;
  int moment = 0;
  Tune(whole, /*learn=*/false, [&] {
    if (++moment % 5 == 1) left.push_back(Copy(whole, "killed" + std::to_string(moment)));
  });
  const Trials expected = Measured(whole);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kTrials));
  ASSERT_GE(left.size(), 28u);
  int searching = 0;
  for (const std::string& folder : left) {
    SCOPED_TRACE(folder);
    searching += RoundStore::Open(folder + "/h.db.rounds").value()->LoadBegun(kRun)->has_value() ? 1 : 0;
    Tune(folder, /*learn=*/false);
    EXPECT_EQ(Measured(folder), expected);
  }
  EXPECT_GE(searching, 3);
}

TEST_F(BrokenRunTest, MayBeBrokenAgainAndAgain) {
  const std::string whole = folder_ + "/whole";
  std::filesystem::create_directories(whole);
  Tune(whole, /*learn=*/false);
  std::string folder = folder_ + "/broken";
  std::filesystem::create_directories(folder);
  for (int turn = 0; turn < 6; ++turn) {
    std::string next;
    int moment = 0;
    Tune(folder, /*learn=*/false, [&] {
      if (++moment == 23) next = Copy(folder, "broken" + std::to_string(turn));
    });
    EXPECT_EQ(Measured(folder), Measured(whole));
    if (next.empty()) break;
    folder = next;
  }
}

// The model is trained beside the search, so that a run and its repetition need not be alike; but the search that was
// under way has the model that it began with.
TEST_F(BrokenRunTest, TheSearchUnderWayKeepsItsModel) {
  const std::string whole = folder_ + "/whole";
  std::filesystem::create_directories(whole);
  std::vector<std::string> left;
  int moment = 0, with_model = 0;
  Tune(whole, /*learn=*/true, [&] {
    if (++moment % 9 == 0) left.push_back(Copy(whole, "killed" + std::to_string(moment)));
  });
  const Trials expected = Measured(whole);
  for (const std::string& folder : left) {
    SCOPED_TRACE(folder);
    const auto rounds = RoundStore::Open(folder + "/h.db.rounds").value();
    const std::optional<BegunSearch> begun = rounds->LoadBegun(kRun).value();
    if (!begun.has_value()) continue;
    with_model += begun->trained > 0 ? 1 : 0;
    // What was proposed before is measured first, then what the search finds.
    const Trials measured = Measured(folder);
    size_t through = measured.size() + static_cast<size_t>(begun->asked);
    const std::vector<ProposedTrial> noted = rounds->Load(kRun).value();
    for (const ProposedTrial& trial : noted) {
      const std::pair one(trial.workload_key + " " + trial.sketch, trial.configuration);
      through += std::count(measured.begin(), measured.end(), one) == 0 ? 1 : 0;
    }
    Tune(folder, /*learn=*/true);
    const Trials got = Measured(folder);
    ASSERT_LE(through, got.size());
    EXPECT_EQ(Trials(got.begin(), got.begin() + through), Trials(expected.begin(), expected.begin() + through));
  }
  EXPECT_GE(with_model, 2);
}

}  // namespace
}  // namespace diapason
