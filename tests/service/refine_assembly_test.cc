// Records chosen by the latency of the network, with a made-up one: it takes for each task what the record in place
// takes there, which is not what the record takes alone.
#include "service/refine_assembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/step.h"

namespace diapason {
namespace {

TuningRecord Record(int64_t id, const std::string& key, double seconds) {
  TuningRecord record;
  record.id = id;
  record.uuid = absl::StrCat("uuid ", id);
  record.workload_key = key;
  record.schedule = absl::StrCat("schedule ", id);
  record.sketch = absl::StrCat("sketch ", id);
  record.outcome = Timing{{seconds}, 1};
  record.verified = Verified::kOk;
  return record;
}

class FakeVersions : public NetworkVersions {
 public:
  std::map<int64_t, double> seconds;  // by record: in the network
  std::set<int64_t> unusable, too_large;
  std::map<std::pair<int64_t, int64_t>, double> together;  // by two records: what they take more beside each other
  double noise = 0;                                        // of a measurement, relative
  int announced = 0, prepared = 0, refused = 0, timed = 0;

  absl::Status Announce(const Assembly&, const std::vector<TaskRecord>& replacements) override {
    announced += static_cast<int>(replacements.size());
    return absl::OkStatus();
  }
  absl::Status Prepare(const Assembly& assembly) override {
    double sum = 0;
    for (size_t i = 0; i < assembly.records.size(); ++i) {
      const int64_t id = assembly.records[i]->id;
      refused += unusable.contains(id) || too_large.contains(id);
      if (unusable.contains(id)) return absl::FailedPreconditionError("cannot be built");
      if (too_large.contains(id)) return absl::ResourceExhaustedError("no memory");
      sum += assembly.partition.tasks[i].weight * seconds.at(assembly.records[i]->id);
    }
    for (const auto& [pair, more] : together)
      if (Has(assembly, pair.first) && Has(assembly, pair.second)) sum += more;
    ++prepared;
    other_ = sum;
    if (kept_ == 0) Keep();
    return absl::OkStatus();
  }
  absl::StatusOr<Times> Time() override {
    ++timed;
    return Times{Noisy(kept_), Noisy(other_)};
  }
  void Keep() override { kept_ = other_; }

 private:
  double Noisy(double seconds) { return seconds * (1 + noise * std::normal_distribution<double>()(random_)); }

  static bool Has(const Assembly& assembly, int64_t id) {
    return std::any_of(assembly.records.begin(), assembly.records.end(),
                       [&](const auto& record) { return record->id == id; });
  }

  std::mt19937 random_{1};
  double kept_ = 0, other_ = 0;
};

// Three tasks, the second of which occurs four times. By task t: records 10 t + 1, the fastest alone, then its
// contenders 10 t + 2 and 10 t + 3.
class RefineAssemblyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int t = 1; t <= 3; ++t) {
      const std::string key = absl::StrCat("task ", t);
      Task task;
      task.workload_key = key;
      task.weight = t == 2 ? 4 : 1;
      assembly_.partition.tasks.push_back(task);
      assembly_.records.push_back(Record(10 * t + 1, key, 10e-6));
      for (int i = 2; i <= 3; ++i) contenders_[key].push_back(Record(10 * t + i, key, 10e-6 + i * 1e-7));
      for (int i = 1; i <= 3; ++i) versions_.seconds[10 * t + i] = 10e-6;
    }
  }
  Refinement Refine(const RefineOptions& options = {}) {
    const absl::StatusOr<Refinement> refinement = RefineAssembly(assembly_, replacements_, versions_, options);
    EXPECT_TRUE(refinement.ok()) << refinement.status();
    return refinement.ok() ? *refinement : Refinement();
  }
  std::vector<int64_t> Ids() const {
    std::vector<int64_t> ids;
    for (const auto& record : assembly_.records) ids.push_back(record->id);
    return ids;
  }

  Network network_;
  FusionChoices fusion_;
  RecordsByWorkload records_;
  ContendersByWorkload contenders_;
  const Replacements replacements_{network_, fusion_, records_, contenders_};
  Assembly assembly_;
  FakeVersions versions_;
};

TEST_F(RefineAssemblyTest, TheRecordThatIsFastestInTheNetworkTakesItsPlace) {
  versions_.seconds[22] = 9e-6;
  versions_.seconds[23] = 8e-6;
  versions_.seconds[33] = 9e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 23, 33}));
  EXPECT_GE(refinement.compared, 6);  // and again once others have changed
  EXPECT_EQ(refinement.replaced, (std::vector<std::string>{"task 2", "task 3"}));
  EXPECT_EQ(refinement.regrouped, 0);
  EXPECT_NEAR(refinement.ratio, (10 + 4 * 8 + 9) / 60.0, 1e-9);
  EXPECT_NEAR(refinement.seconds, (10 + 4 * 8 + 9) * 1e-6, 1e-12);
  EXPECT_FALSE(refinement.ended_early);
}

// A record that was slower at first, and one that was replaced, when others have changed since.
TEST_F(RefineAssemblyTest, RecordsAreTriedAgainOnceOthersHaveChanged) {
  versions_.seconds[22] = 9e-6;
  versions_.together[{22, 12}] = 0.5e-6;
  versions_.together[{33, 12}] = -3e-6;
  versions_.together[{33, 22}] = 4.5e-6;
  versions_.seconds[33] = 5e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{12, 21, 33}));
  EXPECT_NEAR(refinement.ratio, (10 + 4 * 10 + 5 - 3) / 60.0, 1e-9);
  EXPECT_EQ(refinement.replaced, (std::vector<std::string>{"task 1", "task 3"}));
}

TEST_F(RefineAssemblyTest, NothingChangesWhereNothingIsFaster) {
  versions_.seconds[22] = 11e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 21, 31}));
  EXPECT_TRUE(refinement.replaced.empty());
  EXPECT_EQ(refinement.ratio, 1);
  EXPECT_EQ(refinement.seconds, 0);
  EXPECT_LE(versions_.timed, 2 * 6);  // a slower or an equal one is given up soon
}

TEST_F(RefineAssemblyTest, NoiseDoesNotReplaceRecordsByMuchSlowerOnes) {
  versions_.noise = 0.02;
  for (int t = 1; t <= 3; ++t)
    for (int i = 2; i <= 3; ++i) versions_.seconds[10 * t + i] = 12e-6;
  versions_.seconds[22] = 8e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 22, 31}));
  EXPECT_NEAR(refinement.ratio, 52 / 60.0, 0.06);
}

TEST_F(RefineAssemblyTest, ContendersThatCannotBeBuiltAreLeftOut) {
  versions_.unusable = {22};
  versions_.too_large = {33};
  versions_.seconds[23] = 9e-6;
  EXPECT_GE(Refine().compared, 4);
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 23, 31}));
  EXPECT_EQ(versions_.refused, 2) << "each once";
}

TEST_F(RefineAssemblyTest, ANetworkThatDoesNotFitTwiceStaysAsItIs) {
  versions_.too_large = {11};
  versions_.seconds[22] = 9e-6;
  EXPECT_EQ(Refine().compared, 0);
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 21, 31}));
}

TEST_F(RefineAssemblyTest, ItEndsWhenTimeIsUpOrItIsStopped) {
  versions_.seconds[22] = 9e-6;
  const std::atomic<bool> stop{true};
  for (const RefineOptions& options : {RefineOptions{.seconds = 0}, RefineOptions{.stop = &stop}}) {
    const Refinement refinement = Refine(options);
    EXPECT_EQ(refinement.compared, 0);
    EXPECT_TRUE(refinement.ended_early);
  }
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 21, 31}));
}

TEST_F(RefineAssemblyTest, WithoutContendersNothingIsLoaded) {
  contenders_.clear();
  Refine();
  EXPECT_EQ(versions_.announced + versions_.prepared, 0);
}

// Two layers with residuals, each a choice point: with records that take 10 us a task alone, "add apart" loses by far.
class RefineFusionTest : public RefineAssemblyTest {
 protected:
  void SetUp() override {
    const std::vector<int64_t> pads(4, 1);
    int y = network_.AddInput("x", {DType::kFloat32, {1, 16, 8, 8}});
    for (int layer = 0; layer < 2; ++layer) {
      const int weights = network_.AddConstant("w", Array(DType::kFloat32, {16, 16, 3, 3}));
      const int conv = network_.AddNode("conv2d", {y, weights}, {{"pads", pads}}).value();
      y = network_.AddNode("relu", {network_.AddNode("add", {conv, y}).value()}).value();
    }
    network_.outputs = {y};
    fusion_ = FindFusionChoices(network_).value();
    ASSERT_EQ(fusion_.choice_points.size(), 2u);
    ASSERT_EQ(fusion_.choice_points[0].alternatives[1].name, "add apart");
    for (const Task& task : fusion_.partition.tasks) {
      const int64_t id = static_cast<int64_t>(records_.size()) + 1;
      records_[task.workload_key] = Record(id, task.workload_key, Alone(task));
      versions_.seconds[id] = Alone(task);
    }
    assembly_ = Assemble(network_, fusion_, records_).value();
    ASSERT_EQ(assembly_.alternatives, (std::vector<int>{0, 0}));
  }
  // What a task takes by itself: of those that "add apart" makes, 7 us each.
  double Alone(const Task& task) const {
    return fusion_.partition.tasks[fusion_.choice_points[0].alternatives[0].tasks[0].first].workload_key ==
                   task.workload_key
               ? 10e-6
               : 7e-6;
  }
  void SecondsInTheNetwork(int alternative, double seconds) {
    for (const auto& [task, count] : fusion_.choice_points[0].alternatives[alternative].tasks)
      versions_.seconds[records_.at(fusion_.partition.tasks[task].workload_key).id] = seconds;
  }
};

TEST_F(RefineFusionTest, ChoicePointsThatAreAlikeTakeTheFasterAlternativeTogether) {
  SecondsInTheNetwork(1, 4e-6);
  const Refinement refinement = Refine();
  EXPECT_EQ(assembly_.alternatives, (std::vector<int>{1, 1}));
  EXPECT_EQ(assembly_.other.size(), 2u);
  EXPECT_EQ(refinement.regrouped, 2);
  EXPECT_TRUE(refinement.replaced.empty());
  EXPECT_EQ(refinement.compared, 1);
  EXPECT_NEAR(refinement.ratio, 0.8, 1e-9);
}

// The tasks of an alternative that the assembly did not have at first have contenders too.
TEST_F(RefineFusionTest, ContendersOfTheOtherAlternativesTasksAreTried) {
  SecondsInTheNetwork(1, 4e-6);
  const auto& [task, count] = fusion_.choice_points[0].alternatives[1].tasks[0];
  const std::string key = fusion_.partition.tasks[task].workload_key;
  contenders_[key] = {Record(50, key, 7.1e-6)};
  versions_.seconds[50] = 3e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(assembly_.alternatives, (std::vector<int>{1, 1}));
  EXPECT_EQ(refinement.replaced, (std::vector<std::string>{key}));
  EXPECT_GE(refinement.compared, 2);
  contenders_ = {{"of no task", {Record(51, "of no task", 1e-6)}}};
  records_.erase(key);
  EXPECT_FALSE(HasReplacements(Assemble(network_, fusion_, records_).value(), replacements_));
}

TEST_F(RefineFusionTest, TheAlternativesStayWhereTheNetworkIsNoFaster) {
  const Refinement refinement = Refine();
  EXPECT_EQ(assembly_.alternatives, (std::vector<int>{0, 0}));
  EXPECT_EQ(refinement.regrouped, 0);
  EXPECT_EQ(refinement.compared, 1);
}

TEST_F(RefineFusionTest, AlternativesOfUnknownOrHopelessTimesAreNotTried) {
  SecondsInTheNetwork(1, 1e-6);
  const auto& [task, count] = fusion_.choice_points[0].alternatives[1].tasks[1];
  const std::string key = fusion_.partition.tasks[task].workload_key;
  records_[key].outcome = Timing{{9e-6}, 1};
  EXPECT_FALSE(HasReplacements(assembly_, replacements_));
  EXPECT_EQ(Refine().compared, 0);
  records_.erase(key);
  EXPECT_EQ(Refine().compared, 0);
  EXPECT_EQ(assembly_.alternatives, (std::vector<int>{0, 0}));
}

TEST(ContendersTest, AreNearlyAsFastAndOfSeveralSketches) {
  const TuningRecord best = Record(1, "w", 10e-6);
  std::vector<TuningRecord> records = {Record(2, "w", 10.5e-6),
                                       Record(3, "w", 10.3e-6),
                                       Record(4, "w", 10.1e-6),
                                       Record(5, "w", 10.2e-6),
                                       Record(6, "w", 10.15e-6),
                                       Record(11, "w", 10.16e-6),
                                       best,
                                       Record(12, "w", 10.17e-6)};
  for (const size_t i : {1, 2, 3, 4, 5, 7}) records[i].sketch = "one";
  records.push_back(Record(7, "w", 10.35e-6));
  records.push_back(Record(8, "w", 9e-6));  // another measurement of the best, and a failure
  records.back().schedule = best.schedule;
  records.push_back(Record(9, "w", 10e-6));
  records.back().outcome = MeasureError{};
  records.push_back(Record(10, "w", 10e-6));
  records.back().verified = Verified::kWrongInNetwork;
  std::vector<int64_t> ids;
  for (const TuningRecord& one : ContendersOf(best, records)) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<int64_t>{4, 6, 11, 12, 7}));
}

// Alone they differ little, and what a network gains from them does not show.
TEST(ContendersTest, OtherStartsOfTheNextKernelComeFirst) {
  const auto starting = [](int64_t id, double seconds, int64_t start) {
    TuningRecord record = Record(id, "w", seconds);
    Schedule schedule;
    schedule.sketch = "one";
    schedule.steps.push_back({StepKind::kAlignRows, 0, {}, {Factor::Of(id)}, -1, {}});  // tells them apart
    schedule.steps.push_back({StepKind::kOverlap, 0, {}, {Factor::Of(start)}, -1, {}});
    record.schedule = SerializeSchedule(schedule);
    record.sketch = "one";
    return record;
  };
  const TuningRecord best = starting(1, 10e-6, 2);
  std::vector<int64_t> ids;
  for (const TuningRecord& one :
       ContendersOf(best, {best, starting(2, 10.1e-6, 2), starting(3, 10.9e-6, 1), starting(4, 10.8e-6, 1),
                           starting(5, 10.2e-6, 2), starting(6, 10.3e-6, 2), starting(7, 11.2e-6, 0)}))
    ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<int64_t>{4, 2, 5, 6}));
}

}  // namespace
}  // namespace diapason
