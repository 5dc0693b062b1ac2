// Copies in core matrices that are made by tensor copies: what arrives in shared memory, the waits for it, and where
// threads copy instead.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/early_start.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();
// Few multiprocessors: small products fill them.
DeviceFacts FewCores(int cores) {
  DeviceFacts facts = DefaultFacts(kCuda);
  facts.num_cores = cores;
  return facts;
}
const DeviceFacts kFacts = FewCores(1);

int Copies(const KernelFunc& kernel) { return testing::CountStatements(kernel.body, StmtKind::kTensorCopy); }

std::vector<std::string> SketchesOf(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  DeviceFacts facts = DefaultFacts(target);
  facts.num_cores = 1;
  const auto task = TaskSpace::Create(dag, target, facts).value();
  std::vector<std::string> names;
  for (int i = 0; i < task->size(); ++i)
    if (task->space(i).name().ends_with(".boxes")) names.push_back(task->space(i).name());
  return names;
}

// Rows, columns and k that end inside a tile arrive as zeros.
TEST(TensorCopies, ProductsReadWhatWasAskedFor) {
  for (const auto& [m, n, k] : {std::tuple(64, 64, 128), {72, 96, 136}, {130, 72, 200}}) {
    const ComputeDag dag = testing::MatMulOfHalves(m, n, k);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
    for (const char* name : {"direct/wgmma.boxes", "gemm_k/wgmma.boxes"}) {
      ASSERT_GE(task->Find(name), 0) << name;
      const Space& space = task->space(task->Find(name));
      for (const auto& [stages, producer] : {std::pair(2, 0), {3, 0}, {4, 0}, {2, 1}, {3, 1}}) {
        std::mt19937 random(stages);
        // Tiles of 64 rows and 32 columns: whole runs in shared memory.
        std::map<std::string, int32_t> said{{"stages", stages}, {"producer", producer}};
        for (int h = 0; h < space.size(); ++h) {
          const std::string& parameter = space.parameter_name(h);
          if (parameter.ends_with(".r2")) said[parameter] = 32;
          if (parameter.ends_with(".groups")) said[parameter] = 1;
          if (parameter.ends_with(".tiles")) said[parameter] = parameter[0] == 'n' || parameter[1] == '1' ? 4 : 1;
        }
        const auto lowered = Lower(dag, space.Instantiate(testing::Decide(space, said, &random)), kCuda, kFacts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        SCOPED_TRACE(absl::StrCat(name, " ", m, "x", n, "x", k, ", stages ", stages, ", producer ", producer));
        const KernelFunc& kernel = lowered->kernels.back();
        EXPECT_GE(Copies(kernel), 2);
        EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kCommit), 0) << "threads copy nothing";
        EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kWait), 0);
        EXPECT_EQ(kernel.producers, producer ? 128 : 0);
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
      }
    }
  }
}

TEST(TensorCopies, BlocksOfAClusterAskForTheirShares) {
  const ComputeDag dag = testing::MatMulOfHalves(136, 72, 328);
  const testing::Reference expected = testing::MakeReference(dag, 8);
  const auto task = TaskSpace::Create(dag, kCuda, FewCores(8)).value();
  ASSERT_GE(task->Find("gemm_k/cluster_wgmma.boxes"), 0);
  const Space& space = task->space(task->Find("gemm_k/cluster_wgmma.boxes"));
  std::mt19937 random(1);
  const auto lowered =
      Lower(dag, space.Instantiate(testing::Decide(space, {{"cluster", 2}, {"k.r2", 64}, {"stages", 3}}, &random)),
            kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_GE(Copies(lowered->kernels.back()), 2);
  ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
}

// Windows over images: rows of tiles end inside an image, and behind the last one.
TEST(TensorCopies, ConvolutionsReadWindows) {
  using testing::ConvShape;
  for (const ConvShape& shape :
       {ConvShape{6, 7, 64, 32, 3, 1, 1, 3, DType::kFloat16}, ConvShape{9, 8, 32, 48, 3, 2, 1, 4, DType::kFloat16},
        ConvShape{8, 8, 128, 32, 1, 2, 0, 5, DType::kFloat16}, ConvShape{8, 9, 48, 32, 4, 1, 2, 1, DType::kFloat16}}) {
    const ComputeDag dag = testing::Convolution(shape);
    const testing::Reference expected = testing::MakeReference(dag, 13);
    const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
    for (const std::string& name : shape.stride > 1 || shape.kernel > 3 ? std::vector<std::string>{"gemm_k/wgmma.boxes"}
                                                                        : SketchesOf(dag, "cuda -arch=sm_90")) {
      ASSERT_GE(task->Find(name), 0) << name;
      const Space& space = task->space(task->Find(name));
      for (const auto& [stages, depth, producer] : {std::tuple(2, 64, 0), {4, 32, 0}, {3, 32, 1}}) {
        SCOPED_TRACE(absl::StrCat(name, ", ", shape.height, "x", shape.width, ", ", shape.kernel, "x", shape.kernel,
                                  ", stages ", stages, ", depth ", depth, ", producer ", producer));
        const auto lowered = Lower(dag,
                                   space.Instantiate(testing::Decide(space, {{"m.groups", 1},
                                                                             {"m.tiles", 1},
                                                                             {"n.groups", 1},
                                                                             {"n.tiles", 4},
                                                                             {"k.r2", depth},
                                                                             {"stages", stages},
                                                                             {"producer", producer}})),
                                   kCuda, kFacts);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        const KernelFunc& kernel = lowered->kernels.back();
        const std::vector<MappedTensor> maps = MappedTensorsOf(kernel.body);
        EXPECT_EQ(std::count_if(maps.begin(), maps.end(), [](const auto& map) { return !map.box->windows.empty(); }), 1)
            << "steps of 64 of 32 channels are elements of two windows, in two boxes";
        ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
        if (maps.size() < 2) continue;
        EXPECT_EQ(kernel.producers, producer ? 128 : 0);
        const auto program = CompileProgram(*lowered, kCuda);
        ASSERT_TRUE(program.ok()) << program.status();
        EXPECT_NE(program->source.find("cp.async.bulk.tensor.4d.shared::cluster.global.im2col"), std::string::npos);
        EXPECT_FALSE(program->serialized.back());
        for (const Kernel::TensorMap& map : program->kernels.back().tensor_maps)
          EXPECT_TRUE(FitsTensorMap(*program, program->kernels.back(), map));
      }
    }
  }
}

// The last step is half as deep as its boxes: an infinity that arrived behind the last column would be no number there.
TEST(TensorCopies, NothingArrivesBehindTheLastColumnOfWindows) {
  const ComputeDag dag = testing::Convolution({9, 8, 32, 48, 3, 2, 1, 4, DType::kFloat16});
  testing::Reference expected = testing::MakeReference(dag, 13);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("gemm_k/wgmma.boxes"));
  const auto lowered = Lower(dag,
                             space.Instantiate(testing::Decide(space, {{"m.groups", 1},
                                                                       {"m.tiles", 1},
                                                                       {"n.groups", 1},
                                                                       {"n.tiles", 4},
                                                                       {"k.r2", 64},
                                                                       {"stages", 2},
                                                                       {"producer", 0}})),
                             kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  Array& images = expected.inputs.at(dag.inputs()[0]);
  ASSERT_EQ(images.shape, (std::vector<int64_t>{4, 9, 8, 32}));
  const int64_t at = ((1 * 9 + 3) * 8 + 3) * 32;  // where a window begins
  images.set(at, std::numeric_limits<double>::infinity());
  int infinities = 0;
  for (const double value : testing::RunNest(*lowered, expected)) {
    ASSERT_FALSE(std::isnan(value));
    infinities += std::isinf(value) ? 1 : 0;
  }
  EXPECT_GT(infinities, 0);
}

// Keys and values of two heads, whose last steps end outside of them.
TEST(TensorCopies, AttentionReadsKeysAndValues) {
  const ComputeDag dag = testing::Attention({.heads = 2,
                                             .groups = 2,
                                             .queries = 70,
                                             .keys = 200,
                                             .size = 32,
                                             .values = 48,
                                             .masked = false,
                                             .dtype = DType::kFloat16});
  const testing::Reference expected = testing::MakeReference(dag, 11);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  for (const char* name : {"attention/attention_wgmma.boxes", "attention(1)/attention_wgmma.boxes"}) {
    ASSERT_GE(task->Find(name), 0) << name;
    const Space& space = task->space(task->Find(name));
    for (const auto& [stages, producer] : {std::pair(2, 0), {3, 0}, {4, 0}, {5, 0}, {2, 1}, {3, 1}}) {
      SCOPED_TRACE(absl::StrCat(name, ", stages ", stages, ", producer ", producer));
      const auto lowered = Lower(
          dag, space.Instantiate(testing::Decide(space, {{"key.step", 2}, {"stages", stages}, {"producer", producer}})),
          kCuda, kFacts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const KernelFunc& kernel = lowered->kernels[0];
      EXPECT_EQ(MappedTensorsOf(kernel.body).size(), 2u);
      EXPECT_EQ(kernel.producers, producer ? 128 : 0);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 2e-2));
      if (stages != 4 && producer == 0) continue;
      const auto program = CompileProgram(*lowered, kCuda);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_FALSE(program->serialized[0]);
    }
  }
}

// The reference notices a wait that is missing, and one for another slot.
TEST(TensorCopies, WhatIsNotWaitedForIsNotThere) {
  const ComputeDag dag = testing::MatMulOfHalves(64, 32, 256);
  const testing::Reference expected = testing::MakeReference(dag, 9);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("direct/wgmma.boxes"));
  std::mt19937 random(2);
  LoweredProgram lowered =
      Lower(dag, space.Instantiate(testing::Decide(space, {{"r0.r2", 64}, {"stages", 3}}, &random)), kCuda, kFacts)
          .value();
  const std::function<Stmt(const Stmt&)> without = [&](const Stmt& stmt) {
    if (stmt->kind == StmtKind::kMbarrier && stmt->mbarrier == MbarrierOp::kWait) return MakeComment("no wait");
    std::vector<Stmt> body;
    for (const Stmt& child : stmt->body) body.push_back(without(child));
    return WithBody(*stmt, std::move(body));
  };
  lowered.kernels.back().body = without(lowered.kernels.back().body);
  EXPECT_DEATH(
      {
        const std::vector<double> got = testing::RunNest(lowered, expected);
        for (double value : got)
          if (!(value >= 0)) std::abort();
      },
      "");
}

TEST(TensorCopies, AreInTheKernelAndItsMaps) {
  const ComputeDag dag = testing::MatMulOfHalves(256, 256, 512);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  for (const char* name : {"direct/wgmma.boxes", "gemm_k/wgmma.boxes"}) {
    const Space& space = task->space(task->Find(name));
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), kCuda, kFacts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->source.find("cp.async.bulk.tensor.2d.shared::cluster.global.tile"), std::string::npos);
    EXPECT_EQ(program->source.find("cp.async.cg"), std::string::npos) << "threads copy nothing";
    const Kernel& kernel = program->kernels.back();
    ASSERT_EQ(kernel.tensor_maps.size(), 2u);
    for (const Kernel::TensorMap& map : kernel.tensor_maps) EXPECT_TRUE(FitsTensorMap(*program, kernel, map));
    EXPECT_FALSE(program->serialized.back()) << "no branch between products";
    const absl::StatusOr<Program> back = ParseProgram(SerializeProgram(*program));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kernels.back().tensor_maps, kernel.tensor_maps);
  }
}

// Weights are asked for before the kernel in front has ended.
TEST(TensorCopies, ConstantsComeBeforeTheWaitForTheKernelInFront) {
  const ComputeDag dag = testing::MatMulOfHalves(128, 256, 512);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("gemm_k/wgmma.boxes"));
  std::mt19937 random(3);
  const auto lowered = Lower(dag,
                             space.Instantiate(testing::Decide(
                                 space, {{"overlap", 1}, {"stages", 4}, {"k.r2", 64}, {"producer", 0}}, &random)),
                             kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto program = CompileProgram(*lowered, kCuda);
  ASSERT_TRUE(program.ok()) << program.status();
  const size_t kernel = program->source.find("__global__"), copy = program->source.find("  tensor_copy_2d(", kernel),
               wait = program->source.find("wait_for_previous();", kernel);
  ASSERT_NE(wait, std::string::npos);
  EXPECT_LT(copy, wait);
  EXPECT_NE(program->source.find("  tensor_copy_2d(", wait), std::string::npos) << "activations come behind it";
}

// Each role knows the block's place, also in kernels that let the next one start at once or behind their sums.
TEST(TensorCopies, ProducersStandBesideTheOthers) {
  const ComputeDag dag = testing::MatMulOfHalves(128, 64, 256);
  const testing::Reference expected = testing::MakeReference(dag, 12);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("gemm_k/wgmma.boxes"));
  for (int overlap : {0, 1, 2}) {
    const auto lowered = Lower(dag,
                               space.Instantiate(testing::Decide(space, {{"m.groups", 2},
                                                                         {"n.groups", 1},
                                                                         {"n.tiles", 4},
                                                                         {"k.r2", 64},
                                                                         {"stages", 2},
                                                                         {"producer", 1},
                                                                         {"overlap", overlap}})),
                               kCuda, kFacts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const KernelFunc& kernel = lowered->kernels.back();
    EXPECT_EQ(kernel.threads, 256 + 128);
    EXPECT_EQ(kernel.producers, 128);
    EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kSetRegisters), 2);
    EXPECT_EQ(testing::CountStatements(kernel.body, StmtKind::kQuadStore), 1) << "rows are stored whole";
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->kernels.back().block[0], 256 + 128);
    EXPECT_EQ(program->kernels.back().overlap, overlap != 0);
    EXPECT_FALSE(program->serialized.back());
  }
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Of eight steps and four slots. Each role waits, the producer behind the constants that come first.
TEST(TensorCopies, ProducersAskForConstantsFirst) {
  const ComputeDag dag = testing::MatMulOfHalves(128, 64, 512);
  const testing::Reference expected = testing::MakeReference(dag, 14);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("gemm_k/wgmma.boxes"));
  const auto lower = [&](int producer, int overlap) {
    return Lower(dag,
                 space.Instantiate(testing::Decide(space, {{"m.groups", 1},
                                                           {"n.groups", 1},
                                                           {"n.tiles", 4},
                                                           {"k.r2", 64},
                                                           {"stages", 4},
                                                           {"producer", producer},
                                                           {"overlap", overlap}})),
                 kCuda, kFacts);
  };
  for (const auto& [producer, overlap, first] : {std::tuple(1, 2, 0), {2, 2, 1}, {3, 2, 2}, {4, 2, 4}, {4, 1, 4}}) {
    SCOPED_TRACE(absl::StrCat("producer ", producer, ", overlap ", overlap));
    const auto lowered = lower(producer, overlap);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.back().producers, 128);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::string source = program->source.substr(program->source.find("__global__"));
    const size_t roles = source.find("const int role"), producers = source.find("if (role == 128)"),
                 wait = source.find("wait_for_previous();", producers);
    ASSERT_NE(producers, std::string::npos);
    if (first == 0) {
      EXPECT_EQ(wait, std::string::npos) << "all threads have waited";
      EXPECT_EQ(CountOf(source, "wait_for_previous();"), 1u);
      continue;
    }
    ASSERT_NE(wait, std::string::npos);
    EXPECT_LT(source.find("wait_for_previous();", roles), producers) << "those that compute wait themselves";
    const std::string before = source.substr(producers, wait - producers);
    EXPECT_NE(before.find(absl::StrCat("asked < ", first, ";")), std::string::npos) << before;
    EXPECT_EQ(CountOf(before, "  tensor_copy_2d("), 1u) << "of the weights";
    EXPECT_EQ(CountOf(source.substr(wait), "  tensor_copy_2d("), 2u) << "of the other weights, and of all activations";
  }
  // A kernel that starts behind the one in front has nothing to do before.
  const auto lowered = lower(3, 0);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_FALSE(lowered->kernels.back().constants_first);
}

// Two activations have no constants that could come first.
TEST(TensorCopies, OrdersAreOfferedWhereThereAreConstants) {
  const auto choices = [](const ComputeDag& dag) {
    const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
    const Space& space = task->space(task->Find("direct/wgmma.boxes"));
    std::vector<int32_t> values;
    for (int i = 0; i < space.size(); ++i)
      if (space.parameter_name(i) == "producer") space.Domain(i, space.Default(), &values);
    return values.size();
  };
  EXPECT_EQ(choices(testing::MatMulOfHalves(128, 128, 256)), 5u);
  DagBuilder b;
  const int x = b.Placeholder("x", {128, 256}, DType::kFloat16), y = b.Placeholder("y", {256, 128}, DType::kFloat16);
  const int product = b.Reduce("product", {128, 128}, {256}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(Cast(DType::kFloat32, b.At(x, {i[0], r[0]})), Cast(DType::kFloat32, b.At(y, {r[0], i[1]})));
  });
  EXPECT_EQ(choices(b.Build({product}).value()), 2u);
}

TEST(TensorCopies, AreOfferedWhereTensorsAndGpusAllowThem) {
  EXPECT_EQ(SketchesOf(testing::MatMulOfHalves(128, 128, 128), "cuda -arch=sm_90"),
            (std::vector<std::string>{"direct/wgmma.boxes", "gemm_k/wgmma.boxes"}));
  EXPECT_TRUE(SketchesOf(testing::MatMulOfHalves(128, 128, 128), "cuda -arch=sm_80").empty());
  EXPECT_TRUE(SketchesOf(testing::MatMulOfHalves(128, 128, 128), "opencl").empty());
  // Rows of 62 elements begin at no multiple of 16 bytes.
  for (const std::string& name : SketchesOf(testing::MatMulOfHalves(128, 62, 124), "cuda -arch=sm_90"))
    ADD_FAILURE() << name;
}

// Builders get schedules as bytes.
TEST(TensorCopies, SchedulesSurviveTheWayToBuilders) {
  const ComputeDag dag = testing::MatMulOfHalves(128, 128, 256);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("gemm_k/wgmma.boxes"));
  const Schedule schedule = space.Instantiate(testing::Decide(space, {{"producer", 1}, {"k.r2", 64}, {"stages", 3}}));
  const absl::StatusOr<Schedule> read = ParseSchedule(SerializeSchedule(schedule));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(SerializeSchedule(*read), SerializeSchedule(schedule));
  const auto lowered = Lower(dag, *read, kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels.back().producers, 128);
}

// One step has no pipeline.
TEST(TensorCopies, ThreadsCopyWhatIsCopiedOnce) {
  const ComputeDag dag = testing::MatMulOfHalves(64, 64, 64);
  const testing::Reference expected = testing::MakeReference(dag, 10);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("direct/wgmma.boxes"));
  std::mt19937 random(4);
  const auto lowered =
      Lower(dag, space.Instantiate(testing::Decide(space, {{"r0.r2", 64}, {"stages", 2}}, &random)), kCuda, kFacts);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(Copies(lowered->kernels.back()), 0);
  ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 3e-2));
}

// Steps may come from a peer.
TEST(TensorCopies, StepsOnOtherStagesAreRefused) {
  const ComputeDag dag = testing::MatMulOfHalves(64, 64, 128);
  const auto task = TaskSpace::Create(dag, kCuda, kFacts).value();
  const Space& space = task->space(task->Find("direct/wgmma.boxes"));
  const Schedule schedule = space.Instantiate(space.Default());
  for (int stage : {0, 1, 2, 3}) {
    Schedule changed = schedule;
    changed.steps.push_back({StepKind::kTensorCopy, stage, {}, {}, -1, {}});
    const absl::Status status = Lower(dag, changed, kCuda, kFacts).status();
    if (stage > 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << stage << " " << status;
    }
  }
}

}  // namespace
}  // namespace diapason
