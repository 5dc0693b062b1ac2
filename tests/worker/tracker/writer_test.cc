// The state of a tracker written in groups: what was answered is in the file, whenever the process ends.
#include "worker/tracker/writer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <set>

#include "tests/worker/testing.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::chrono::milliseconds kPause{2};

v1::MeasureRequest Measurement(uint64_t id, size_t bytes = 100) {
  v1::MeasureRequest request;
  request.set_id(id);
  request.set_workload(std::string(bytes, 'w'));
  request.set_schedule("s");
  request.set_target("cuda");
  return request;
}

class TrackerWriterTest : public testing::Test {
 protected:
  TrackerWriterTest() : path_(folder_.path() + "/state.db") {}
  std::unique_ptr<TrackerStore> Open(const std::string& path) {
    auto store = TrackerStore::Open(path);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // What a process that is killed now leaves. REQUIRES: nobody writes.
  std::string CopyOfFile() {
    const std::string copy = folder_.path() + "/copy" + std::to_string(++copies_) + ".db";
    std::filesystem::copy_file(path_, copy);
    std::filesystem::copy_file(path_ + "-wal", copy + "-wal");
    return copy;
  }
  TrackerState Load(const std::string& path) {
    auto state = Open(path)->Load();
    EXPECT_TRUE(state.ok()) << state.status();
    return *std::move(state);
  }
  static std::vector<uint64_t> Ids(const TrackerState& state) {
    std::vector<uint64_t> ids;
    for (const auto& request : state.requests) ids.push_back(request.message.id());
    return ids;
  }

  TemporaryFolder folder_;
  const std::string path_;
  int copies_ = 0;
};

TEST_F(TrackerWriterTest, AnAnswerComesWhenItsChangesAreInTheFile) {
  auto store = Open(path_);
  std::string copy;
  std::promise<void> answered;
  TrackerWriter writer(*store, kPause);
  for (uint64_t id = 1; id <= 3; ++id) store->PutRequest("q", Measurement(id), 0);
  std::vector<std::function<void()>> answers;
  answers.push_back([&] {
    copy = CopyOfFile();
    answered.set_value();
  });
  EXPECT_THAT(writer.Add(store->Take(), std::move(answers)), IsEmpty());
  answered.get_future().wait();
  EXPECT_THAT(Ids(Load(copy)), ElementsAre(1, 2, 3));
}

TEST_F(TrackerWriterTest, NothingToWaitForIsAnsweredByTheCaller) {
  auto store = Open(path_);
  TrackerWriter writer(*store, kPause);
  std::vector<std::function<void()>> answers(2, [] {});
  EXPECT_EQ(writer.Add(store->Take(), std::move(answers)).size(), 2u);
}

TEST_F(TrackerWriterTest, TheEndWritesAndAnswersWhatIsLeft) {
  auto store = Open(path_);
  std::atomic<int> answers{0};
  {
    TrackerWriter writer(*store, std::chrono::hours(1));
    for (uint64_t id = 1; id <= 5; ++id) {
      store->PutRequest("q", Measurement(id), 0);
      writer.Add(store->Take(), {[&] { ++answers; }});
    }
  }
  EXPECT_EQ(answers, 5);
  store.reset();
  EXPECT_EQ(Load(path_).requests.size(), 5u);
}

// A turn that was on its way while everything was written anew is part of that.
TEST_F(TrackerWriterTest, AnOlderTurnDoesNotComeBackAfterARewrite) {
  auto store = Open(path_);
  store->PutRequest("q", Measurement(1), 0);
  std::vector<TrackerStore::Changes> late;
  late.push_back(store->Take());
  TrackerState state;
  state.requests.push_back({"q", Measurement(2), 0, {}});
  ASSERT_TRUE(store->Rewrite(state).ok());
  store->Write(late);
  ASSERT_TRUE(store->status().ok());
  store.reset();
  EXPECT_THAT(Ids(Load(path_)), ElementsAre(2));
}

TEST_F(TrackerWriterTest, AFullDiskIsToldAndMended) {
  auto store = Open(path_);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{};
  getrlimit(RLIMIT_FSIZE, &before);
  small = {200 << 10, before.rlim_max};
  auto write = [&](uint64_t id, size_t bytes) {
    store->PutRequest("q", Measurement(id, bytes), 0);
    std::vector<TrackerStore::Changes> turn;
    turn.push_back(store->Take());
    store->Write(turn);
  };
  write(1, 100);
  ASSERT_TRUE(store->status().ok());
  setrlimit(RLIMIT_FSIZE, &small);
  write(2, 1 << 20);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(store->status(), absl::ResourceExhaustedError(
                                 "there is no room to write tracker state '" + path_ +
                                 "'; free space on its disk and try again: everything reported before is kept"));
  write(3, 100);  // not without what was before it
  TrackerState state;
  state.requests.push_back({"q", Measurement(4), 0, {}});
  ASSERT_TRUE(store->Rewrite(state).ok());
  write(5, 100);
  store.reset();
  EXPECT_THAT(Ids(Load(path_)), UnorderedElementsAre(4, 5));
}

// Several callers at once, and a copy of the file at random moments: it holds all that was answered until then.
TEST_F(TrackerWriterTest, WhatWasAnsweredSurvivesTheProcessAtAnyMoment) {
  TrackerOptions options;
  options.store_pause = kPause;
  Tracker tracker(options, Open(path_));
  ASSERT_TRUE(tracker.Restore().ok());
  v1::OpenRequest open;
  open.mutable_protocol()->set_low(1);
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse queue;
  ASSERT_TRUE(tracker.Open(open, queue).ok());
  v1::RegisterRequest worker;
  *worker.mutable_protocol() = open.protocol();
  worker.set_worker_id("w");
  worker.add_devices()->set_name("cuda:0");
  worker.mutable_devices(0)->set_target("cuda");
  worker.mutable_devices(0)->set_state(v1::DEVICE_STATE_READY);
  v1::RegisterResponse session;
  ASSERT_TRUE(tracker.Register(worker, session).ok());

  std::mutex mutex;  // guards these
  std::set<uint64_t> submitted, leased, reported;
  auto stored = [&](std::set<uint64_t>& set, uint64_t id) {
    std::promise<void> done;
    tracker.WhenStored([&, id] {
      {
        std::lock_guard lock(mutex);
        set.insert(id);
      }
      done.set_value();
    });
    done.get_future().wait();
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; !stop; ++i) {
        v1::SubmitRequest submit;
        v1::SubmitResponse response;
        submit.set_queue(queue.queue());
        *submit.add_requests() = Measurement(t << 32 | i);
        if (tracker.Submit(submit, response).ok()) stored(submitted, t << 32 | i);
      }
    });
  }
  threads.emplace_back([&] {
    v1::LeaseRequest ask;
    ask.set_session(session.session());
    ask.add_capacity()->set_device("cuda:0");
    ask.mutable_capacity(0)->set_free(4);
    while (!stop) {
      std::promise<v1::LeaseResponse> answer;
      tracker.Lease(ask, [&](absl::Status, v1::LeaseResponse response) {
        {
          std::lock_guard lock(mutex);
          for (const auto& grant : response.grants()) leased.insert(grant.lease());
        }
        answer.set_value(std::move(response));
      });
      const v1::LeaseResponse grants = answer.get_future().get();
      ask.set_received(grants.batch());
      for (const v1::LeaseGrant& grant : grants.grants()) {
        v1::ReportRequest report;
        v1::ReportResponse response;
        report.set_session(session.session());
        report.add_outcomes()->set_lease(grant.lease());
        report.mutable_outcomes(0)->mutable_result()->mutable_timing()->add_samples(1e-3);
        report.mutable_outcomes(0)->mutable_result()->mutable_timing()->set_number(1);
        {
          std::lock_guard lock(mutex);
          leased.erase(grant.lease());  // over when the report is stored, which may be before we know
        }
        if (tracker.Report(report, response).ok()) stored(reported, grant.request().id());
      }
    }
  });

  size_t seen = 0;
  for (int moment = 0; moment < 20; ++moment) {
    std::this_thread::sleep_for(std::chrono::milliseconds(7));
    std::string copy;
    std::set<uint64_t> was_submitted, was_leased, was_reported;
    std::promise<void> copied;
    tracker.WhenStored([&] {  // with changes of others on their way: on the thread that writes
      std::lock_guard lock(mutex);
      was_submitted = submitted, was_leased = leased, was_reported = reported;
      copy = CopyOfFile();
      copied.set_value();
    });
    copied.get_future().wait();
    const TrackerState state = Load(copy);
    for (const auto& request : state.requests) was_submitted.erase(request.message.id());
    for (const auto& result : state.results) {
      was_submitted.erase(result.message.id());
      was_reported.erase(result.message.id());
      ++seen;
    }
    for (const auto& lease : state.leases) was_leased.erase(lease.id);
    EXPECT_THAT(was_submitted, IsEmpty());
    EXPECT_THAT(was_reported, IsEmpty());
    EXPECT_THAT(was_leased, IsEmpty());
  }
  stop = true;
  {
    v1::SubmitRequest submit;  // so that the one who waits for a lease gets an answer
    v1::SubmitResponse response;
    submit.set_queue(queue.queue());
    *submit.add_requests() = Measurement(1ull << 60);
    tracker.Submit(submit, response).IgnoreError();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace diapason
