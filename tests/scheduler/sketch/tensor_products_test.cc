// Products on tensor cores, lane by lane: the fragments of each operand however it lies in memory, and the order of the
// sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/interpret.h"
#include "scheduler/sketch/sketch_space.h"
#include "scheduler/space.h"
#include "tests/lower/count_statements.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/run_nest.h"

namespace diapason {
namespace {

const Target kCuda = Target::Parse("cuda -arch=sm_90").value();

struct ProductShape {
  int64_t m, n, k;
};
struct ProductForm {
  bool x_by_k = false, w_by_n = false;  // x[k][m], w[n][k]; else x[m][k], w[k][n]
  bool swapped = false;                 // w's factor comes first
};

ComputeDag Product(const ProductShape& shape, const ProductForm& form, Combiner combiner = Combiner::kSum,
                   DType dtype = DType::kFloat32) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  const bool x_by_k = form.x_by_k, w_by_n = form.w_by_n, swapped = form.swapped;
  DagBuilder b;
  const int x = b.Placeholder("x", x_by_k ? std::vector<int64_t>{k, m} : std::vector<int64_t>{m, k}, dtype);
  const int w = b.Constant("w", w_by_n ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, dtype);
  const int c = b.Reduce("c", {m, n}, {k}, combiner, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
    const Expr left = testing::InFloat32(x_by_k ? b.At(x, {r[0], i[0]}) : b.At(x, {i[0], r[0]}));
    const Expr right = testing::InFloat32(w_by_n ? b.At(w, {i[1], r[0]}) : b.At(w, {r[0], i[1]}));
    return swapped ? Mul(right, left) : Mul(left, right);
  });
  if (dtype == DType::kFloat32) return b.Build({c}).value();
  return b
      .Build({b.Compute("y", {m, n},
                        [&](const DagBuilder::Vars& i) {
                          return Cast(dtype, b.At(c, {i[0], i[1]}));
                        })})
      .value();
}

// The same of float16 operands, with a sum in float32 that is stored as float16.
ComputeDag HalfProduct(const ProductShape& shape, const ProductForm& form, DType dtype = DType::kFloat16) {
  return Product(shape, form, Combiner::kSum, dtype);
}

// The same of integers, with the sum as it is.
ComputeDag ByteProduct(const ProductShape& shape, const ProductForm& form, DType x_type, DType w_type) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  const bool x_by_k = form.x_by_k, w_by_n = form.w_by_n, swapped = form.swapped;
  DagBuilder b;
  const int x = testing::OfAllBytes(
      b, b.Placeholder("x", x_by_k ? std::vector<int64_t>{k, m} : std::vector<int64_t>{m, k}, x_type));
  const int w =
      testing::OfAllBytes(b, b.Constant("w", w_by_n ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, w_type));
  return b
      .Build({b.Reduce("c", {m, n}, {k}, Combiner::kSum,
                       [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                         const Expr left = testing::Widened(x_by_k ? b.At(x, {r[0], i[0]}) : b.At(x, {i[0], r[0]}));
                         const Expr right = testing::Widened(w_by_n ? b.At(w, {i[1], r[0]}) : b.At(w, {r[0], i[1]}));
                         return swapped ? Mul(right, left) : Mul(left, right);
                       })})
      .value();
}

// A configuration drawn at random, with some values said.
std::vector<int32_t> Draw(const Space& space, const std::map<std::string, int32_t>& said, std::mt19937& random) {
  std::vector<int32_t> configuration(space.size()), values;
  for (int h = 0; h < space.size(); ++h) {
    space.Domain(h, configuration, &values);
    const std::string level = space.parameter_name(h).substr(space.parameter_name(h).find('.') + 1);
    auto wanted = said.find(space.parameter_name(h));
    if (wanted == said.end()) wanted = said.find(level);
    const bool legal = wanted != said.end() && std::find(values.begin(), values.end(), wanted->second) != values.end();
    configuration[h] = legal ? wanted->second : values[random() % values.size()];
  }
  return configuration;
}

TEST(TensorProducts, LanesBringTheElementsOfTheirProducts) {
  std::mt19937 random(3);
  int matrices = 0, elements = 0;
  for (int form = 0; form < 8; ++form) {
    const ComputeDag dag = Product({33, 20, 72}, {(form & 1) != 0, (form & 2) != 0, (form & 4) != 0});
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("direct/tensor"), 0);
    const Space* space = &task->space(task->Find("direct/tensor"));
    for (int n = 0; n < 3; ++n) {
      const std::vector<int32_t> configuration = Draw(*space, {{"warps", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(form);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
      // One operand at least, of those with k innermost, comes as matrices.
      const bool found =
          Contains(lowered->kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kLoadMatrix; });
      ++(found ? matrices : elements);
      EXPECT_EQ(found, !(form & 1) || (form & 2));
    }
  }
  EXPECT_GT(matrices, 0);
  EXPECT_GT(elements, 0);
}

// More sums than are held twice are added product by product.
TEST(TensorProducts, ManySumsOfALane) {
  std::mt19937 random(5);
  const ComputeDag dag = Product({64, 64, 80}, {});
  const testing::Reference expected = testing::MakeReference(dag, 9);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  for (int32_t k : {8, 16, 32})
    for (int32_t tiles : {1, 4}) {
      const std::vector<int32_t> configuration =
          Draw(*space, {{"warps", 1}, {"i0.tiles", tiles}, {"i1.tiles", 8}, {"r2", k}, {"r1", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected)) << k << " " << tiles;
    }
}

// Single products of TensorFloat-32, where the target allows them: with errors of rounded factors, not of float32.
TEST(TensorProducts, FactorsAreRoundedWhereTheTargetAllowsIt) {
  const Target target = Target::Parse("cuda -arch=sm_90 -tf32").value();
  std::mt19937 random(7);
  for (int form = 0; form < 8; ++form) {
    const ComputeDag dag = Product({33, 20, 72}, {(form & 1) != 0, (form & 2) != 0, (form & 4) != 0});
    EXPECT_LT(TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value()->Find("direct/tf32"), 0);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    ASSERT_GE(task->Find("direct/tf32"), 0);
    EXPECT_GE(task->Find("direct/tensor"), 0);  // they compete
    const Space& space = task->space(task->Find("direct/tf32"));
    EXPECT_TRUE(space.loses_digits());
    const auto lowered =
        Lower(dag, space.Instantiate(Draw(space, {{"warps", 1}}, random)), target, DefaultFacts(target));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_TRUE(Contains(lowered->kernels[0].body,
                         [](const StmtNode& s) { return s.kind == StmtKind::kMma && s.tensor == TensorMode::kTf32; }));
    SCOPED_TRACE(form);
    const std::vector<double> got = testing::RunNest(*lowered, expected);
    double error = 0;
    for (int64_t i = 0; i < expected.outputs[0].elements(); ++i)
      error = std::max(error, std::fabs(got[i] - expected.outputs[0].at(i)));
    EXPECT_LT(error, 2e-2);
    EXPECT_GT(error, 1e-4);
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << program.status();
  }
  // With a tolerance that no such product keeps there are none to be refused.
  const Target exact = Target::Parse("cuda -arch=sm_90 -tf32=1e-5").value();
  EXPECT_LT(TaskSpace::Create(Product({33, 20, 72}, {}), exact, DefaultFacts(exact)).value()->Find("direct/tf32"), 0);
  // A fallback does without, and so does what Winograd's algorithm transforms.
  const ComputeDag window = testing::Convolution({28, 28, 64, 64, 3, 1, 1});
  const auto task = TaskSpace::Create(window, target, DefaultFacts(target)).value();
  EXPECT_EQ(task->DefaultSchedule().sketch.find("tf32"), std::string::npos);
  int rounded = 0;
  for (int i = 0; i < task->size(); ++i) {
    const std::string name = task->space(i).name();
    if (name.find("tf32") == std::string::npos) continue;
    ++rounded;
    EXPECT_EQ(name.find("winograd"), std::string::npos) << name;
  }
  EXPECT_GT(rounded, 0);
}

bool HasMatrices(const LoweredProgram& lowered, bool transposed) {
  return Contains(lowered.kernels[0].body,
                  [&](const StmtNode& s) { return s.kind == StmtKind::kLoadMatrix && s.transposed == transposed; });
}

// Halves come as matrices whichever way they lie, transposed where rows or columns are innermost.
TEST(TensorProducts, PairsOfHalvesComeAsMatricesEitherWay) {
  std::mt19937 random(4);
  for (int form = 0; form < 8; ++form) {
    const bool x_by_k = form & 1, w_by_n = form & 2;
    const DType dtype = form < 6 ? DType::kFloat16 : DType::kBfloat16;
    const ComputeDag dag = HalfProduct({40, 24, 80}, {x_by_k, w_by_n, (form & 4) != 0}, dtype);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("direct/tensor"), 0);
    const Space* space = &task->space(task->Find("direct/tensor"));
    for (int n = 0; n < 3; ++n) {
      const std::vector<int32_t> configuration = Draw(*space, {{"warps", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(form);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
      EXPECT_EQ(HasMatrices(*lowered, false), !x_by_k || w_by_n) << ToString(lowered->kernels[0]);
      EXPECT_EQ(HasMatrices(*lowered, true), x_by_k || !w_by_n);
    }
  }
}

// Rows that do not begin at multiples of 16 bytes: element by element, in pairs.
TEST(TensorProducts, HalvesThatAreNotAlignedArePacked) {
  std::mt19937 random(8);
  const ComputeDag dag = HalfProduct({33, 20, 77}, {});
  const testing::Reference expected = testing::MakeReference(dag, 3);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  Schedule schedule = space->Instantiate(Draw(*space, {{"warps", 1}}, random));
  int changed = 0;
  for (Step& step : schedule.steps) {
    if (step.kind != StepKind::kPadRows) continue;
    step.factors = {Factor::Of(1)};
    ++changed;
  }
  ASSERT_EQ(changed, 2);
  const auto lowered = Lower(dag, schedule, kCuda, DefaultFacts(kCuda));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(Contains(lowered->kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kPack; }));
  testing::ExpectNestComputes(*lowered, expected);
}

TEST(TensorProducts, HalvesCompileForTheArchitecturesThatHaveThem) {
  const ComputeDag dag = HalfProduct({256, 128, 128}, {false, true, false});
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const Target target = Target::Parse(std::string("cuda -arch=") + arch).value();
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    ASSERT_GE(task->Find("direct/tensor"), 0) << arch;
    const Space* space = &task->space(task->Find("direct/tensor"));
    std::mt19937 random(2);
    const auto lowered =
        Lower(dag, space->Instantiate(Draw(*space, {{"warps", 2}, {"tiles", 2}, {"stages", 3}}, random)), target,
              DefaultFacts(target));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, target);
    ASSERT_TRUE(program.ok()) << arch << program.status();
    EXPECT_NE(program->source.find("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), std::string::npos);
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
  }
  const Target turing = Target::Parse("cuda -arch=sm_75").value();
  EXPECT_LT(TaskSpace::Create(dag, turing, DefaultFacts(turing)).value()->Find("direct/tensor"), 0);
}

bool Packs(const LoweredProgram& lowered) {
  return Contains(lowered.kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kPack; });
}

// Integers of 8 bits, signed and not in either operand: as matrices where k is innermost, others packed into fours.
TEST(TensorProducts, BytesComeAsMatricesWhereKIsInnermost) {
  std::mt19937 random(4);
  for (int form = 0; form < 16; ++form) {
    const bool x_by_k = form & 1, w_by_n = form & 2;
    const ComputeDag dag =
        ByteProduct({40, 24, 80}, {x_by_k, w_by_n, form % 3 == 0}, form & 4 ? DType::kUint8 : DType::kInt8,
                    form & 8 ? DType::kUint8 : DType::kInt8);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("direct/tensor"), 0);
    const Space* space = &task->space(task->Find("direct/tensor"));
    for (int n = 0; n < 2; ++n) {
      const std::vector<int32_t> configuration = Draw(*space, {{"warps", 1}}, random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(form);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
      EXPECT_EQ(HasMatrices(*lowered, false), !x_by_k || w_by_n) << ToString(lowered->kernels[0]);
      EXPECT_EQ(Packs(*lowered), x_by_k || !w_by_n);
      EXPECT_FALSE(HasMatrices(*lowered, true));
    }
  }
}

TEST(TensorProducts, BytesThatAreNotAlignedArePacked) {
  std::mt19937 random(8);
  const ComputeDag dag = ByteProduct({33, 20, 77}, {.w_by_n = true}, DType::kUint8, DType::kInt8);
  const testing::Reference expected = testing::MakeReference(dag, 3);
  const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  Schedule schedule = space->Instantiate(Draw(*space, {{"warps", 1}}, random));
  for (Step& step : schedule.steps)
    if (step.kind == StepKind::kPadRows) step.factors = {Factor::Of(4)};
  const auto lowered = Lower(dag, schedule, kCuda, DefaultFacts(kCuda));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(Packs(*lowered));
  EXPECT_FALSE(HasMatrices(*lowered, false));
  testing::ExpectNestComputes(*lowered, expected);
}

// Turing's product of integers has half as many elements of k (m8n8k16), which no row stands for.
TEST(TensorProducts, BytesCompileForTheArchitecturesThatHaveThem) {
  struct Case {
    DType x, w;
    const char* types;
  };
  for (const auto& [x, w, types] :
       {Case{DType::kInt8, DType::kInt8, "s8.s8"}, Case{DType::kUint8, DType::kInt8, "u8.s8"},
        Case{DType::kInt8, DType::kUint8, "s8.u8"}, Case{DType::kUint8, DType::kUint8, "u8.u8"}}) {
    const ComputeDag dag = ByteProduct({256, 128, 128}, {.w_by_n = true}, x, w);
    for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
      const Target target = Target::Parse(absl::StrCat("cuda -arch=", arch)).value();
      const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
      ASSERT_GE(task->Find("direct/tensor"), 0) << arch;
      const Space* space = &task->space(task->Find("direct/tensor"));
      std::mt19937 random(2);
      const auto lowered =
          Lower(dag, space->Instantiate(Draw(*space, {{"warps", 2}, {"tiles", 2}, {"stages", 3}}, random)), target,
                DefaultFacts(target));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << arch << program.status();
      EXPECT_NE(program->source.find(absl::StrCat("mma.sync.aligned.m16n8k32.row.col.s32.", types, ".s32")),
                std::string::npos)
          << program->source;
      EXPECT_NE(program->source.find("load_matrix_4_pairs("), std::string::npos);
      EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
    }
    const Target turing = Target::Parse("cuda -arch=sm_75").value();
    EXPECT_LT(TaskSpace::Create(dag, turing, DefaultFacts(turing)).value()->Find("direct/tensor"), 0);
  }
}

// Convolutions of quantised networks: all sketches on tensor cores, with the requantisation behind the sums, and the
// weights as they are and with k innermost.
TEST(TensorProducts, ConvolutionsOfBytesComputeAndCompile) {
  std::mt19937 random(12);
  const ComputeDag dag = testing::Convolution({9, 11, 32, 24, 3, 1, 1, 1, DType::kUint8}, true);
  const testing::Reference expected = testing::MakeReference(dag, 13);
  for (const char* arch : {"sm_75", "sm_86", "sm_90"}) {
    const Target target = Target::Parse(absl::StrCat("cuda -arch=", arch)).value();
    const DeviceFacts facts = DefaultFacts(target);
    const auto task = TaskSpace::Create(dag, target, facts).value();
    int tensor = 0, whole = 0;
    for (int i = 0; i < task->size(); ++i) {
      const Space& space = task->space(i);
      if (arch == std::string("sm_86") && space.name().find("tensor") == std::string::npos) continue;
      const auto lowered = Lower(task->dag(), space.Instantiate(Draw(space, {{"warps", 1}}, random)), target, facts);
      ASSERT_TRUE(lowered.ok()) << space.name() << " " << arch << ": " << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << space.name() << " " << arch << ": " << program.status();
      if (space.name().find("tensor") == std::string::npos) continue;
      ++tensor;
      EXPECT_NE(program->source.find("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"), std::string::npos);
      const bool k_innermost = space.rewrite().name == "gemm_k";
      EXPECT_TRUE(!k_innermost || !Packs(*lowered)) << space.name();
      whole += k_innermost ? 1 : 0;
      if (arch != std::string("sm_90")) continue;
      SCOPED_TRACE(space.name());
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
    }
    EXPECT_EQ(tensor > 0, arch != std::string("sm_75")) << arch;
    EXPECT_EQ(whole > 0, arch != std::string("sm_75")) << arch;
  }
}

// The window moves over what lies in shared memory: rows of the window that begin anywhere, and channels that a tile
// does not divide.
TEST(TensorProducts, WindowsMoveOverOneCopyOfTheImage) {
  std::mt19937 random(11);
  for (const testing::ConvShape& shape :
       {testing::ConvShape{17, 19, 3, 20, 7, 2, 3}, testing::ConvShape{9, 15, 5, 16, 3, 1, 1},
        testing::ConvShape{8, 14, 3, 16, 5, 2, 2, 3}}) {
    const ComputeDag dag = testing::Convolution(shape, true);
    const testing::Reference expected = testing::MakeReference(dag, 13);
    const auto task = TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value();
    ASSERT_GE(task->Find("rows/tensor"), 0);
    const Space* space = &task->space(task->Find("rows/tensor"));
    for (int n = 0; n < 4; ++n) {
      const std::vector<int32_t> configuration = Draw(*space, {{"warps", 1 + n % 2}}, random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, DefaultFacts(kCuda));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_TRUE(Contains(lowered->kernels[0].body, [](const StmtNode& s) { return s.kind == StmtKind::kMma; }));
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected)) << n;
    }
  }
}

// Device facts that make any product worth a warpgroup's while.
DeviceFacts FewCores() {
  DeviceFacts facts = DefaultFacts(kCuda);
  facts.num_cores = 1;
  return facts;
}

const Target kTf32 = Target::Parse("cuda -arch=sm_90 -tf32").value();

// The nearest number of TensorFloat-32.
double NearestTensorFloat(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::round(fraction * 2048), exponent - 11);
}

// The same product of factors that are rounded: of inputs with so many dimensions, which a bias has not.
testing::Reference WithRoundedFactors(const ComputeDag& dag, uint64_t seed, size_t dimensions = 2) {
  testing::Reference exact = testing::MakeReference(dag, seed), rounded = exact;
  for (auto& [id, array] : rounded.inputs)
    for (int64_t i = 0, n = array.elements(); i < n && array.shape.size() == dimensions; ++i)
      array.set(i, NearestTensorFloat(array.at(i)));
  exact.outputs = Interpret(dag, rounded.inputs).value();
  return exact;
}

bool RoundsInSharedMemory(const LoweredProgram& lowered) {
  std::set<int> shared;
  return testing::CountStatements(lowered, [&](const StmtNode& s) {
           if (s.kind == StmtKind::kAlloc && s.decl.scope == Scope::kShared) shared.insert(s.decl.id);
           return s.kind == StmtKind::kFactorParts && s.part == FactorPart::kRounded && shared.contains(s.buffer);
         }) > 0;
}

// Products of a step may be under way when those of the next one start.
bool ProductsMayBeInFlight(const LoweredProgram& lowered) {
  return testing::CountStatements(lowered, [](const StmtNode& s) {
           return s.kind == StmtKind::kGroupSync && s.sync == GroupSync::kWait && s.extent == 1;
         }) > 0;
}

// Products by warpgroups in all orders of the operands, by pipelines of so many slots and so deep steps.
void ExpectGroupsCompute(int64_t k, DType dtype, const std::vector<std::pair<int32_t, int32_t>>& pipelines,
                         uint32_t seed) {
  std::mt19937 random(seed);
  for (int form = 0; form < 8; ++form) {
    const bool x_by_k = form & 1, w_by_n = form & 2;
    const ComputeDag dag = Product({70, 66, k}, {x_by_k, w_by_n, (form & 4) != 0}, Combiner::kSum, dtype);
    const testing::Reference expected = testing::MakeReference(dag, 7);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    // One operand has k innermost, but for halves.
    ASSERT_EQ(task->Find("direct/wgmma") >= 0, IsNarrowFloat(dtype) || !x_by_k || w_by_n) << form;
    if (task->Find("direct/wgmma") < 0) continue;
    const Space* space = &task->space(task->Find("direct/wgmma"));
    for (int n : {0, 1}) {
      const auto [stages, depth] = pipelines[(2 * form + n) % pipelines.size()];
      const std::vector<int32_t> configuration = Draw(
          *space,
          {{"groups", 1}, {"stages", stages}, {"r2", depth}, {"i0.tiles", form % 3 + 1}, {"i1.tiles", form % 2 + 1}},
          random);
      const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(::testing::Message() << form << " " << stages << " " << depth);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
    }
  }
}

TEST(GroupProducts, LanesBringTheElementsOfTheirRows) {
  // Pipelines of two slots and of more, and one step alone, with two runs of k.
  ExpectGroupsCompute(40, DType::kFloat32, {{2, 8}, {3, 8}, {4, 8}, {3, 16}, {2, 64}}, 11);
}

TEST(GroupProducts, HalvesAreAddedToTheSumsThemselves) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16})
    ExpectGroupsCompute(88, dtype, {{2, 16}, {3, 16}, {4, 16}, {3, 32}, {2, 64}}, 12);
}

void ExpectRoundedProducts(const LoweredProgram& lowered, const testing::Reference& expected) {
  ASSERT_GT(testing::CountStatements(
                lowered,
                [](const StmtNode& s) { return s.kind == StmtKind::kGroupMma && s.tensor == TensorMode::kGroupTf32; }),
            0);
  ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(lowered, expected, 2e-5));
}

// Single products of TensorFloat-32: rows come through registers, two sets of them in turn where a step has two
// products along k and the pipeline three slots. The columns are constants that were rounded at build time, or copies
// that are rounded where they lie.
TEST(GroupProducts, FactorsAreRoundedBeforeTheirProducts) {
  const std::vector<std::array<int32_t, 4>> shapes = {{1, 3, 2, 8},  {2, 1, 3, 8},  {1, 2, 3, 16},
                                                      {2, 2, 4, 32}, {1, 1, 6, 16}, {1, 2, 3, 32}};
  std::mt19937 random(13);
  for (int form = 0; form < 8; ++form) {
    const bool x_by_k = form & 1, w_by_n = form & 2;
    const ComputeDag dag = Product({136, 72, 72}, {x_by_k, w_by_n, (form & 4) != 0});
    const testing::Reference expected = WithRoundedFactors(dag, 7);
    EXPECT_LT(TaskSpace::Create(dag, kCuda, FewCores()).value()->Find("direct/tf32_wgmma"), 0);
    const auto task = TaskSpace::Create(dag, kTf32, FewCores()).value();
    EXPECT_EQ(task->Find("direct/wgmma") >= 0, !x_by_k || w_by_n) << "they compete";
    ASSERT_EQ(task->Find("direct/tf32_wgmma") >= 0, !x_by_k || w_by_n) << form;
    if (task->Find("direct/tf32_wgmma") < 0) continue;
    const Space& space = task->space(task->Find("direct/tf32_wgmma"));
    EXPECT_TRUE(space.loses_digits());
    for (int n : {0, 1, 2}) {
      const auto [groups, tiles, stages, depth] = shapes[(3 * form + n) % shapes.size()];
      SCOPED_TRACE(::testing::Message() << form << " " << groups << " " << tiles << " " << stages << " " << depth);
      const std::string rows = w_by_n ? "i0" : "i1", columns = w_by_n ? "i1" : "i0";
      const auto lowered = Lower(dag,
                                 space.Instantiate(Draw(space,
                                                        {{rows + ".groups", groups},
                                                         {rows + ".tiles", 3 - groups},
                                                         {columns + ".groups", 1},
                                                         {columns + ".tiles", tiles},
                                                         {"stages", stages},
                                                         {"r2", depth}},
                                                        random)),
                                 kTf32, FewCores());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_EQ(RoundsInSharedMemory(*lowered), !w_by_n) << ToString(lowered->kernels[0]);
      EXPECT_EQ(ProductsMayBeInFlight(*lowered), stages > 2 && depth > 8) << ToString(lowered->kernels[0]);
      ASSERT_NO_FATAL_FAILURE(ExpectRoundedProducts(*lowered, expected));
    }
  }
}

// Weights as x @ W has them are laid out with k innermost and rounded at build time, those of convolutions too.
TEST(GroupProducts, ConstantColumnsAreRoundedAtBuildTime) {
  for (const ComputeDag& dag : {Product({136, 72, 88}, {}), testing::Convolution({16, 16, 32, 64, 3, 1, 1})}) {
    const testing::Reference expected = WithRoundedFactors(dag, 3, dag.stage(dag.inputs()[0]).shape().size());
    const auto task = TaskSpace::Create(dag, kTf32, FewCores()).value();
    ASSERT_GE(task->Find("gemm_k/tf32_wgmma"), 0);
    const Space& space = task->space(task->Find("gemm_k/tf32_wgmma"));
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), kTf32, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_FALSE(RoundsInSharedMemory(*lowered));
    ASSERT_NO_FATAL_FAILURE(ExpectRoundedProducts(*lowered, expected));
    EXPECT_EQ(testing::CompareNest(*lowered, dag, testing::MakeReference(dag, 3), kTf32.tf32), "");
    const auto program = CompileProgram(*lowered, kTf32);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->source.find("tf32f("), std::string::npos) << program->source;
    EXPECT_EQ(program->serialized, std::vector<bool>(program->kernels.size(), false));
  }
}

// Elsewhere the loops compute the same from constants that are rounded, and rows that are not.
TEST(GroupProducts, RoundedConstantsAreComputedWithWithoutTensorCores) {
  const Target opencl = Target::Parse("opencl").value();
  const auto device = OpenDevice(opencl);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const ComputeDag dag = Product({136, 72, 88}, {});
  const testing::Reference exact = testing::MakeReference(dag, 3);
  testing::Reference expected = exact;
  std::map<int, Array> rounded = exact.inputs;
  Array& w = rounded.at(dag.inputs()[1]);
  for (int64_t i = 0, n = w.elements(); i < n; ++i) w.set(i, NearestTensorFloat(w.at(i)));
  expected.outputs = Interpret(dag, rounded).value();
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  const auto task = TaskSpace::Create(dag, kTf32, facts).value();
  for (const char* name : {"gemm_k/tf32_wgmma", "gemm_k/cluster_tf32_wgmma"}) {
    SCOPED_TRACE(name);
    ASSERT_GE(task->Find(name), 0);
    const Space& space = task->space(task->Find(name));
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), opencl, (*device)->facts());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, opencl);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(testing::CompareOnDevice(**device, *program, dag, expected, 1e-6), "");
    EXPECT_NE(testing::CompareOnDevice(**device, *program, dag, exact, 1e-6), "") << "nothing is rounded";
  }
}

TEST(GroupProducts, RoundedFactorsCompileForTheirArchitecture) {
  std::mt19937 random(2);
  // Rows of a warpgroup, columns, k of a step.
  const std::vector<std::array<int32_t, 3>> shapes = {{1, 16, 32}, {1, 32, 32}, {2, 16, 32}, {1, 32, 16}, {1, 24, 64}};
  for (int form : {0, 1, 2}) {
    const bool x_by_k = form == 1, w_by_n = form > 0;
    const ComputeDag dag = Product({512, 512, 256}, {x_by_k, w_by_n, false});
    const auto task = TaskSpace::Create(dag, kTf32, FewCores()).value();
    ASSERT_GE(task->Find("direct/tf32_wgmma"), 0);
    const Space& space = task->space(task->Find("direct/tf32_wgmma"));
    for (const auto& [row_tiles, tiles, depth] : shapes) {
      const std::string rows = w_by_n ? "i0" : "i1", columns = w_by_n ? "i1" : "i0";
      const auto lowered = Lower(dag,
                                 space.Instantiate(Draw(space,
                                                        {{rows + ".groups", 2},
                                                         {rows + ".tiles", row_tiles},
                                                         {columns + ".groups", 1},
                                                         {columns + ".tiles", tiles},
                                                         {"stages", 4},
                                                         {"r2", depth}},
                                                        random)),
                                 kTf32, FewCores());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const auto program = CompileProgram(*lowered, kTf32);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_NE(program->source.find(absl::StrCat("wgmma.mma_async.sync.aligned.m64n", 8 * tiles, "k8.f32.tf32.tf32")),
                std::string::npos)
          << program->source;
      EXPECT_EQ(program->spill_bytes, std::vector<int>{0}) << form << " " << tiles;
      EXPECT_EQ(program->serialized, std::vector<bool>{false}) << program->source;
    }
  }
}

TEST(GroupProducts, PartsOverAClusterSumTheirShares) {
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  std::mt19937 random(4);
  const ComputeDag dag = Product({75, 136, 328}, {});
  const testing::Reference expected = testing::MakeReference(dag, 6);
  const auto task = TaskSpace::Create(dag, kCuda, facts).value();
  ASSERT_GE(task->Find("direct/cluster_wgmma"), 0);
  const Space& space = task->space(task->Find("direct/cluster_wgmma"));
  for (const auto& [cluster, tiles] : {std::pair(2, 5), {3, 2}}) {
    const auto lowered = Lower(dag,
                               space.Instantiate(Draw(space,
                                                      {{"groups", 1},
                                                       {"i1.tiles", 1},
                                                       {"i0.tiles", tiles},
                                                       {"stages", 1 + cluster},
                                                       {"r2", 16},
                                                       {"cluster", cluster}},
                                                      random)),
                               kCuda, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.at(0).cluster, cluster);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 2e-5));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->source.find(absl::StrCat("wgmma.mma_async.sync.aligned.m64n", 8 * tiles, "k8.f32.tf32.tf32")),
              std::string::npos)
        << program->source;
    EXPECT_EQ(program->serialized, std::vector<bool>(program->kernels.size(), false)) << program->source;
  }
}

// A product that the gemm rewrite leaves as it is has its sketches once. Records name them by both.
TEST(TensorProducts, SketchesOfPlainProductsComeOnce) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, 75, 64}), w = b.Constant("w", {64, 136});
  const int y = b.Reduce("y", {1, 75, 136}, {64}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], i[1], r[0]}), b.At(w, {r[0], i[2]}));
  });
  const ComputeDag batch = b.Build({y}).value();
  for (const ComputeDag& dag : {testing::MatMul(75, 136, 64, true), batch}) {
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    std::set<std::string> rewrites;
    for (int i = 0; i < task->size(); ++i) rewrites.insert(task->space(i).rewrite().name);
    EXPECT_EQ(rewrites, (std::set<std::string>{"direct", "gemm_k"}));
    ASSERT_GE(task->Find("direct/tensor"), 0);
    EXPECT_EQ(task->Find("gemm/tensor"), task->Find("direct/tensor"));
    EXPECT_EQ(task->Find("gemm/none"), -1);
  }
  // Pixels are an axis in gemm, and two in the convolution.
  const auto task = TaskSpace::Create(testing::Convolution({14, 14, 16, 32, 1, 1, 0}), kCuda, FewCores()).value();
  ASSERT_GE(task->Find("gemm/tensor"), 0);
  EXPECT_EQ(task->space(task->Find("gemm/tensor")).name(), "gemm/tensor");
  // Columns with k innermost are laid out anew.
  const auto turned = TaskSpace::Create(Product({75, 136, 64}, {false, true}), kCuda, FewCores()).value();
  EXPECT_EQ(turned->space(turned->Find("gemm/tensor")).rewrite().name, "gemm");
}

// Which tasks are offered products of float16 parts, and what these are made of.
TEST(TensorProducts, BoundedFactorsAreCutInAKernelOfTheirOwn) {
  const ComputeDag dag = testing::Bounded(testing::MatMul(256, 256, 104, true));
  const auto halves_of = [&](const char* target, const std::vector<std::string>& without = {}) {
    const Target parsed = Target::Parse(target).value();
    const auto task = TaskSpace::CreateWithout(dag, parsed, DefaultFacts(parsed), without).value();
    std::vector<std::string> names;
    for (int i = 0; i < task->size(); ++i)
      if (task->space(i).rewrite().name == "halves") names.push_back(task->space(i).name());
    return names;
  };
  EXPECT_TRUE(halves_of("cpu").empty());
  EXPECT_TRUE(halves_of("cuda -arch=sm_75").empty());
  EXPECT_TRUE(halves_of("cuda -arch=sm_90 -strict-fp32").empty());
  EXPECT_TRUE(halves_of("cuda -arch=sm_90", {"halves"}).empty());
  for (const char* text : {"cuda -arch=sm_80", "cuda -arch=sm_89", "cuda -arch=sm_90", "cuda -arch=sm_120"}) {
    const std::vector<std::string> names = halves_of(text);
    ASSERT_FALSE(names.empty()) << text;
    const Target target = Target::Parse(text).value();
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    for (const std::string& name : names) {
      SCOPED_TRACE(absl::StrCat(text, " ", name));
      const Space& space = task->space(task->Find(name));
      EXPECT_TRUE(space.loses_digits()) << "no fallback";
      const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, DefaultFacts(target));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_EQ(lowered->prologue.size(), 1u) << "the parts of the weights";
      ASSERT_GE(lowered->kernels.size(), 2u);
      EXPECT_EQ(lowered->kernels[0].name, "k_x_halves");
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_NE(program->source.find(".f32.f16.f16"), std::string::npos);
    }
  }
}

TEST(GroupProducts, RoundedFactorsOverAClusterSumTheirShares) {
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  std::mt19937 random(3);
  const ComputeDag dag = Product({136, 72, 328}, {.w_by_n = true});
  const testing::Reference expected = WithRoundedFactors(dag, 5);
  const auto task = TaskSpace::Create(dag, kTf32, facts).value();
  for (const char* name : {"direct/cluster_tf32_wgmma", "direct/cluster_tf32"}) {
    SCOPED_TRACE(name);
    ASSERT_GE(task->Find(name), 0);
    const Space& space = task->space(task->Find(name));
    for (int32_t cluster : {2, 3}) {
      const auto lowered = Lower(dag,
                                 space.Instantiate(Draw(space,
                                                        {{"groups", 1},
                                                         {"warps", 1},
                                                         {"i0.tiles", 1},
                                                         {"i1.tiles", 4},
                                                         {"stages", 1 + cluster},
                                                         {"r2", 16},
                                                         {"cluster", cluster}},
                                                        random)),
                                 kTf32, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_EQ(lowered->kernels.at(0).cluster, cluster);
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 2e-5));
      const auto program = CompileProgram(*lowered, kTf32);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(program->serialized, std::vector<bool>(program->kernels.size(), false)) << program->source;
    }
  }
}

// Both factors in shared memory, each with k innermost or not: products of a step are under way while the next begins,
// unless there are two slots.
TEST(GroupProducts, HalvesOfBothFactorsFromSharedMemory) {
  std::mt19937 random(8);
  const std::vector<std::array<int32_t, 4>> shapes = {{1, 1, 2, 64}, {2, 1, 3, 32}, {1, 2, 4, 16}, {2, 2, 6, 16}};
  for (int form = 0; form < 4; ++form) {
    const ComputeDag dag = HalfProduct({248, 136, 168}, {(form & 1) != 0, (form & 2) != 0, false});
    const testing::Reference expected = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_GE(task->Find("direct/wgmma"), 0) << form;
    const Space* space = &task->space(task->Find("direct/wgmma"));
    const auto [groups, tiles, stages, depth] = shapes[form];
    const int32_t columns = 8 >> form;  // in swizzled runs of 128, 64 and 32 bytes, and in runs of 16
    SCOPED_TRACE(::testing::Message() << form << " " << groups << " " << tiles << " " << stages << " " << depth);
    const std::vector<int32_t> configuration = Draw(*space,
                                                    {{"i0.groups", groups},
                                                     {"i0.tiles", tiles},
                                                     {"i1.groups", 1},
                                                     {"i1.tiles", columns},
                                                     {"stages", stages},
                                                     {"r2", depth}},
                                                    random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    std::string text;
    for (const KernelFunc& kernel : lowered->kernels) text += ToString(kernel);
    EXPECT_NE(text.find("rows' runs"), std::string::npos) << text;
    EXPECT_EQ(text.find("until 1 unfinished") != std::string::npos, stages > 2) << text;
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
  }
}

// Rows that would leave a part of their tiles empty make the columns instead, in kernels of one block a tile and of a
// cluster.
TEST(GroupProducts, RowsThatFillNoTilesAreColumns) {
  std::mt19937 random(8);
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  for (int form = 0; form < 4; ++form) {
    const ComputeDag dag = HalfProduct({100, 136, 328}, {(form & 1) != 0, (form & 2) != 0, true});
    const testing::Reference expected = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, kCuda, facts).value();
    for (const char* name : {"direct/wgmma.turned", "direct/cluster_wgmma.turned"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", form));
      ASSERT_GE(task->Find(name), 0);
      const Space& space = task->space(task->Find(name));
      std::map<std::string, int32_t> said{{"i0.groups", 1}, {"i1.groups", 1}, {"i1.tiles", 1}};
      if (std::string(name).find("cluster") != std::string::npos) said["cluster"] = 2;
      const auto lowered = Lower(dag, space.Instantiate(Draw(space, said, random)), kCuda, facts);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const std::string text = ToString(lowered->kernels.back());
      EXPECT_NE(text.find(" columns, w_shared_["), std::string::npos) << text;
      EXPECT_EQ(text.find("transposed store") != std::string::npos, name == std::string("direct/wgmma.turned")) << text;
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 1e-3));
      EXPECT_TRUE(CompileProgram(*lowered, kCuda).ok());
    }
  }
  const auto filled = TaskSpace::Create(HalfProduct({256, 136, 168}, {}), kCuda, FewCores()).value();
  EXPECT_GE(filled->Find("direct/wgmma"), 0);
  EXPECT_LT(filled->Find("direct/wgmma.turned"), 0);
}

// The tile that the blocks of a cluster sum: a warp's stores, eight lanes along one of its axes and four pairs along
// the other, are in 32 banks however wide the tile is.
TEST(GroupProducts, LanesStoreTheTileOfAClusterIntoBanksOfTheirOwn) {
  std::mt19937 random(3);
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  const auto task = TaskSpace::Create(HalfProduct({100, 136, 328}, {}), kCuda, facts).value();
  for (const std::string name : {"direct/cluster_tensor", "direct/cluster_wgmma", "direct/cluster_wgmma.turned"}) {
    ASSERT_GE(task->Find(name), 0) << name;
    const auto& space = dynamic_cast<const SketchSpace&>(task->space(task->Find(name)));
    // Elements of 4 bytes from a lane's place to that of the next one across the tile's rows.
    const int64_t rows_apart = name.ends_with("turned") ? 2 : 1;
    std::set<int64_t> widths;
    for (int n = 0; n < 20; ++n) {
      Bounds bounds;
      space.skeleton().Infer(Draw(space, {}, random), &bounds);
      for (int id = 0; id < space.skeleton().state().size(); ++id) {
        if (space.skeleton().state().stage(id).odd_rows.Eval({}) == 0) continue;
        const StageBounds& tile = bounds.stages[id];
        const int64_t apart = rows_apart * (tile.buffer.back() + tile.row_padding);
        EXPECT_TRUE(apart % 32 == 8 || apart % 32 == 24) << name << ", rows of " << tile.buffer.back();
        EXPECT_EQ(apart / rows_apart % 4, 0) << "vectors of 16 bytes";
        widths.insert(tile.buffer.back());
      }
    }
    EXPECT_GE(widths.size(), 2u) << name;
  }
}

TEST(GroupProducts, HalvesCompileForTheirArchitecture) {
  std::mt19937 random(2);
  for (int form = 0; form < 5; ++form) {
    const bool bfloat16 = form == 4;
    const DType dtype = bfloat16 ? DType::kBfloat16 : DType::kFloat16;
    const ComputeDag dag = HalfProduct({256, 256, 256}, {(form & 1) != 0, (form & 2) != 0, false}, dtype);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_GE(task->Find("direct/wgmma"), 0);
    const Space* space = &task->space(task->Find("direct/wgmma"));
    const std::vector<int32_t> configuration = Draw(
        *space,
        {{"i0.groups", 2}, {"i0.tiles", form % 2 + 1}, {"i1.groups", 1}, {"i1.tiles", 16}, {"r2", 32}, {"stages", 4}},
        random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::string type = bfloat16 ? "bf16" : "f16";
    EXPECT_NE(program->source.find("wgmma.mma_async.sync.aligned.m64n128k16.f32." + type + "." + type),
              std::string::npos);
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
    EXPECT_EQ(program->serialized, std::vector<bool>{false}) << program->source;
  }
}

// Both factors from shared memory where both have k innermost; else those that have it make the columns, and the others
// come through registers. Five tiles of columns are a product of 32 and one of 8.
TEST(GroupProducts, BytesOfBothFactorsFromSharedMemory) {
  std::mt19937 random(8);
  const std::vector<std::array<int32_t, 5>> shapes = {
      {1, 1, 2, 128, 4}, {1, 1, 3, 64, 5}, {1, 1, 2, 32, 1}, {1, 2, 6, 32, 2}};
  for (int form : {0, 2, 3, 6}) {
    const bool x_by_k = form & 1, w_by_n = form & 2;
    const ComputeDag dag =
        ByteProduct({136, 80, 168}, {x_by_k, w_by_n, form % 3 == 0}, form & 4 ? DType::kUint8 : DType::kInt8,
                    form < 4 ? DType::kUint8 : DType::kInt8);
    const testing::Reference expected = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_EQ(task->Find("direct/wgmma") >= 0, !x_by_k || w_by_n) << form;
    if (task->Find("direct/wgmma") < 0) continue;
    const Space* space = &task->space(task->Find("direct/wgmma"));
    const auto [groups, tiles, stages, depth, columns] = shapes[form / 2];
    SCOPED_TRACE(::testing::Message() << form << " " << groups << " " << tiles << " " << stages << " " << depth);
    const bool shared = !x_by_k && w_by_n;
    std::map<std::string, int32_t> said{{"groups", 1}, {"stages", std::min(stages, shared ? 6 : 4)}, {"r2", depth}};
    said["i0.tiles"] = shared ? tiles : columns;
    said["i1.tiles"] = shared ? columns : tiles;
    if (shared) said["i0.groups"] = groups;
    const auto lowered = Lower(dag, space->Instantiate(Draw(*space, said, random)), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    std::string text;
    for (const KernelFunc& kernel : lowered->kernels) text += ToString(kernel);
    EXPECT_EQ(text.find("rows' runs") != std::string::npos, shared) << text;
    if (shared && columns == 5) {
      EXPECT_NE(text.find("of 32 columns"), std::string::npos) << text;
      EXPECT_NE(text.find("of 8 columns"), std::string::npos) << text;
    }
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
  }
}

TEST(GroupProducts, BytesCompileForTheirArchitecture) {
  std::mt19937 random(2);
  for (int form = 0; form < 4; ++form) {
    const DType x = form & 1 ? DType::kUint8 : DType::kInt8;
    const ComputeDag dag = ByteProduct({256, 256, 512}, {.x_by_k = form >= 2, .w_by_n = true}, x, DType::kInt8);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_GE(task->Find("direct/wgmma"), 0);
    const Space* space = &task->space(task->Find("direct/wgmma"));
    const bool shared = form < 2;
    const auto configuration = Draw(*space,
                                    {{"i0.groups", shared ? 2 : 1},
                                     {"i0.tiles", shared ? 1 : 2},
                                     {"i1.groups", 1},
                                     {"i1.tiles", shared ? 16 : 1},
                                     {"r2", 64},
                                     {"stages", 4}},
                                    random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status() << program->source;
    // Where x has its rows innermost they come through registers, and its columns are w's.
    const std::string types = shared ? (form == 0 ? "s8.s8" : "u8.s8") : (form == 2 ? "s8.s8" : "u8.s8");
    EXPECT_NE(program->source.find(absl::StrCat("k32.s32.", types)), std::string::npos) << program->source;
    EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
    EXPECT_EQ(program->serialized, std::vector<bool>{false}) << program->source;
  }
}

// Weights as x @ W has them are laid out with k innermost at build time, those of convolutions too.
TEST(GroupProducts, BytesWithConstantColumnsAreLaidOutForThem) {
  for (const ComputeDag& dag :
       {testing::MatMulOfBytes(256, 128, 256), testing::Convolution({16, 16, 32, 64, 3, 1, 1, 1, DType::kUint8})}) {
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_GE(task->Find("gemm_k/wgmma"), 0);
    const Space& space = task->space(task->Find("gemm_k/wgmma"));
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->source.find("k32.s32.u8.s8"), std::string::npos) << program->source;
    EXPECT_NE(program->source.find("async_copy<16>"), std::string::npos) << program->source;
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, testing::MakeReference(dag, 3)));
  }
}

TEST(GroupProducts, BytesOverAClusterSumTheirShares) {
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  std::mt19937 random(3);
  const ComputeDag dag = testing::MatMulOfBytes(136, 72, 650, /*w_by_n=*/true);
  const testing::Reference expected = testing::MakeReference(dag, 5);
  const auto task = TaskSpace::Create(dag, kCuda, facts).value();
  for (const char* name : {"direct/cluster_wgmma", "direct/cluster_tensor"}) {
    SCOPED_TRACE(name);
    ASSERT_GE(task->Find(name), 0);
    const Space* space = &task->space(task->Find(name));
    const std::vector<int32_t> configuration = Draw(
        *space, {{"groups", 1}, {"warps", 1}, {"i0.tiles", 1}, {"i1.tiles", 4}, {"stages", 3}, {"cluster", 2}}, random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.at(0).cluster, 2);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status() << program->source;
  }
}

// The same over the blocks of a cluster, whose tile takes the place of the factors.
TEST(GroupProducts, HalvesOverAClusterSumTheirShares) {
  DeviceFacts facts = FewCores();
  facts.num_cores = 8;
  std::mt19937 random(3);
  const std::vector<std::array<int32_t, 5>> shapes = {
      {1, 4, 2, 32, 2}, {2, 2, 3, 64, 1}, {1, 3, 4, 16, 3}, {1, 2, 6, 16, 2}};
  for (int form = 0; form < 4; ++form) {
    const auto [groups, tiles, stages, depth, cluster] = shapes[form];
    SCOPED_TRACE(::testing::Message() << form << " " << groups << " " << tiles << " " << stages << " " << depth << " "
                                      << cluster);
    const ComputeDag dag = HalfProduct({136, 72, 328}, {(form & 1) != 0, (form & 2) != 0, true});
    const testing::Reference expected = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, kCuda, facts).value();
    ASSERT_GE(task->Find("direct/cluster_wgmma"), 0);
    const Space* space = &task->space(task->Find("direct/cluster_wgmma"));
    const std::vector<int32_t> configuration = Draw(*space,
                                                    {{"i0.groups", groups},
                                                     {"i0.tiles", 1},
                                                     {"i1.groups", 1},
                                                     {"i1.tiles", tiles},
                                                     {"stages", stages},
                                                     {"r2", depth},
                                                     {"cluster", cluster}},
                                                    random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, facts);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->kernels.at(0).cluster, cluster);
    // Sums in another order may be another float16: at most 2^-10 from the first, where results are below 2.
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 1e-3));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->source.find("wgmma.mma_async.sync.aligned.m64n" + std::to_string(8 * tiles)), std::string::npos)
        << program->source;
    EXPECT_EQ(program->serialized, std::vector<bool>{false}) << program->source;
  }
}

// Bias and residual are on their way while products are made: read as they lie in memory, converted behind the
// products.
TEST(GroupProducts, OperandsOfTheEpilogueAreReadEarly) {
  const ComputeDag dag = testing::LinearOfHalves(88, 72, 104);
  const testing::Reference expected = testing::MakeReference(dag, 5);
  const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
  std::mt19937 random(4);
  for (const char* name : {"direct/wgmma.early", "direct/tensor.early"}) {
    SCOPED_TRACE(name);
    ASSERT_GE(task->Find(name), 0);
    const Space* space = &task->space(task->Find(name));
    const std::vector<int32_t> configuration =
        Draw(*space, {{"groups", 1}, {"warps", 1}, {"tiles", 2}, {"r2", 16}, {"stages", 3}}, random);
    const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 2e-3));
    const auto program = CompileProgram(*lowered, kCuda);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::string& source = program->source;
    EXPECT_NE(source.find("unsigned short residual_local_["), std::string::npos) << source;
    const size_t products = source.rfind(name == std::string("direct/tensor.early") ? "add_f16(" : "group_f16_shared_"),
                 read = source.rfind("(residual + "), used = source.find("half_to_float(residual_local_[");
    ASSERT_TRUE(products != std::string::npos && read != std::string::npos && used != std::string::npos) << source;
    EXPECT_LT(read, products);
    EXPECT_LT(products, used);
  }
}

// Where the tensor's rows are the columns of tiles, lanes store by rows: of tensors that end within a tile in both
// directions, and of rows of two tiles of eight.
TEST(GroupProducts, TurnedTilesAreStoredByRows) {
  std::mt19937 random(6);
  int by_rows = 0;
  for (const auto& [rows, columns, k] : {std::array<int64_t, 3>{77, 136, 48}, {100, 72, 64}, {197, 64, 32}}) {
    const ComputeDag dag = testing::LinearOfHalves(rows, columns, k);
    const testing::Reference expected = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
    ASSERT_GE(task->Find("direct/wgmma.turned.early"), 0);
    const Space& space = task->space(task->Find("direct/wgmma.turned.early"));
    for (int n = 0; n < 4; ++n) {
      const auto lowered =
          Lower(dag, space.Instantiate(Draw(space, {{"groups", n % 2 + 1}, {"r2", 16}}, random)), kCuda, FewCores());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      SCOPED_TRACE(ToString(lowered->kernels.back()));
      ASSERT_NO_FATAL_FAILURE(testing::ExpectNestComputes(*lowered, expected, 2e-3));
      const auto program = CompileProgram(*lowered, kCuda);
      ASSERT_TRUE(program.ok()) << program.status();
      by_rows += program->source.find(" transposed_store(") != std::string::npos;
    }
  }
  EXPECT_EQ(by_rows, 12);
}

// Where a sum is read before its products are done.
TEST(GroupProducts, SerializedProductsAreTold) {
  const ComputeDag dag = HalfProduct({256, 256, 256}, {false, true, false});
  const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
  ASSERT_GE(task->Find("direct/wgmma"), 0);
  const Space* space = &task->space(task->Find("direct/wgmma"));
  std::mt19937 random(2);
  const auto lowered = Lower(
      dag,
      space->Instantiate(Draw(
          *space, {{"i0.groups", 2}, {"i0.tiles", 1}, {"i1.groups", 1}, {"i1.tiles", 16}, {"r2", 32}, {"stages", 4}},
          random)),
      kCuda, FewCores());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  auto program = CompileProgram(*lowered, kCuda);
  ASSERT_TRUE(program.ok()) << program.status();
  std::string& source = program->source;
  const size_t wait = source.find("group_wait<1>();"), sums = source.rfind("group_wait_");
  ASSERT_TRUE(wait < sums && sums != std::string::npos) << source;
  const size_t first = source.find('(', sums) + 1;
  const std::string sum = source.substr(first, source.find(',', first) - first);
  source.insert(wait, "if (" + sum + " == 1.0f) __trap();\n");
  ASSERT_TRUE(CompileCuda(*program).ok());
  EXPECT_EQ(program->serialized, std::vector<bool>{true});
}

// As no sketch has it: the loops between the copies and the products run more than once.
TEST(GroupProducts, SeveralProductsOfOneStep) {
  const ComputeDag dag = Product({70, 66, 64}, {});
  const testing::Reference expected = testing::MakeReference(dag, 3);
  const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
  ASSERT_GE(task->Find("direct/wgmma"), 0);
  const Space* space = &task->space(task->Find("direct/wgmma"));
  std::mt19937 random(6);
  Schedule schedule = space->Instantiate(
      Draw(*space, {{"groups", 1}, {"i0.tiles", 2}, {"i1.tiles", 1}, {"stages", 3}, {"r2", 16}}, random));
  int changed = 0;
  for (Step& step : schedule.steps)
    if (step.kind == StepKind::kSplit && step.factors.size() == 2 && step.factors[0].value == 1 &&
        step.factors[1].value == 16) {
      step.factors = {Factor::Of(2), Factor::Of(8)};
      ++changed;
    }
  ASSERT_EQ(changed, 1);
  const auto lowered = Lower(dag, schedule, kCuda, FewCores());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  testing::ExpectNestComputes(*lowered, expected);
}

// ptxas takes the instructions, with registers for all sums.
TEST(GroupProducts, CompileForTheirArchitecture) {
  const ComputeDag dag = Product({256, 256, 64}, {});
  const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
  ASSERT_GE(task->Find("direct/wgmma"), 0);
  const Space* space = &task->space(task->Find("direct/wgmma"));
  std::mt19937 random(2);
  const std::vector<int32_t> configuration =
      Draw(*space, {{"i0.groups", 1}, {"i0.tiles", 12}, {"i1.groups", 2}, {"i1.tiles", 1}, {"r2", 32}, {"stages", 3}},
           random);
  const auto lowered = Lower(dag, space->Instantiate(configuration), kCuda, FewCores());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto program = CompileProgram(*lowered, kCuda);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_NE(program->source.find("wgmma.mma_async.sync.aligned.m64n96k8"), std::string::npos);
  EXPECT_EQ(program->spill_bytes, std::vector<int>{0});
}

TEST(TensorProducts, BfloatsCompileForEveryArchitecture) {
  const ComputeDag dag = testing::MatMulOfHalves(40, 48, 96, DType::kBfloat16);
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const Target target = Target::Parse(absl::StrCat("cuda -arch=", arch)).value();
    const DeviceFacts facts = DefaultFacts(target);
    const auto task = TaskSpace::Create(dag, target, facts).value();
    EXPECT_EQ(task->Find("direct/tensor") >= 0, arch != std::string("sm_75")) << arch;
    for (int i = 0; i < task->size(); ++i) {
      const Space& space = task->space(i);
      const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, facts);
      ASSERT_TRUE(lowered.ok()) << space.name() << " " << arch << ": " << lowered.status();
      const auto program = CompileProgram(*lowered, target);
      ASSERT_TRUE(program.ok()) << space.name() << " " << arch << ": " << program.status();
      if (space.name() == "direct/tensor") {
        EXPECT_NE(program->source.find("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), std::string::npos);
      }
    }
  }
}

TEST(GroupProducts, SmallProductsAreLeftToWarps) {
  const ComputeDag dag = Product({256, 256, 64}, {});
  EXPECT_LT(TaskSpace::Create(dag, kCuda, DefaultFacts(kCuda)).value()->Find("direct/wgmma"), 0);
  const ComputeDag large = Product({512, 512, 64}, {});
  EXPECT_GE(TaskSpace::Create(large, kCuda, DefaultFacts(kCuda)).value()->Find("direct/wgmma"), 0);
  const Target ampere = Target::Parse("cuda -arch=sm_80").value();
  EXPECT_LT(TaskSpace::Create(large, ampere, DefaultFacts(ampere)).value()->Find("direct/wgmma"), 0);
}

TEST(GroupProducts, WhatWarpgroupsCannotMakeIsRefused) {
  const ComputeDag dag = Product({70, 66, 40}, {});
  const auto task = TaskSpace::Create(dag, kCuda, FewCores()).value();
  ASSERT_GE(task->Find("direct/wgmma"), 0);
  const Schedule schedule =
      task->space(task->Find("direct/wgmma")).Instantiate(task->space(task->Find("direct/wgmma")).Default());
  ASSERT_TRUE(Lower(dag, schedule, kCuda, FewCores()).ok());
  Schedule plain = schedule;
  plain.steps.erase(std::remove_if(plain.steps.begin(), plain.steps.end(),
                                   [](const Step& s) { return s.kind == StepKind::kCoreMatrices; }),
                    plain.steps.end());
  EXPECT_EQ(Lower(dag, plain, kCuda, FewCores()).status(),
            absl::InvalidArgumentError("stage c.acc: warpgroups take columns from a copy in core matrices"));
  Schedule root = schedule;
  for (Step& step : root.steps)
    if (step.kind == StepKind::kCoreMatrices) step.stage = 2;
  EXPECT_EQ(Lower(dag, root, kCuda, FewCores()).status(),
            absl::InvalidArgumentError("stage c is laid out in core matrices, and no copy in shared memory"));
}

// Steps of one dag on another, as a damaged or foreign schedule would have them.
TEST(TensorProducts, WhatLanesCannotMakeIsRefused) {
  const ComputeDag sum = Product({32, 16, 64}, {});
  const ComputeDag greatest = Product({32, 16, 64}, {}, Combiner::kMax);
  const auto task = TaskSpace::Create(sum, kCuda, DefaultFacts(kCuda)).value();
  ASSERT_GE(task->Find("direct/tensor"), 0);
  const Space* space = &task->space(task->Find("direct/tensor"));
  Schedule schedule = space->Instantiate(space->Default());
  ASSERT_TRUE(Lower(sum, schedule, kCuda, DefaultFacts(kCuda)).ok());
  EXPECT_EQ(Lower(greatest, schedule, kCuda, DefaultFacts(kCuda)).status(),
            absl::InvalidArgumentError("stage c.acc: tensor cores take a sum of products of two copies"));
  for (Step& step : schedule.steps)
    if (step.kind == StepKind::kTensorize) std::swap(step.ints[1], step.ints[2]);
  const absl::Status lanes = Lower(sum, schedule, kCuda, DefaultFacts(kCuda)).status();
  EXPECT_EQ(lanes, absl::InvalidArgumentError("stage c.acc: tensor cores take 8 x 4 lanes"));
}

}  // namespace
}  // namespace diapason
