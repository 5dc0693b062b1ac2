#include "scheduler/sketch/cpu_loops.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "scheduler/sketch/sketch_space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"

namespace diapason {
namespace {

// Two cores with vectors of 16 floats, 32 registers, 32 KiB and 1 MiB of caches, whatever this machine has.
DeviceFacts TwoWideCores() {
  DeviceFacts facts = DefaultFacts(Target::Parse("cpu -num-cores=2").value());
  facts.num_cores = 2;
  facts.vector_bytes = 64;
  facts.num_vector_registers = 32;
  facts.l1_bytes = 32 << 10;
  facts.l2_bytes = 1 << 20;
  facts.clock_hz = 2e9;
  facts.flops = 2 * 2e9 * 2 * 2 * 16;  // two fused multiply-adds a cycle
  return facts;
}

// A sketch of a task, with bounds of a candidate.
class CandidateLoops {
 public:
  CandidateLoops(const ComputeDag& dag, const std::string& sketch, const std::map<std::string, int32_t>& said)
      : task_(TaskSpace::Create(dag, Target::Parse("cpu -num-cores=2").value(), TwoWideCores()).value()) {
    const int index = task_->Find(sketch);
    EXPECT_GE(index, 0) << sketch;
    space_ = static_cast<const SketchSpace*>(&task_->space(index));
    configuration_ = testing::Decide(*space_, said);
    space_->skeleton().Infer(configuration_, &bounds_);
  }

  // Of the stage of that name, with all its accesses.
  CpuLoops Of(const std::string& stage, int cores) const {
    const State& state = space_->skeleton().state();
    int id = 0;
    while (id < state.size() && state.stage(id).op.name != stage) ++id;
    EXPECT_LT(id, state.size()) << stage;
    std::vector<int> all(space_->skeleton().accesses(id).size());
    std::iota(all.begin(), all.end(), 0);
    return {{space_->skeleton(), bounds_, configuration_}, id, all, cores};
  }

  double seconds() const {
    Metrics metrics;
    space_->Evaluate(configuration_, &metrics);
    return metrics.seconds;
  }

 private:
  std::unique_ptr<TaskSpace> task_;
  const SketchSpace* space_;
  std::vector<int32_t> configuration_;
  Bounds bounds_;
};

// 192x96x64 in tiles of 6 rows by 2 vectors: 4 x 1 of them a block of 24x32 results, 8 x 3 blocks.
const std::map<std::string, int32_t> kTiles = {{"i0.s3", 6},     {"i0.s2", 4},  {"i0.s1", 1},
                                               {"i1.lanes", 16}, {"i1.s3", 2},  {"i1.s2", 1},
                                               {"i1.s1", 1},     {"r0.r1", 16}, {"unroll", 0}};

TEST(CpuLoopsTest, GoOnWithTheLoopsThatAStageIsComputedIn) {
  const CandidateLoops candidate(testing::MatMul(192, 96, 64, true), "direct/tile3", kTiles);
  const CpuLoops loops = candidate.Of("dense", 1);
  EXPECT_EQ(loops.lanes(), 16);
  EXPECT_EQ(loops.Iterations(loops.body()), 6 * 32);
  EXPECT_EQ(loops.Iterations(loops.held()), 6 * 32 * 64);  // both loops of the reduction, since one tile is all
  EXPECT_EQ(loops.Results(loops.held()), 6 * 32);
  EXPECT_EQ(loops.Iterations(loops.size()), 192 * 96 * 64);
  EXPECT_EQ(loops.Results(loops.size()), 192 * 96);
}

TEST(CpuLoopsTest, KnowWhatAPassReadsAndHowLanesFindIt) {
  const CandidateLoops candidate(testing::MatMul(192, 96, 64, true), "direct/tile3", kTiles);
  const CpuLoops loops = candidate.Of("dense", 1);
  ASSERT_EQ(loops.accesses(), 2u);
  EXPECT_EQ(loops.LanesOf(0), LaneAccess::kSame);
  EXPECT_EQ(loops.Elements(0, loops.body()), 6);
  EXPECT_EQ(loops.LanesOf(1), LaneAccess::kNeighbours);
  EXPECT_EQ(loops.Elements(1, loops.body()), 32);
  EXPECT_EQ(loops.Elements(0, loops.size()), 192 * 64);
  EXPECT_EQ(loops.Elements(1, loops.size()), 64 * 96);
}

TEST(CpuLoopsTest, FetchAgainOnlyWhatLoopsAroundMove) {
  const CandidateLoops candidate(testing::MatMul(192, 96, 64, true), "direct/tile3", kTiles);
  const CpuLoops loops = candidate.Of("dense", 1);
  const double rows = 192 * 64 * 4, columns = 64 * 96 * 4;
  EXPECT_EQ(loops.Traffic(1 << 20, 0), rows + columns);  // each once
  // What a tile read stays, 6x64 elements of rows and 64x32 of columns: the next tiles, of other rows, find the
  // columns.
  EXPECT_EQ(loops.Traffic(12 << 10, 0), 3 * rows + 8 * columns);
  // Nothing but a step of a tile stays: each tile fetches both.
  EXPECT_EQ(loops.Traffic(1 << 10, 0), 3 * rows + 32 * columns);
}

// Rows of 1024 floats lie 4 KiB apart: 6 of them fall onto one place of a cache of 4 lines a place.
TEST(CpuLoopsTest, FetchALineForEachElementWhereRowsCrowdOntoOnePlace) {
  const CandidateLoops candidate(testing::MatMul(192, 96, 1024, true), "direct/tile3", kTiles);
  const CpuLoops loops = candidate.Of("dense", 1);
  const double capacity = 1 << 20, rows = 192 * 1024 * 4, columns = 1024 * 96 * 4;
  EXPECT_EQ(loops.Traffic(capacity, 32 << 10), loops.Traffic(capacity, 0));
  EXPECT_EQ(loops.Traffic(capacity, 16 << 10) - loops.Traffic(capacity, 0), 15 * rows);
  EXPECT_GE(loops.Traffic(capacity, 0), rows + columns);
  const CandidateLoops odd(testing::MatMul(192, 96, 1040, true), "direct/tile3", kTiles);
  EXPECT_EQ(odd.Of("dense", 1).Traffic(capacity, 16 << 10), odd.Of("dense", 1).Traffic(capacity, 0));
}

TEST(CpuLoopsTest, ShareTheParallelLoopAmongCores) {
  const CandidateLoops candidate(testing::MatMul(192, 96, 64, true), "direct/tile3", kTiles);
  const CpuLoops loops = candidate.Of("dense", 2);
  EXPECT_EQ(loops.cores(), 2);
  EXPECT_EQ(loops.Iterations(loops.size()), 192 * 96 * 64 / 2);
  EXPECT_EQ(loops.Traffic(1 << 20, 0), 192 * 64 * 4 / 2 + 64 * 96 * 4);  // half of the rows and all columns
}

TEST(CpuLoopsTest, TellWhereTilesAndVectorsGoBeyondTheTensor) {
  const CpuLoops whole = CandidateLoops(testing::MatMul(192, 96, 64, true), "direct/tile3", kTiles).Of("dense", 1);
  EXPECT_EQ(whole.Guards(), 0);
  EXPECT_FALSE(whole.guards_lanes());
  const CpuLoops rows = CandidateLoops(testing::MatMul(190, 96, 64, true), "direct/tile3", kTiles).Of("dense", 1);
  EXPECT_GT(rows.Guards(), 0);
  EXPECT_FALSE(rows.guards_lanes());
  const CpuLoops lanes = CandidateLoops(testing::MatMul(192, 90, 64, true), "direct/tile3", kTiles).Of("dense", 1);
  EXPECT_GT(lanes.Guards(), 0);
  EXPECT_FALSE(lanes.guards_lanes());
  const CpuLoops both = CandidateLoops(testing::MatMul(190, 90, 64, true), "direct/tile3", kTiles).Of("dense", 1);
  EXPECT_TRUE(both.guards_lanes());
}

TEST(CpuLoopsTest, UnrollAsLoweringDoes) {
  auto said = kTiles;
  said["unroll"] = 512;
  said["r0.r1"] = 8;
  const CandidateLoops candidate(testing::MatMul(192, 96, 64, true), "direct/tile3", said);
  const CpuLoops loops = candidate.Of("dense", 1);
  EXPECT_EQ(loops.Iterations(loops.body()), 6 * 32 * 8);  // 96 steps; 8 times as many are too many
}

TEST(CpuLoopsTest, MoreSumsThanRegistersCostMoreThanTheirArithmetic) {
  auto said = kTiles;
  const double fits = CandidateLoops(testing::MatMul(192, 96, 512, true), "direct/tile3", said).seconds();
  said["i0.s3"] = 16;
  said["i0.s2"] = 2;
  said["i1.s3"] = 3;
  const double spills = CandidateLoops(testing::MatMul(192, 96, 512, true), "direct/tile3", said).seconds();
  EXPECT_GT(spills, 1.3 * fits);
}

}  // namespace
}  // namespace diapason
