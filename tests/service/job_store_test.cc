#include "service/job_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "db/service_tables.h"
#include "db/sqlite.h"
#include "diapason/v1/tuning.pb.h"
#include "tests/db/backends.h"

namespace diapason {
namespace {

class JobStoreTest : public BackendTest {
 protected:
  std::unique_ptr<JobStore> Open() {
    if (GetParam() == Backend::kPostgres)
      return JobStore::OpenShared(OpenServiceTables(Path("h.db"), PostgresOptions()).value());
    auto store = JobStore::Open(Path("h.db.jobs"));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
};

// What is a file's own.
class JobFileTest : public HistoryFolder, public testing::Test {};

TEST_P(JobStoreTest, JobsAreThereAgain) {
  v1::Job first, second;
  first.set_key("a");
  first.mutable_spec()->set_model("gemm");
  second.set_key("b");
  {
    auto store = Open();
    ASSERT_TRUE(store->Put(first).ok());
    ASSERT_TRUE(store->Put(second).ok());
    EXPECT_EQ(first.id(), 1);
    EXPECT_EQ(second.id(), 2);
    first.set_state(v1::JOB_STATE_DONE);
    ASSERT_TRUE(store->Put(first).ok());
  }
  auto store = Open();
  auto jobs = store->Load();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].DebugString(), first.DebugString());
  EXPECT_EQ((*jobs)[1].key(), "b");
}

TEST_P(JobStoreTest, AnErasedJobIsGoneAndItsIdIsNotGivenAgain) {
  auto store = Open();
  v1::Job first, second;
  first.set_key("a");
  second.set_key("a");
  ASSERT_TRUE(store->Put(first).ok());
  ASSERT_TRUE(store->Erase(first.id()).ok());
  ASSERT_TRUE(store->Erase(first.id()).ok());
  EXPECT_EQ(store->Load()->size(), 0u);
  ASSERT_TRUE(store->Put(second).ok());
  EXPECT_EQ(second.id(), 2);
}

DIAPASON_ON_EVERY_BACKEND(JobStoreTest);

TEST_F(JobFileTest, AnotherServiceDoesNotGetIt) {
  const auto store = JobStore::Open(folder_ + "/jobs");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(absl::IsUnavailable(JobStore::Open(folder_ + "/jobs").status()));
}

// As programs wrote it that knew no owners: its jobs are read, and the file takes jobs with owners.
TEST_F(JobFileTest, AListFromBeforeJobsHadOwnersIsReadAndWritten) {
  const std::string path = folder_ + "/jobs";
  {
    auto db = SqliteDatabase::Open(path, SqliteDatabase::Access::kCreatePrivate, std::chrono::milliseconds(0),
                                   "old job list");
    ASSERT_TRUE(db.ok()) << db.status();
    // Field 2 is the key "old", field 4 the state QUEUED.
    ASSERT_TRUE((*db)
                    ->Exec("CREATE TABLE jobs(id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, job BLOB "
                           "NOT NULL) STRICT;"
                           "INSERT INTO jobs VALUES(7, 'old', x'12036f6c642001');"
                           "PRAGMA application_id=1148217954; PRAGMA user_version=1")
                    .ok());
  }
  v1::Job owned;
  owned.set_key("new");
  owned.set_owner("alice");
  for (const size_t jobs : {1, 2}) {
    auto store = JobStore::Open(path);
    ASSERT_TRUE(store.ok()) << store.status();
    auto loaded = (*store)->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->size(), jobs);
    EXPECT_EQ((*loaded)[0].id(), 7);
    EXPECT_EQ((*loaded)[0].key(), "old");
    EXPECT_EQ((*loaded)[0].state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ((*loaded)[0].owner(), "");
    if (jobs == 1) {
      ASSERT_TRUE((*store)->Put(owned).ok());
    } else {
      EXPECT_EQ((*loaded)[1].owner(), "alice");
    }
  }
}

TEST_F(JobFileTest, OtherFilesAreRefused) {
  std::ofstream(folder_ + "/text") << std::string(4096, 'x');
  EXPECT_EQ(JobStore::Open(folder_ + "/text").status(),
            absl::FailedPreconditionError("'" + folder_ +
                                          "/text' is not a Diapason job list (it is no SQLite database); name another "
                                          "file"));
}

TEST(PostgresJobsTest, AJobThatWasNotAnsweredForIsThereOnce) {
  const std::string uri = PostgresServer::Get().Uri("killed_jobs");
  const auto store = JobStore::OpenShared(OpenServiceTables(uri, PostgresOptions()).value());
  std::atomic<bool> done{false};
  std::thread killer([&] {
    while (!done) {
      PostgresServer::Get().Execute(
          "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'diapason'");
      usleep(7000);
    }
  });
  std::map<std::string, int64_t> put;
  for (int i = 0; i < 60; ++i) {
    v1::Job job;
    job.set_key("k" + std::to_string(i));
    const absl::Status status = store->Put(job);
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    if (status.ok()) put[job.key()] = job.id();
  }
  done = true;
  killer.join();
  EXPECT_GT(put.size(), 0u);
  std::map<std::string, int64_t> loaded;
  const std::vector<v1::Job> jobs = store->Load().value();
  for (const v1::Job& job : jobs) EXPECT_TRUE(loaded.emplace(job.key(), job.id()).second) << job.key();
  for (const auto& [key, id] : put) EXPECT_EQ(loaded[key], id) << key;
}

}  // namespace
}  // namespace diapason
