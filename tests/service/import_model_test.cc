#include "service/import_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/base/config.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

using ::testing::IsEmpty;

TEST(ImportModel, GivesWhatTheProcessFound) {
  ModelOptions options;
  options.extra["image"] = "64";
  const Network network = LoadOptimized("squeezenet_v1.1", options).value();
  const FusionChoices fusion = FindFusionChoices(network).value();
  const auto imported = ImportModel({"squeezenet_v1.1", options, {}, /*with_network=*/true, nullptr});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.ToString(), network.ToString());
  for (size_t t = 0; t < network.tensors.size(); ++t) {
    ASSERT_EQ(imported->network.tensors[t].constant(), network.tensors[t].constant());
    if (!network.tensors[t].constant()) continue;
    EXPECT_EQ(imported->network.tensors[t].data->data, network.tensors[t].data->data);
  }
  ASSERT_EQ(imported->fusion.partition.tasks.size(), fusion.partition.tasks.size());
  for (size_t t = 0; t < fusion.partition.tasks.size(); ++t) {
    const Task &got = imported->fusion.partition.tasks[t], &want = fusion.partition.tasks[t];
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(got.weight, want.weight);
    EXPECT_EQ(got.workload_key, want.workload_key);
    EXPECT_EQ(SerializeDag(got.dag), SerializeDag(want.dag));
  }
  EXPECT_EQ(imported->fusion.default_modes, fusion.default_modes);
  EXPECT_EQ(imported->fusion.default_tasks, fusion.default_tasks);
  EXPECT_EQ(imported->fusion.worthwhile_tasks, fusion.worthwhile_tasks);
  EXPECT_EQ(imported->fusion.fixed, fusion.fixed);
  ASSERT_EQ(imported->fusion.choice_points.size(), fusion.choice_points.size());
  EXPECT_GT(fusion.choice_points.size(), 0u);
  for (size_t b = 0; b < fusion.choice_points.size(); ++b) {
    ASSERT_EQ(imported->fusion.choice_points[b].alternatives.size(), fusion.choice_points[b].alternatives.size());
    for (size_t w = 0; w < fusion.choice_points[b].alternatives.size(); ++w) {
      const FusionAlternative &got = imported->fusion.choice_points[b].alternatives[w],
                              &want = fusion.choice_points[b].alternatives[w];
      EXPECT_EQ(got.name, want.name);
      EXPECT_EQ(got.modes, want.modes);
      EXPECT_EQ(got.tasks, want.tasks);
      EXPECT_EQ(got.writes_in_place, want.writes_in_place);
    }
  }
  // The choice is the caller's.
  const std::vector<int> last(fusion.choice_points.size(), 1);
  EXPECT_EQ(PartitionAs(imported->network, imported->fusion, last)->tasks.size(),
            PartitionAs(network, fusion, last)->tasks.size());
}

TEST(ImportModel, NormsAreDeferredOnRequest) {
  ModelOptions options;
  options.dtype = DType::kFloat16;
  options.extra = {{"layers", "2"},         {"hidden", "64"}, {"heads", "2"},
                   {"intermediate", "128"}, {"seq", "33"},    {"vocab", "31"}};
  for (const bool defer : {false, true}) {
    ImportRequest request{"bert-base", options, {}, /*with_network=*/true, nullptr};
    request.fusion.deferred_norm_rows = defer ? 33 : 32;
    const auto imported = ImportModel(request);
    ASSERT_TRUE(imported.ok()) << imported.status();
    int with_sums = 0;
    for (const Task &task : imported->fusion.partition.tasks)
      with_sums += task.dag.outputs().size() == 2 ? task.weight : 0;
    EXPECT_EQ(with_sums, defer ? 3 : 0);
    for (const Node &node : imported->network.nodes) EXPECT_TRUE(defer || node.op != "run_sums");
  }
}

TEST(ImportModel, BoundsOfFactorsComeWithTheTasks) {
  ModelOptions options;
  options.extra = {{"layers", "1"}, {"seq", "16"}};
  ImportRequest request{"bert-base", options, {}, /*with_network=*/true, nullptr};
  request.fusion.find_factor_bounds = true;
  const auto imported = ImportModel(request);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const FusionChoices fusion = FindFusionChoices(imported->network, {.find_factor_bounds = true}).value();
  EXPECT_FALSE(fusion.factor_bounds.empty());
  EXPECT_EQ(imported->fusion.factor_bounds, fusion.factor_bounds);
  ASSERT_EQ(imported->fusion.partition.tasks.size(), fusion.partition.tasks.size());
  int bounded = 0;
  for (size_t t = 0; t < fusion.partition.tasks.size(); ++t) {
    const Task &got = imported->fusion.partition.tasks[t], &want = fusion.partition.tasks[t];
    EXPECT_EQ(got.workload_key, want.workload_key);
    EXPECT_EQ(got.unbounded_key, want.unbounded_key);
    bounded += !got.unbounded_key.empty();
  }
  EXPECT_GE(bounded, 4);
}

TEST(ImportModel, TheNetworkComesOnlyWhenAskedFor) {
  const auto imported = ImportModel({"gemm", {}, {}, false, nullptr});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->network.tensors, IsEmpty());
  EXPECT_EQ(imported->fusion.partition.tasks.size(), 1u);
}

TEST(ImportModel, ErrorsAreThoseOfTheImport) {
  EXPECT_EQ(ImportModel({"gemmm", {}, {}, false, nullptr}).status(), LoadOptimized("gemmm", {}).status());
  EXPECT_EQ(ImportModel({"no/such.onnx", {}, {}, false, nullptr}).status(), LoadOptimized("no/such.onnx", {}).status());
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)  // they reserve more than any limit
TEST(ImportModel, MemoryIsLimited) {
  ImportLimits limits;
  limits.memory_bytes = int64_t{256} << 20;
  ModelOptions options;
  options.extra = {{"m", "8"}, {"n", "20000"}, {"k", "20000"}, {"constant", "1"}};
  EXPECT_EQ(
      ImportModel({"gemm", options, limits, false, nullptr}).status(),
      absl::InvalidArgumentError("the model 'gemm' cannot be used: reading it took more than 0.25 GiB of memory; allow "
                                 "more with --import-memory"));
}
#endif

TEST(ImportModel, TimeIsLimited) {
  ImportLimits limits;
  limits.seconds = 0.01;
  EXPECT_EQ(ImportModel({"resnet-50", {}, limits, false, nullptr}).status(),
            absl::InvalidArgumentError("the model 'resnet-50' cannot be used: reading it took longer than 0.01 s; "
                                       "allow more with --import-seconds"));
}

TEST(ImportModel, IsStopped) {
  std::atomic<bool> stop{true};
  EXPECT_EQ(ImportModel({"resnet-50", {}, {}, false, &stop}).status(),
            absl::CancelledError("stopped while the model was read"));
}

TEST(ImportModel, AProcessThatCannotReadIsAnError) {
  ImportLimits limits;
  limits.program = "/bin/false";
  EXPECT_EQ(ImportModel({"gemm", {}, limits, false, nullptr}).status(),
            absl::InvalidArgumentError(
                "the model 'gemm' cannot be used: reading it ended its process, which exited with status "
                "1; this is a fault of diapason's, please report it with the model"));
  limits.program = "/no/such";
  EXPECT_EQ(ImportModel({"gemm", {}, limits, false, nullptr}).status(),
            absl::UnavailableError("cannot start '/no/such': No such file or directory"));
}

}  // namespace
}  // namespace diapason
