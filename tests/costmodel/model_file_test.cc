#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "costmodel/cost_model.h"
#include "tests/costmodel/synthetic.h"

namespace diapason {
namespace {

class ModelFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        absl::StrCat("model_file_test.", getpid(), ".", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "h.db.model";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void SaveTrained() {
    XgbCostModel model(SyntheticOptions());
    model.AddSamples(SyntheticSamples(1, 0, 60));
    model.Train();
    model.Wait();
    const std::vector<Sample> unseen = SyntheticSamples(1, 1000, 1050);
    scores_ = Scores(*model.Current(), unseen);
    ASSERT_TRUE(model.Save(path_).ok());
  }
  absl::Status LoadWith(const XgbOptions& options) { return XgbCostModel(options).Load(path_); }
  std::string Contents() const {
    std::ifstream in(path_, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void Write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  std::filesystem::path folder_;
  std::string path_;
  std::vector<double> scores_;
};

TEST_F(ModelFileTest, GivesBackModelAndSamples) {
  SaveTrained();
  XgbCostModel model(SyntheticOptions());
  ASSERT_TRUE(model.Load(path_).ok());
  ASSERT_NE(model.Current(), nullptr);
  EXPECT_EQ(Scores(*model.Current(), SyntheticSamples(1, 1000, 1050)), scores_);
  // The samples count: the next training sees old and new ones.
  model.AddSamples(SyntheticSamples(1, 60, 80));
  model.Train();
  model.Wait();
  EXPECT_EQ(model.stats().samples, 80);
}

TEST_F(ModelFileTest, MeasurementsOfThisRunGoBeforeTheFiles) {
  SaveTrained();
  XgbCostModel model(SyntheticOptions());
  std::vector<Sample> samples = SyntheticSamples(1, 0, 60);
  model.AddSamples(samples);
  model.Train();
  model.Wait();
  const auto trained = model.Current();
  ASSERT_TRUE(model.Load(path_).ok());
  EXPECT_EQ(model.Current(), trained);
}

TEST_F(ModelFileTest, SavesWhatIsNotTrainedYet) {
  XgbCostModel model(SyntheticOptions());
  model.AddSamples(SyntheticSamples(1, 0, 5));
  ASSERT_TRUE(model.Save(path_).ok());
  XgbCostModel other(SyntheticOptions());
  ASSERT_TRUE(other.Load(path_).ok());
  EXPECT_EQ(other.Current(), nullptr);
}

TEST_F(ModelFileTest, MissingFileIsNotFound) {
  const absl::Status status = LoadWith(SyntheticOptions());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelFileTest, RefusesOtherFeatures) {
  SaveTrained();
  XgbOptions options = SyntheticOptions();
  options.feature_version = 4;
  options.num_features = 13;
  const absl::Status status = LoadWith(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the cost model " + path_ +
                " was trained on version 3 of the features (12 of them) for cuda, this run needs version 4 (13) for "
                "cuda: name another file or remove it, a new model is trained from the history");
}

TEST_F(ModelFileTest, RefusesAnotherTarget) {
  SaveTrained();
  XgbOptions options = SyntheticOptions();
  options.target_kind = "cpu";
  const absl::Status status = LoadWith(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the cost model " + path_ +
                " was trained on version 3 of the features (12 of them) for cuda, this run needs version 3 (12) for "
                "cpu: name another file or remove it, a new model is trained from the history");
}

TEST_F(ModelFileTest, RefusesALaterFormat) {
  SaveTrained();
  std::string bytes = Contents();
  bytes.replace(bytes.find("format 1"), 8, "format 2");
  Write(bytes);
  const absl::Status status = LoadWith(SyntheticOptions());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "the cost model " + path_ +
                                  " has format 2, this program reads 1: name another file or remove it, a new model is "
                                  "trained from the history");
}

TEST_F(ModelFileTest, RefusesDamageAnywhereAndLeavesTheFile) {
  SaveTrained();
  const std::string good = Contents();
  const size_t payload = good.find("\n\n") + 2;
  for (size_t at = 0; at < good.size(); at += at < payload ? 1 : 997) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x11);
    Write(bad);
    const absl::Status status = LoadWith(SyntheticOptions());
    EXPECT_FALSE(status.ok()) << at;
    EXPECT_EQ(Contents(), bad) << at;
  }
  for (size_t size = 0; size < good.size(); size += size < payload ? 1 : 1013) {
    Write(good.substr(0, size));
    const absl::Status status = LoadWith(SyntheticOptions());
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_EQ(status.message(), "the cost model " + path_ +
                                    " is damaged: name another file or remove it, a new model is trained from the "
                                    "history");
  }
}

TEST_F(ModelFileTest, KeepsTheOldFileWhenItCannotWrite) {
  SaveTrained();
  const std::string good = Contents();
  XgbCostModel model(SyntheticOptions());
  EXPECT_FALSE(model.Save((folder_ / "no" / "such" / "folder").string()).ok());
  std::filesystem::create_directories(folder_ / "folder");
  EXPECT_FALSE(model.Save((folder_ / "folder").string()).ok());
  EXPECT_EQ(Contents(), good);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace diapason
