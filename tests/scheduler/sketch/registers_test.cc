// Where sums of products wait while processors add to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"

namespace diapason {
namespace {

// Stores, in a loop of a reduction right around them, that add to what they store to, in an element that other loops
// choose: compilers keep that in memory. `loops`: the serial ones around, from the outermost.
int SumsInMemory(const Stmt& stmt, std::vector<const ExprNode*>* loops) {
  const bool serial = stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kSerial;
  if (serial) loops->push_back(stmt->var.get());
  int count = 0;
  if (stmt->kind == StmtKind::kStore && !loops->empty() && loops->back()->name.find("_r") != std::string::npos) {
    bool adds = false;
    Visit(stmt->value, [&](const ExprNode& e) {
      adds |= e.kind == ExprKind::kLoad && e.buffer == stmt->buffer && Equal(e.args[0], stmt->index);
    });
    const bool chosen =
        std::any_of(loops->begin(), loops->end(), [&](const ExprNode* var) { return UsesVar(stmt->index, var); });
    count += adds && chosen ? 1 : 0;
  }
  for (const Stmt& child : stmt->body) count += SumsInMemory(child, loops);
  if (serial) loops->pop_back();
  return count;
}

TEST(Registers, HoldTheSumsOfTilesThatLoopsComeTo) {
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  int looked = 0;
  for (const auto& [name, dag] : {testing::NamedDag{"gemm", testing::MatMul(197, 96, 64, true)},
                                  {"depthwise", testing::Depthwise(14, 32, 3)},
                                  {"conv", testing::Convolution({.height = 14, .width = 14, .in = 16, .out = 32})}}) {
    const auto space = TaskSpace::Create(dag, target, facts).value();
    std::mt19937 random(3);
    for (int i = 0; i < space->size(); ++i) {
      if (space->space(i).name().find("direct/tile") == std::string::npos) continue;
      for (int trial = 0; trial < 20; ++trial) {
        const auto lowered =
            Lower(dag, space->space(i).Instantiate(testing::Decide(space->space(i), {}, &random)), target, facts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        for (const KernelFunc& kernel : lowered->kernels) {
          std::vector<const ExprNode*> loops;
          EXPECT_EQ(SumsInMemory(kernel.body, &loops), 0) << name << " " << space->space(i).name() << "\n"
                                                          << ToString(kernel);
          ++looked;
        }
      }
    }
  }
  EXPECT_GT(looked, 100);
}

// Some candidates of a sketch, lowered.
std::vector<LoweredProgram> RegisterTiles(const ComputeDag& dag, const std::string& sketch) {
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto space = TaskSpace::Create(dag, target, facts).value();
  std::vector<LoweredProgram> programs;
  std::mt19937 random(3);
  for (int i = 0; i < space->size(); ++i) {
    if (space->space(i).name() != sketch) continue;
    for (int trial = 0; trial < 10; ++trial)
      programs.push_back(
          Lower(dag, space->space(i).Instantiate(testing::Decide(space->space(i), {}, &random)), target, facts)
              .value());
  }
  return programs;
}

TEST(Registers, EpiloguesOfRegisterTilesReadThem) {
  const std::vector<LoweredProgram> programs = RegisterTiles(testing::MatMul(192, 96, 64, true), "direct/tile3");
  ASSERT_FALSE(programs.empty());
  for (const LoweredProgram& program : programs) {
    // The tile is a buffer by itself, and no larger than it: nothing is copied between sums and what the epilogue
    // reads.
    const std::string text = ToString(program.kernels.back());
    EXPECT_EQ(text.find("dense_sum"), std::string::npos) << text;
  }
}

// Its epilogue is a loop over the tile's memory, in which compilers would have to find the registers.
TEST(Registers, TilesThatALoopReadsAreAddedUpInBuffersOfTheirOwn) {
  const std::vector<LoweredProgram> programs = RegisterTiles(testing::MatMul(192, 96, 64, true), "direct/tile2");
  ASSERT_FALSE(programs.empty());
  int looked = 0;
  for (const LoweredProgram& program : programs) {
    const std::string text = ToString(program.kernels.back());
    const bool read_by_loops = text.find("for add_") != std::string::npos;
    looked += read_by_loops ? 1 : 0;
    EXPECT_TRUE(!read_by_loops || text.find("local float32 dense_sum") != std::string::npos) << text;
  }
  EXPECT_GT(looked, 0);
}

TEST(Registers, PaddingThatIsFoldedIsNoKernelAndNoChoice) {
  const std::vector<LoweredProgram> programs = RegisterTiles(testing::Depthwise(14, 32, 3), "direct/tile3.folded");
  ASSERT_FALSE(programs.empty());
  for (const LoweredProgram& program : programs) {
    ASSERT_EQ(program.kernels.size(), 1u);
    const std::string text = ToString(program.kernels[0]);
    EXPECT_EQ(text.find('?'), std::string::npos) << text;
    EXPECT_NE(text.find("if "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace diapason
