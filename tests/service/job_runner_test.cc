// One job: what is refused before it exists, and what becomes of it without a fleet.
#include "service/job_runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "diapason/v1/tuning.pb.h"
#include "service/job_store.h"

namespace diapason {
namespace {

class JobRunnerTest : public testing::Test {
 protected:
  JobRunnerTest() {
    std::unique_ptr<JobStore> store;
    EXPECT_TRUE(files_.Open(store).ok());
    EXPECT_TRUE(jobs_.Open(std::move(store)).ok());
  }
  ~JobRunnerTest() override {
    jobs_.Stop();
    jobs_.Join();
    std::filesystem::remove_all(folder_);
  }
  static v1::TuneSpec Spec(const std::string& tasks) {
    TuneSpec spec;
    spec.model = "gemm";
    spec.target = "cpu";
    spec.tasks = tasks;
    v1::TuneSpec message;
    ToProto(spec, message);
    return message;
  }
  absl::Status Check(const v1::TuneSpec& message) { return runner_.Check(FromProto(message).value(), message); }

  static JobManagerOptions OptionsIn(const std::string& folder) {
    JobManagerOptions options;
    options.history = folder + "/h.db";
    options.give_up_seconds = 0.1;
    return options;
  }
  static std::string MakeFolder() {
    std::string pattern = testing::TempDir() + "runner-XXXXXX";
    return mkdtemp(pattern.data());
  }

  const std::string folder_ = MakeFolder();
  const JobManagerOptions options_ = OptionsIn(folder_);
  JobFiles files_{options_};
  JobTable jobs_{{}};
  PreparationTurns turns_;
  const JobRunner runner_{options_, files_, jobs_, turns_};
};

TEST_F(JobRunnerTest, WhatTuneWouldRefuseIsRefused) {
  EXPECT_EQ(Check(Spec("")), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(Check(Spec("1000")))) << Check(Spec("1000"));
  turns_.Stop();
  EXPECT_EQ(Check(Spec("")), absl::UnavailableError("the service stops"));
}

TEST_F(JobRunnerTest, WithoutAFleetTheJobWaits) {
  const int64_t id = jobs_.Add("k", Spec(""), "").value();
  EXPECT_TRUE(
      jobs_.RunNext([&](JobTable::Entry& entry, const v1::Job& job) { runner_.Run(entry, job, "127.0.0.1:1"); }));
  jobs_.Join();
  const v1::Job job = jobs_.Get(id, 0, std::chrono::milliseconds(0)).value();
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.preparations(), 0u);
  EXPECT_NE(job.text().find("127.0.0.1:1"), std::string::npos) << job.text();
}

}  // namespace
}  // namespace diapason
