// The programs of a network that is checked.
#include "worker/pipeline/network_builds.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace diapason::pipeline {
namespace {

JobPtr NetworkJob() {
  auto job = std::make_shared<Job>();
  v1::NetworkCheck& check = *job->request.mutable_network();
  for (const char* task : {"a", "b", "unused"}) check.mutable_plan()->add_tasks(task);
  check.mutable_plan()->add_task_names("first");
  for (const uint32_t task : {0, 1, 1}) check.mutable_plan()->add_programs()->set_task(task);
  for (const char* schedule : {"s0", "s1", "s2"}) check.add_schedules(schedule);
  return job;
}

TEST(NetworkBuilds, EachProgramAndEachTaskOfOneIsBuilt) {
  const JobPtr job = NetworkJob();
  EXPECT_TRUE(CheckNetworkRequest(job->request.network()).ok());
  const std::vector<BuildTask> tasks = NetworkTasks(job);
  ASSERT_EQ(tasks.size(), 5u);
  v1::BuildJob build;
  FillNetworkBuild(tasks[2], build);
  EXPECT_EQ(build.workload(), "b");
  EXPECT_EQ(build.schedule(), "s2");
  FillNetworkBuild(tasks[3], build);
  EXPECT_EQ(build.workload(), "a");
  EXPECT_TRUE(build.reference());
  EXPECT_EQ(NetworkTaskName(tasks[0]), "first");
  EXPECT_EQ(NetworkTaskName(tasks[1]), "2");
  for (const BuildTask& task : tasks) {
    EXPECT_FALSE(job->built());
    TakeNetworkProgram(task, std::make_shared<const std::string>("program"));
  }
  EXPECT_TRUE(job->built());
  v1::RunJob run;
  FillNetworkRun(*job, 1 << 20, run);
  EXPECT_EQ(run.network().programs_size(), 3);
  EXPECT_EQ(run.network().reference_programs(2), "");
  EXPECT_EQ(run.network().check().schedules_size(), 0);
}

TEST(NetworkBuilds, NetworksThatAreNoneAreRefused) {
  const JobPtr job = NetworkJob();
  v1::NetworkCheck& check = *job->request.mutable_network();
  check.mutable_plan()->mutable_programs(0)->set_task(3);
  EXPECT_EQ(CheckNetworkRequest(check).message(), "a program of the network is of no task");
  check.clear_schedules();
  EXPECT_EQ(CheckNetworkRequest(check).message(), "a network needs programs, and a schedule for each of them");
}

}  // namespace
}  // namespace diapason::pipeline
