#include "service/job_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST_F(JobStoreTest, OtherFilesAreRefused) {
  std::ofstream(folder_ + "/text") << std::string(4096, 'x');
  EXPECT_EQ(JobStore::Open(folder_ + "/text").status(),
            absl::FailedPreconditionError("'" + folder_ +
                                          "/text' is not a Diapason job list (it is no SQLite database); name another "
                                          "file"));
}

}  // namespace
}  // namespace diapason
