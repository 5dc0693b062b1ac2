// What a GPU does to its process. Skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/testing.h"
#include "worker/client.h"

namespace diapason {
namespace {

using ::testing::IsEmpty;

// y = 2 x + 1 by way of a tensor in between.
ComputeDag ByWayOfWorkspace() {
  DagBuilder b;
  constexpr int64_t kElements = 1 << 20;
  int x = b.Placeholder("x", {kElements});
  int t = b.Compute("t", {kElements}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, {i[0]}), b.At(x, {i[0]})); });
  int y = b.Compute("y", {kElements}, [&](const DagBuilder::Vars& i) { return Add(b.At(t, {i[0]}), FloatImm(1)); });
  return b.Build({y}).value();
}

// Hours of work for an untuned kernel.
ComputeDag Endless() {
  DagBuilder b;
  int x = b.Placeholder("x", {1024});
  int y = b.Reduce("y", {1024}, {int64_t{1} << 39}, Combiner::kSum,
                   [&](auto& i, auto& r) { return b.At(x, {FloorMod(Add(Mul(i[0], r[0]), r[0]), 1024)}); });
  return b.Build({y}).value();
}

TEST(CudaTest, FaultsEndTheRunnerOnly) {
  TemporaryFolder folder;
  {
    EmbeddedOptions options;
    options.pipeline.builder_args = {"worker_tests", "straying-builder"};
    options.pipeline.runner_args[0] = "worker_tests";
    options.pipeline.devices = {"cuda"};
    options.pipeline.builders = 2;
    options.pipeline.scratch_base = folder.path();
    auto client = StartEmbedded(std::move(options));
    if (!client.ok()) GTEST_SKIP() << client.status().message();

    int64_t next_id = 1;
    auto measure = [&](const ComputeDag& dag, const std::string& words, double run_timeout_s = 30) {
      Measurement m;
      m.id = next_id++;
      m.workload = std::make_shared<const std::string>(SerializeDag(dag));
      m.schedule = FakeSchedule(words);
      m.target = "cuda";
      m.mode = MeasurementMode::kTimeAndVerify;
      m.min_repeat_ms = 5;
      m.race = false;  // what loses a race is not verified
      m.run_timeout_s = run_timeout_s;
      EXPECT_TRUE((*client)->Submit({m}).ok());
      auto results = (*client)->Next(60);
      EXPECT_TRUE(results.ok() && results->size() == 1);
      return results.ok() && !results->empty() ? results->front() : MeasurementResult();
    };
    auto expect_works = [&] {
      MeasurementResult result = measure(ByWayOfWorkspace(), "");
      ASSERT_TRUE(std::holds_alternative<Timing>(result.outcome)) << std::get<MeasureError>(result.outcome).text;
      ASSERT_TRUE(result.check.has_value());
      EXPECT_TRUE(result.check->ok) << result.check->text;
    };
    expect_works();
    MeasurementResult result = measure(ByWayOfWorkspace(), "stray");
    ASSERT_TRUE(std::holds_alternative<MeasureError>(result.outcome));
    EXPECT_EQ(std::get<MeasureError>(result.outcome).kind, ErrorKind::kIllegalAccess)
        << std::get<MeasureError>(result.outcome).text;
    expect_works();
    auto began = std::chrono::steady_clock::now();
    result = measure(Endless(), "", 5);
    ASSERT_TRUE(std::holds_alternative<MeasureError>(result.outcome));
    EXPECT_EQ(std::get<MeasureError>(result.outcome).kind, ErrorKind::kRunTimeout)
        << std::get<MeasureError>(result.outcome).text;
    EXPECT_LT(SecondsSince(began), 15);
    expect_works();
    EXPECT_EQ((*client)->Statistics()->devices, 1);
  }
  EXPECT_TRUE(folder.empty());
  EXPECT_THAT(Children(), IsEmpty());
}

}  // namespace
}  // namespace diapason
