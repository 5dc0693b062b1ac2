// Blocks that walk in groups of rows of tiles: which tasks have the parameter, the order of the blocks, what they
// compute, and what is refused. With a last-level cache of nothing numbers_test.cc and execute_test.cc go over these
// sketches too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "compiler/tensor/simplify.h"
#include "scheduler/sketch/sketch_space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/execute.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::Decide;
using testing::ParameterOf;

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();
const Target kOpenCl = Target::Parse("opencl").value();

DeviceFacts WithoutCache(const Target& target) {
  DeviceFacts facts = DefaultFacts(target);
  facts.l2_bytes = 0;
  return facts;
}

// Row and column of each block's tile in the order of the blocks, as the kernel computes them.
std::vector<std::pair<int64_t, int64_t>> OrderOf(const KernelFunc& kernel) {
  Expr block;
  std::vector<Expr> values;
  Contains(kernel.body, [&](const StmtNode& s) {
    if (s.kind == StmtKind::kFor && s.for_kind == ForKind::kBlockX) block = s.var;
    if (s.kind == StmtKind::kLet && UsesVar(s.value, block.get())) values.push_back(s.value);
    return false;
  });
  std::vector<std::pair<int64_t, int64_t>> order;
  if (values.size() != 2) return order;
  Analyzer analyzer;
  for (int64_t b = 0; b < kernel.blocks; ++b) {
    const auto at = [&](const Expr& value) {
      return analyzer.Simplify(Substitute(value, {{block.get(), IntImm(b)}}))->value;
    };
    order.emplace_back(at(values[1]), at(values[0]));  // the inner let is the row
  }
  return order;
}

TEST(BlockGroups, AreAParameterWhereTheOperandsExceedTheCache) {
  const ComputeDag large = testing::MatMul(4096, 4096, 4096, false), small = testing::MatMul(1024, 1024, 1024, false);
  int with = 0;
  for (const auto& [dag, offered] : {std::pair(&large, true), {&small, false}}) {
    const auto task = TaskSpace::Create(*dag, kCuda, DefaultFacts(kCuda)).value();
    for (const char* name : {"direct/tile", "direct/tensor", "direct/wgmma"}) {
      ASSERT_GE(task->Find(name), 0) << name;
      EXPECT_EQ(ParameterOf(task->space(task->Find(name)), "raster") >= 0, offered) << name;
      ++with;
    }
  }
  EXPECT_EQ(with, 6);
  // Two axes of an image are no rows and columns of a product.
  const auto direct =
      TaskSpace::Create(testing::Convolution({14, 14, 16, 32, 3, 1, 1}), kCuda, WithoutCache(kCuda)).value();
  EXPECT_LT(ParameterOf(direct->space(direct->Find("direct/tile")), "raster"), 0);
  EXPECT_GE(ParameterOf(direct->space(direct->Find("gemm/tile")), "raster"), 0);
}

TEST(BlockGroups, WalkDownColumnsAndLeaveNoTileOut) {
  const ComputeDag dag = testing::MatMul(66, 20, 16, false);  // 11 rows of 6, 5 columns of 4
  const auto task = TaskSpace::Create(dag, kCuda, WithoutCache(kCuda)).value();
  const Space& space = task->space(task->Find("direct/tile"));
  for (int32_t group : {1, 2, 4, 16}) {
    const auto lowered =
        Lower(dag, space.Instantiate(Decide(space, {{"i0.threads", 6}, {"i1.threads", 4}, {"raster", group}})), kCuda,
              DefaultFacts(kCuda));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const KernelFunc& kernel = lowered->kernels.at(0);
    ASSERT_EQ(kernel.blocks, 55);
    const auto order = OrderOf(kernel);
    if (group == 1) {
      EXPECT_TRUE(order.empty()) << "row by row needs no more than a division";
      continue;
    }
    std::vector<std::pair<int64_t, int64_t>> expected;
    for (int64_t first = 0; first < 11; first += group)
      for (int64_t column = 0; column < 5; ++column)
        for (int64_t row = first; row < std::min<int64_t>(first + group, 11); ++row) expected.emplace_back(row, column);
    EXPECT_EQ(order, expected) << group;
  }
}

TEST(BlockGroups, ComputeTheSame) {
  const ComputeDag dag = testing::MatMul(70, 30, 24, true);
  const testing::Reference expected = testing::MakeReference(dag, 4);
  const auto task = TaskSpace::Create(dag, kCuda, WithoutCache(kCuda)).value();
  const Space& space = task->space(task->Find("direct/tensor"));
  for (int32_t group : {2, 4, 8}) {
    const LoweredProgram lowered =
        Lower(dag, space.Instantiate(Decide(space, {{"raster", group}})), kCuda, DefaultFacts(kCuda)).value();
    ASSERT_EQ(lowered.kernels.at(0).blocks, 5 * 4);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected)) << group;
  }
}

// Columns that are no rows' end: the copies of whole tiles have no more conditions than without groups.
TEST(BlockGroups, AddNoConditionsWhereTilesDivide) {
  const ComputeDag dag = testing::MatMul(96, 32, 64, false);
  const auto task = TaskSpace::Create(dag, kCuda, WithoutCache(kCuda)).value();
  const Space& space = task->space(task->Find("direct/tensor"));
  int conditions[2] = {};
  for (int32_t group : {1, 4}) {  // of six rows
    const LoweredProgram lowered =
        Lower(dag, space.Instantiate(Decide(space, {{"raster", group}})), kCuda, DefaultFacts(kCuda)).value();
    ASSERT_EQ(lowered.kernels.at(0).blocks, 6 * 4);
    Contains(lowered.kernels[0].body, [&](const StmtNode& s) {
      conditions[group > 1] +=
          s.kind == StmtKind::kIf || (s.kind == StmtKind::kStore && s.value->kind == ExprKind::kSelect);
      return false;
    });
  }
  EXPECT_EQ(conditions[0], conditions[1]);
}

// A schedule may ask for both; on OpenCL the kernel is cut within the group's lets.
TEST(BlockGroups, OfClustersRunOnOpenCl) {
  const ComputeDag dag = testing::MatMul(40, 24, 150, true);
  const testing::Reference reference = testing::MakeReference(dag, 9);
  auto device = OpenDevice(kOpenCl);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto task = TaskSpace::Create(dag, kOpenCl, (*device)->facts()).value();
  const Space& space = task->space(task->Find("direct/cluster"));
  Schedule schedule =
      space.Instantiate(Decide(space, {{"cluster", 2}, {"thread_sets", 2}, {"i0.threads", 8}, {"i1.threads", 8}}));
  const auto annotates = [](const Step& step) {
    return step.kind == StepKind::kAnnotate && step.ints[0] == static_cast<int>(Annotation::kBlockX);
  };
  const auto block = std::find_if(schedule.steps.begin(), schedule.steps.end(), annotates);
  ASSERT_NE(block, schedule.steps.end());
  const Step group{StepKind::kGroupBlocks, block->stage, block->loops, {Factor::Of(2)}, -1, {}};
  schedule.steps.insert(block + 1, group);
  const LoweredProgram lowered = Lower(dag, schedule, kOpenCl, (*device)->facts()).value();
  const Program program = CompileProgram(lowered, kOpenCl).value();
  EXPECT_EQ(program.kernels.size(), 2u);
  EXPECT_EQ(testing::CompareOnDevice(**device, program, dag, reference, 1e-5), "") << program.source;
}

TEST(BlockGroups, WhatIsNoLoopOverBlocksIsRefused) {
  const auto message = [](const std::vector<Step>& steps) {
    Schedule schedule;
    schedule.steps = steps;
    return std::string(
        Lower(testing::MatMul(32, 32, 64, true), schedule, kCuda, DefaultFacts(kCuda)).status().message());
  };
  const Step group{StepKind::kGroupBlocks, 4, {2}, {Factor::Of(4)}, -1, {}};
  const Step fuse{StepKind::kFuse, 4, {0, 1}, {}, -1, {}};
  EXPECT_EQ(message({fuse, group}),
            absl::StrCat("schedule step 1 (", ToString(group),
                         "): stage add: blocks in groups are a loop over blocks that was made of several"));
  Step none = group;
  none.factors = {Factor::Of(0)};
  EXPECT_EQ(message({fuse, none}), absl::StrCat("schedule step 1 (", ToString(none), "): 0 is out of range"));
}

}  // namespace
}  // namespace diapason
