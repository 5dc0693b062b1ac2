// The check of a whole network with scripted judges: who is marked, what takes their place, and what is told.
#include "service/network_check.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/runtime/fill.h"

namespace diapason {
namespace {

// A chain of products, each of another shape: so many tasks.
Network Chain(int tasks) {
  Network n;
  n.name = "chain";
  int x = n.AddInput("x", {DType::kFloat32, {1, 4}});
  for (int i = 0; i < tasks; ++i) {
    Array weights(DType::kFloat32, {4 + i, 5 + i});
    FillRandom(weights, i);
    x = n.AddNode("gemm", {x, n.AddConstant(absl::StrCat("w", i), std::move(weights))}).value();
  }
  n.outputs = {x};
  return n;
}

class FakeShelf : public RecordShelf {
 public:
  // `each` records of every workload, with ids 100 * (1 + position of the task) + 1, 2, ..., the fastest first.
  FakeShelf(const FusionChoices& fusion, int each) {
    for (size_t t = 0; t < fusion.partition.tasks.size(); ++t) {
      for (int i = 0; i < each; ++i) {
        TuningRecord record;
        record.id = static_cast<int64_t>(100 * (1 + t) + 1 + i);
        record.workload_key = fusion.partition.tasks[t].workload_key;
        record.task_name = absl::StrCat("task", t);
        record.outcome = Timing{{1e-6 * (1 + i)}, 1};
        record.verified = Verified::kOk;
        records_.push_back(record);
      }
    }
  }
  TuningRecord& record(int64_t id) {
    for (TuningRecord& one : records_)
      if (one.id == id) return one;
    ADD_FAILURE() << id;
    return records_[0];
  }

  absl::StatusOr<RecordsByWorkload> Best(const std::vector<std::string>& keys) override {
    RecordsByWorkload best;
    for (const std::string& key : keys)
      for (const bool verified : {true, false})
        for (const TuningRecord& one : records_)
          if (one.workload_key == key && !IsRefuted(one.verified) && (one.verified == Verified::kOk) == verified)
            best.emplace(key, one);
    return best;
  }
  absl::Status SetVerified(const TuningRecord& one, const NetworkJudge::Verdict& verdict) override {
    record(one.id).verified = verdict.ok ? Verified::kOk : Verified::kFailed;
    return absl::OkStatus();
  }
  absl::Status MarkWrongInNetwork(const TuningRecord& one, double max_error, const std::string& evidence) override {
    record(one.id).verified = Verified::kWrongInNetwork;
    record(one.id).max_error = max_error;
    record(one.id).verify_text = evidence;
    return absl::OkStatus();
  }

 private:
  std::vector<TuningRecord> records_;
};

class FakeJudge : public NetworkJudge {
 public:
  std::set<int64_t> guilty;       // wrong in the network
  std::set<int64_t> wrong_alone;  // refuted by Verify
  bool always_wrong = false, compared = true;
  int wrong_once_at = -1;  // the judgement of this number is wrong whoever is in place
  int judgements = 0;
  std::vector<int64_t> verified;

  absl::Status Use(const Assembly& assembly) override {
    assembly_ = &assembly;
    return absl::OkStatus();
  }
  absl::StatusOr<Verdict> Judge(const std::vector<bool>& in_place) override {
    std::string why = always_wrong || judgements++ == wrong_once_at ? "chance" : "";
    for (size_t i = 0; i < in_place.size(); ++i)
      if (in_place[i] && assembly_->records[i].has_value() && guilty.contains(assembly_->records[i]->id))
        why = absl::StrCat("output 'y' because of ", assembly_->records[i]->id);
    if (why.empty()) return Verdict{true, true, 1e-7, 1e-7, "", 42e-6};
    return Verdict{false, compared, 3, 0.5, why};
  }
  absl::StatusOr<Verdict> Verify(const TuningRecord& record) override {
    verified.push_back(record.id);
    if (wrong_alone.contains(record.id)) return Verdict{false, true, 1, 1, "wrong alone"};
    return Verdict{true, true, 0, 0, ""};
  }

 private:
  const Assembly* assembly_ = nullptr;
};

class NetworkCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    network_ = Chain(6);
    fusion_ = FindFusionChoices(network_).value();
    ASSERT_EQ(fusion_.partition.tasks.size(), 6u);
    shelf_ = std::make_unique<FakeShelf>(fusion_, 3);
  }
  NetworkCheckReport Check() {
    absl::StatusOr<NetworkCheckReport> report = CheckNetwork(network_, fusion_, *shelf_, judge_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : NetworkCheckReport{};
  }
  static std::set<int64_t> Marked(const NetworkCheckReport& report) {
    std::set<int64_t> ids;
    for (const auto& wrong : report.wrong) ids.insert(wrong.record.id);
    return ids;
  }

  Network network_;
  FusionChoices fusion_;
  std::unique_ptr<FakeShelf> shelf_;
  FakeJudge judge_;
};

TEST_F(NetworkCheckTest, ARightNetworkIsJudgedOnceAndNothingIsMarked) {
  const NetworkCheckReport report = Check();
  EXPECT_TRUE(report.right);
  EXPECT_TRUE(report.wrong.empty());
  EXPECT_EQ(report.text, "");
  EXPECT_EQ(judge_.judgements, 1);
  EXPECT_EQ(report.assembly.records[2]->id, 301);
  EXPECT_EQ(report.run_seconds, 42e-6);
  EXPECT_NEAR(SecondsOfTasks(report.assembly), 6e-6, 1e-12);  // six tasks, the best record of each takes 1 us
  EXPECT_EQ(Summary(report), "network check ok: largest relative error 1e-07");
}

TEST_F(NetworkCheckTest, TheGuiltyRecordIsMarkedAndTheNextBestTakesItsPlace) {
  judge_.guilty = {301};
  const NetworkCheckReport report = Check();
  EXPECT_TRUE(report.right);
  ASSERT_EQ(report.wrong.size(), 1u);
  EXPECT_EQ(report.wrong[0].Sentence(),
            "record 301 of task2 is right alone but makes the network compute a wrong result, and is not used: output "
            "'y' because of "
            "301; record 302 takes its place");
  EXPECT_EQ(report.assembly.records[2]->id, 302);
  EXPECT_EQ(report.assembly.records[1]->id, 201);
  EXPECT_EQ(shelf_->record(301).verified, Verified::kWrongInNetwork);
  EXPECT_EQ(shelf_->record(301).max_error, 3);
  EXPECT_EQ(shelf_->record(301).verify_text, "network chain: output 'y' because of 301");
  EXPECT_EQ(shelf_->record(201).verified, Verified::kOk);
  EXPECT_EQ(Summary(report), "network check ok: largest relative error 1e-07, after 1 record was replaced");
}

TEST_F(NetworkCheckTest, SeveralGuiltyRecordsAndTheirSuccessorsAreFound) {
  judge_.guilty = {101, 102, 401, 601, 602, 603};
  const NetworkCheckReport report = Check();
  EXPECT_TRUE(report.right);
  EXPECT_EQ(Marked(report), judge_.guilty);
  EXPECT_EQ(report.assembly.records[0]->id, 103);
  EXPECT_EQ(report.assembly.records[3]->id, 402);
  EXPECT_FALSE(report.assembly.records[5].has_value());
  for (const auto& wrong : report.wrong) {
    if (wrong.record.id != 603) continue;
    EXPECT_EQ(wrong.Sentence(),
              "record 603 of task5 is right alone but makes the network compute a wrong result, and is not used: "
              "output 'y' because "
              "of 603; the fallback schedule takes its place");
  }
}

TEST_F(NetworkCheckTest, WhatIsNotVerifiedIsVerifiedBeforeItIsUsed) {
  judge_.guilty = {201};
  for (int64_t id : {202, 203, 501, 502, 503}) shelf_->record(id).verified = Verified::kUnknown;
  judge_.wrong_alone = {202, 501, 502, 503};
  const NetworkCheckReport report = Check();
  EXPECT_TRUE(report.right);
  EXPECT_EQ(report.assembly.records[1]->id, 203);
  EXPECT_EQ(shelf_->record(202).verified, Verified::kFailed);
  EXPECT_EQ(shelf_->record(203).verified, Verified::kOk);
  EXPECT_FALSE(report.assembly.records[4].has_value());
  EXPECT_EQ(judge_.verified, (std::vector<int64_t>{501, 502, 503, 202, 203}));
}

// Records of the same task without bounds of factors, from before these were known, stand in, or win.
TEST(UsableRecordTest, RecordsWithoutBoundsFitTasksWithThem) {
  const Task task{"gemm", {}, 1, "bounded", "plain"};
  EXPECT_EQ(KeysOfRecords({task, {"other", {}, 1, "other"}}), (std::vector<std::string>{"bounded", "plain", "other"}));
  const auto record = [](const std::string& key, double seconds, Verified verified = Verified::kOk) {
    TuningRecord made;
    made.workload_key = key;
    made.outcome = Timing{{seconds}, 1};
    made.verified = verified;
    return made;
  };
  RecordsByWorkload records;
  EXPECT_EQ(UsableRecord(records, task), nullptr);
  records["plain"] = record("plain", 2e-6);
  EXPECT_EQ(UsableRecord(records, task), &records["plain"]);
  records["bounded"] = record("bounded", 1e-6);
  EXPECT_EQ(UsableRecord(records, task), &records["bounded"]);
  records["plain"] = record("plain", 0.9e-6);
  EXPECT_EQ(UsableRecord(records, task), &records["plain"]);
  records["plain"].verified = Verified::kUnknown;
  EXPECT_EQ(UsableRecord(records, task), &records["bounded"]);
  // A task without bounds never takes records of one that has them.
  EXPECT_EQ(UsableRecord({{"bounded", records["bounded"]}}, {"gemm", {}, 1, "plain"}), nullptr);
}

TEST_F(NetworkCheckTest, ANetworkThatIsWrongWithoutRecordsMarksNone) {
  judge_.always_wrong = true;
  const NetworkCheckReport report = Check();
  EXPECT_FALSE(report.right);
  EXPECT_TRUE(report.wrong.empty());
  EXPECT_EQ(
      report.text,
      "the network computes a wrong result with fallback schedules alone, so that no record is to blame (chance); "
      "report a bug");
  EXPECT_EQ(Summary(report), "network check FAILED: " + report.text);
  for (int task = 1; task <= 6; ++task) EXPECT_EQ(shelf_->record(100 * task + 1).verified, Verified::kOk);
}

TEST_F(NetworkCheckTest, ANetworkThatCannotBeComparedIsNotCalledWrong) {
  judge_.always_wrong = true;
  judge_.compared = false;
  const NetworkCheckReport report = Check();
  EXPECT_FALSE(report.right);
  EXPECT_TRUE(report.wrong.empty());
  EXPECT_EQ(report.text,
            "the network cannot be checked, with fallback schedules alone neither (chance); leave the check out with "
            "--no-check, and compare with results of your own by `diapason run --compare`");
}

TEST_F(NetworkCheckTest, AWrongResultThatDoesNotComeAgainMarksNoneAndIsNoSuccess) {
  judge_.wrong_once_at = 0;
  const NetworkCheckReport report = Check();
  EXPECT_FALSE(report.right);
  EXPECT_TRUE(report.wrong.empty());
  EXPECT_EQ(report.text,
            "the network computed a wrong result once and not again (chance), so that no record was marked; run the "
            "same command again, and "
            "report a bug");
}

TEST_F(NetworkCheckTest, ARunThatWasCutOffOnceIsNoEvidence) {
  judge_.wrong_once_at = 0;
  judge_.compared = false;
  EXPECT_EQ(CheckNetwork(network_, fusion_, *shelf_, judge_).status(),
            absl::UnavailableError("the network could not be run once and ran another time (chance)"));
}

}  // namespace
}  // namespace diapason
