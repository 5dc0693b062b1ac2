#include "api/record_sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason::api {
namespace {

TuningRecord Named(const std::string& key, const std::string& uuid, Verified verified = Verified::kOk) {
  TuningRecord record;
  record.workload_key = key;
  record.uuid = uuid;
  record.verified = verified;
  return record;
}

// Gives what it was made with, and notes what it was asked for.
class Fixed : public RecordSource {
 public:
  Fixed(std::string kind, std::vector<TuningRecord> records, std::vector<std::string>* asked)
      : kind_(std::move(kind)), records_(std::move(records)), asked_(asked) {}
  std::string kind() const override { return kind_; }
  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& keys, const ResolvedTarget&, bool) override {
    RecordsByWorkload found;
    for (const std::string& key : keys) {
      asked_->push_back(absl::StrCat(kind_, ":", key));
      for (const TuningRecord& record : records_)
        if (record.workload_key == key) found.emplace(key, record);
    }
    return found;
  }
  absl::StatusOr<std::vector<TuningRecord>> Fast(const std::vector<std::string>& keys, const ResolvedTarget&,
                                                 bool) override {
    std::vector<TuningRecord> found = records_;
    std::erase_if(found, [&](const TuningRecord& record) {
      return std::find(keys.begin(), keys.end(), record.workload_key) == keys.end();
    });
    return found;
  }
  std::string Mark(const TuningRecord&, double, const std::string&) override { return ""; }

 private:
  const std::string kind_;
  const std::vector<TuningRecord> records_;
  std::vector<std::string>* asked_;
};

class RecordSourcesTest : public testing::Test {
 protected:
  RecordSources Of(std::vector<TuningRecord> first, std::vector<TuningRecord> second) {
    std::vector<std::unique_ptr<RecordSource>> sources;
    sources.push_back(std::make_unique<Fixed>("first", std::move(first), &asked_));
    sources.push_back(std::make_unique<Fixed>("second", std::move(second), &asked_));
    return RecordSources(std::move(sources));
  }

  std::vector<std::string> asked_;
  const ResolvedTarget target_ = {};
};

TEST_F(RecordSourcesTest, TheFirstThatHasAVerifiedRecordCounts) {
  RecordSources sources =
      Of({Named("a", "1"), Named("b", "2", Verified::kUnknown)}, {Named("a", "3"), Named("b", "4"), Named("c", "5")});
  const auto found = sources.Read({"a", "b", "c", "d"}, target_, false);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ(found->at("a").uuid, "1");
  EXPECT_EQ(found->at("b").uuid, "4");
  EXPECT_EQ(found->at("c").uuid, "5");
  EXPECT_EQ(sources.SourceOf(found->at("a")).kind(), "first");
  EXPECT_EQ(sources.SourceOf(found->at("c")).kind(), "second");
  EXPECT_EQ(asked_,
            (std::vector<std::string>{"first:a", "first:b", "first:c", "first:d", "second:b", "second:c", "second:d"}));
}

TEST_F(RecordSourcesTest, OneThatIsNotVerifiedIsToldOfWhereThereIsNoOther) {
  RecordSources sources = Of({}, {Named("a", "1", Verified::kFailed)});
  const auto found = sources.Read({"a"}, target_, false);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->at("a").verified, Verified::kFailed);
}

TEST_F(RecordSourcesTest, ARefutedRecordMakesRoomForThatOfTheNextSource) {
  RecordSources sources = Of({Named("a", "1")}, {Named("a", "2")});
  const auto found = sources.Read({"a"}, target_, false, {"1"});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->at("a").uuid, "2");
}

TEST_F(RecordSourcesTest, ContendersAreTheVerifiedOnesOfAllSources) {
  const auto timed = [](const std::string& uuid, double seconds, Verified verified = Verified::kOk) {
    TuningRecord record = Named("a", uuid, verified);
    record.schedule = uuid;
    record.sketch = uuid;
    record.outcome = Timing{{seconds}, 1};
    return record;
  };
  RecordSources sources = Of({timed("1", 10e-6), timed("2", 10.2e-6), timed("3", 10.1e-6, Verified::kUnknown)},
                             {timed("4", 9e-6), timed("5", 20e-6), timed("6", 10e-6)});
  const auto best = sources.Read({"a"}, target_, false);
  ASSERT_TRUE(best.ok());
  const auto contenders = sources.Contenders(*best, target_, false, {"6"});
  ASSERT_TRUE(contenders.ok());
  ASSERT_EQ(contenders->at("a").size(), 2u);
  EXPECT_EQ(contenders->at("a")[0].uuid, "4");
  EXPECT_EQ(contenders->at("a")[1].uuid, "2");
  EXPECT_EQ(sources.SourceOf(contenders->at("a")[0]).kind(), "second");
}

TEST(IsHistory, TellsFilesOfRecordsAndAddressesApart) {
  EXPECT_TRUE(IsHistory("none.db"));
  EXPECT_TRUE(IsHistory("postgresql://host/db"));
  EXPECT_FALSE(IsHistory("https://host/records.jsonl"));
}

}  // namespace
}  // namespace diapason::api
