#include "service/job_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "db/sqlite.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

class JobStoreTest : public testing::Test {
 protected:
  JobStoreTest() {
    std::string pattern = testing::TempDir() + "jobs-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~JobStoreTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(JobStoreTest, JobsAreThereAgain) {
  v1::Job first, second;
  first.set_key("a");
  first.mutable_spec()->set_model("gemm");
  second.set_key("b");
  {
    auto store = JobStore::Open(folder_ + "/jobs");
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Put(first).ok());
    ASSERT_TRUE((*store)->Put(second).ok());
    EXPECT_EQ(first.id(), 1);
    EXPECT_EQ(second.id(), 2);
    first.set_state(v1::JOB_STATE_DONE);
    ASSERT_TRUE((*store)->Put(first).ok());
    EXPECT_TRUE(absl::IsUnavailable(JobStore::Open(folder_ + "/jobs").status()));  // another service
  }
  auto store = JobStore::Open(folder_ + "/jobs");
  ASSERT_TRUE(store.ok()) << store.status();
  auto jobs = (*store)->Load();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].DebugString(), first.DebugString());
  EXPECT_EQ((*jobs)[1].key(), "b");
}

TEST_F(JobStoreTest, AnErasedJobIsGoneAndItsIdIsNotGivenAgain) {
  auto store = JobStore::Open(folder_ + "/jobs");
  ASSERT_TRUE(store.ok()) << store.status();
  v1::Job first, second;
  first.set_key("a");
  second.set_key("a");
  ASSERT_TRUE((*store)->Put(first).ok());
  ASSERT_TRUE((*store)->Erase(first.id()).ok());
  ASSERT_TRUE((*store)->Erase(first.id()).ok());
  EXPECT_EQ((*store)->Load()->size(), 0u);
  ASSERT_TRUE((*store)->Put(second).ok());
  EXPECT_EQ(second.id(), 2);
}

// As programs wrote it that knew no owners: its jobs are read, and the file takes jobs with owners.
TEST_F(JobStoreTest, AListFromBeforeJobsHadOwnersIsReadAndWritten) {
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

TEST_F(JobStoreTest, OtherFilesAreRefused) {
  std::ofstream(folder_ + "/text") << std::string(4096, 'x');
  EXPECT_EQ(JobStore::Open(folder_ + "/text").status(),
            absl::FailedPreconditionError("'" + folder_ +
                                          "/text' is not a Diapason job list (it is no SQLite database); name another "
                                          "file"));
}

}  // namespace
}  // namespace diapason
