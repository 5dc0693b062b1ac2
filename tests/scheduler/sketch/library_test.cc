// Library candidates of every kind of task: what call and kernels compute together is what the dag says. Calls are made
// by a library on the host, everything else is what runs on a GPU too: matching, repacked weights, padding, epilogues,
// types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/cpu/device.h"
#include "scheduler/sketch/library_space.h"
#include "tests/runtime/cuda/host_library.h"
#include "tests/schedule/library_cases.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason {
namespace {

using testing::ConvolutionCase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NamedTask;

// The host with a library: no target that a user can write.
Target HostTarget() {
  Target target;
  target.num_cores = 1;
  target.libs = {"cublas", "cudnn"};
  return target;
}

std::vector<NamedTask> AllTasks() {
  std::vector<NamedTask> tasks = testing::ProductCases();
  for (const ConvolutionCase& c : testing::ConvolutionCases()) tasks.push_back({c.name, testing::DagOf(c)});
  return tasks;
}

std::vector<std::string> LibraryNames(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  std::vector<std::string> names;
  for (int i = 0; i < task->size(); ++i) {
    EXPECT_EQ(task->space(i).external(), task->space(i).name().rfind("library/", 0) == 0);
    if (task->space(i).external()) names.push_back(task->space(i).name());
  }
  return names;
}

TEST(LibrarySpaces, AreThoseOfTheTargetsLibraries) {
  const ComputeDag conv = testing::DagOf(ConvolutionCase{});
  EXPECT_THAT(LibraryNames(conv, "cuda -arch=sm_90"), IsEmpty());
  EXPECT_THAT(LibraryNames(conv, "cuda -arch=sm_90 -libs=cublas"), IsEmpty());
  EXPECT_THAT(LibraryNames(conv, "cuda -arch=sm_90 -libs=cudnn"), ElementsAre("library/cudnn.fused", "library/cudnn"));
  const ComputeDag pointwise = testing::DagOf({.kernel_h = 1, .kernel_w = 1, .pads = {0, 0, 0, 0}, .bias = false});
  EXPECT_THAT(LibraryNames(pointwise, "cuda -arch=sm_90 -libs=cudnn,cublas"),
              ElementsAre("library/cudnn", "library/cublas"));
}

TEST(LibrarySpaces, ComputeTheDag) {
  const Target target = HostTarget();
  auto device = OpenCpuDevice(target, std::make_unique<HostLibrary>()).value();
  const DeviceFacts facts = device->facts();
  for (const auto& [name, dag] : AllTasks()) {
    const testing::Reference reference = testing::MakeReference(dag, 5);
    const double tolerance = dag.stage(dag.inputs()[0]).dtype == DType::kFloat16 ? 5e-3 : 1e-5;
    const auto spaces = LibrarySpaces(dag, {target, facts});
    ASSERT_FALSE(spaces.empty()) << name;
    for (const auto& space : spaces) {
      const std::string what = name + " " + space->name();
      const absl::StatusOr<Schedule> schedule = ParseSchedule(SerializeSchedule(space->Instantiate(space->Default())));
      ASSERT_TRUE(schedule.ok()) << what << ": " << schedule.status();
      const auto lowered = Lower(dag, *schedule, target, facts);
      ASSERT_TRUE(lowered.ok()) << what << ": " << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << what << ": " << program.status() << "\n" << PrintSource(*lowered, target);
      EXPECT_THAT(program->Libraries(),
                  ElementsAre(space->name().rfind("library/cudnn", 0) == 0 ? Library::kCudnn : Library::kCublas));
      EXPECT_EQ(testing::CompareOnDevice(*device, *program, dag, reference, tolerance), "") << what << "\n"
                                                                                            << program->source;
    }
  }
}

TEST(LibrarySpaces, LeaveNoKernelsBehindAFusedCall) {
  const Target target = Target::Parse("cuda -arch=sm_90 -libs=cudnn").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto kernels = [&](const ConvolutionCase& c, size_t space) {
    const ComputeDag dag = testing::DagOf(c);
    const auto spaces = LibrarySpaces(dag, {target, facts});
    const LoweredProgram lowered =
        Lower(dag, spaces[space]->Instantiate(spaces[space]->Default()), target, facts).value();
    return std::make_pair(lowered.prologue.size(), lowered.kernels.size());
  };
  EXPECT_EQ(kernels({.residual = true}, 0), std::make_pair(size_t{1}, size_t{1}));  // weights repacked once
  EXPECT_EQ(kernels({.nhwc = false, .residual = true}, 0), std::make_pair(size_t{0}, size_t{1}));
  EXPECT_EQ(kernels({.residual = true}, 1), std::make_pair(size_t{1}, size_t{2}));  // one element-wise kernel
  EXPECT_EQ(kernels({.dtype = DType::kFloat16, .residual = true}, 0), std::make_pair(size_t{1}, size_t{1}));
  EXPECT_EQ(kernels({.pads = {0, 0, 1, 1}}, 0), std::make_pair(size_t{1}, size_t{2}));  // padding before
}

TEST(LibrarySpaces, RequireEachAlgorithmOnceAndAreNeverTheDefault) {
  const Target target = Target::Parse("cuda -arch=sm_90 -libs=cudnn,cublas").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag dag = testing::DagOf(ConvolutionCase{.nhwc = false});
  const auto task = TaskSpace::Create(dag, target, facts).value();
  const Space& fused = task->space(task->Find("library/cudnn.fused"));
  ASSERT_EQ(fused.parameter_name(0), "algorithm");
  std::vector<int32_t> algorithms;
  for (const std::vector<int32_t>& configuration : fused.Priors()) {
    algorithms.push_back(configuration[0]);
    EXPECT_EQ(fused.Instantiate(configuration).steps[0].factors[0].value, configuration[0]);
  }
  EXPECT_THAT(algorithms, ElementsAre(1, 0, 6, 7, 2, 4, 5));
  const Schedule chosen = DefaultSchedule(dag, target, facts).value();
  EXPECT_NE(chosen.rewrite.name, "library");
  EXPECT_EQ(chosen.sketch, DefaultSchedule(dag, Target::Parse("cuda -arch=sm_90").value(), facts)->sketch);
}

TEST(LibrarySpaces, AreSearchedLikeOthers) {
  const Target target = Target::Parse("cuda -arch=sm_90 -libs=cudnn,cublas").value();
  const DeviceFacts facts = DefaultFacts(target);
  std::mt19937 random(3);
  for (const auto& [name, dag] : AllTasks()) {
    const auto spaces = LibrarySpaces(dag, {target, facts});
    ASSERT_FALSE(spaces.empty()) << name;
    for (const auto& space : spaces) {
      std::vector<int32_t> configuration = space->Default(), values;
      for (int n = 0; n < 10; ++n) {
        for (int h = 0; h < space->size(); ++h) {
          space->Domain(h, configuration, &values);
          ASSERT_FALSE(values.empty());
          configuration[h] = values[random() % values.size()];
        }
        std::vector<int32_t> clamped = configuration;
        space->Clamp(0, absl::MakeSpan(clamped));
        EXPECT_EQ(clamped, configuration) << name << " " << space->name();
        Metrics metrics;
        space->Evaluate(configuration, &metrics);
        EXPECT_TRUE(metrics.legal && metrics.seconds > 0 && metrics.seconds < 1) << name << " " << space->name();
        EXPECT_TRUE(Lower(dag, space->Instantiate(configuration), target, facts).ok()) << name << " " << space->name();
      }
    }
  }
}

TEST(LibrarySpaces, SourceNamesTheCall) {
  const Target target = Target::Parse("cuda -arch=sm_90 -libs=cudnn").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag dag = testing::DagOf(ConvolutionCase{.nhwc = false, .residual = true});
  const auto spaces = LibrarySpaces(dag, {target, facts});
  const Schedule schedule = spaces[0]->Instantiate(spaces[0]->Default());
  const std::string source = PrintSource(Lower(dag, schedule, target, facts).value(), target);
  EXPECT_EQ(source, PrintSource(Lower(dag, schedule, target, facts).value(), target));
  EXPECT_THAT(source, ::testing::HasSubstr("// call cudnn_8(float32 x[512], float32 weight[1152], float32 offset[16], "
                                           "float32 x_1[1024], float32 out relu[1024]): cudnn "
                                           "convolution float32 NCHW 1x8x8x8 with 16 filters 3x3 to 8x8, stride 1x1, "
                                           "padding 1x1, dilation 1x1, groups 1, bias, "
                                           "residual, relu, algorithm implicit_precomp_gemm\n"));
}

}  // namespace
}  // namespace diapason
