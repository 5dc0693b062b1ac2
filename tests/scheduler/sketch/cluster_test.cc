// Reductions split over a thread-block cluster: which tasks get such sketches, what the candidates compute, that they
// compile, and what is refused. numbers_test.cc and execute_test.cc go over these sketches too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cluster_passes.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "scheduler/sketch/sketch_space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/execute.h"
#include "tests/scheduler/sketch/guard.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::ParameterOf;

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();
const Target kOpenCl = Target::Parse("opencl").value();

std::unique_ptr<TaskSpace> SpaceOf(const ComputeDag& dag, const Target& target) {
  return TaskSpace::Create(dag, target, DefaultFacts(target)).value();
}

// Spaces with a reduction over a cluster, those of the rewrite alone if one is given.
std::vector<const Space*> ClusterSpaces(const TaskSpace& task, const std::string& rewrite = "") {
  std::vector<const Space*> result;
  for (int i = 0; i < task.size(); ++i) {
    const std::string& name = task.space(i).name();
    if (name.find("cluster") != std::string::npos && name.rfind(rewrite, 0) == 0) result.push_back(&task.space(i));
  }
  return result;
}

std::vector<int32_t> RandomConfiguration(const Space& space, std::mt19937& random) {
  std::vector<int32_t> configuration(space.size()), values;
  for (int h = 0; h < space.size(); ++h) {
    space.Domain(h, configuration, &values);
    configuration[h] = values[random() % values.size()];
  }
  return configuration;
}

TEST(ClusterReduction, CompetesInEveryRewriteOfADeepConvolution) {
  const auto task = SpaceOf(testing::Convolution({14, 14, 256, 256, 3, 1, 1}), kCuda);
  const std::map<std::string, size_t> expected{
      {"direct", 1},       {"gemm/", 3},
      {"winograd(2)", 3},  {"winograd(4)", 3},  // products by threads, and on tensor cores by warps and by warpgroups
      {"gemm_k", 3},       {"winograd_k(2)", 3},
      {"winograd_k(4)", 3}};  // on tensor cores, by warps with copies by threads and in bulk, and by warpgroups
  for (const auto& [rewrite, count] : expected) EXPECT_EQ(ClusterSpaces(*task, rewrite).size(), count) << rewrite;
}

TEST(ClusterReduction, ItsFactorIsAParameter) {
  const auto task = SpaceOf(testing::Convolution({7, 7, 512, 512, 3, 1, 1}), kCuda);
  const Space& space = *ClusterSpaces(*task, "gemm").at(0);
  std::vector<int32_t> configuration = space.Default(), values;
  const int parameter = ParameterOf(space, "cluster");
  ASSERT_GE(parameter, 0);
  space.Domain(parameter, configuration, &values);
  EXPECT_EQ(values, (std::vector<int32_t>{1, 2, 3, 4, 6, 8, 12, 16}));
  for (int32_t value : values) {
    configuration[parameter] = value;
    space.Clamp(parameter + 1, absl::MakeSpan(configuration));
    ASSERT_EQ(configuration[parameter], value);
    const auto lowered = Lower(task->dag(), space.Instantiate(configuration), kCuda, DefaultFacts(kCuda));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ASSERT_EQ(lowered->kernels.size(), 1u);
    EXPECT_EQ(lowered->kernels[0].cluster, value);
    EXPECT_EQ(lowered->kernels[0].blocks % value, 0);
  }
}

TEST(ClusterReduction, NeedsAWorkloadAndADeviceForIt) {
  const ComputeDag deep = testing::Convolution({14, 14, 256, 256, 3, 1, 1});
  EXPECT_TRUE(ClusterSpaces(*SpaceOf(deep, Target::Parse("cuda -arch=sm_80").value())).empty());
  EXPECT_TRUE(ClusterSpaces(*SpaceOf(testing::Convolution({224, 224, 64, 64, 3, 1, 1}), kCuda)).empty())
      << "fills the device";
  EXPECT_TRUE(ClusterSpaces(*SpaceOf(testing::Convolution({14, 14, 8, 32, 1, 1, 0}), kCuda)).empty())
      << "little to reduce";
  EXPECT_TRUE(ClusterSpaces(*SpaceOf(testing::Depthwise(13, 64, 3), kCuda)).empty());
}

TEST(ClusterReduction, BlocksOfAClusterSumTheirShares) {
  int run = 0, pipelined = 0, tensor = 0;
  for (const testing::ConvShape& shape : {testing::ConvShape{5, 5, 16, 6, 3, 1, 1}, {4, 5, 16, 9, 3, 1, 1}}) {
    const ComputeDag dag = testing::Convolution(shape, true);
    const testing::Reference expected = testing::MakeReference(dag, 3);
    const auto task = SpaceOf(dag, kCuda);
    for (const Space* space : ClusterSpaces(*task)) {
      std::mt19937 random(5);
      for (int n = 0; n < 60; ++n) {
        const auto lowered =
            Lower(dag, space->Instantiate(RandomConfiguration(*space, random)), kCuda, DefaultFacts(kCuda)).value();
        const KernelFunc& kernel = lowered.kernels.at(0);
        if (kernel.threads * kernel.cluster > 200 || kernel.blocks > 64 || lowered.kernels.size() > 1) continue;
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected)) << space->name();
        ++run;
        pipelined += Contains(kernel.body, [](const StmtNode& s) { return s.kind == StmtKind::kWait; });
        tensor += space->name().find("tensor") != std::string::npos;
      }
    }
  }
  EXPECT_GE(run, 8);
  EXPECT_GE(pipelined, 3);
  EXPECT_GE(tensor, 2);
}

// The loop over the rank is none of the steps.
TEST(ClusterReduction, EachBlockRunsItsShareAsAPipeline) {
  const ComputeDag dag = testing::Convolution({7, 7, 64, 32, 3, 1, 1}, true);
  const auto task = SpaceOf(dag, kCuda);
  const Space& space = *ClusterSpaces(*task, "gemm").at(0);
  std::vector<int32_t> configuration = space.Default();
  const auto decide = [&](const std::string& parameter, int32_t value) {
    const int h = ParameterOf(space, parameter);
    ASSERT_GE(h, 0) << parameter;
    configuration[h] = value;
    space.Clamp(h + 1, absl::MakeSpan(configuration));
    ASSERT_EQ(configuration[h], value) << parameter;
  };
  decide("cluster", 4);
  for (int h = 0; h < space.size(); ++h)
    if (space.parameter_name(h).ends_with(".r1") || space.parameter_name(h).ends_with(".r2"))
      decide(space.parameter_name(h), 2);
  decide("stages", 1);
  const LoweredProgram once = Lower(dag, space.Instantiate(configuration), kCuda, DefaultFacts(kCuda)).value();
  decide("stages", 3);
  decide("overlap", 1);
  const LoweredProgram lowered = Lower(dag, space.Instantiate(configuration), kCuda, DefaultFacts(kCuda)).value();
  const KernelFunc &kernel = lowered.kernels.at(0), &plain = once.kernels.at(0);
  int64_t steps = 0;
  Contains(kernel.body, [&](const StmtNode& s) {
    if (s.kind == StmtKind::kFor && s.var->name.rfind("step_", 0) == 0) steps = s.extent;
    return false;
  });
  EXPECT_EQ(steps, 64 * 9 / 4 / (2 * 2) + 2) << "iterations of one block, and two steps to fill the pipeline";
  EXPECT_EQ(kernel.cluster, 4);
  EXPECT_TRUE(kernel.overlap);
  // The tile that is summed takes the operands' place and may be the larger.
  const auto operands = [](const KernelFunc& k) {
    int64_t elements = 0;
    Contains(k.body, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared && !s.decl.overlay) elements += s.decl.elements;
      return false;
    });
    return elements;
  };
  EXPECT_GE(operands(kernel), 3 * operands(plain));
  const std::string source = PrintSource(lowered, kCuda);
  EXPECT_NE(source.find("launch_dependents();"), std::string::npos);
  EXPECT_NE(source.find("wait_for_previous();"), std::string::npos);
  EXPECT_NE(source.find("async_wait<1>();"), std::string::npos);
  EXPECT_NE(source.find("cluster_arrive_of_own();"), std::string::npos);
}

TEST(ClusterReduction, SumsHalvesInFloat) {
  const ComputeDag dag = testing::MatMulOfHalves(20, 24, 100);
  const testing::Reference reference = testing::MakeReference(dag, 9);
  auto device = OpenDevice(kOpenCl);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto task = TaskSpace::Create(dag, kOpenCl, (*device)->facts()).value();
  int run = 0;
  for (const Space* space : ClusterSpaces(*task)) {
    std::mt19937 random(2);
    for (int n = 0; n < 4; ++n, ++run) {
      const auto lowered =
          Lower(dag, space->Instantiate(RandomConfiguration(*space, random)), kOpenCl, (*device)->facts()).value();
      const Program program = CompileProgram(lowered, kOpenCl).value();
      EXPECT_EQ(testing::CompareOnDevice(**device, program, dag, reference, 2e-3), "") << program.source;
    }
  }
  EXPECT_GE(run, 4);
}

TEST(ClusterReduction, IsTwoKernelsAndAWorkspaceWithoutClusters) {
  const ComputeDag dag = testing::Convolution({7, 7, 64, 20, 3, 1, 1});
  const auto task = SpaceOf(dag, kOpenCl);
  const Space& space = *ClusterSpaces(*task, "gemm").at(0);
  const LoweredProgram lowered = Lower(dag, space.Instantiate(space.Default()), kOpenCl, DefaultFacts(kOpenCl)).value();
  const LoweredProgram split = WithoutClusters(lowered);
  ASSERT_EQ(lowered.kernels.size(), 1u);
  ASSERT_EQ(split.kernels.size(), 2u);
  EXPECT_EQ(split.kernels[1].name, lowered.kernels[0].name + "_part2");
  ASSERT_EQ(split.buffers.size(), lowered.buffers.size() + 1);
  for (const auto& [id, buffer] : split.buffers) {
    if (lowered.buffers.count(id) > 0) continue;
    EXPECT_EQ(buffer.role, static_cast<int>(BufferRole::kWorkspace));
    EXPECT_EQ(buffer.decl.elements % lowered.kernels[0].blocks, 0);
  }
  const Program program = CompileProgram(lowered, kOpenCl).value();
  ASSERT_EQ(program.kernels.size(), 2u);
  EXPECT_EQ(program.kernels[0].cluster, 1);
  EXPECT_EQ(program.kernels[0].grid[0], lowered.kernels[0].blocks);
}

TEST(ClusterReduction, BecomesACubinWithItsClusterNoted) {
  const ComputeDag dag = testing::Convolution({14, 14, 256, 256, 3, 1, 1}, true);
  const auto task = SpaceOf(dag, kCuda);
  const testing::GuardSettings settings = testing::GuardSettings::FromEnvironment();
  for (const Space* space : ClusterSpaces(*task)) {
    for (int n = 1; n <= std::max(1, settings.candidates); ++n) {
      std::vector<int32_t> configuration = testing::DrawCandidate(*space, settings.seed, n);
      int32_t& blocks = configuration[ParameterOf(*space, "cluster")];
      blocks = std::max(blocks, 2);
      space->Clamp(0, absl::MakeSpan(configuration));
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda)).value();
      const absl::StatusOr<Program> program = CompileProgram(lowered, kCuda);
      if (absl::IsUnavailable(program.status())) GTEST_SKIP() << program.status();
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << PrintSource(lowered, kCuda);
      int clusters = 0;
      for (size_t k = 0; k < lowered.kernels.size(); ++k) {
        EXPECT_EQ(program->kernels[k].cluster, lowered.kernels[k].cluster);
        EXPECT_EQ(program->kernels[k].grid[0] % program->kernels[k].cluster, 0);
        clusters += program->kernels[k].cluster > 1;
      }
      EXPECT_EQ(clusters, 1) << testing::Describe("convolution", *space, n, configuration);
      EXPECT_NE(program->source.find("mapa.u64"), std::string::npos);
      EXPECT_NE(program->source.find("cluster_arrive_of_own();"), std::string::npos);
      EXPECT_EQ(program->source.find("mma.sync") != std::string::npos,
                space->name().find("tensor") != std::string::npos);
    }
  }
}

TEST(ClusterReduction, IsStoredAndReplayed) {
  const ComputeDag dag = testing::Convolution({7, 7, 64, 20, 3, 1, 1});
  const auto task = SpaceOf(dag, kCuda);
  const Space& space = *ClusterSpaces(*task, "gemm").at(0);
  const Schedule schedule = space.Instantiate(space.Default());
  const Schedule read = ParseSchedule(SerializeSchedule(schedule)).value();
  EXPECT_EQ(PrintSource(Lower(dag, read, kCuda, DefaultFacts(kCuda)).value(), kCuda),
            PrintSource(Lower(dag, schedule, kCuda, DefaultFacts(kCuda)).value(), kCuda));
}

// Schedules come from histories and from the wire.
std::string RefusalOf(const std::vector<Step>& steps, const Target& target = kCuda) {
  Schedule schedule;
  schedule.steps = steps;
  return std::string(
      Lower(testing::MatMul(32, 32, 64, true), schedule, target, DefaultFacts(target)).status().message());
}

Step Annotated(int stage, int loop, Annotation annotation) {
  return {StepKind::kAnnotate, stage, {loop}, {}, -1, {static_cast<int32_t>(annotation)}};
}

TEST(ClusterReduction, WhatHasNoMeaningIsRefused) {
  const int dense = 2, add = 4;
  EXPECT_EQ(RefusalOf({Annotated(dense, 2, Annotation::kCluster)}),
            "stage dense: a reduction over a cluster is computed in a stage that keeps its results in shared memory");
  EXPECT_EQ(RefusalOf({Annotated(add, 0, Annotation::kCluster)}),
            "stage add: its loop is bound to the rank in a cluster, but no reduction is");
  EXPECT_EQ(RefusalOf({Annotated(add, 0, Annotation::kCluster), Annotated(add, 1, Annotation::kCluster)}),
            "stage add: more than one loop is bound to the rank in a cluster");
  EXPECT_EQ(RefusalOf({{StepKind::kComputeAt, dense, {0}, {Factor::Of(0)}, add, {}},
                       Annotated(dense, 2, Annotation::kCluster)}),
            "stage dense: a reduction over a cluster is computed in a stage that keeps its results in shared memory");
}

TEST(ClusterReduction, ADeviceWithoutClustersIsNamed) {
  const ComputeDag dag = testing::Convolution({7, 7, 512, 512, 3, 1, 1});
  const auto task = SpaceOf(dag, kCuda);
  const Space& space = *ClusterSpaces(*task, "gemm").at(0);
  std::vector<int32_t> configuration = space.Default();
  const int parameter = ParameterOf(space, "cluster");
  configuration[parameter] = 16;
  space.Clamp(parameter + 1, absl::MakeSpan(configuration));
  const Schedule schedule = space.Instantiate(configuration);
  for (const auto& [arch, most] : {std::pair("sm_80", "1"), {"sm_120", "8"}}) {
    DeviceFacts facts = DefaultFacts(Target::Parse(absl::StrCat("cuda -arch=", arch)).value());
    facts.max_shared_bytes = 1 << 20;
    EXPECT_EQ(std::string(Lower(dag, schedule, kCuda, facts).status().message()),
              absl::StrCat("kernel k_relu needs a cluster of 16 blocks, the device has ", most));
  }
}

}  // namespace
}  // namespace diapason
