// A tracker that is killed and started again on its state file.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tests/worker/testing.h"
#include "tests/worker/tracker/tracker_fixture.h"
#include "worker/process/convert.h"
#include "worker/tracker/id_set.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TrackerRestoreTest : public TrackerTest {
 protected:
  TrackerRestoreTest() {
    state_ = folder_.path() + "/state.db";
    Restart();
  }
  TemporaryFolder folder_;
};

TEST_F(TrackerRestoreTest, RunningMeasurementsLiveOn) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  std::vector<v1::LeaseGrant> grants = Grants(a, 2);
  ASSERT_THAT(Ids(grants), ElementsAre(1, 2));
  Report(a, {{grants[0].lease(), Timed(0.25)}});
  Restart();
  // The worker and the coordinator notice nothing.
  EXPECT_THAT(Report(a, {{grants[1].lease(), Timed(0.5)}}, {}).over(), IsEmpty());
  EXPECT_TRUE(report_status_.ok()) << report_status_;
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].timing().samples(0), 0.25);
  EXPECT_EQ(results[1].timing().samples(0), 0.5);
  EXPECT_EQ(results[1].attempts(), 1u);
  std::vector<v1::LeaseGrant> last = Grants(a, 1);
  ASSERT_THAT(Ids(last), ElementsAre(3));
  EXPECT_GT(last[0].lease(), grants[1].lease());
}

// How long a measurement waited is told of it at its end, and adds to the metrics.
TEST_F(TrackerRestoreTest, ALeaseKnowsAfterARestartHowLongItWaited) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  Pass(std::chrono::seconds(3));
  const std::vector<v1::LeaseGrant> grants = Grants(a, 2);
  ASSERT_EQ(grants.size(), 2u);
  Report(a, {{grants[0].lease(), Timed()}});
  Restart();
  Report(a, {{grants[1].lease(), Timed()}});
  const std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  for (const v1::MeasureResult& result : results) EXPECT_NEAR(result.times().queued_seconds(), 3, 0.5);
}

// Files of version 1 had no such time: their leases live on all the same.
TEST_F(TrackerRestoreTest, AFileOfVersion1IsBroughtUp) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  Pass(std::chrono::seconds(3));
  const std::vector<v1::LeaseGrant> grants = Grants(a, 1);
  ASSERT_EQ(grants.size(), 1u);
  tracker_.reset();
  sqlite3* db = nullptr;
  sqlite3_open(state_.c_str(), &db);
  ASSERT_EQ(sqlite3_exec(db, "ALTER TABLE leases DROP COLUMN waited; PRAGMA user_version=1", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  for (int start = 0; start < 2; ++start) Restart();
  Report(a, {{grants[0].lease(), Timed(0.5)}});
  const std::vector<v1::LeaseGrant> next = Grants(a, 1);
  ASSERT_THAT(Ids(next), ElementsAre(2));
  Report(a, {{next[0].lease(), Timed(0.25)}});
  const std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].timing().samples(0), 0.5);
  EXPECT_EQ(results[0].times().queued_seconds(), 0);
  EXPECT_EQ(results[1].timing().samples(0), 0.25);
}

TEST_F(TrackerRestoreTest, AWorkerThatWentMeanwhileLosesItsLeases) {
  std::string queue = Open(), a = Register("a"), b = Register("b");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  ASSERT_EQ(Grants(a, 1).size(), 1u);
  Restart();
  for (int i = 0; i < 16; ++i) {
    Pass(std::chrono::seconds(1));
    Report(b, {});
    Results(queue);
  }
  std::vector<v1::LeaseGrant> grants = Grants(b, 1);
  ASSERT_THAT(Ids(grants), ElementsAre(1));
  EXPECT_EQ(grants[0].attempt(), 2u);
}

// A grant whose answer was cut off by the restart is given again, under the same lease.
TEST_F(TrackerRestoreTest, AnAnswerThatWasCutOffIsGivenAgain) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  auto arrived = Lease(a, 1);
  auto lost = Lease(a, 1, arrived->response.batch());
  ASSERT_EQ(lost->response.grants_size(), 1);
  Restart();
  auto again = Lease(a, 1, arrived->response.batch(), 0);
  ASSERT_EQ(again->response.grants_size(), 1);
  EXPECT_EQ(again->response.grants(0).lease(), lost->response.grants(0).lease());
}

TEST_F(TrackerRestoreTest, AttemptsAndBlameAreKept) {
  std::string queue = Open(), a = Register("a");
  v1::MeasureRequest request = Measurement(1);
  request.set_max_attempts(5);
  ASSERT_TRUE(Submit(queue, {request}).ok());
  v1::MeasureResult lost = InfrastructureResult(MeasureStage::kRun, "died of signal 9");
  lost.set_runner_lost(true);
  Report(a, {{Grants(a, 1)[0].lease(), lost}});
  Restart();
  std::string b = Register("b");
  EXPECT_THAT(Grants(a, 1), IsEmpty());  // it had its try
  std::vector<v1::LeaseGrant> grants = Grants(b, 1);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].attempt(), 2u);
  Report(b, {{grants[0].lease(), lost}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error().kind(), "run_crash");
  EXPECT_EQ(results[0].error().stage(), "run");
  EXPECT_EQ(results[0].error().text(),
            "two workers lost their runners to it: worker 'a': died of signal 9; worker 'b': died of signal 9");
}

TEST_F(TrackerRestoreTest, OneWorkerAloneDoesNotBlameACandidate) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  v1::MeasureResult lost = InfrastructureResult(MeasureStage::kRun, "died of signal 9");
  lost.set_runner_lost(true);
  Report(a, {{Grants(a, 1)[0].lease(), lost}});
  Report(a, {{Grants(a, 1)[0].lease(), lost}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error().kind(), "infrastructure");
}

// An acknowledgement of the process before says nothing of this one's numbers.
TEST_F(TrackerRestoreTest, AnIncarnationIsToldAndChecked) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  Report(a, {{Grants(a, 1)[0].lease(), Timed()}});
  v1::NextRequest next;
  next.set_queue(queue);
  v1::NextResponse first, second;
  tracker_->Next(next, [&](absl::Status, v1::NextResponse response) { first = response; });
  Restart();
  next.set_incarnation(first.incarnation());
  next.set_acknowledged(1);
  tracker_->Next(next, [&](absl::Status, v1::NextResponse response) { second = response; });
  EXPECT_NE(first.incarnation(), 0u);
  EXPECT_NE(first.incarnation(), second.incarnation());
  EXPECT_EQ(second.results_size(), 1);
  next.set_incarnation(second.incarnation());
  tracker_->Next(next, [&](absl::Status, v1::NextResponse response) { second = response; });
  EXPECT_EQ(second.results_size(), 0);
}

TEST_F(TrackerRestoreTest, WhatIsOverIsNotInTheFile) {
  for (int round = 0; round < 3; ++round) {
    std::string queue = Open(), a = Register("a");
    ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
    Report(a, {{Grants(a, 1)[0].lease(), Timed()}});
    ASSERT_EQ(Grants(a, 1).size(), 1u);
    v1::CloseRequest close;
    close.set_queue(queue);
    v1::CloseResponse closed;
    ASSERT_TRUE(tracker_->Close(close, closed).ok());
    v1::LeaveRequest leave;
    leave.set_session(a);
    v1::LeaveResponse left;
    ASSERT_TRUE(tracker_->Leave(leave, left).ok());
  }
  tracker_.reset();
  auto store = TrackerStore::Open(state_);
  ASSERT_TRUE(store.ok()) << store.status();
  auto state = (*store)->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->queues.empty() && state->requests.empty() && state->results.empty() && state->sessions.empty() &&
              state->leases.empty());
}

// A file does not stay as large as what was once in it.
TEST_F(TrackerRestoreTest, CancelledRequestsLeaveTheFile) {
  const std::string queue = Open();
  for (uint64_t id = 1; id <= 12; ++id) {
    v1::MeasureRequest request = Measurement(id);
    request.set_workload(std::string(12 << 20, 'w'));
    ASSERT_TRUE(Submit(queue, {request}).ok());
  }
  EXPECT_GT(std::filesystem::file_size(state_), size_t{70} << 20);
  v1::CancelRequest cancel;
  cancel.set_queue(queue);
  cancel.set_all(true);
  v1::CancelResponse cancelled;
  ASSERT_TRUE(tracker_->Cancel(cancel, cancelled).ok());
  EXPECT_EQ(Results(queue).size(), 12u);
  EXPECT_LT(std::filesystem::file_size(state_), size_t{8} << 20);
}

TEST_F(TrackerRestoreTest, QuotasOutliveARestart) {
  options_.max_queues_per_token = 1;
  options_.max_pending_per_token = 2;
  Restart();
  const std::string queue = Open("alice");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  Restart();
  EXPECT_TRUE(absl::IsResourceExhausted(SubmitIds(queue, {3})));
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  EXPECT_TRUE(absl::IsResourceExhausted(tracker_->Open(open, opened, "alice")));
  EXPECT_TRUE(tracker_->Open(open, opened, "bob").ok());
}

TEST_F(TrackerRestoreTest, FilesThatDoNotFitAreRefused) {
  EXPECT_EQ(
      TrackerStore::Open(state_).status(),
      absl::UnavailableError("tracker state '" + state_ +
                             "' was locked by another process for 3 s; wait for that process or stop it, then try "
                             "again"));
  std::string text = folder_.path() + "/text";
  std::ofstream(text) << std::string(5000, 'x');
  EXPECT_EQ(TrackerStore::Open(text).status(),
            absl::FailedPreconditionError("'" + text +
                                          "' is not a Diapason tracker state (it is no SQLite database); name another "
                                          "file"));
  std::string newer = folder_.path() + "/newer.db", other = folder_.path() + "/other.db";
  for (const auto& [path, sql] : {std::pair{newer,
                                            "CREATE TABLE t(a); PRAGMA application_id=1148220530;"
                                            "PRAGMA user_version=9"},
                                  std::pair{other, "CREATE TABLE t(a)"}}) {
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  EXPECT_EQ(TrackerStore::Open(newer).status(),
            absl::FailedPreconditionError("tracker state '" + newer +
                                          "' is of version 9 and this program writes version 2; name another file, or "
                                          "run the program that wrote it"));
  EXPECT_EQ(TrackerStore::Open(other).status(),
            absl::FailedPreconditionError("'" + other + "' is not a Diapason tracker state; name another file"));
}

// Random events with restarts between them: in the end each request has exactly one result.
TEST_F(TrackerRestoreTest, EveryRequestGetsOneResultOverRestarts) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    std::mt19937 random(seed);
    auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
    std::string queue = Open();
    constexpr uint64_t kRequests = 60;
    std::vector<uint64_t> all;
    for (uint64_t id = 1; id <= kRequests; ++id) all.push_back(id);
    ASSERT_TRUE(SubmitIds(queue, all).ok());
    std::vector<std::string> sessions(3);
    std::vector<uint64_t> received(3);
    std::vector<std::vector<uint64_t>> held(3);
    std::set<uint64_t> results;
    uint64_t acknowledged = 0;
    for (int step = 0; step < 5000 && results.size() < kRequests; ++step) {
      bool restarted = chance(2);
      if (restarted) {
        Restart();
        acknowledged = 0;  // as a coordinator does when it sees another incarnation
      }
      size_t w = random() % 3;
      if (sessions[w].empty()) {
        sessions[w] = Register("worker" + std::to_string(w));
        received[w] = 0;
        held[w].clear();
      }
      auto answer = Lease(sessions[w], 2, received[w], 0);
      if (absl::IsNotFound(*answer->status)) {
        sessions[w].clear();
        continue;
      }
      received[w] = answer->response.batch();
      for (const auto& grant : answer->response.grants()) {
        if (std::count(held[w].begin(), held[w].end(), grant.lease()) == 0) held[w].push_back(grant.lease());
      }
      std::vector<std::pair<uint64_t, v1::MeasureResult>> outcomes;
      for (uint64_t lease : held[w]) {
        if (chance(50)) outcomes.push_back({lease, Timed()});
      }
      Report(sessions[w], outcomes, held[w]);
      for (auto& [lease, result] : outcomes) std::erase(held[w], lease);
      if (chance(3)) Pass(std::chrono::milliseconds(random() % 20000));
      for (const v1::MeasureResult& result : Results(queue, acknowledged)) {
        acknowledged = result.sequence();
        EXPECT_TRUE(results.insert(result.id()).second || restarted) << "seed " << seed << " request " << result.id();
      }
    }
    EXPECT_EQ(results.size(), kRequests) << "seed " << seed;
  }
}

TEST(IdSetTest, JoinsRanges) {
  IdSet set;
  for (uint64_t id : {5, 7, 6, 1, 2, 9, 5}) set.Insert(id);
  EXPECT_EQ(set.size(), 6u);
  EXPECT_EQ(set.ranges(), 3u);
  for (uint64_t id : {1, 2, 5, 6, 7, 9}) EXPECT_TRUE(set.Contains(id)) << id;
  for (uint64_t id : {0, 3, 4, 8, 10}) EXPECT_FALSE(set.Contains(id)) << id;
}

// As an earlier version may have written it.
TEST_F(TrackerRestoreTest, ASessionWhoseDeviceCannotBeIsLeftOut) {
  Register("good");
  tracker_.reset();
  {
    auto store = TrackerStore::Open(state_);
    ASSERT_TRUE(store.ok()) << store.status();
    v1::StoredSession session;
    *session.mutable_worker() = Worker("bad");
    session.mutable_worker()->mutable_devices(0)->mutable_facts()->set_max_threads_per_block(0);
    (*store)->PutSession("secret of bad", session);
    std::vector<TrackerStore::Changes> turn;
    turn.push_back((*store)->Take());
    (*store)->Write(turn);
    ASSERT_TRUE((*store)->status().ok());
  }
  Restart();
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(tracker_->ListWorkers({}, workers).ok());
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).name(), "good");
}

}  // namespace
}  // namespace diapason
