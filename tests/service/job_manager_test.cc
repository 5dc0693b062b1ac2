#include "service/job_manager.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "db/service_lease.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_store.h"
#include "service/tune_spec.h"
#include "tests/db/postgres_server.h"

namespace diapason {
namespace {

class JobManagerTest : public testing::Test {
 protected:
  JobManagerTest() {
    std::string pattern = testing::TempDir() + "manager-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~JobManagerTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<JobManager> Open() {
    JobManagerOptions options;
    options.history = folder_ + "/h.db";
    auto manager = JobManager::Open(std::move(options));
    EXPECT_TRUE(manager.ok()) << manager.status();
    return *std::move(manager);
  }
  static v1::TuneSpec Gemm() {
    TuneSpec spec;
    spec.model = "gemm";
    spec.target = "cpu";
    v1::TuneSpec message;
    ToProto(spec, message);
    return message;
  }
  // A job as a service that died has left it.
  void Leave(const std::function<void(v1::Job&)>& change) {
    auto store = JobStore::Open(folder_ + "/h.db.jobs");
    ASSERT_TRUE(store.ok()) << store.status();
    v1::Job job;
    job.set_key("k");
    *job.mutable_spec() = Gemm();
    job.set_state(v1::JOB_STATE_RUNNING);
    change(job);
    ASSERT_TRUE((*store)->Put(job).ok());
  }

  std::string folder_;
};

// Files of this process cannot grow while it lives: the disk is full.
class FullDisk {
 public:
  FullDisk() {
    before_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit_);
    rlimit none{0, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, before_);
  }

 private:
  rlimit limit_{};
  sighandler_t before_;
};

TEST_F(JobManagerTest, OneKeyIsOneJobHoweverManySubmitItAtOnce) {
  const std::unique_ptr<JobManager> manager = Open();
  std::vector<std::thread> callers;
  std::vector<absl::StatusOr<int64_t>> ids(8, absl::UnknownError("not called"));
  for (auto& id : ids) callers.emplace_back([&] { id = manager->Submit("k", Gemm()); });
  for (std::thread& caller : callers) caller.join();
  for (const auto& id : ids) {
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(*id, *ids[0]);
  }
  int64_t next = 0;
  EXPECT_EQ(manager->List(0, 1 << 20, next).size(), 1u);
}

// Stop goes over the jobs while calls delete them. Without the lock that is a race, which checkers see whichever comes
// first: valgrind --tool=helgrind build/bin/service_tests --gtest_filter=*JobsMayBeDeletedWhileItStops
TEST_F(JobManagerTest, JobsMayBeDeletedWhileItStops) {
  std::vector<int64_t> ids(24);
  std::iota(ids.begin(), ids.end(), 1);
  for (const int64_t id : ids) {
    Leave([&](v1::Job& job) {
      job.set_key("k" + std::to_string(id));
      job.set_state(v1::JOB_STATE_CANCELLED);
    });
  }
  const std::unique_ptr<JobManager> manager = Open();
  std::atomic<int> deleted{0};
  std::thread caller([&] {
    for (const int64_t id : ids) {
      EXPECT_EQ(manager->Delete(id), absl::OkStatus());
      deleted.fetch_add(1, std::memory_order_relaxed);  // orders nothing
    }
  });
  while (deleted.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  manager->Stop();
  caller.join();
  int64_t next = 0;
  EXPECT_TRUE(manager->List(0, 1 << 20, next).empty());
}

// Jobs that have ended are many more than those that may wait or run, and whoever may submit may resume all of them.
TEST_F(JobManagerTest, ResumedJobsCountAsSubmittedOnes) {
  JobManagerOptions options;
  options.history = folder_ + "/h.db";
  options.unfinished = 1;
  auto manager = JobManager::Open(options);
  ASSERT_TRUE(manager.ok()) << manager.status();
  const auto first = (*manager)->Submit("a", Gemm());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*manager)->Cancel(*first).ok());
  const auto second = (*manager)->Submit("b", Gemm());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*manager)->Resume(*first, 0).status(),
            absl::ResourceExhaustedError("the service has 1 unfinished jobs and takes no more; cancel some, or wait"));
  ASSERT_TRUE((*manager)->Cancel(*second).ok());
  EXPECT_EQ((*manager)->Resume(*first, 0).value().state(), v1::JOB_STATE_QUEUED);
}

// One token's jobs leave room for others': those that wait or run count, whoever submitted or resumed them, also after
// a restart.
TEST_F(JobManagerTest, UnfinishedJobsCountForTheTokenThatBeganThem) {
  JobManagerOptions options;
  options.history = folder_ + "/h.db";
  options.unfinished = 6;
  options.unfinished_per_token = 2;
  const absl::Status full =
      absl::ResourceExhaustedError("the token of 'alice' has 2 unfinished jobs and may have 2; cancel some, or wait");
  int64_t first = 0, bobs = 0;
  {
    auto manager = JobManager::Open(options);
    ASSERT_TRUE(manager.ok()) << manager.status();
    const auto submit = [&](const std::string& key, const std::string& owner) {
      return (*manager)->Submit(key, Gemm(), owner);
    };
    first = submit("a1", "alice").value();
    ASSERT_TRUE(submit("a2", "alice").ok());
    EXPECT_EQ(submit("a3", "alice").status(), full);
    EXPECT_EQ(submit("a1", "alice").value(), first);  // the same call again
    bobs = submit("b1", "bob").value();
    for (const char* key : {"1", "2", "3"}) ASSERT_TRUE(submit(key, "").ok()) << key;  // without tokens: no quota
    EXPECT_EQ(
        submit("b2", "bob").status(),
        absl::ResourceExhaustedError("the service has 6 unfinished jobs and takes no more; cancel some, or wait"));
    ASSERT_TRUE((*manager)->Cancel(bobs).ok());
    // Else she had three, at the cost of bob.
    EXPECT_EQ((*manager)->Resume(bobs, 0, "alice").status(), full);
    EXPECT_EQ((*manager)->Get(bobs, 0, {})->owner(), "bob");
  }
  auto manager = JobManager::Open(options);
  ASSERT_TRUE(manager.ok()) << manager.status();
  EXPECT_EQ((*manager)->Submit("a4", Gemm(), "alice").status(), full);
  ASSERT_TRUE((*manager)->Cancel(first).ok());
  const auto resumed = (*manager)->Resume(bobs, 0, "alice");
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->owner(), "alice");
  EXPECT_EQ((*manager)->Submit("a5", Gemm(), "alice").status(), full);
}

// A refusal costs the service nothing: the model, which may be long to read, is not looked at.
TEST_F(JobManagerTest, AQuotaIsCheckedBeforeTheModelIsRead) {
  JobManagerOptions options;
  options.history = folder_ + "/h.db";
  options.unfinished_per_token = 1;
  auto manager = JobManager::Open(options);
  ASSERT_TRUE(manager.ok()) << manager.status();
  ASSERT_TRUE((*manager)->Submit("a", Gemm(), "alice").ok());
  v1::TuneSpec unreadable = Gemm();
  unreadable.set_tasks("9");  // found out when the network has been partitioned
  EXPECT_TRUE(absl::IsInvalidArgument((*manager)->Submit("b", unreadable, "bob").status()));
  EXPECT_EQ(
      (*manager)->Submit("c", unreadable, "alice").status(),
      absl::ResourceExhaustedError("the token of 'alice' has 1 unfinished jobs and may have 1; cancel some, or wait"));
}

TEST_F(JobManagerTest, ACancellationThatCannotBeStoredIsNotReportedAsDone) {
  const std::unique_ptr<JobManager> manager = Open();
  const auto id = manager->Submit("k", Gemm());
  ASSERT_TRUE(id.ok()) << id.status();
  {
    const FullDisk full;
    EXPECT_FALSE(manager->Cancel(*id).ok());
  }
  EXPECT_EQ(manager->Get(*id, 0, {})->state(), v1::JOB_STATE_QUEUED);
  const auto cancelled = manager->Cancel(*id);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobManagerTest, AJobThatTookTheServiceWithItThreeTimesHasFailed) {
  Leave([](v1::Job& job) { job.set_preparations(2); });
  EXPECT_EQ(Open()->Get(1, 0, {})->state(), v1::JOB_STATE_QUEUED);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directory(folder_);
  Leave([](v1::Job& job) { job.set_preparations(3); });
  const std::unique_ptr<JobManager> manager = Open();
  const auto job = manager->Get(1, 0, {});
  EXPECT_EQ(job->state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(
      job->text(),
      "the service died 3 times while it prepared this job (model 'gemm', target cpu): look at its log, and resume "
      "the job when the cause is found");
  EXPECT_EQ(manager->Resume(1, 0)->state(), v1::JOB_STATE_QUEUED);
}

TEST_F(JobManagerTest, AJobThatWasBeingCancelledDoesNotBeginAgain) {
  Leave([](v1::Job& job) { job.set_cancel_requested(true); });
  EXPECT_EQ(Open()->Get(1, 0, {})->state(), v1::JOB_STATE_CANCELLED);
}

// Of a history in PostgreSQL: the next service may be on another host.
class PostgresJobManagerTest : public JobManagerTest {
 protected:
  void SetUp() override { setenv("XDG_STATE_HOME", folder_.c_str(), 1); }
  void TearDown() override { unsetenv("XDG_STATE_HOME"); }
  std::unique_ptr<JobManager> OpenShared(const ServiceLease& lease) {
    JobManagerOptions options;
    options.history = uri_;
    options.fence = lease.fence();
    auto manager = JobManager::Open(std::move(options));
    EXPECT_TRUE(manager.ok()) << manager.status();
    return *std::move(manager);
  }
  std::unique_ptr<ServiceLease> Lease() {
    auto lease = ServiceLease::Open(uri_, std::chrono::seconds(60)).value();
    std::string holder;
    EXPECT_TRUE(lease->Take("here:1", holder).value()) << holder;
    return lease;
  }

  const std::string uri_ = PostgresServer::Get().Uri("manager");
};

TEST_F(PostgresJobManagerTest, JobsAreTheNextServicesAndNotThoseOfOneThatLostTheLease) {
  auto lease = Lease();
  const auto manager = OpenShared(*lease);
  const auto job = manager->Submit("k", Gemm());
  ASSERT_TRUE(job.ok()) << job.status();
  PostgresServer::Get().Execute("UPDATE manager.service_lease SET expires_at = '-infinity'");
  auto next_lease = Lease();
  setenv("XDG_STATE_HOME", (folder_ + "/other").c_str(), 1);
  const auto next = OpenShared(*next_lease);
  EXPECT_EQ(next->Get(*job, 0, {})->spec().model(), "gemm");
  const absl::Status lost =
      absl::UnavailableError("this service does not hold the lease of history '" + uri_ +
                             "' (another service has taken it over); the one that does resumes its "
                             "jobs");
  EXPECT_EQ(manager->Submit("late", Gemm()).status(), lost);
  EXPECT_EQ(manager->Cancel(*job).status(), lost);
  EXPECT_EQ(next->Submit("k", Gemm()).value(), *job);  // asked again, after an answer that was lost
  EXPECT_EQ(next->Submit("new", Gemm()).value(), *job + 1);
  EXPECT_EQ(next->Get(*job, 0, {})->state(), v1::JOB_STATE_QUEUED);
  manager->Stop();
  EXPECT_EQ(OpenShared(*next_lease)->Get(*job, 0, {})->state(), v1::JOB_STATE_QUEUED);
}

}  // namespace
}  // namespace diapason
