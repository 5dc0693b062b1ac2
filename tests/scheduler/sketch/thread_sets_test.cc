// Reductions split over sets of a block's threads, within a cluster or without one: what the candidates compute, what
// they take, and what is refused. numbers_test.cc and execute_test.cc go over these sketches too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "scheduler/sketch/sketch_space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/execute.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

using testing::Decide;

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();
const Target kOpenCl = Target::Parse("opencl").value();

using Said = std::map<std::string, int32_t>;

// The sketches of a dag in which sets of threads are a parameter: by multiply-adds and on tensor cores.
std::vector<const Space*> SpacesOf(const TaskSpace& task) {
  std::vector<const Space*> result;
  for (const char* name : {"direct/cluster", "direct/cluster_tensor"})
    if (const int found = task.Find(name); found >= 0) result.push_back(&task.space(found));
  return result;
}

LoweredProgram Lowered(const ComputeDag& dag, const Space& space, const std::vector<int32_t>& configuration,
                       const Target& target = kCuda) {
  return Lower(dag, space.Instantiate(configuration), target, DefaultFacts(target)).value();
}

TEST(ThreadSets, SumTheirShares) {
  std::mt19937 random(11);
  int run = 0, tensor = 0;
  for (const ComputeDag& dag : {testing::MatMul(33, 24, 150, true), testing::MatMul(20, 40, 96, true)}) {
    const testing::Reference expected = testing::MakeReference(dag, 3);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_EQ(SpacesOf(*task).size(), 2u);
    for (const Space* space : SpacesOf(*task)) {
      for (int n = 0; n < 40; ++n) {
        const Said said{{"cluster", n % 2 + 1}, {"thread_sets", n % 4 < 2 ? 2 : 4}};
        std::vector<int32_t> configuration = Decide(*space, {}, &random);
        for (int h = 0; h < space->size(); ++h)
          if (const auto it = said.find(space->parameter_name(h)); it != said.end()) configuration[h] = it->second;
        space->Clamp(0, absl::MakeSpan(configuration));
        const LoweredProgram lowered = Lowered(dag, *space, configuration);
        const KernelFunc& kernel = lowered.kernels.at(0);
        const int parameter =
            std::find(configuration.begin(), configuration.end(), said.at("thread_sets")) - configuration.begin();
        if (parameter == space->size() || kernel.threads * kernel.cluster > 300 || kernel.blocks > 32) continue;
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected)) << space->name();
        ++run;
        tensor += space->name().find("tensor") != std::string::npos;
      }
    }
  }
  EXPECT_GE(run, 20);
  EXPECT_GE(tensor, 5);
}

// A vector times a matrix, stored as it is multiplied.
ComputeDag RowProduct(int64_t n, int64_t k, DType dtype) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, k}, dtype), w = b.Constant("w", {k, n}, dtype);
  const int sum =
      b.Reduce("sum", {1, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(testing::InFloat32(b.At(x, {i[0], r[0]})), testing::InFloat32(b.At(w, {r[0], i[1]})));
      });
  const auto stored = [&](const DagBuilder::Vars& i) { return testing::Stored(dtype, b.At(sum, {i[0], i[1]})); };
  return b.Build({b.Compute("y", {1, n}, stored)}).value();
}

// What candidates of the sketch "stream" were: how many ran, in how many vectors read the matrix, whether the default
// does, and in how many blocks of a cluster share it. The random ones are drawn from `random`.
struct Streams {
  std::mt19937 random;
  int run = 0, vectors = 0, clusters = 0;
  bool vectors_by_default = true;
};

// Runs the default and random ones of a dag that reads `matrix` once; the first few compile.
void RunStreams(const ComputeDag& dag, DType dtype, const std::string& matrix, int candidates, Streams* streams) {
  const testing::Reference expected = testing::MakeReference(dag, 3);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/stream"), 0);
  EXPECT_EQ(task->DefaultSchedule().sketch, "direct/stream");
  const Space& space = task->space(task->Find("direct/stream"));
  const std::string vector = absl::StrCat(dtype == DType::kFloat32 ? "const float4*)(" : "const uint4*)(", matrix);
  for (int n = 0; n < candidates; ++n) {
    const LoweredProgram lowered = Lowered(dag, space, n == 0 ? space.Default() : Decide(space, {}, &streams->random));
    if (n > 0 && (lowered.kernels.at(0).threads > 300 || lowered.kernels[0].blocks > 32)) continue;
    ASSERT_EQ(lowered.kernels.size(), 1u);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected, dtype == DType::kFloat32 ? 1e-4 : 1e-2));
    ++streams->run;
    streams->clusters += lowered.kernels[0].cluster > 1;
    const bool reads_vectors = PrintSource(lowered, kCuda).find(vector) != std::string::npos;
    streams->vectors += reads_vectors;
    if (n == 0) streams->vectors_by_default = streams->vectors_by_default && reads_vectors;
    if (n > 3) continue;
    const auto program = CompileProgram(lowered, kCuda);
    EXPECT_TRUE(program.ok()) << program.status();
  }
}

// Matrices that are read once go from memory to registers as vectors, by many sets of threads.
TEST(ThreadSets, StreamTheMatrixOfARow) {
  Streams streams{.random = std::mt19937(5)};
  for (DType dtype : {DType::kFloat32, DType::kFloat16})
    ASSERT_NO_FATAL_FAILURE(RunStreams(RowProduct(72, 200, dtype), dtype, "w", 40, &streams));
  EXPECT_GE(streams.run, 10);
  EXPECT_GE(streams.vectors, 2);
  EXPECT_GE(streams.clusters, 2) << "a matrix of few columns is shared by blocks";
}

// Of 64 sets, eight groups of eight are added first, in one block and in a cluster; fewer are added at once.
TEST(ThreadSets, ManyAreAddedInGroups) {
  const ComputeDag dag = RowProduct(8, 512, DType::kFloat16);
  const testing::Reference expected = testing::MakeReference(dag, 4);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/stream"), 0);
  const Space& space = task->space(task->Find("direct/stream"));
  for (int32_t blocks : {1, 2}) {
    int barriers[65] = {};
    for (int32_t sets : {16, 64}) {
      const LoweredProgram lowered = Lowered(dag, space, Decide(space, {{"cluster", blocks}, {"thread_sets", sets}}));
      const KernelFunc& kernel = lowered.kernels.at(0);
      ASSERT_EQ(kernel.cluster, blocks);
      barriers[sets] = testing::CountStatements(kernel.body, StmtKind::kBarrier);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected, 1e-3)) << sets << " sets";
    }
    EXPECT_EQ(barriers[64], barriers[16] + 1) << blocks << " blocks";
  }
}

// The mean of each channel of images, as global pooling takes it.
ComputeDag MeanOfChannels(int64_t images, int64_t rows, int64_t columns, int64_t channels, DType dtype) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int x = b.Placeholder("x", {images, rows, columns, channels}, dtype);
  const int sum =
      b.Reduce("sum", {images, channels}, {rows, columns}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
        return testing::InFloat32(b.At(x, {i[0], r[0], r[1], i[1]}));
      });
  const double scale = 1.0 / static_cast<double>(rows * columns);
  return b
      .Build({b.Compute("y", {images, channels},
                        [&](const Vars& i) { return testing::Stored(dtype, Mul(b.At(sum, i), FloatImm(scale))); })})
      .value();
}

// So go columns that are summed, of several images too: one axis over the blocks of a cluster, the other over sets.
TEST(ThreadSets, StreamColumnsThatAreSummed) {
  Streams streams{.random = std::mt19937(7)};
  for (DType dtype : {DType::kFloat32, DType::kFloat16})
    ASSERT_NO_FATAL_FAILURE(RunStreams(MeanOfChannels(2, 40, 36, 24, dtype), dtype, "x", 20, &streams));
  EXPECT_GE(streams.run, 10);
  EXPECT_GE(streams.clusters, 2);
  EXPECT_TRUE(streams.vectors_by_default);
  // Windows share elements, and elements of a row are no neighbours of results.
  for (const ComputeDag& other : {testing::MatMul(33, 24, 150, true), testing::Softmax(5, 70)})
    EXPECT_LT(TaskSpace::Create(other, kCuda, DefaultFacts(kCuda)).value()->Find("direct/stream"), 0);
}

// Of one tile: as many times the threads, and partial results in the place of the operands.
TEST(ThreadSets, MultiplyTheThreadsOfATile) {
  const ComputeDag dag = testing::MatMul(64, 64, 512, true);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  const Space& space = task->space(task->Find("direct/cluster_tensor"));
  int64_t shared[5] = {};
  for (int32_t sets : {1, 2, 4}) {
    const KernelFunc kernel = Lowered(dag, space,
                                      Decide(space, {{"i0.warps", 2},
                                                     {"i0.tiles", 2},
                                                     {"i1.warps", 1},
                                                     {"i1.tiles", 4},
                                                     {"cluster", 2},
                                                     {"thread_sets", sets}}))
                                  .kernels.at(0);
    EXPECT_EQ(kernel.threads, 64 * sets);
    EXPECT_EQ(kernel.cluster, 2);
    shared[sets] = kernel.shared_bytes;
  }
  EXPECT_EQ(shared[1], 64 * (32 + 8) * 4) << "rows of an odd number of 8";
  EXPECT_EQ(shared[2], 2 * shared[1]);
  EXPECT_EQ(shared[4], 4 * shared[1]);
}

// The barriers are those of a cluster where there is one, and one more for what a block sums before others read it.
TEST(ThreadSets, MeetInTheirBlockAndThenInTheCluster) {
  const ComputeDag dag = testing::MatMul(64, 64, 512, true);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  for (const Space* space : SpacesOf(*task)) {
    int barriers[2] = {};
    for (int32_t blocks : {1, 2}) {
      for (int32_t sets : {1, 4}) {
        const KernelFunc kernel =
            Lowered(dag, *space, Decide(*space, {{"cluster", blocks}, {"thread_sets", sets}})).kernels.at(0);
        EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kClusterBarrier), blocks > 1);
        EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kClusterEnd), blocks > 1);
        int& count = barriers[blocks - 1];
        if (sets == 1) count = testing::CountStatements(kernel.body, StmtKind::kBarrier);
        EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kBarrier), count + (blocks > 1 && sets > 1));
      }
    }
    EXPECT_EQ(barriers[0], barriers[1] + 1);
  }
}

TEST(ThreadSets, RunOnOpenClInTheSameOrder) {
  const ComputeDag dag = testing::MatMul(33, 24, 150, true);
  const testing::Reference reference = testing::MakeReference(dag, 9);
  auto device = OpenDevice(kOpenCl);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto task = TaskSpace::Create(dag, kOpenCl, (*device)->facts()).value();
  ASSERT_EQ(SpacesOf(*task).size(), 2u);
  for (const Space* space : SpacesOf(*task)) {
    for (int32_t blocks : {1, 3}) {
      const LoweredProgram lowered =
          Lowered(dag, *space, Decide(*space, {{"cluster", blocks}, {"thread_sets", 4}}), kOpenCl);
      const Program program = CompileProgram(lowered, kOpenCl).value();
      EXPECT_EQ(program.kernels.size(), blocks == 1 ? 1u : 2u) << "a cluster is two kernels, threads are not";
      EXPECT_EQ(testing::CompareOnDevice(**device, program, dag, reference, 1e-5), "") << program.source;
    }
  }
}

TEST(ThreadSets, BecomeACubin) {
  const ComputeDag dag = testing::MatMul(196, 256, 2304, true);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  for (const Space* space : SpacesOf(*task)) {
    for (int32_t blocks : {1, 8}) {
      std::vector<int32_t> configuration = Decide(*space, {{"cluster", blocks}, {"thread_sets", 4}});
      const LoweredProgram lowered = Lowered(dag, *space, configuration);
      const absl::StatusOr<Program> program = CompileProgram(lowered, kCuda);
      if (absl::IsUnavailable(program.status())) GTEST_SKIP() << program.status();
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << PrintSource(lowered, kCuda);
      EXPECT_EQ(program->source.find("mapa.u64") != std::string::npos, blocks > 1);
    }
  }
}

// Schedules come from histories and from the wire.
class ThreadSetsRefused : public ::testing::Test {
 protected:
  ThreadSetsRefused() {
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      if (step.kind == StepKind::kAnnotate && step.ints[0] == static_cast<int>(Annotation::kThreadSet)) annotation_ = s;
    }
  }
  std::string Message() const {
    return std::string(Lower(dag_, schedule_, kCuda, DefaultFacts(kCuda)).status().message());
  }
  Step& annotation() { return schedule_.steps.at(annotation_); }

  const ComputeDag dag_ = testing::MatMul(64, 64, 512, true);
  const std::unique_ptr<TaskSpace> task_ = TaskSpace::Create(dag_, kCuda, DefaultFacts(kCuda)).value();
  const Space& space_ = task_->space(task_->Find("direct/cluster"));
  Schedule schedule_ = space_.Instantiate(
      Decide(space_, {{"cluster", 2}, {"thread_sets", 4}, {"i0.threads", 8}, {"i1.threads", 8}, {"r0.r1", 2}}));
  size_t annotation_ = 0;
};

TEST_F(ThreadSetsRefused, NothingAsItIs) {
  EXPECT_EQ(Message(), "");
  const Schedule read = ParseSchedule(SerializeSchedule(schedule_)).value();
  EXPECT_EQ(PrintSource(Lower(dag_, read, kCuda, DefaultFacts(kCuda)).value(), kCuda),
            PrintSource(Lower(dag_, schedule_, kCuda, DefaultFacts(kCuda)).value(), kCuda));
}

TEST_F(ThreadSetsRefused, ALoopWhoseExtentFollowsFromOthers) {
  annotation().loops[0] -= 2;
  EXPECT_EQ(Message(),
            "stage dense.acc: the loop over sets of threads is an inner piece of a reduce loop that is split");
}

TEST_F(ThreadSetsRefused, OtherThreadsThanTheBlockHas) {
  annotation().loops[0] += 1;
  EXPECT_EQ(Message(), "stage dense: 2 sets of 64 threads are not the 256 of the block");
}

TEST_F(ThreadSetsRefused, ASumWithoutEnd) {
  for (Step& step : schedule_.steps)
    if (step.kind == StepKind::kSplit && step.stage == annotation().stage && step.factors.size() == 4)
      step.factors[1] = Factor::Of(513);
  EXPECT_EQ(Message(), "stage dense.acc: each result is the sum of 2 x 513 parts, the most are 1024");
}

TEST_F(ThreadSetsRefused, ACopyOfOneSet) {
  for (Step& step : schedule_.steps)
    if (step.kind == StepKind::kComputeAt && step.target == annotation().stage)
      step.loops[0] = annotation().loops[0] + 1;
  EXPECT_EQ(Message(), "stage x.shared: a copy in shared memory is computed outside of the loop over sets of threads");
}

TEST_F(ThreadSetsRefused, ResultsThatAreNotInSharedMemory) {
  schedule_ = Schedule();
  schedule_.steps = {{StepKind::kAnnotate, 2, {2}, {}, -1, {static_cast<int32_t>(Annotation::kThreadSet)}}};
  EXPECT_EQ(
      Message(),
      "stage dense: a reduction over sets of threads is computed in a stage that keeps its results in shared memory");
}

}  // namespace
}  // namespace diapason
