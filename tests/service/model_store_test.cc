#include "service/model_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "service/sha256.h"

namespace diapason {
namespace {

class ModelStoreTest : public testing::Test {
 protected:
  ModelStoreTest() {
    std::string pattern = testing::TempDir() + "models-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ModelStoreTest() override { std::filesystem::remove_all(folder_); }

  static std::string HashOf(const std::string& content) {
    Sha256 sum;
    sum.Add(content.data(), content.size());
    return sum.Hex();
  }
  static absl::Status Put(ModelStore& models, const std::string& content, const std::set<std::string>& needed = {}) {
    auto writer = models.Begin(HashOf(content), content.size(), needed);
    if (!writer.ok()) return writer.status();
    if (absl::Status added = (*writer)->Add(content); !added.ok()) return added;
    return (*writer)->Finish();
  }
  std::string folder_;
};

TEST_F(ModelStoreTest, AModelIsThereOnceItIsWhole) {
  ModelStore models(folder_ + "/models");
  const std::string content = "not really a model";
  const std::string hash = HashOf(content);
  EXPECT_FALSE(models.Has(hash));
  {
    auto cut_off = models.Begin(hash, content.size(), {});
    ASSERT_TRUE(cut_off.ok()) << cut_off.status();
    ASSERT_TRUE((*cut_off)->Add(content.substr(0, 5)).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/models"));
  {
    auto wrong = models.Begin(hash, content.size(), {});
    ASSERT_TRUE((*wrong)->Add("something else").ok());
    EXPECT_EQ((*wrong)->Finish(),
              absl::InvalidArgumentError("the model's content, 14 bytes, is not what its hash says: send it again"));
    EXPECT_EQ((*wrong)->Add("0123456789"),
              absl::InvalidArgumentError("the model has more than the 18 bytes that were announced"));
  }
  EXPECT_FALSE(models.Has(hash));
  auto writer = models.Begin(hash, content.size(), {});
  ASSERT_TRUE((*writer)->Add(content.substr(0, 5)).ok());
  ASSERT_TRUE((*writer)->Add(content.substr(5)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(models.Has(hash));
  auto read = HashOfFile(models.PathOf(hash));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, hash);
  EXPECT_FALSE(models.Has("../" + hash.substr(3)));
}

TEST_F(ModelStoreTest, ThoseUsedLongestAgoMakeRoom) {
  ModelStore models(folder_, {.bytes = 10, .models = 3, .grace = std::chrono::seconds(0)});
  const auto now = std::filesystem::file_time_type::clock::now();
  int age = 10;
  for (const char* content : {"a1", "b2", "c3"}) {
    ASSERT_TRUE(Put(models, content).ok());
    std::filesystem::last_write_time(models.PathOf(HashOf(content)), now - std::chrono::seconds(age--));
  }
  EXPECT_TRUE(models.Has(HashOf("a1")));  // used now
  ASSERT_TRUE(Put(models, "d4").ok());    // a fourth
  EXPECT_FALSE(models.Has(HashOf("b2")));
  EXPECT_TRUE(models.Has(HashOf("a1")));
  ASSERT_TRUE(Put(models, "12345678", {HashOf("c3")}).ok());
  EXPECT_TRUE(models.Has(HashOf("c3")));
  EXPECT_FALSE(models.Has(HashOf("a1")));
  EXPECT_EQ(models.contents().models, 2);
  EXPECT_EQ(models.contents().bytes, 10);
}

TEST_F(ModelStoreTest, WhatUnfinishedJobsNeedStays) {
  ModelStore models(folder_, {.bytes = 10, .models = 3, .grace = std::chrono::seconds(0)});
  ASSERT_TRUE(Put(models, "12345678").ok());
  EXPECT_EQ(Put(models, "abc", {HashOf("12345678")}),
            absl::ResourceExhaustedError(
                "the service has no room for another model of 3 bytes: it keeps 1 models, at most 3 "
                "and 10 bytes, and unfinished jobs need those; wait for some to end, or cancel some"));
  EXPECT_TRUE(models.Has(HashOf("12345678")));
  // An upload that has begun has its room.
  const auto upload = models.Begin(HashOf("ab"), 2, {HashOf("12345678")});
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Put(models, "c", {HashOf("12345678")})));
}

TEST_F(ModelStoreTest, WhatAnUploadLeftIsRemovedAtTheNextStart) {
  const std::string left = folder_ + "/" + HashOf("a") + ".onnx.part-17-0";
  std::ofstream(left) << "half of";
  std::ofstream(folder_ + "/job-1.model") << "not ours";
  ModelStore(folder_).RemoveStale();
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/job-1.model"));
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
