// Times to race against.
#include "worker/pipeline/race_times.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace diapason::pipeline {
namespace {

Job TimedJob(const std::string& workload, double seconds) {
  Job job;
  job.request.set_workload(workload);
  job.shared_target = "cpu";
  job.result.mutable_timing()->add_samples(seconds);
  return job;
}

TEST(RaceTimes, TheBestOfAModelIsKept) {
  RaceTimes times;
  times.Note(TimedJob("w", 2e-3), "H200");
  times.Note(TimedJob("w", 1e-3), "H200");
  times.Note(TimedJob("w", 3e-3), "H200");
  EXPECT_EQ(times.BestFor(TimedJob("w", 1), "H200"), 1e-3);
  EXPECT_EQ(times.BestFor(TimedJob("w", 1), "H100"), std::nullopt);
  EXPECT_EQ(times.BestFor(TimedJob("another", 1), "H200"), std::nullopt);
}

TEST(RaceTimes, WhoAsksMayKnowABetterOne) {
  RaceTimes times;
  Job job = TimedJob("w", 1e-3);
  times.Note(job, "H200");
  job.request.set_best_seconds(5e-4);
  EXPECT_EQ(times.BestFor(job, "H200"), 5e-4);
  job.request.set_best_seconds(5e-3);
  EXPECT_EQ(times.BestFor(job, "H200"), 1e-3);
}

TEST(RaceTimes, WhatWasStoppedEarlyIsNoBest) {
  RaceTimes times;
  Job job = TimedJob("w", 1e-3);
  job.result.mutable_timing()->set_stopped_early(true);
  times.Note(job, "H200");
  EXPECT_EQ(times.BestFor(job, "H200"), std::nullopt);
}

}  // namespace
}  // namespace diapason::pipeline
