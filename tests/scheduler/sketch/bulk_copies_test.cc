// Constants that are laid out tile by tile and copied into shared memory a whole tile at a time: what lies in the
// tiles, the order of copies and waits, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/state.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();
const DeviceFacts kFacts = DefaultFacts(kCuda);

using Said = std::map<std::string, int32_t>;

// x[m][k] by w[n][k], with an epilogue.
ComputeDag Product(int64_t m, int64_t n, int64_t k) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}), w = b.Constant("w", {n, k});
  const int c = b.Reduce("c", {m, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {i[1], r[0]}));
  });
  const int relu = b.Compute("relu", {m, n}, [&](const DagBuilder::Vars& i) {
    return Max(b.At(c, {i[0], i[1]}), FloatImm(0));
  });
  return b.Build({relu}).value();
}

// A task's sketch, by its name.
struct Sketch {
  std::unique_ptr<TaskSpace> task;
  const Space* space = nullptr;
};

Sketch Find(const ComputeDag& dag, const std::string& name, const Target& target = kCuda) {
  Sketch sketch{TaskSpace::Create(dag, target, DefaultFacts(target)).value(), nullptr};
  const int index = sketch.task->Find(name);
  EXPECT_GE(index, 0) << name;
  if (index >= 0) sketch.space = &sketch.task->space(index);
  return sketch;
}

// A configuration drawn at random, with some values said by the ends of their names; those must be legal.
std::vector<int32_t> Draw(const Space& space, const Said& said, std::mt19937& random) {
  std::vector<int32_t> configuration(space.size()), values;
  for (int h = 0; h < space.size(); ++h) {
    space.Domain(h, configuration, &values);
    configuration[h] = values[random() % values.size()];
    for (const auto& [ending, value] : said) {
      if (!absl::EndsWith(space.parameter_name(h), ending)) continue;
      EXPECT_TRUE(std::find(values.begin(), values.end(), value) != values.end()) << ending << " cannot be " << value;
      configuration[h] = value;
    }
  }
  return configuration;
}

// Statements of the tree that `edit` changes: null takes one out.
Stmt Edited(const Stmt& stmt, const std::function<Stmt(const Stmt&)>& edit) {
  const Stmt mine = edit(stmt);
  if (!mine) return nullptr;
  auto copy = std::make_shared<StmtNode>(*mine);
  copy->body.clear();
  for (const Stmt& child : mine->body)
    if (Stmt part = Edited(child, edit)) copy->body.push_back(part);
  return mine->body.empty() || !copy->body.empty() ? copy : nullptr;
}

bool IsWait(const Stmt& s) { return s->kind == StmtKind::kMbarrier && s->mbarrier == MbarrierOp::kWait; }

TEST(BulkCopies, PipelinesReadTheTilesThatTheyAskedFor) {
  std::mt19937 random(3);
  const ComputeDag dag = Product(33, 20, 136);
  const testing::Reference expected = testing::MakeReference(dag, 7);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  int refilled = 0, whole = 0;
  for (int32_t stages : {2, 3})
    for (int32_t tiles : {2, 4, 64})
      for (int32_t depth : {8, 16}) {
        const Said said{{".warps", 1}, {".r1", 1}, {".r2", depth}, {"stages", stages}, {"w.shared.tiles", tiles}};
        const auto lowered = Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, said, random)), kCuda, kFacts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        ++(testing::CountStatements(lowered->kernels[0].body, StmtKind::kBulkCopy) == 2 ? refilled : whole);
        EXPECT_EQ(testing::CountStatements(lowered->kernels[0].body, StmtKind::kBulkCopy), tiles == 64 ? 1 : 2);
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected))
            << stages << " " << tiles << " " << depth;
      }
  EXPECT_EQ(refilled, 8);
  EXPECT_EQ(whole, 4);
}

// One step needs no pipeline.
TEST(BulkCopies, OneTileIsCopiedOnce) {
  std::mt19937 random(4);
  const ComputeDag dag = Product(40, 24, 16);
  const testing::Reference expected = testing::MakeReference(dag, 8);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  const auto lowered =
      Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, {{".warps", 1}, {".r1", 1}, {".r2", 16}}, random)),
            kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(testing::CountStatements(lowered->kernels[0].body, StmtKind::kWait), 0);
  EXPECT_EQ(testing::CountStatements(lowered->kernels[0].body, StmtKind::kMbarrier), 2);
  ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
}

// Blocks of a cluster take tiles in turn, some of them beyond the end; the barriers outlive the operands.
TEST(BulkCopies, BlocksOfAClusterTakeTilesInTurn) {
  std::mt19937 random(5);
  const ComputeDag dag = Product(20, 24, 200);
  const testing::Reference expected = testing::MakeReference(dag, 9);
  const Sketch sketch = Find(dag, "direct/cluster_tensor.bulk");
  for (int32_t cluster : {2, 3, 4})
    for (int32_t tiles : {2, 64}) {
      // With two sets of threads for the same tile, one thread still asks for all.
      const Said said{{".warps", 1},
                      {"cluster", cluster},
                      {"thread_sets", tiles == 2 ? 2 : 1},
                      {".r1", 1},
                      {".r2", tiles == 2 ? 8 : 16},
                      {"stages", 2},
                      {"w.shared.tiles", tiles}};
      const auto lowered = Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, said, random)), kCuda, kFacts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected)) << cluster << " " << tiles;
    }
}

// Tiles of 8 x 16 and rows of 4 more: those of the last columns and of the end of k hold zeros.
TEST(BulkCopies, TilesAreImagesOfTheSharedBuffer) {
  std::mt19937 random(6);
  const ComputeDag dag = Product(16, 20, 40);
  const testing::Reference given = testing::MakeReference(dag, 10);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  const Said said{{"i1.warps", 1}, {"i1.tiles", 1}, {".r1", 1}, {".r2", 16}, {"stages", 2}, {"w.shared.pad", 4}};
  const auto lowered = Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, said, random)), kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(lowered->prologue.size(), 1u);
  testing::NestRunner device;
  int tiles = -1;
  for (const auto& [id, buffer] : lowered->buffers) {
    device.buffers[id].assign(buffer.decl.elements, std::nan(""));
    if (buffer.decl.name == "w.tiles") tiles = id;
    if (buffer.decl.name != "w") continue;
    for (int64_t i = 0; i < 20 * 40; ++i) device.buffers[id][i] = given.inputs.at(buffer.stage).at(i);
  }
  ASSERT_GE(tiles, 0);
  device.Run(lowered->prologue[0]);
  ASSERT_EQ(device.buffers[tiles].size(), 3u * 3 * 160);
  for (const auto& [id, buffer] : lowered->buffers) {
    if (buffer.decl.name != "w") continue;
    for (int64_t n = 0; n < 24; ++n)
      for (int64_t k = 0; k < 48; ++k) {
        const double expected = n < 20 && k < 40 ? device.buffers[id][n * 40 + k] : 0;
        EXPECT_EQ(device.buffers[tiles][(n / 8 * 3 + k / 16) * 160 + n % 8 * 20 + k % 16], expected) << n << " " << k;
      }
  }
}

// What the interpreter of nests is good for: it tells of a wait for the wrong phase, and of none.
TEST(BulkCopies, WrongWaitsAreFound) {
  std::mt19937 random(7);
  const ComputeDag dag = Product(16, 8, 96);
  const testing::Reference expected = testing::MakeReference(dag, 11);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  const Said said{{".warps", 1}, {".r1", 1}, {".r2", 8}, {"stages", 2}, {"w.shared.tiles", 64}};
  const auto lowered = Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, said, random)), kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto computes = [&](const std::function<Stmt(const Stmt&)>& edit) {
    testing::NestRunner device;
    for (const auto& [id, buffer] : lowered->buffers) {
      device.buffers[id].assign(buffer.decl.elements, std::nan(""));
      if (const auto input = expected.inputs.find(buffer.stage); input != expected.inputs.end())
        for (int64_t i = 0; i < input->second.elements(); ++i) device.buffers[id][i] = input->second.at(i);
    }
    device.Run(lowered->prologue[0]);
    KernelFunc kernel = lowered->kernels[0];
    kernel.body = Edited(kernel.body, edit);
    device.Run(kernel);
    bool right = true;
    for (const auto& [id, buffer] : lowered->buffers)
      if (buffer.role == static_cast<int>(BufferRole::kOutput))
        for (int64_t i = 0; i < expected.outputs[0].elements(); ++i)
          right &= std::abs(device.buffers[id][i] - expected.outputs[0].at(i)) < 1e-4;
    return right;
  };
  EXPECT_TRUE(computes([](const Stmt& s) { return s; }));
  EXPECT_FALSE(computes([](const Stmt& s) { return IsWait(s) ? nullptr : s; }));
  // The phase before: it has passed.
  EXPECT_FALSE(computes(
      [](const Stmt& s) { return IsWait(s) ? MakeMbarrierWait(s->operands[0], Sub(IntImm(1), s->value)) : s; }));
}

TEST(BulkCopies, CudaLeavesThemToTheHardware) {
  std::mt19937 random(8);
  const ComputeDag dag = Product(64, 48, 128);
  const Sketch sketch = Find(dag, "direct/cluster_tensor.bulk");
  const auto lowered =
      Lower(dag, sketch.space->Instantiate(Draw(*sketch.space, {{".r2", 8}, {".r1", 1}}, random)), kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto program = CompileProgram(*lowered, kCuda);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(absl::StrContains(program->source, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"));
  EXPECT_FALSE(program->binary.empty());
}

TEST(BulkCopies, StepsSurviveARecord) {
  const ComputeDag dag = Product(16, 20, 40);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  const Schedule schedule = sketch.space->Instantiate(sketch.space->Default());
  const Schedule read = ParseSchedule(SerializeSchedule(schedule)).value();
  const auto before = Lower(dag, schedule, kCuda, kFacts), after = Lower(dag, read, kCuda, kFacts);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(PrintSource(*before, kCuda), PrintSource(*after, kCuda));
  EXPECT_EQ(testing::CountStatements(after->kernels[0].body, StmtKind::kMbarrier) > 0, true);
}

TEST(BulkCopies, WhatIsNoCopyOfTilesIsRefused) {
  const ComputeDag dag = Product(32, 24, 64);
  const Sketch sketch = Find(dag, "direct/tensor.bulk");
  std::mt19937 random(9);
  const Schedule schedule = sketch.space->Instantiate(Draw(*sketch.space, {{".r1", 1}, {".r2", 8}}, random));
  ASSERT_TRUE(Lower(dag, schedule, kCuda, kFacts).ok());
  Schedule serial = schedule, gone = schedule, root = schedule, local = schedule;
  for (Step& step : serial.steps)
    if (step.kind == StepKind::kPipeline) step.factors = {Factor::Of(1)};
  EXPECT_EQ(Lower(dag, serial, kCuda, kFacts).status(),
            absl::InvalidArgumentError("stage w.shared: copies of a tile at a time take one pipeline that runs once"));
  int copy = -1;
  for (Step& step : root.steps)
    if (step.kind == StepKind::kBulkCopy) copy = std::exchange(step.stage, 2);
  const absl::Status refused = Lower(dag, root, kCuda, kFacts).status();
  EXPECT_TRUE(absl::EndsWith(refused.message(),
                             "stage c: only a plain copy of a constant in shared memory is made a tile at a time"))
      << refused;
  local.steps.push_back({StepKind::kSetScope, copy, {}, {}, -1, {static_cast<int32_t>(Memory::kLocal)}});
  EXPECT_EQ(Lower(dag, local, kCuda, kFacts).status(),
            absl::InvalidArgumentError(
                "stage w.shared is copied a tile at a time, and no plain copy of tiles in shared memory"));
}

}  // namespace
}  // namespace diapason
