// Jobs of a service in this process, by the public header.
#include "diapason/service.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "service/server.h"
#include "tests/paths.h"

namespace diapason::api {
namespace {

class ServiceOfJobs : public testing::Test {
 protected:
  void SetUp() override {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));
    std::string name = testing::TempDir() + "/diapason_jobs_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    CoordinatorOptions options;
    options.listen = "127.0.0.1:0";
    options.jobs.history = folder_ / "h.db";
    options.jobs.import.program = TEST_PATH(DIAPASON_PROGRAM);  // this one reads no models
    auto server = CoordinatorServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Endpoint endpoint;
    endpoint.address = server_->address();
    auto service = Service::Connect(endpoint);
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
  }
  void TearDown() override {
    service_ = nullptr;
    server_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  static TuneOptions Gemm() {
    TuneOptions options;
    options.model.source = "gemm";
    options.target = "cpu";
    options.trials = 8;
    options.fleet.labels = {{"room", "1"}};
    options.fleet.priority = 3;
    return options;
  }

  std::filesystem::path folder_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceOfJobs, AJobIsSubmittedWatchedCancelledResumedAndForgotten) {
  EXPECT_EQ(service_->tracker(), server_->address()) << "it has one of its own";
  const absl::StatusOr<int64_t> id = service_->Submit(Gemm());
  ASSERT_TRUE(id.ok()) << id.status();
  absl::StatusOr<Job> job = service_->Get(*id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model, "gemm");
  EXPECT_EQ(job->trials, 8);
  EXPECT_EQ(job->priority, 3);
  EXPECT_EQ(job->labels.at("room"), "1");
  EXPECT_FALSE(job->ended()) << "no device measures";
  EXPECT_GT(job->submitted_at, 0);
  const absl::StatusOr<std::vector<Job>> jobs = service_->Jobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ(jobs->front().id, *id);
  EXPECT_EQ(service_->Delete(*id).code(), absl::StatusCode::kFailedPrecondition);

  job = service_->Cancel(*id);
  ASSERT_TRUE(job.ok()) << job.status();
  while (job.ok() && !job->ended()) job = service_->Wait(*id, job->version, 1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state, "cancelled");
  job = service_->Resume(*id, 16);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->trials, 16);
  EXPECT_FALSE(job->ended());
  job = service_->Cancel(*id);
  while (job.ok() && !job->ended()) job = service_->Wait(*id, job->version, 1);
  EXPECT_TRUE(service_->Delete(*id).ok());
  EXPECT_EQ(service_->Get(*id).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServiceOfJobs, WhatIsWrongIsNamed) {
  TuneOptions options = Gemm();
  options.trials = -1;
  const absl::Status refused = service_->Submit(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckOptions(options), refused);
  EXPECT_TRUE(CheckOptions(Gemm()).ok());
  EXPECT_EQ(service_->Get(77).status().code(), absl::StatusCode::kNotFound);
  Endpoint nobody;
  nobody.address = "127.0.0.1:1";
  const absl::Status silent = Service::Connect(nobody, 0.2).status();
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(silent.message().find("127.0.0.1:1"), std::string::npos) << silent;
}

}  // namespace
}  // namespace diapason::api
