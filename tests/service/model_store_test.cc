#include "service/model_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "db/blobs.h"
#include "db/service_tables.h"
#include "service/sha256.h"
#include "tests/db/backends.h"

namespace diapason {
namespace {

std::string HashOfText(const std::string& content) {
  Sha256 sum;
  sum.Add(content.data(), content.size());
  return sum.Hex();
}

class ModelStoreTest : public BackendTest {
 protected:
  ModelStoreTest() {
    if (GetParam() == Backend::kPostgres) blobs_ = OpenBlobs();
  }
  std::unique_ptr<BlobStore> OpenBlobs() {
    return std::make_unique<BlobStore>(OpenServiceTables(Path("h.db"), PostgresOptions()).value());
  }
  std::string Folder(const std::string& name = "models") const { return folder_ + "/" + name; }
  ModelStore Open(ModelStoreLimits limits = {}) { return ModelStore(Folder(), limits, blobs_.get()); }
  // As if it had been used so long ago.
  void Age(const ModelStore& models, const std::string& hash, int seconds) {
    if (blobs_ == nullptr) {
      const auto now = std::filesystem::file_time_type::clock::now();
      return std::filesystem::last_write_time(models.PathOf(hash), now - std::chrono::seconds(seconds));
    }
    const auto db = OpenServiceTables(Path("h.db"), PostgresOptions()).value();
    ASSERT_TRUE(db->Exec("UPDATE service_blobs SET used_at = used_at - INTERVAL '" + std::to_string(seconds) +
                         " s' WHERE name = '" + hash + ".onnx'")
                    .ok());
  }

  static std::string HashOf(const std::string& content) { return HashOfText(content); }
  static absl::Status Put(ModelStore& models, const std::string& content, const std::set<std::string>& needed = {}) {
    auto writer = models.Begin(HashOf(content), content.size(), needed);
    if (!writer.ok()) return writer.status();
    if (absl::Status added = (*writer)->Add(content); !added.ok()) return added;
    return (*writer)->Finish();
  }
  std::unique_ptr<BlobStore> blobs_;
};

TEST_P(ModelStoreTest, AModelIsThereOnceItIsWhole) {
  ModelStore models = Open();
  const std::string content = "not really a model";
  const std::string hash = HashOf(content);
  EXPECT_FALSE(models.Has(hash).value());
  {
    auto cut_off = models.Begin(hash, content.size(), {});
    ASSERT_TRUE(cut_off.ok()) << cut_off.status();
    ASSERT_TRUE((*cut_off)->Add(content.substr(0, 5)).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(Folder()));
  {
    auto wrong = models.Begin(hash, content.size(), {});
    ASSERT_TRUE((*wrong)->Add("something else").ok());
    EXPECT_EQ((*wrong)->Finish(),
              absl::InvalidArgumentError("the model's content, 14 bytes, is not what its hash says: send it again"));
    EXPECT_EQ((*wrong)->Add("0123456789"),
              absl::InvalidArgumentError("the model has more than the 18 bytes that were announced"));
  }
  EXPECT_FALSE(models.Has(hash).value());
  auto writer = models.Begin(hash, content.size(), {});
  ASSERT_TRUE((*writer)->Add(content.substr(0, 5)).ok());
  ASSERT_TRUE((*writer)->Add(content.substr(5)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(models.Has(hash).value());
  auto read = HashOfFile(models.PathOf(hash));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, hash);
  EXPECT_FALSE(models.Has("../" + hash.substr(3)).value());
}

TEST_P(ModelStoreTest, ThoseUsedLongestAgoMakeRoom) {
  ModelStore models = Open({.bytes = 10, .models = 3, .grace = std::chrono::seconds(0)});
  int age = 10;
  for (const char* content : {"a1", "b2", "c3"}) {
    ASSERT_TRUE(Put(models, content).ok());
    Age(models, HashOf(content), age--);
  }
  EXPECT_TRUE(models.Has(HashOf("a1")).value());  // used now
  ASSERT_TRUE(Put(models, "d4").ok());            // a fourth
  EXPECT_FALSE(models.Has(HashOf("b2")).value());
  EXPECT_TRUE(models.Has(HashOf("a1")).value());
  ASSERT_TRUE(Put(models, "12345678", {HashOf("c3")}).ok());
  EXPECT_TRUE(models.Has(HashOf("c3")).value());
  EXPECT_FALSE(models.Has(HashOf("a1")).value());
  EXPECT_EQ(models.contents().models, 2);
  EXPECT_EQ(models.contents().bytes, 10);
}

TEST_P(ModelStoreTest, WhatUnfinishedJobsNeedStays) {
  ModelStore models = Open({.bytes = 10, .models = 3, .grace = std::chrono::seconds(0)});
  ASSERT_TRUE(Put(models, "12345678").ok());
  EXPECT_EQ(Put(models, "abc", {HashOf("12345678")}),
            absl::ResourceExhaustedError(
                "the service has no room for another model of 3 bytes: it keeps 1 models, at most 3 "
                "and 10 bytes, and unfinished jobs need those; wait for some to end, or cancel some"));
  EXPECT_TRUE(models.Has(HashOf("12345678")).value());
  // An upload that has begun has its room.
  const auto upload = models.Begin(HashOf("ab"), 2, {HashOf("12345678")});
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Put(models, "c", {HashOf("12345678")})));
}

TEST_P(ModelStoreTest, WhatAnUploadLeftIsRemovedAtTheNextStart) {
  ModelStore models = Open();
  ASSERT_TRUE(Put(models, "whole").ok());
  const std::string left = Folder() + "/" + HashOf("a") + ".onnx.part-17-0";
  std::ofstream(left) << "half of";
  std::ofstream(Folder() + "/job-1.model") << "not ours";
  ASSERT_TRUE(models.RemoveStale().ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(Folder() + "/job-1.model"));
  EXPECT_TRUE(models.Has(HashOf("whole")).value());
}

DIAPASON_ON_EVERY_BACKEND(ModelStoreTest);

// Two services with folders of their own and one database.
class PostgresModelsTest : public HistoryFolder, public testing::Test {
 protected:
  PostgresModelsTest() : uri_(PostgresServer::Get().Uri("models" + std::to_string(++tests_))) {}
  std::unique_ptr<Database> Tables() { return OpenServiceTables(uri_, PostgresOptions()).value(); }
  static inline int tests_ = 0;
  const std::string uri_;
};

TEST_F(PostgresModelsTest, TheOtherServiceFetchesWhatItLacks) {
  BlobStore first_blobs(Tables()), second_blobs(Tables());
  ModelStore first(Path("first"), {}, &first_blobs), second(Path("second"), {}, &second_blobs);
  std::string content(5 << 19, '\0');  // two chunks and a half
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 1000);
  const std::string hash = HashOfText(content);
  EXPECT_FALSE(second.Has(hash).value());
  auto writer = first.Begin(hash, content.size(), {});
  ASSERT_TRUE((*writer)->Add(content).ok());
  EXPECT_FALSE(second.Has(hash).value());  // not all of it is there
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(second.Has(hash).value());
  EXPECT_FALSE(std::filesystem::exists(second.PathOf(hash)));
  ASSERT_TRUE(second.Bring(hash).ok());
  EXPECT_TRUE(ReadFile(second.PathOf(hash)) == content);
  EXPECT_EQ(second.contents().bytes, static_cast<int64_t>(content.size()));
  // What the one removes the other does not keep.
  ASSERT_TRUE(first_blobs.Erase(hash + ".onnx").ok());
  EXPECT_FALSE(second.Has(hash).value());
  ASSERT_TRUE(second.RemoveStale().ok());
  EXPECT_FALSE(std::filesystem::exists(second.PathOf(hash)));
  EXPECT_TRUE(absl::IsNotFound(second.Bring(hash)));
  EXPECT_EQ(Tables()->QueryInt("SELECT COUNT(*) FROM service_chunks").value(), 0);
}

TEST_F(PostgresModelsTest, AServiceThatDiesWhileItStoresAModelLeavesNone) {
  BlobStore blobs(Tables());
  ModelStore models(Path("models"), {}, &blobs);
  // The chunks that it had stored when it died.
  ASSERT_TRUE(Tables()->Exec("INSERT INTO service_chunks VALUES('half', 0, 'abc'), ('half', 1, 'def')").ok());
  EXPECT_EQ(models.contents().models, 0);
  ASSERT_TRUE(models.RemoveStale().ok());
  EXPECT_EQ(Tables()->QueryInt("SELECT COUNT(*) FROM service_chunks").value(), 0);
}

TEST_F(PostgresModelsTest, ADamagedModelIsNotUsed) {
  BlobStore blobs(Tables());
  ModelStore models(Path("models"), {}, &blobs);
  const std::string hash = HashOfText("right");
  WriteFile(Path("file"), "wrong");
  ASSERT_TRUE(blobs.Put(hash + ".onnx", Path("file")).ok());
  EXPECT_EQ(models.Bring(hash), absl::DataLossError("the model " + hash +
                                                    " of the service is damaged: delete its job, and submit it again"));
  EXPECT_TRUE(std::filesystem::is_empty(Path("models")));
}

// A reader sees the file before or the one after, whole.
TEST_F(PostgresModelsTest, AFileIsReplacedAtOnce) {
  BlobStore blobs(Tables());
  for (const std::string& content : {std::string(3 << 20, 'a'), std::string("b"), std::string()}) {
    WriteFile(Path("file"), content);
    ASSERT_TRUE(blobs.Put("job-1.model", Path("file")).ok());
    std::string read;
    ASSERT_TRUE(blobs
                    .Get("job-1.model",
                         [&](std::string_view data) {
                           read += data;
                           return absl::OkStatus();
                         })
                    .ok());
    EXPECT_TRUE(read == content);
    EXPECT_EQ(blobs.List()->size(), 1u);
    EXPECT_EQ(Tables()->QueryInt("SELECT COUNT(*) FROM service_chunks").value(),
              static_cast<int64_t>((content.size() + (1 << 20) - 1) >> 20));
  }
  EXPECT_EQ(blobs.Put("job-1.model", Path("none")),
            absl::NotFoundError("cannot read '" + Path("none") + "' (No such file or directory)"));
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
