// Records chosen by the latency of the network, with a made-up one: it takes for each task what the record in place
// takes there, which is not what the record takes alone.
#include "service/refine_assembly.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

TuningRecord Record(int64_t id, const std::string& key, double seconds) {
  TuningRecord record;
  record.id = id;
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
  std::set<int64_t> unusable;
  double noise = 0;  // of a measurement, relative
  int announced = 0, prepared = 0, timed = 0;

  absl::Status Announce(const Assembly&) override {
    ++announced;
    return absl::OkStatus();
  }
  absl::Status Prepare(const Assembly& assembly) override {
    double sum = 0;
    for (size_t i = 0; i < assembly.records.size(); ++i) {
      if (unusable.contains(assembly.records[i]->id)) return absl::FailedPreconditionError("cannot be built");
      sum += assembly.partition.tasks[i].weight * seconds.at(assembly.records[i]->id);
    }
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
    const absl::StatusOr<Refinement> refinement = RefineAssembly(assembly_, contenders_, versions_, options);
    EXPECT_TRUE(refinement.ok()) << refinement.status();
    return refinement.ok() ? *refinement : Refinement();
  }
  std::vector<int64_t> Ids() const {
    std::vector<int64_t> ids;
    for (const auto& record : assembly_.records) ids.push_back(record->id);
    return ids;
  }

  Assembly assembly_;
  ContendersByWorkload contenders_;
  FakeVersions versions_;
};

TEST_F(RefineAssemblyTest, TheRecordThatIsFastestInTheNetworkTakesItsPlace) {
  versions_.seconds[22] = 9e-6;
  versions_.seconds[23] = 8e-6;
  versions_.seconds[33] = 9e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 23, 33}));
  EXPECT_EQ(refinement.compared, 6);
  EXPECT_EQ(refinement.replaced, (std::vector<int>{1, 2}));
  EXPECT_NEAR(refinement.ratio, (10 + 4 * 8 + 9) / 60.0, 1e-9);
}

TEST_F(RefineAssemblyTest, NothingChangesWhereNothingIsFaster) {
  versions_.seconds[22] = 11e-6;
  const Refinement refinement = Refine();
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 21, 31}));
  EXPECT_TRUE(refinement.replaced.empty());
  EXPECT_EQ(refinement.ratio, 1);
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
  versions_.seconds[23] = 9e-6;
  EXPECT_EQ(Refine().compared, 5);
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 23, 31}));
}

TEST_F(RefineAssemblyTest, ItEndsWhenTimeIsUpOrItIsStopped) {
  versions_.seconds[22] = 9e-6;
  EXPECT_EQ(Refine({.seconds = 0}).compared, 0);
  const std::atomic<bool> stop{true};
  EXPECT_EQ(Refine({.stop = &stop}).compared, 0);
  EXPECT_EQ(Ids(), (std::vector<int64_t>{11, 21, 31}));
}

TEST_F(RefineAssemblyTest, WithoutContendersNothingIsLoaded) {
  contenders_.clear();
  Refine();
  EXPECT_EQ(versions_.announced + versions_.prepared, 0);
}

TEST(ContendersTest, AreNearlyAsFastAndOfSeveralSketches) {
  const TuningRecord best = Record(1, "w", 10e-6);
  std::vector<TuningRecord> records = {Record(2, "w", 10.5e-6), Record(3, "w", 10.3e-6),  Record(4, "w", 10.1e-6),
                                       Record(5, "w", 10.2e-6), Record(6, "w", 10.15e-6), best};
  for (size_t i = 1; i < 5; ++i) records[i].sketch = "one";
  records.push_back(Record(7, "w", 10.35e-6));
  records.push_back(Record(8, "w", 9e-6));  // another measurement of the best, and a failure
  records.back().schedule = best.schedule;
  records.push_back(Record(9, "w", 10e-6));
  records.back().outcome = MeasureError{};
  records.push_back(Record(10, "w", 10e-6));
  records.back().verified = Verified::kWrongInNetwork;
  std::vector<int64_t> ids;
  for (const TuningRecord& one : ContendersOf(best, records)) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<int64_t>{4, 6, 7}));
}

}  // namespace
}  // namespace diapason
