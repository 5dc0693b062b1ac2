// Which dags are chains of row reductions, and what becomes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/lower/lower.h"
#include "scheduler/sketch/row_chain.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::NamedDag;

std::optional<RowChain> ChainOf(const ComputeDag& dag) {
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  return FindRowChain(Draft(State(dag), {target, facts}), dag.outputs()[0]);
}

std::vector<std::string> Sketches(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  const auto spaces = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
  std::vector<std::string> names;
  for (int i = 0; i < spaces->size(); ++i)
    if (spaces->space(i).name().find("/row") != std::string::npos) names.push_back(spaces->space(i).name());
  return names;
}

TEST(RowChainTest, KnowsRowsColumnsAndReductions) {
  const auto chain = ChainOf(testing::SoftmaxOfChannels(2, 21, 45));
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->row_axes, (std::vector<int>{0, 2}));
  EXPECT_EQ(chain->column_axes, std::vector<int>{1});
  EXPECT_EQ(chain->columns, 21);
  EXPECT_EQ(chain->reductions, (std::vector<int>{1, 3}));  // x, top, e, sum, y
  EXPECT_EQ(chain->between, std::vector<int>{2});
  EXPECT_EQ(chain->dear, std::vector<int>{2});
}

TEST(RowChainTest, AnElementOfItsOwnRowMayBeReadThroughADimensionOfOne) {
  const auto chain = ChainOf(testing::LayerNorm(6, 96));
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->row_axes, std::vector<int>{0});
  EXPECT_EQ(chain->reductions.size(), 2u);
  EXPECT_EQ(chain->between.size(), 3u);
  EXPECT_TRUE(chain->dear.empty());
}

// Rows of the second sum run across those of the first one.
ComputeDag SumsOfRowsAndColumns() {
  DagBuilder b;
  const int x = b.Placeholder("x", {16, 16});
  const int rows =
      b.Reduce("rows", {16}, {16}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(x, {i[0], r[0]});
      });
  const int left = b.Compute("left", {16, 16}, [&](const DagBuilder::Vars& i) {
    return Sub(b.At(x, {i[0], i[1]}), b.At(rows, {i[0]}));
  });
  const int columns =
      b.Reduce("columns", {16}, {16}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(left, {r[0], i[0]});
      });
  return b
      .Build({b.Compute("y", {16, 16},
                        [&](const DagBuilder::Vars& i) {
                          return Mul(b.At(left, {i[0], i[1]}), b.At(columns, {i[1]}));
                        })})
      .value();
}

// Each row is taken from its neighbour's sum.
ComputeDag SumsOfNeighbours() {
  DagBuilder b;
  const int x = b.Placeholder("x", {17, 16});
  const int sums =
      b.Reduce("sums", {17}, {16}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(x, {i[0], r[0]});
      });
  return b
      .Build({b.Compute("y", {16, 16},
                        [&](const DagBuilder::Vars& i) {
                          return Sub(b.At(x, {i[0], i[1]}), b.At(sums, {Add(i[0], IntImm(1))}));
                        })})
      .value();
}

TEST(RowChainTest, OtherDagsAreNone) {
  EXPECT_FALSE(ChainOf(SumsOfRowsAndColumns()).has_value());
  EXPECT_FALSE(ChainOf(SumsOfNeighbours()).has_value());
  for (const NamedDag& kind : testing::AllKinds()) {
    const bool normalises = kind.name == "softmax" || kind.name == "layer_norm";
    EXPECT_EQ(ChainOf(kind.dag).has_value(), normalises) << kind.name;
  }
}

TEST(RowReductionsTest, TheDefaultScheduleIsOneKernel) {
  for (const char* text : {"cpu -num-cores=2", "opencl", "cuda -arch=sm_90"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (const NamedDag& chain : testing::RowChains()) {
      const auto schedule = DefaultSchedule(chain.dag, target, facts);
      ASSERT_TRUE(schedule.ok()) << chain.name << ": " << schedule.status();
      const auto lowered = Lower(chain.dag, *schedule, target, facts);
      ASSERT_TRUE(lowered.ok()) << chain.name << ": " << lowered.status();
      EXPECT_EQ(lowered->kernels.size(), 1u) << chain.name << " on " << text << " by " << schedule->sketch;
    }
  }
}

TEST(RowReductionsTest, ThreadsShareARowOrHaveOneEach) {
  const std::string gpu = "cuda -arch=sm_90";
  EXPECT_EQ(Sketches(testing::Softmax(5, 700), gpu),
            (std::vector<std::string>{"direct/row_block", "direct/row_block.held"}));
  EXPECT_EQ(Sketches(testing::SoftmaxOfChannels(64, 21, 450), gpu), std::vector<std::string>{"direct/row_thread"});
  EXPECT_EQ(Sketches(testing::Softmax(5, 70), "cpu"), (std::vector<std::string>{"direct/row", "direct/row.held"}));
  EXPECT_EQ(Sketches(testing::LayerNorm(5, 70), "cpu"), std::vector<std::string>{"direct/row"});
  EXPECT_EQ(Sketches(testing::SoftmaxOfChannels(2, 21, 45), "cpu"),
            (std::vector<std::string>{"direct/rows", "direct/rows.held"}));
}

// On cuda the lanes of a warp add up their shares by five shuffles, and the block waits once for all warps; elsewhere
// threads meet as a tree in shared memory.
TEST(RowReductionsTest, WarpsMeetByShuffles) {
  const ComputeDag dag = testing::LayerNorm(3, 517);
  const testing::Reference expected = testing::MakeReference(dag, 3);
  int barriers[2][3] = {};
  for (const char* text : {"opencl", "cuda -arch=sm_90"}) {
    const Target target = Target::Parse(text).value();
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    const Space& space = task->space(task->Find("direct/row_block"));
    const bool cuda = target.kind == TargetKind::kCuda;
    int which = 0;
    for (const int threads : {32, 128, 256}) {
      SCOPED_TRACE(absl::StrCat(text, ", ", threads, " threads"));
      const std::vector<int32_t> configuration = testing::Decide(space, {{"row.threads", threads}});
      const LoweredProgram lowered = Lower(dag, space.Instantiate(configuration), target, DefaultFacts(target)).value();
      EXPECT_EQ(testing::CountStatements(lowered.kernels.at(0).body, StmtKind::kShuffle), cuda ? 2 * 5 : 0);
      barriers[cuda][which++] = testing::CountStatements(lowered.kernels[0].body, StmtKind::kBarrier);
      testing::ExpectNestComputes(lowered, expected);
    }
  }
  for (const int which : {0, 1, 2}) EXPECT_EQ(barriers[1][which], 4) << which;
  EXPECT_EQ(barriers[0][2], 4 + 2 * 8);
}

// What no block can hold is read again from memory.
TEST(RowReductionsTest, RowsThatDoNotFitAreNotHeld) {
  EXPECT_EQ(Sketches(testing::Softmax(3, 100000), "opencl"), std::vector<std::string>{"direct/row_block"});
  EXPECT_EQ(Sketches(testing::Softmax(3, 100000), "cpu"), std::vector<std::string>{"direct/row"});
}

}  // namespace
}  // namespace diapason
