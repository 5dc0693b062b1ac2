#include "service/job_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "diapason/v1/tuning.pb.h"
#include "service/sha256.h"

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

TEST_F(JobStoreTest, AModelIsThereOnceItIsWhole) {
  ModelStore models(folder_ + "/models");
  const std::string content = "not really a model";
  Sha256 sum;
  sum.Add(content.data(), content.size());
  const std::string hash = sum.Hex();
  EXPECT_FALSE(models.Has(hash));
  {
    auto cut_off = models.Begin(hash, content.size());
    ASSERT_TRUE(cut_off.ok()) << cut_off.status();
    ASSERT_TRUE((*cut_off)->Add(content.substr(0, 5)).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/models"));
  {
    auto wrong = models.Begin(hash, content.size());
    ASSERT_TRUE((*wrong)->Add("something else").ok());
    EXPECT_EQ((*wrong)->Finish(),
              absl::InvalidArgumentError("the model's content, 14 bytes, is not what its hash says: send it again"));
    EXPECT_EQ((*wrong)->Add("0123456789"),
              absl::InvalidArgumentError("the model has more than the 18 bytes that were announced"));
  }
  EXPECT_FALSE(models.Has(hash));
  auto writer = models.Begin(hash, content.size());
  ASSERT_TRUE((*writer)->Add(content.substr(0, 5)).ok());
  ASSERT_TRUE((*writer)->Add(content.substr(5)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(models.Has(hash));
  auto read = HashOfFile(models.PathOf(hash));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, hash);
  EXPECT_FALSE(models.Has("../" + hash.substr(3)));
}

// Examples of FIPS 180-4.
TEST(Sha256Test, KnownSums) {
  auto of = [](const std::string& text) {
    Sha256 sum;
    for (char c : text) sum.Add(&c, 1);
    return sum.Hex();
  };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace diapason
