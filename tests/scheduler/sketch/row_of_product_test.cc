// The row that a product of one row multiplies, where reductions of it come first.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::NamedDag;

// One kernel, in which each block makes the row's reductions again.
TEST(RowOfProduct, IsNormalisedInTheKernelOfTheProduct) {
  std::mt19937 random(3);
  int run = 0, clusters = 0;
  for (const char* text : {"cuda -arch=sm_90", "cuda -arch=sm_80", "opencl"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (const NamedDag& product : testing::RowProducts()) {
      SCOPED_TRACE(absl::StrCat(product.name, " on ", text));
      const testing::Reference expected = testing::MakeReference(product.dag, 3);
      const auto task = TaskSpace::Create(product.dag, target, facts).value();
      ASSERT_GE(task->Find("direct/stream"), 0);
      const Space& space = task->space(task->Find("direct/stream"));
      for (int n = 0; n < 6; ++n) {
        const std::vector<int32_t> configuration = n == 0 ? space.Default() : testing::Decide(space, {}, &random);
        const auto lowered = Lower(product.dag, space.Instantiate(configuration), target, facts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        ASSERT_EQ(lowered->kernels.size(), 1u);
        if (n > 0 &&
            (lowered->kernels[0].threads * lowered->kernels[0].cluster > 300 || lowered->kernels[0].blocks > 32))
          continue;
        const bool half = product.name.find("half") != std::string::npos;
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, half ? 1e-2 : 1e-4));
        ++run;
        clusters += lowered->kernels[0].cluster > 1;
        if (n > 0 || target.kind != TargetKind::kCuda) continue;
        const auto program = CompileProgram(*lowered, target);
        EXPECT_TRUE(program.ok()) << program.status();
      }
    }
  }
  EXPECT_GE(run, 30);
  EXPECT_GE(clusters, 2);
}

// What stands in front of the product is in no other sketch: it would be a kernel of its own there, as without it.
TEST(RowOfProduct, IsOfferedWithStreamsAlone) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto names = [&](const ComputeDag& dag) {
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    std::vector<std::string> names;
    for (int i = 0; i < task->size(); ++i) names.push_back(task->space(i).name());
    return names;
  };
  EXPECT_EQ(names(testing::NormalisedRowProduct(256, 128, DType::kFloat16)), std::vector<std::string>{"direct/stream"});
  EXPECT_GT(names(testing::ScoresOfKeys(4, 128, 64, DType::kFloat16)).size(), 5u);
}

// The source of the fallback schedule, which is to be the named sketch.
std::string SourceOfDefault(const ComputeDag& dag, const std::string& sketch) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  const Schedule schedule = task->DefaultSchedule();
  EXPECT_EQ(schedule.sketch, sketch);
  return PrintSource(Lower(dag, schedule, target, DefaultFacts(target)).value(), target);
}

// 16 bytes at once.
TEST(RowOfProduct, KeysAreReadAlongTheirElements) {
  const std::string source = SourceOfDefault(testing::ScoresOfKeys(12, 513, 64, DType::kFloat16), "direct/stream");
  EXPECT_NE(source.find("chunk = *(const uint4*)(rows"), std::string::npos) << source;
}

// A cache and what was appended to it, even if keys are transposed in between.
TEST(RowOfProduct, WhatWasAppendedIsReadWhereItIs) {
  for (const ComputeDag& dag : {testing::ScoresOfKeys(12, 513, 64, DType::kFloat16, 512),
                                testing::ValuesOfScores(12, 513, 64, DType::kFloat16, 512)}) {
    const std::string source = SourceOfDefault(dag, "direct/stream");
    const size_t load = source.find(" ? past + ");
    EXPECT_NE(load, std::string::npos) << source;
    EXPECT_NE(source.find(" : made + ", load), std::string::npos) << source;
    EXPECT_NE(source.rfind("chunk = *(const uint4*)(", load), std::string::npos) << source;
  }
}

TEST(RowOfProduct, RowsThatAreNotAlignedArePadded) {
  const std::string source = SourceOfDefault(testing::VectorTimesMatrix(768, 5021, DType::kFloat16), "padded/stream");
  EXPECT_NE(source.find("chunk = *(const uint4*)(w_padded"), std::string::npos) << source;
}

// A sum in parts: each block would make all of them again.
TEST(RowOfProduct, PartsOfALongSumAreNoRow) {
  for (const bool narrow : {false, true}) {
    DagBuilder b;
    const int x = b.Placeholder("x", {1 << 20, 3});
    const int parts = b.Reduce("parts", {16384, 3}, {64}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return b.At(x, {Add(Mul(i[0], IntImm(64)), r[0]), i[1]});
    });
    int sum = b.Reduce("sum", {3}, {16384}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return b.At(parts, {r[0], i[0]});
    });
    if (narrow) sum = b.Compute("stored", {3}, [&](const auto& i) { return Cast(DType::kFloat16, b.At(sum, i)); });
    const ComputeDag dag = b.Build({sum}).value();
    for (const char* text : {"cuda -arch=sm_90", "opencl"}) {
      const Target target = Target::Parse(text).value();
      const auto task = TaskSpace::Create(dag, target, DefaultFacts(target));
      ASSERT_TRUE(task.ok()) << task.status();
      EXPECT_LT((*task)->Find("direct/stream"), 0);
    }
  }
}

// Each combination of copies once, however many stages move the same elements.
TEST(RowOfProduct, MovesOneAfterTheOtherHaveNoChoicesOfTheirOwn) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const auto sketches = [&](int64_t past) {
    return TaskSpace::Create(testing::ScoresOfKeys(12, 513, 64, DType::kFloat16, past), target, DefaultFacts(target))
        .value()
        ->size();
  };
  EXPECT_LE(sketches(512), 2 * sketches(0));
}

}  // namespace
}  // namespace diapason
