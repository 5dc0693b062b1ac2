// The real compiler and the real cpu device behind the services.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/testing.h"
#include "worker/client.h"

namespace diapason {
namespace {

using ::testing::IsEmpty;

ComputeDag MatmulRelu(int64_t n) {
  DagBuilder b;
  int x = b.Placeholder("x", {n, n});
  int w = b.Constant("w", {n, n});
  int c = b.Reduce("c", {n, n}, {n}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  int y = b.Compute("y", {n, n}, [&](const DagBuilder::Vars& i) { return Max(b.At(c, {i[0], i[1]}), FloatImm(0)); });
  return b.Build({y}).value();
}

TEST(CompiledTest, MeasuresAndVerifiesOnThisMachine) {
  TemporaryFolder folder;
  const std::vector<std::string> before = Children();  // what cases before this one left
  {
    EmbeddedOptions options;
    options.pipeline.builder_args[0] = options.pipeline.runner_args[0] = "worker_tests";
    options.pipeline.devices = {"cpu"};
    options.pipeline.builders = 2;
    options.pipeline.scratch_base = folder.path();
    auto client = StartEmbedded(std::move(options));
    ASSERT_TRUE(client.ok()) << client.status();
    auto workload = std::make_shared<const std::string>(SerializeDag(MatmulRelu(96)));
    std::vector<Measurement> batch;
    for (int id = 1; id <= 12; ++id) {
      Measurement m;
      m.id = id;
      m.workload = workload;
      m.schedule = SerializeSchedule(Schedule());
      m.target = "cpu";
      m.min_repeat_ms = 2;
      m.mode = id <= 6 ? MeasurementMode::kTimeAndVerify : MeasurementMode::kTime;
      m.race = id > 6;
      batch.push_back(m);
    }
    ASSERT_TRUE((*client)->Submit(std::move(batch)).ok());
    for (size_t got = 0; got < 12;) {
      auto results = (*client)->Next(60);
      ASSERT_TRUE(results.ok());
      ASSERT_THAT(*results, testing::Not(IsEmpty()));
      for (const MeasurementResult& result : *results) {
        const Timing* timing = std::get_if<Timing>(&result.outcome);
        ASSERT_NE(timing, nullptr) << std::get<MeasureError>(result.outcome).text;
        EXPECT_GT(MedianSeconds(*timing), 1e-6);
        EXPECT_LT(MedianSeconds(*timing), 1);
        EXPECT_FALSE(result.device_model.empty());
        EXPECT_FALSE(result.compiler.empty());
        if (result.id <= 6) {
          ASSERT_TRUE(result.check.has_value());
          EXPECT_TRUE(result.check->ok) << result.check->text;
          EXPECT_LT(result.check->max_rel_error, 1e-5);
        }
      }
      got += results->size();
    }
  }
  EXPECT_TRUE(folder.empty());
  EXPECT_EQ(Children(), before);
}

}  // namespace
}  // namespace diapason
