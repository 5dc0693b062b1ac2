// Library candidates with the real cuDNN and cuBLAS on a real GPU; skipped, with the reason, where one of them is
// missing. A program of its own: it can be copied to a machine with a GPU and run there (bench/library_check.sh).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/measure.h"
#include "scheduler/sketch/library_space.h"
#include "tests/schedule/library_cases.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason {
namespace {

using testing::NamedTask;

class LibraryCudaTest : public ::testing::TestWithParam<Library> {
 protected:
  void SetUp() override {
    target_ = Target::Parse(absl::StrCat("cuda -libs=", NameOf(GetParam()))).value();
    absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target_);
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    if (const absl::Status here = CheckLibrary(GetParam()); !here.ok()) GTEST_SKIP() << here.message();
    device_ = *std::move(device);
    target_.arch = device_->facts().arch;
  }

  // Tries every prior of every space; at least one of each space must work, and all that work must be right.
  void ExpectRight(const std::string& name, const ComputeDag& dag, double tolerance) {
    const testing::Reference reference = testing::MakeReference(dag, 5);
    const auto spaces = LibrarySpaces(dag, {target_, device_->facts()});
    spaces_ += spaces.size();
    for (const auto& space : spaces) {
      int worked = 0;
      std::string refusals;
      for (const std::vector<int32_t>& configuration : space->Priors()) {
        const Schedule schedule = space->Instantiate(configuration);
        const auto lowered = Lower(dag, schedule, target_, device_->facts());
        ASSERT_TRUE(lowered.ok()) << name << ": " << lowered.status();
        const auto program = CompileProgram(*lowered, target_);
        ASSERT_TRUE(program.ok()) << name << ": " << program.status();
        const int64_t algorithm = schedule.steps[0].factors[0].value;
        const std::string what = absl::StrCat(name, " ", space->name(), " ", AlgorithmName(GetParam(), algorithm));
        // cuDNN 9's Winograd transform of 5x5 filters is off by half a per cent: verification keeps it out of builds.
        const bool rough = name.rfind("5x5", 0) == 0 && what.find("winograd") != std::string::npos;
        const std::string wrong =
            testing::CompareOnDevice(*device_, *program, dag, reference, rough ? 2e-2 : tolerance);
        // What a library does not support it says before anything runs.
        if (wrong.rfind("cuDNN", 0) == 0 || wrong.rfind("cuBLAS", 0) == 0) {
          absl::StrAppend(&refusals, "  ", what, ": ", wrong, "\n");
          continue;
        }
        EXPECT_EQ(wrong, "") << what;
        ++worked;
        std::cout << what << " is right\n";
      }
      std::cout << refusals;
      EXPECT_GT(worked, 0) << name << " " << space->name() << ": no algorithm works\n" << refusals;
    }
  }

  Target target_;
  std::unique_ptr<Device> device_;
  size_t spaces_ = 0;  // that were tried
};

TEST_P(LibraryCudaTest, ComputesTheDag) {
  std::vector<NamedTask> tasks = testing::ProductCases();
  for (const testing::ConvolutionCase& c : testing::ConvolutionCases()) tasks.push_back({c.name, testing::DagOf(c)});
  for (const auto& [name, dag] : tasks)
    ExpectRight(name, dag, dag.stage(dag.inputs()[0]).dtype == DType::kFloat16 ? 1e-2 : 1e-4);
  EXPECT_GE(spaces_, 5u);
}

// Full float32: TF32 would be off by some 1e-3 in sums of this length.
TEST_P(LibraryCudaTest, DoesNotRoundToTf32) {
  if (GetParam() == Library::kCudnn) {
    ExpectRight("tf32", testing::DagOf({.in = 256, .height = 14, .width = 14, .out = 256, .activation = ""}), 2e-5);
    EXPECT_GE(spaces_, 1u);
    return;
  }
  testing::OneTask task;
  ExpectRight("tf32",
              task.Dag(task.Op("gemm", {task.Input("a", {128, 1024}, DType::kFloat32),
                                        task.Constant("b", {1024, 128}, DType::kFloat32)})),
              2e-5);
  EXPECT_GE(spaces_, 1u);
}

// Many copies in one graph, and several plans alive at once: workspaces and prepared calls are shared rightly.
TEST_P(LibraryCudaTest, RunsInGraphsAndIsTimed) {
  testing::ConvolutionCase c{.in = 64, .height = 28, .width = 28, .out = 64};
  c.kernel_h = c.kernel_w = 1;
  c.pads = {0, 0, 0, 0};
  const ComputeDag dag = testing::DagOf(c);
  const auto spaces = LibrarySpaces(dag, {target_, device_->facts()});
  ASSERT_FALSE(spaces.empty());
  for (const auto& space : spaces) {
    const auto lowered = Lower(dag, space->Instantiate(space->Default()), target_, device_->facts()).value();
    auto executable = Executable::Create(*device_, CompileProgram(lowered, target_).value()).value();
    ASSERT_TRUE(executable->AllocateRest().ok());
    ASSERT_TRUE(FillForMeasuring(*executable, 1).ok());
    ASSERT_TRUE(executable->RunPrologue().ok());
    auto first = executable->MakePlan(16), second = executable->MakePlan();
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*first)->Run().ok() && (*second)->Run().ok());
    int of_library = 0;
    for (const Kernel& kernel : executable->program().kernels) {
      if (kernel.library == nullptr) continue;
      for (int arg : kernel.args) EXPECT_FALSE((*second)->CanRedirect(*executable->buffer(arg)));
      ++of_library;
    }
    EXPECT_GE(of_library, 1);
    const absl::StatusOr<Timing> timing = MeasureExecutable(*executable, {});
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_GT(MedianSeconds(*timing), 5e-7);
    EXPECT_LT(MedianSeconds(*timing), 1e-3);
    std::cout << space->name() << " takes " << MedianSeconds(*timing) * 1e6 << " us\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, LibraryCudaTest, ::testing::ValuesIn(AllLibraries()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace diapason
