// All steps of a recurrence in one kernel: which candidates there are, and that they compute the dag.
#include "scheduler/sketch/recurrence_space.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/paths.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/execute.h"
#include "tests/scheduler/sketch/run_nest.h"
#include "tests/tensor/recurrent_dags.h"

namespace diapason {
namespace {

using testing::CellKind;
using testing::Decide;
using testing::Recurrent;
using testing::RecurrentShape;
using testing::Reference;

constexpr uint64_t kInputs = 7;
constexpr int kCandidates = 4;

std::unique_ptr<TaskSpace> SpacesOf(const ComputeDag& dag, const Target& target, const DeviceFacts& facts) {
  auto spaces = TaskSpace::Create(dag, target, facts);
  EXPECT_TRUE(spaces.ok()) << spaces.status();
  return *std::move(spaces);
}

// Of results around 1.
double ToleranceOfNest(DType dtype) {
  return dtype == DType::kFloat16 ? 4e-3 : dtype == DType::kBfloat16 ? 3e-2 : 1e-4;
}

// By target and number of the recurrence.
class RecurrenceOnDeviceTest : public ::testing::TestWithParam<std::tuple<std::string, size_t>> {};

TEST_P(RecurrenceOnDeviceTest, CandidatesComputeTheDag) {
  const auto& [text, number] = GetParam();
  const Target target = Target::Parse(text).value();
  auto device = OpenDevice(target);
  if (!device.ok() && (target.kind == TargetKind::kCuda || MayLack(text))) GTEST_SKIP() << device.status().message();
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceFacts facts = (*device)->facts();
  std::mt19937 random(static_cast<uint32_t>(11 + number));
  const auto [name, shape] = testing::Recurrences()[number];
  const ComputeDag dag = Recurrent(shape);
  const auto spaces = SpacesOf(dag, target, facts);
  ASSERT_EQ(spaces->size(), 1);
  const Space& space = spaces->space(0);
  const Reference reference = testing::MakeReference(dag, kInputs);
  for (int n = 0; n < kCandidates; ++n) {
    const std::vector<int32_t> configuration = n == 0 ? space.Default() : Decide(space, {}, &random);
    SCOPED_TRACE(absl::StrCat(name, " ", absl::StrJoin(configuration, ",")));
    const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.size(), 1u);
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << program.status() << "\n" << PrintSource(*lowered, target);
    ASSERT_EQ(testing::CompareOnDevice(**device, *program, dag, reference), "") << program->source;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RecurrenceOnDeviceTest,
                         ::testing::Combine(::testing::Values("cpu", "opencl", "cuda"),
                                            ::testing::Range<size_t>(0, testing::Recurrences().size())));

// Clusters, shuffles and stores to other blocks, as on a GPU.
TEST(RecurrenceNestTest, NestsForCudaComputeTheDag) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  for (const auto& [name, shape] : testing::Recurrences()) {
    const ComputeDag dag = Recurrent(shape);
    const auto spaces = SpacesOf(dag, target, facts);
    const Space& space = spaces->space(0);
    const Reference reference = testing::MakeReference(dag, kInputs);
    const std::vector<std::vector<int32_t>> configurations = {{1, 1, 1, 0}, {1, 4, 2, 1}, {2, 8, 1, 2}, {2, 2, 2, 1},
                                                              {4, 8, 1, 2}, {4, 1, 2, 2}, {2, 4, 2, 5}, {1, 2, 1, 5}};
    for (const std::vector<int32_t>& configuration : configurations) {
      SCOPED_TRACE(absl::StrCat(name, " ", absl::StrJoin(configuration, ",")));
      Metrics metrics;
      space.Evaluate(configuration, &metrics);
      if (!metrics.legal && shape.rows * shape.units > 100) continue;  // registers
      ASSERT_TRUE(metrics.legal);
      const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, reference, ToleranceOfNest(shape.dtype)));
    }
  }
}

// On tensor cores: state of float32 in two parts, rows that do not fill a product, one and several blocks.
TEST(RecurrenceNestTest, ProductsOnTensorCoresComputeTheDag) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  int found = 0;
  for (const auto& [name, shape] : testing::Recurrences()) {
    if (shape.dtype == DType::kFloat32 || shape.units % 16 != 0) continue;
    const ComputeDag dag = Recurrent(shape);
    const auto spaces = SpacesOf(dag, target, facts);
    const Space& space = spaces->space(0);
    const Reference reference = testing::MakeReference(dag, kInputs);
    for (const std::vector<int32_t>& configuration :
         std::vector<std::vector<int32_t>>{{1, 4, 1, 3}, {2, 4, 1, 3}, {4, 4, 1, 4}, {1, 4, 1, 4}, {16, 4, 1, 3}}) {
      SCOPED_TRACE(absl::StrCat(name, " ", absl::StrJoin(configuration, ",")));
      Metrics metrics;
      space.Evaluate(configuration, &metrics);
      ASSERT_TRUE(metrics.legal);
      const auto lowered = Lower(dag, space.Instantiate(configuration), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_GT(testing::CountStatements(lowered->kernels[0].body, StmtKind::kMma), 0);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(
          *lowered, reference, shape.wide ? ToleranceOfNest(shape.dtype) / 4 : ToleranceOfNest(shape.dtype)));
      ++found;
    }
  }
  EXPECT_EQ(found, 25);
}

// A layer of a real size, for the first GPUs with clusters and for one without.
TEST(RecurrenceNestTest, CompilesForCuda) {
  for (const char* text : {"cuda -arch=sm_80", "cuda -arch=sm_90"}) {
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const ComputeDag dag = Recurrent({.steps = 32, .units = 256, .dtype = dtype});
      const auto spaces = SpacesOf(dag, target, facts);
      const auto lowered = Lower(dag, spaces->space(0).Instantiate(spaces->space(0).Default()), target, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << PrintSource(*lowered, target);
      EXPECT_EQ(program->kernels.size(), 1u);
    }
  }
}

// Weights as operands of products, in registers and in shared memory, without spills.
TEST(RecurrenceNestTest, ProductsOnTensorCoresCompileForCuda) {
  struct Case {
    const char* target;
    int64_t units;
    std::vector<int32_t> configuration;
  };
  for (const auto& [text, units, configuration] : std::vector<Case>{{"cuda -arch=sm_80", 64, {1, 4, 1, 3}},
                                                                    {"cuda -arch=sm_90", 256, {8, 4, 1, 3}},
                                                                    {"cuda -arch=sm_90", 256, {16, 4, 1, 4}},
                                                                    {"cuda -arch=sm_120", 256, {8, 4, 1, 3}}}) {
    SCOPED_TRACE(absl::StrCat(text, " ", absl::StrJoin(configuration, ",")));
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    const ComputeDag dag = Recurrent({.steps = 8, .rows = 8, .units = units, .dtype = DType::kFloat16, .wide = true});
    const auto spaces = SpacesOf(dag, target, facts);
    const auto lowered = Lower(dag, spaces->space(0).Instantiate(configuration), target, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
  }
}

// 4 MB of weights: more than the shared memory or the registers of a cluster, but not than both.
TEST(RecurrenceNestTest, LargeWeightsAreKeptInBoth) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag dag = Recurrent({.steps = 8, .units = 512});
  const auto spaces = SpacesOf(dag, target, facts);
  const Space& space = spaces->space(0);
  Metrics metrics;
  for (int32_t weights : {1, 2, 5}) {
    space.Evaluate(std::vector<int32_t>{16, 16, 1, weights}, &metrics);
    EXPECT_EQ(metrics.legal, weights == 5);
  }
  const auto lowered = Lower(dag, space.Instantiate(std::vector<int32_t>{16, 16, 1, 5}), target, facts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto program = CompileProgram(*lowered, target);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
}

TEST(RecurrenceNestTest, ResultsAreStoredWhileBlocksArrive) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag dag = Recurrent({.rows = 2});
  const auto spaces = SpacesOf(dag, target, facts);
  const int output = dag.outputs()[0];
  const auto stores = [&](int32_t blocks, const std::function<bool(const StmtNode&)>& within) {
    const auto lowered = Lower(dag, spaces->space(0).Instantiate(std::vector<int32_t>{blocks, 4, 1, 1}), target, facts);
    int count = 0;
    Contains(lowered.value().kernels[0].body, [&](const StmtNode& s) {
      if (within(s))
        for (const Stmt& child : s.body)
          count += testing::CountStatements(
              child, [&](const StmtNode& inner) { return inner.kind == StmtKind::kStore && inner.buffer == output; });
      return false;
    });
    return count;
  };
  const auto barrier = [](const StmtNode& s) { return s.kind == StmtKind::kClusterBarrier; };
  const auto step = [](const StmtNode& s) {
    return s.kind == StmtKind::kFor && s.extent == 5 && s.var->name == "step";
  };
  EXPECT_EQ(stores(4, step), 2);
  EXPECT_EQ(stores(4, barrier), 2);
  EXPECT_EQ(stores(1, step), 2);
  EXPECT_EQ(stores(1, barrier), 0);
}

TEST(RecurrenceNestTest, WritesAPartOfALargerTensor) {
  const RecurrentShape shape{.rows = 2};
  const ComputeDag dag = Recurrent(shape);
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto spaces = SpacesOf(dag, target, facts);
  const Reference reference = testing::MakeReference(dag, kInputs);
  const int64_t elements = reference.outputs[0].elements();
  const OutputPlace place{shape.units, 2 * shape.units, shape.units, 2 * elements};
  const auto lowered = Lower(dag, spaces->space(0).Instantiate(std::vector<int32_t>{2, 4, 1, 2}), target, facts, place);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::vector<double> got = testing::RunNest(*lowered, reference);
  ASSERT_EQ(static_cast<int64_t>(got.size()), 2 * elements);
  for (int64_t i = 0; i < elements; ++i) ASSERT_NEAR(got[place.At(i)], reference.outputs[0].at(i), 1e-4);
  EXPECT_TRUE(std::isnan(got[0]));
}

// What keeps blocks in step: one barrier in a step, and one more where a sum reads what the step itself computes.
TEST(RecurrenceNestTest, MeetsOnceInAStepOrWhereASumNeedsIt) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto barriers = [&](CellKind cell) {
    const ComputeDag dag = Recurrent({.cell = cell});
    const auto spaces = SpacesOf(dag, target, facts);
    const auto lowered = Lower(dag, spaces->space(0).Instantiate(std::vector<int32_t>{2, 4, 1, 2}), target, facts);
    return testing::CountStatements(lowered.value().kernels[0].body, StmtKind::kClusterBarrier);
  };
  EXPECT_EQ(barriers(CellKind::kLstm), 3);  // one as blocks begin, one in front of the steps
  EXPECT_EQ(barriers(CellKind::kResetFirst), 4);
}

TEST(RecurrenceSpaceTest, ParametersAreLegalFromFirstToLast) {
  const ComputeDag dag = Recurrent({.rows = 2, .units = 96});
  for (const char* text : {"cuda -arch=sm_90", "cuda -arch=sm_80", "opencl", "cpu -num-cores=2"}) {
    SCOPED_TRACE(text);
    const Target target = Target::Parse(text).value();
    const auto spaces = SpacesOf(dag, target, DefaultFacts(target));
    const Space& space = spaces->space(0);
    std::mt19937 random(3);
    for (int n = 0; n < 50; ++n) {
      Metrics metrics;
      std::vector<int32_t> configuration = Decide(space, {}, &random);
      space.Evaluate(configuration, &metrics);
      EXPECT_TRUE(metrics.legal);
      configuration[n % 4] *= 2;
      space.Clamp(n % 4, absl::MakeSpan(configuration));
      space.Evaluate(configuration, &metrics);
      EXPECT_TRUE(metrics.legal);
    }
    std::vector<int32_t> blocks;
    space.Domain(0, space.Default(), &blocks);
    EXPECT_EQ(blocks.size(), std::string(text) == "cuda -arch=sm_90" ? 5u : 1u);
  }
}

// The largest that is a recurrence at all has candidates on all devices; what is larger is none.
TEST(RecurrenceSpaceTest, TheLargestFitEverywhere) {
  for (const char* text : {"cuda -arch=sm_90", "cuda -arch=sm_75", "opencl", "cpu -num-cores=2"}) {
    SCOPED_TRACE(text);
    const Target target = Target::Parse(text).value();
    const DeviceFacts facts = DefaultFacts(target);
    for (const RecurrentShape& shape : {RecurrentShape{.cell = CellKind::kResetFirst, .rows = 2, .units = 1024},
                                        RecurrentShape{.rows = 16, .units = 160, .initial = true},
                                        RecurrentShape{.cell = CellKind::kRnn, .rows = 2, .units = 1021}}) {
      const ComputeDag dag = Recurrent(shape);
      const auto spaces = SpacesOf(dag, target, facts);
      EXPECT_TRUE(Lower(dag, spaces->DefaultSchedule(), target, facts).ok());
    }
  }
  EXPECT_FALSE(FindRecurrence(Recurrent({.units = 1026})).ok());
  EXPECT_FALSE(FindRecurrence(Recurrent({.rows = 16, .units = 256})).ok());
}

TEST(RecurrenceSpaceTest, RefusesNumbersThatNoSearchProposes) {
  const ComputeDag dag = Recurrent({});
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto spaces = SpacesOf(dag, target, facts);
  for (const std::vector<int32_t>& configuration : std::vector<std::vector<int32_t>>{{0, 1, 1, 0},
                                                                                     {1, 0, 1, 0},
                                                                                     {1, 1, 0, 0},
                                                                                     {1, 1, 1, 3},
                                                                                     {64, 1, 1, 0},
                                                                                     {1, 3, 1, 0},
                                                                                     {1, 1, 3, 0},
                                                                                     {-1, 1, 1, 0}})
    EXPECT_FALSE(Lower(dag, spaces->space(0).Instantiate(configuration), target, facts).ok())
        << absl::StrJoin(configuration, ",");
}

}  // namespace
}  // namespace diapason
