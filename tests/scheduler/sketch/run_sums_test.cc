// Sums of runs that the kernel of another stage makes: which sketches' kernels do, and that they are right.
#include "compiler/tensor/run_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::ProductBySums;
using testing::ProductWithSums;

// All results, as the nests compute them.
void ExpectAllResults(const ComputeDag& dag, const LoweredProgram& lowered, const testing::Reference& expected) {
  const std::map<int, std::vector<double>> buffers = testing::BuffersBehind(lowered, expected);
  int results = 0;
  for (const auto& [id, buffer] : lowered.buffers) {
    for (size_t o = 0; o < dag.outputs().size(); ++o) {
      if (buffer.stage != dag.outputs()[o]) continue;
      ++results;
      for (int64_t i = 0; i < expected.outputs[o].elements(); ++i) {
        const double right = expected.outputs[o].at(i);
        ASSERT_NEAR(buffers.at(id)[i], right, 0.1 + 4e-3 * std::abs(right)) << "result " << o << ", element " << i;
      }
    }
  }
  EXPECT_EQ(results, static_cast<int>(dag.outputs().size()));
}

struct SumsCase {
  const char* space;
  std::map<std::string, int32_t> said;
  size_t kernels;
};

void ExpectKernels(const ComputeDag& dag, int cores, const std::vector<SumsCase>& cases) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  DeviceFacts facts = DefaultFacts(target);
  facts.num_cores = cores;
  const testing::Reference expected = testing::MakeReference(dag, 5);
  const auto task = TaskSpace::Create(dag, target, facts).value();
  for (const SumsCase& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.space, " ", c.kernels));
    ASSERT_GE(task->Find(c.space), 0) << [&] {
      std::string names;
      for (int i = 0; i < task->size(); ++i) absl::StrAppend(&names, " ", task->space(i).name());
      return names;
    }();
    const Space& space = task->space(task->Find(c.space));
    std::mt19937 random(3);
    const auto lowered = Lower(dag, space.Instantiate(testing::Decide(space, c.said, &random)), target, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.size(), c.kernels) << ToString(lowered->kernels[0]);
    ASSERT_NO_FATAL_FAILURE(ExpectAllResults(dag, *lowered, expected));
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << program.status();
  }
}

TEST(RunSums, AreMadeByTheKernelThatHasWholeRuns) {
  const std::vector<SumsCase> cases = {
      {"direct/wgmma.early.boxes", {{"i1.groups", 1}, {"i2.groups", 1}, {"i2.tiles", 8}, {"i1.tiles", 1}}, 1},
      {"gemm_k/wgmma.early.boxes",
       {{"m.groups", 1},
        {"n.groups", 1},
        {"n.tiles", 16},
        {"producer", 3},
        {"overlap", 2},
        {"stages", 2},
        {"k.r2", 64}},
       1},
      {"gemm_k/wgmma", {{"m.groups", 1}, {"n.groups", 1}, {"n.tiles", 8}}, 1},
      // Runs are shared by warpgroups here, and by more than a warp there.
      {"gemm_k/wgmma.early.boxes", {{"m.groups", 1}, {"n.groups", 1}, {"n.tiles", 4}}, 2},
  };
  ExpectKernels(ProductWithSums(72, 128, 128), 1, cases);
}

TEST(RunSums, AreMadeByTheBlocksOfAClusterThatWriteARow) {
  const std::vector<SumsCase> cases = {
      {"direct/cluster_wgmma",
       {{"cluster", 2}, {"i1.groups", 1}, {"i1.tiles", 1}, {"i2.groups", 1}, {"i2.tiles", 8}, {"write.vector", 4}},
       1},
      {"gemm_k/cluster_wgmma.boxes",
       {{"cluster", 2}, {"m.groups", 1}, {"m.tiles", 1}, {"n.groups", 1}, {"n.tiles", 16}, {"write.vector", 2}},
       1},
  };
  ExpectKernels(ProductWithSums(128, 128, 512), 8, cases);
}

// Blocks make the totals of their rows beside the product.
TEST(RunSums, TotalsAreOfTheBlockThatReadsThem) {
  const std::vector<SumsCase> cases = {
      {"direct/tile", {}, 1},
      {"direct/tensor", {}, 1},
      {"direct/wgmma.early.boxes", {{"producer", 3}, {"overlap", 2}, {"stages", 2}, {"r0.r2", 64}}, 1},
      {"gemm_k/wgmma.boxes", {{"producer", 0}}, 1},
      {"direct/cluster_wgmma", {{"cluster", 2}, {"i2.tiles", 8}}, 1},
      {"gemm_k/cluster_wgmma.boxes", {{"cluster", 2}, {"n.groups", 1}, {"n.tiles", 16}}, 1},
      {"direct/cluster", {{"cluster", 2}}, 1},
  };
  ExpectKernels(ProductBySums(64, 128, 256), 4, cases);
}

// A kernel of its own makes sums there.
TEST(RunSums, AndTotalsAreRightOnOtherTargets) {
  for (const auto& [text, which] :
       {std::pair("cpu -num-cores=2", 0), {"opencl", 0}, {"cpu -num-cores=2", 1}, {"opencl", 1}}) {
    SCOPED_TRACE(absl::StrCat(text, ", ", which));
    const ComputeDag dag = which == 0 ? ProductWithSums(40, 128, 96) : ProductBySums(40, 96, 128);
    const Target target = Target::Parse(text).value();
    auto device = OpenDevice(target);
    if (!device.ok()) GTEST_SKIP() << device.status();
    const DeviceFacts facts = (*device)->facts();
    const testing::Reference expected = testing::MakeReference(dag, 6);
    const auto task = TaskSpace::Create(dag, target, facts).value();
    std::mt19937 random(2);
    for (int i = 0; i < task->size(); ++i) {
      const Space& space = task->space(i);
      SCOPED_TRACE(space.name());
      const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(testing::CompareOnDevice(**device, *program, dag, expected), "");
    }
  }
}

}  // namespace
}  // namespace diapason
