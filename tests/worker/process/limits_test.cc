#include "worker/process/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/testing.h"

namespace diapason {
namespace {

using ::testing::IsEmpty;

absl::Status Refusal(const std::string& text) { return absl::InvalidArgumentError(text); }

// out[i] = sum over r of x[i] * x[r].
ComputeDag SquareDag(int64_t n) {
  DagBuilder b;
  int x = b.Placeholder("x", {n});
  int y =
      b.Reduce("y", {n}, {n}, Combiner::kSum, [&](auto& i, auto& r) { return Mul(b.At(x, {i[0]}), b.At(x, {r[0]})); });
  return b.Build({y}).value();
}

TEST(LimitsTest, TakesWhatIsAtTheLimitAndNoMore) {
  RequestLimits limits;
  limits.bytes = 100;
  EXPECT_TRUE(CheckBytes(100, limits).ok());
  EXPECT_EQ(CheckBytes(101, limits),
            Refusal("the request has 101 bytes, more than the 100 that this worker takes; start it with a larger "
                    "--max-request-mib"));

  limits.nodes = 5;  // two loads with an index each, and their product
  EXPECT_TRUE(CheckDag(SquareDag(8), limits).ok());
  limits.nodes = 4;
  EXPECT_EQ(CheckDag(SquareDag(8), limits),
            Refusal("the program has 5 nodes of expressions, more than the 4 that this worker takes; start it with a "
                    "larger --max-nodes"));

  limits = RequestLimits();
  limits.iterations = 64;
  EXPECT_TRUE(CheckDag(SquareDag(8), limits).ok());
  EXPECT_EQ(CheckDag(SquareDag(9), limits),
            Refusal("stage 'y' has 81 iterations, more than the 64 that this worker takes; start it with a larger "
                    "--max-iterations"));

  limits = RequestLimits();
  limits.tensor_bytes = int64_t{1} << 30;
  EXPECT_TRUE(CheckDag(DoublingDag(int64_t{1} << 27), limits).ok());
  EXPECT_EQ(
      CheckDag(DoublingDag(int64_t{1} << 28), limits),
      Refusal("the program's tensors need 2 GiB, more than the 1 GiB that this worker takes; start it with a larger "
              "--max-tensor-gib"));

  limits.steps = 2;
  Schedule schedule;
  schedule.steps.assign(2, Step{StepKind::kInline, 0, {}, {}, -1, {}});
  EXPECT_TRUE(CheckSchedule(schedule, limits).ok());
  schedule.steps.push_back(schedule.steps[0]);
  EXPECT_EQ(
      CheckSchedule(schedule, limits),
      Refusal("the schedule has 3 steps, more than the 2 that this worker takes; start it with a larger --max-steps"));

  Program program;
  program.buffers.resize(2);
  program.buffers[0].elements = program.buffers[1].elements = int64_t{1} << 27;
  EXPECT_TRUE(CheckProgram(program, limits).ok());
  program.buffers[1].elements <<= 1;
  EXPECT_EQ(
      CheckProgram(program, limits),
      Refusal("the buffers of its kernels need 1.5 GiB, more than the 1 GiB that this worker takes; start it with a "
              "larger --max-tensor-gib"));
}

// Products that do not fit 64 bits are too large as well.
TEST(LimitsTest, LargeNumbersDoNotOverflow) {
  DagBuilder b;
  const int64_t n = int64_t{1} << 29;
  int x = b.Placeholder("x", {n, n});
  int y = b.Placeholder("y", {n, n});
  int z = b.Compute("z", {n, n}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, i), b.At(y, i)); });
  const absl::StatusOr<ComputeDag> dag = b.Build({z});
  ASSERT_TRUE(dag.ok()) << dag.status();
  RequestLimits limits;
  limits.iterations = int64_t{1} << 60;
  EXPECT_EQ(
      CheckDag(*dag, limits),
      Refusal("the program's tensors need 3.221e+09 GiB, more than the 64 GiB that this worker takes; start it with a "
              "larger --max-tensor-gib"));
}

// A request past a limit is an error of its own, told by the worker; its neighbours are measured.
TEST(LimitsTest, ARefusalCostsAnErrorOnly) {
  TemporaryFolder folder;
  PipelineOptions options = FakeOptions(folder);
  options.limits = {4000, 6, 0, 64, 4096};
  auto pipeline = Pipeline::Start(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ResultBox box;
  uint64_t id = 0;
  auto measure = [&](const v1::MeasureRequest& request) {
    v1::MeasureRequest numbered = request;
    numbered.set_id(++id);
    (*pipeline)->Submit(0, numbered, box.Taker());
    return box.Wait(id);
  };
  auto expect_refused = [&](const v1::MeasureRequest& request, const std::string& stage, const std::string& text) {
    for (v1::MeasureMode mode : {v1::MEASURE_MODE_TIME, v1::MEASURE_MODE_VERIFY}) {
      v1::MeasureRequest moded = request;
      moded.set_mode(mode);
      const v1::MeasureResult result = measure(moded);
      EXPECT_EQ(result.error().kind(), "instantiation") << result.DebugString();
      EXPECT_EQ(result.error().stage(), stage);
      EXPECT_EQ(result.error().text(), text);
    }
    EXPECT_TRUE(measure(FakeRequest(0, "")).has_timing());
  };
  expect_refused(FakeRequest(0, std::string(5000, 'x')), "queue",
                 "the request has " +
                     std::to_string(FakeSchedule(std::string(5000, 'x')).size() + SerializeDag(DoublingDag()).size()) +
                     " bytes, more than the 4000 that this worker takes; start it with a larger --max-request-mib");
  expect_refused(FakeRequest(0, "", DoublingDag(65)), "instantiate",
                 "stage 'y' has 65 iterations, more than the 64 that this worker takes; start it with a larger "
                 "--max-iterations");
  Schedule schedule;
  schedule.steps.push_back(Step{StepKind::kInline, 0, {}, {}, -1, {}});
  v1::MeasureRequest steps = FakeRequest(0, "");
  steps.set_schedule(SerializeSchedule(schedule));
  expect_refused(
      steps, "instantiate",
      "the schedule has 1 steps, more than the 0 that this worker takes; start it with a larger --max-steps");
  (*pipeline)->Stop();
  EXPECT_THAT(Children(), IsEmpty());
}

}  // namespace
}  // namespace diapason
