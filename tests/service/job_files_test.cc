// What a service keeps for its jobs beside their list.
#include "service/job_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "db/history.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest() {
    std::string pattern = testing::TempDir() + "files-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.history = folder_ + "/h.db";
  }
  ~JobFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  JobManagerOptions options_;
};

TEST_F(JobFilesTest, ModelsAreFoundByTheirContent) {
  JobFiles files(options_);
  std::unique_ptr<JobStore> jobs;
  ASSERT_TRUE(files.Open(jobs).ok());
  EXPECT_NE(jobs, nullptr);
  v1::TuneSpec spec;
  spec.set_model("gemm");
  EXPECT_TRUE(files.FindModel(spec, "").ok());
  EXPECT_EQ(files.BringModel(spec).value(), "gemm");  // a built-in network
  spec.set_model("net.onnx");
  spec.set_model_hash(std::string(64, 'a'));
  EXPECT_EQ(files.FindModel(spec, "; send it").message(), "the service does not have the model 'net.onnx'; send it");
}

TEST_F(JobFilesTest, CostModelsGoWithTheirJobs) {
  JobFiles files(options_);
  std::unique_ptr<JobStore> jobs;
  ASSERT_TRUE(files.Open(jobs).ok());
  ASSERT_TRUE(files.BringCostModel(3).ok());
  EXPECT_EQ(files.CostModelPath(3), folder_ + "/h.db.models/job-3.model");
  std::ofstream(files.CostModelPath(3)) << "trees";
  ASSERT_TRUE(files.BringCostModel(3).ok());  // without a database it stays as it is
  EXPECT_EQ(std::filesystem::file_size(files.CostModelPath(3)), 5u);
  files.EraseCostModel(3);
  EXPECT_FALSE(std::filesystem::exists(files.CostModelPath(3)));
}

}  // namespace
}  // namespace diapason
