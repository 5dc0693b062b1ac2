#include "compiler/codegen/c_printer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <random>

#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/temporary.h"
#include "gtest/gtest.h"
#include "tests/codegen/kernels.h"
#include "tests/codegen/reference.h"
#include "tests/count_text.h"

namespace diapason {
namespace {

using namespace diapason::testing;

std::string SourceOf(const KernelFunc& kernel, int vector_bytes) {
  Helpers helpers(Dialect::kC);
  const std::string text = PrintCKernel(kernel, vector_bytes, helpers);
  return helpers.Text() + text;
}

using Entry = void (*)(void* const*, int64_t, int64_t);

// Compiled kernels, loaded into this process.
class Loaded {
 public:
  explicit Loaded(const Program& program) {
    char path[] = "/tmp/diapason-test-XXXXXX";
    const int fd = mkstemp(path);
    EXPECT_EQ(write(fd, program.binary.data(), program.binary.size()), static_cast<ssize_t>(program.binary.size()));
    close(fd);
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (library_ == nullptr) ADD_FAILURE() << dlerror();
  }
  ~Loaded() {
    if (library_ != nullptr) dlclose(library_);
  }
  Entry Find(const std::string& name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Entry>(dlsym(library_, name.c_str()));
  }

 private:
  void* library_ = nullptr;
};

// Random contents that are exact in every type: quarters for floats, small integers.
Array RandomArray(const BufferDecl& decl, std::mt19937& random) {
  Array array(decl.dtype, {decl.elements});
  for (int64_t i = 0; i < decl.elements; ++i) {
    const int value = static_cast<int>(random() % 33) - 16;
    if (IsFloat(decl.dtype))
      array.set(i, value / 4.0);
    else
      array.set_int(i, decl.dtype == DType::kBool ? value & 1 : decl.dtype == DType::kUint8 ? value + 16 : value);
  }
  return array;
}

// Runs the kernel on random inputs, in two ranges of its parallel loop, and compares every element of every buffer with
// the reference.
void ExpectRunsAsReference(const Loaded& library, const KernelFunc& kernel, double tolerance) {
  SCOPED_TRACE(ToString(kernel));
  std::mt19937 random(7);
  NestRunner reference;
  std::vector<Array> arrays;
  std::vector<void*> args;
  for (const BufferDecl& param : kernel.params) {
    arrays.push_back(RandomArray(param, random));
    for (int64_t i = 0; i < param.elements; ++i) reference.buffers[param.id].push_back(arrays.back().at(i));
  }
  for (Array& array : arrays) args.push_back(array.data.data());
  const Entry entry = library.Find(kernel.name);
  ASSERT_NE(entry, nullptr);
  entry(args.data(), 0, kernel.blocks / 2);
  entry(args.data(), kernel.blocks / 2, kernel.blocks);
  reference.Run(kernel);
  for (size_t b = 0; b < arrays.size(); ++b) {
    const std::vector<double>& expected = reference.buffers.at(kernel.params[b].id);
    for (int64_t i = 0; i < arrays[b].elements(); ++i) {
      ASSERT_NEAR(arrays[b].at(i), expected[i], tolerance * (1 + std::fabs(expected[i])))
          << kernel.params[b].name << "[" << i << "]\n"
          << SourceOf(kernel, 64);
    }
  }
}

// Compiles the kernels, as one program: starting the compiler takes longer than most of them.
void ExpectSameAsReference(std::vector<KernelFunc> kernels, double tolerance = 1e-6,
                           const std::string& mcpu = "native") {
  LoweredProgram program;
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i].name += std::to_string(i);
  program.kernels = kernels;
  Target target;
  target.mcpu = mcpu;
  Program compiled;
  compiled.target = target;
  compiled.source = PrintSource(program, target);
  const absl::Status status = CompileSource(compiled, 60);
  ASSERT_TRUE(status.ok()) << status << "\n" << compiled.source;
  const Loaded library(compiled);
  for (const KernelFunc& kernel : kernels) ExpectRunsAsReference(library, kernel, tolerance);
}

void ExpectSameAsReference(const KernelFunc& kernel, double tolerance = 1e-6, const std::string& mcpu = "native") {
  ExpectSameAsReference(std::vector<KernelFunc>{kernel}, tolerance, mcpu);
}

// Compiles the kernels for another architecture, links them to a program that runs them on what it reads, and compares
// every element of every buffer with the reference.
void RunUnderQemu(std::vector<KernelFunc> kernels, const Target& target) {
  LoweredProgram program;
  std::string main = "#include <stdio.h>\n#include <stdlib.h>\n", body, input;
  std::mt19937 random(7);
  std::vector<NestRunner> references(kernels.size());
  for (size_t k = 0; k < kernels.size(); ++k) {
    KernelFunc& kernel = kernels[k];
    kernel.name += std::to_string(k);
    program.kernels.push_back(kernel);
    main += "extern void " + kernel.name + "(void* const*, long, long);\n";
    body += "  {\n    void* args[16];\n";
    for (size_t b = 0; b < kernel.params.size(); ++b) {
      const Array array = RandomArray(kernel.params[b], random);
      for (int64_t i = 0; i < array.elements(); ++i) references[k].buffers[kernel.params[b].id].push_back(array.at(i));
      input.append(reinterpret_cast<const char*>(array.data.data()), array.data.size());
      const std::string n = std::to_string(b), bytes = std::to_string(array.data.size());
      body += "    args[" + n + "] = aligned_alloc(256, (" + bytes + " + 64 + 255) / 256 * 256);\n    if (fread(args[" +
              n + "], 1, " + bytes + ", stdin) != " + bytes + ") return 1;\n";
    }
    const std::string half = std::to_string(kernel.blocks / 2), all = std::to_string(kernel.blocks);
    body +=
        "    " + kernel.name + "(args, 0, " + half + ");\n    " + kernel.name + "(args, " + half + ", " + all + ");\n";
    for (size_t b = 0; b < kernel.params.size(); ++b)
      body += "    fwrite(args[" + std::to_string(b) + "], 1, " +
              std::to_string(kernel.params[b].elements * BytesOf(kernel.params[b].dtype)) + ", stdout);\n";
    body += "  }\n";
    references[k].Run(kernel);
  }
  Program compiled;
  compiled.target = target;
  compiled.source = PrintSource(program, target);
  ASSERT_EQ(CompileSource(compiled, 60), absl::OkStatus()) << compiled.source;
  const TemporaryDirectory folder = TemporaryDirectory::Create().value();
  ASSERT_EQ(WriteFile(folder.File("kernels.so"), compiled.binary), absl::OkStatus());
  ASSERT_EQ(WriteFile(folder.File("main.c"), main + "int main(void) {\n" + body + "  return 0;\n}\n"),
            absl::OkStatus());
  const auto linked = RunProgram({.args = {target.triple + "-gcc", "-o", folder.File("main"), folder.File("main.c"),
                                           folder.File("kernels.so"), "-lm"},
                                  .environment = CleanEnvironment()});
  ASSERT_TRUE(linked.ok() && linked->exit_code == 0) << linked.status() << (linked.ok() ? linked->errors : "");
  const auto ran = RunProgram({.args = {"qemu-aarch64", "-L", "/usr/" + target.triple, folder.File("main")},
                               .environment = CleanEnvironment(),
                               .input = input});
  ASSERT_TRUE(ran.ok() && ran->exit_code == 0) << ran.status() << (ran.ok() ? ran->errors : "");
  ASSERT_EQ(ran->output.size(), input.size());
  size_t at = 0;
  for (size_t k = 0; k < kernels.size(); ++k)
    for (const BufferDecl& param : kernels[k].params) {
      Array array(param.dtype, {param.elements});
      std::memcpy(array.data.data(), ran->output.data() + at, array.data.size());
      at += array.data.size();
      const std::vector<double>& expected = references[k].buffers.at(param.id);
      for (int64_t i = 0; i < param.elements; ++i)
        ASSERT_NEAR(array.at(i), expected[i], 1e-6 * (1 + std::fabs(expected[i])))
            << kernels[k].name << " " << param.name << "[" << i << "]";
    }
}

KernelFunc ReluKernel() {
  const Expr v = MakeVar("v"), l = MakeVar("l");
  const Expr at = Mad(v, 8, l);
  const Stmt body = Vectorize(l, 8, MakeStore(1, at, Max(Add(At(0, at), F(0.5)), F(0))));
  return KernelOf("relu", {Global(0, "X", 32), Global(1, "Y", 32, true)}, MakeFor(ForKind::kParallel, v, 4, body), 4);
}

TEST(CPrinter, VectorLoopsAreVectorOperationsAndTheParallelLoopARange) {
  EXPECT_EQ(SourceOf(ReluKernel(), 32),
            R"(typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
static inline f32x8 f32x8_set(float x) { return (f32x8){x, x, x, x, x, x, x, x}; }
typedef int i32x8 __attribute__((vector_size(32)));
typedef int i32x8u __attribute__((vector_size(32), aligned(4), may_alias));
static inline f32x8 f32x8_max(f32x8 a, f32x8 b) {
#ifdef __AVX__
  return __builtin_ia32_maxps256(b, a);
#else
  const i32x8 m = (i32x8)(a < b);
  return (f32x8)((m & (i32x8)b) | (~m & (i32x8)a));
#endif
}
void relu(void* const* args, int64 begin, int64 end) {
  const float* restrict X = args[0];
  float* restrict Y = args[1];
  for (int64 v = begin; v < end; ++v) {
    *(f32x8u*)(Y + v * 8) = f32x8_max(((f32x8)*(const f32x8u*)(X + v * 8) + 0.5f), f32x8_set(0.0f));
  }
}
)");
}

TEST(CPrinter, AccumulatorsAreVariablesNotArrays) {
  const std::string source = SourceOf(MicroKernel(2, 14, 2, 16, 8), 64);
  EXPECT_EQ(source.find("acc["), std::string::npos);
  EXPECT_NE(source.find("f32x16 acc_432;"), std::string::npos);
  // What 14 rows and 2 columns share is loaded once.
  EXPECT_EQ(testing::CountText(source, "(B + k * 32 + 16)"), 1) << source;
  EXPECT_EQ(testing::CountText(source, "A[block * 112 + k + 104]"), 1) << source;
  EXPECT_NE(source.find("acc_432 = (acc_432 + (v_"), std::string::npos) << source;
}

// Y = X + Y, twice, around a store to Y: neither the second statement nor the next iteration may take the sum of
// before.
TEST(CPrinter, ValuesAreComputedAgainOnceTheirBuffersAreWritten) {
  const Expr p = MakeVar("p"), l = MakeVar("l");
  const Expr sum = Add(At(0, l), At(1, l));
  const Stmt body = Serial(p, 3,
                           MakeSeq({Vectorize(l, 16, MakeStore(2, l, Add(sum, At(2, l)))),
                                    Vectorize(l, 16, MakeStore(1, l, Mul(sum, F(0.5)))),
                                    Vectorize(l, 16, MakeStore(2, l, Sub(Mul(sum, sum), At(2, l))))}));
  const KernelFunc kernel =
      KernelOf("again", {Global(0, "X", 16), Global(1, "Y", 16, true), Global(2, "Z", 16, true)}, body);
  ExpectSameAsReference(kernel);
  const std::string source = SourceOf(kernel, 64);
  EXPECT_EQ(testing::CountText(source, "(X)"), 1) << source;
  EXPECT_EQ(testing::CountText(source, "(Y)"), 3) << source;  // two loads and the store
}

// What only a branch may read stays in the branch.
TEST(CPrinter, ValuesInBranchesAreNotComputedOutside) {
  const Expr p = MakeVar("p"), l = MakeVar("l");
  const Expr inside = Select(Lt(p, I(2)), At(0, Mad(p, 16, l)), F(3));  // X has two rows
  const Stmt body =
      Serial(p, 1000,
             MakeSeq({Vectorize(l, 16, MakeStore(1, Mad(p, 16, l), Add(At(2, l), At(2, l)))),
                      MakeIf(Lt(p, I(2)), Vectorize(l, 16, MakeStore(1, Mad(p, 16, l), At(0, Mad(p, 16, l))))),
                      Vectorize(l, 16, MakeStore(3, Mad(p, 16, l), Add(inside, Mul(inside, F(2)))))}));
  ExpectSameAsReference(KernelOf(
      "branches", {Global(0, "X", 32), Global(1, "Y", 16000, true), Global(2, "Z", 16), Global(3, "U", 16000, true)},
      body));
}

TEST(CPrinter, GuardsOfNeighboursAreOne) {
  const Expr v = MakeVar("v"), i = MakeVar("i"), l = MakeVar("l");
  const Expr at = Add(Mul(v, I(64)), Mad(i, 16, l));
  const Stmt tile =
      MakeFor(ForKind::kUnroll, i, 4, Vectorize(l, 16, MakeIf(Lt(v, I(3)), MakeStore(1, at, Add(At(0, at), F(1))))));
  const KernelFunc kernel =
      KernelOf("guards", {Global(0, "X", 192), Global(1, "Y", 192, true)}, MakeFor(ForKind::kParallel, v, 4, tile), 4);
  EXPECT_EQ(testing::CountText(SourceOf(kernel, 64), "if (v < 3)"), 1);
  ExpectSameAsReference(kernel);
}

// Rows of a tile of `rows` that ends beyond `limit` rows, each a sum of 8 products; the sums are variables.
KernelFunc UnevenTile(int64_t rows, int64_t limit) {
  const Expr p = MakeVar("p"), k = MakeVar("k"), row = MakeVar("row"), lane = MakeVar("lane"), out = MakeVar("out"),
             out_lane = MakeVar("out_lane");
  const auto at = [&](const Expr& r) { return Mad(p, rows, r); };
  const auto sum = [&](const Expr& r, const Expr& l) { return Mad(r, 8, l); };
  const auto over = [&](const Expr& r, const Expr& l, Stmt stmt) {
    return Unroll(r, rows, Vectorize(l, 8, std::move(stmt)));
  };
  const Stmt add =
      MakeStore(3, sum(row, lane), Add(At(3, sum(row, lane)), Mul(At(0, Mad(at(row), 8, k)), At(1, Mad(k, 8, lane)))));
  const Expr first = MakeVar("first"), first_lane = MakeVar("first_lane");
  const Stmt tile = MakeSeq(
      {over(first, first_lane, MakeStore(3, sum(first, first_lane), F(0))),
       Serial(k, 8, over(row, lane, MakeIf(Lt(at(row), I(limit)), add))),
       over(out, out_lane,
            MakeIf(Lt(at(out), I(limit)), MakeStore(2, Mad(at(out), 8, out_lane), At(3, sum(out, out_lane)))))});
  const int64_t tiles = (limit + rows - 1) / rows;
  return KernelOf("uneven", {Global(0, "X", limit * 8), Global(1, "W", 64), Global(2, "Y", limit * 8, true)},
                  MakeFor(ForKind::kParallel, p, tiles, MakeAlloc(Scoped(3, "sums", rows * 8, Scope::kLocal), tile)),
                  tiles);
}

TEST(CPrinter, WholeTilesHaveNoConditionsInTheirLoops) {
  const KernelFunc kernel = UnevenTile(4, 14);
  const std::string source = SourceOf(kernel, 64);
  const size_t whole = source.find("for (int64 k"), cut = source.find("for (int64 k", whole + 1);
  ASSERT_NE(cut, std::string::npos) << source;
  EXPECT_EQ(source.find("for (int64 k", cut + 1), std::string::npos) << source;
  EXPECT_EQ(source.substr(whole, cut - whole).find("if ("), source.substr(whole, cut - whole).rfind("if ("))
      << source;  // that of the other copy
  EXPECT_NE(source.substr(cut).find("if ("), std::string::npos) << source;
  ExpectSameAsReference(kernel);
}

TEST(CPrinter, TilesThatEndAnywhereAreCorrect) {
  std::vector<KernelFunc> kernels;
  for (int64_t limit : {1, 3, 4, 5, 7, 8, 14}) {
    kernels.push_back(UnevenTile(4, limit));
    kernels.back().name = "uneven" + std::to_string(limit);
  }
  ExpectSameAsReference(kernels);
}

TEST(CPrinter, NarrowVectorsCutWideLoops) {
  const std::string source = SourceOf(MicroKernel(2, 2, 1, 16, 8), 16);
  EXPECT_NE(source.find("f32x4 acc_28;"), std::string::npos) << source;
  EXPECT_EQ(source.find("x16"), std::string::npos);
}

TEST(CPrinter, RunsOfTheMicroKernelAreCorrect) {
  ExpectSameAsReference({MicroKernel(3, 14, 2, 16, 40), MicroKernel(2, 5, 3, 8, 9),
                         MicroKernel(4, 4, 1, 24, 7),    // 16 + 8 lanes
                         MicroKernel(2, 3, 2, 7, 5),     // 4 + 2 + 1
                         MicroKernel(2, 3, 2, 64, 5)});  // 4 vectors of 16
}

TEST(CPrinter, OlderProcessorsGetCorrectCode) {
  ExpectSameAsReference(MicroKernel(2, 3, 2, 16, 5), 1e-6, "x86-64");
  ExpectSameAsReference(ReluKernel(), 1e-6, "x86-64-v2");
}

// Y[p * 12 + l] = value for l in 12 lanes and p in 3.
KernelFunc LaneKernel(const std::function<Expr(const Expr& p, const Expr& l)>& value, DType from = DType::kFloat32,
                      DType to = DType::kFloat32) {
  const Expr p = MakeVar("p"), l = MakeVar("l");
  const Stmt body = Serial(p, 3, Vectorize(l, 12, MakeStore(1, Mad(p, 12, l), value(p, l))));
  return KernelOf("lanes", {Global(0, "X", 200, false, from), Global(1, "Y", 36, true, to), Global(2, "Z", 200)}, body);
}

TEST(CPrinter, EveryKindOfLaneExpressionIsCorrect) {
  using Value = std::function<Expr(const Expr& p, const Expr& l)>;
  const Value values[] = {
      [](const Expr& p, const Expr& l) { return At(0, Mad(p, 12, l)); },
      [](const Expr& p, const Expr& l) { return At(0, Mad(l, 3, p)); },           // stride 3
      [](const Expr& p, const Expr& l) { return At(0, Sub(I(40), Add(l, p))); },  // backwards
      [](const Expr& p, const Expr& l) { return At(0, p); },                      // the same for all
      [](const Expr& p, const Expr& l) { return At(0, Add(FloorDiv(l, 5), FloorMod(Mad(p, 7, l), 3))); },
      [](const Expr& p, const Expr& l) { return At(0, Add(FloorDiv(Sub(l, I(7)), 3), I(9))); },  // of negative numbers
      [](const Expr& p, const Expr& l) { return At(0, Add(FloorMod(Sub(l, I(7)), 8), I(9))); },
      [](const Expr& p, const Expr& l) { return Select(Lt(p, I(2)), At(0, Mad(p, 12, l)), F(-1)); },
      [](const Expr& p, const Expr& l) { return Select(Lt(Mad(p, 12, l), I(29)), At(0, Mad(p, 12, l)), F(-1)); },
      [](const Expr& p, const Expr& l) {  // padding on both sides
        const Expr x = Sub(Mad(p, 12, l), I(5));
        return Select(And(Le(I(0), x), Lt(x, I(20))), At(0, x), F(0));
      },
      [](const Expr& p, const Expr& l) {
        const Expr x = Mad(p, 12, l);
        return Add(Select(Or(Lt(x, I(3)), Not(Lt(x, I(30)))), At(0, l), F(7)), Select(Eq(l, p), F(1), F(2)));
      },
      [](const Expr& p, const Expr& l) {  // leaky relu
        const Expr x = At(0, Mad(p, 12, l));
        return Select(Lt(F(0), x), x, Mul(x, F(0.125)));
      },
      [](const Expr& p, const Expr& l) {  // branches with own loads
        const Expr x = At(0, Mad(p, 12, l));
        return Select(And(Lt(F(0), x), Lt(x, F(2))), At(2, Mad(p, 12, l)), At(0, l));
      },
      [](const Expr& p, const Expr& l) { return Min(Max(At(0, l), At(2, p)), F(1.5)); },
      [](const Expr& p, const Expr& l) { return Div(At(0, l), Add(Mul(At(2, l), At(2, l)), F(1))); },
      [](const Expr& p, const Expr& l) { return Cast(DType::kFloat32, Mad(p, 12, l)); },
      [](const Expr& p, const Expr& l) { return Select(Ne(At(0, l), F(0)), Cast(DType::kFloat32, Lt(p, l)), F(3)); },
      [](const Expr& p, const Expr& l) { return Sub(At(0, l), Sub(At(2, l), Sub(F(1), At(0, Mad(l, 2, p))))); },
      [](const Expr& p, const Expr& l) { return F(-0.1); },
  };
  std::vector<KernelFunc> kernels;
  for (const Value& value : values) kernels.push_back(LaneKernel(value));
  ExpectSameAsReference(kernels);
}

TEST(CPrinter, FunctionsOfLanesAreCorrect) {
  const Expr guard = F(5);
  std::vector<KernelFunc> kernels;
  for (const char* function :
       {"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "round"}) {
    kernels.push_back(
        LaneKernel([&](const Expr& p, const Expr& l) { return Call(function, {Add(At(0, Mad(p, 12, l)), guard)}); }));
  }
  kernels.push_back(LaneKernel([&](const Expr& p, const Expr& l) {
    return Call("pow", {Add(At(0, l), guard), At(2, p)});
  }));
  ExpectSameAsReference(kernels, 1e-5);
}

TEST(CPrinter, VectorFunctionsAreAccurateOverTheirWholeRange) {
  constexpr int64_t kCount = 1 << 16;
  const Expr v = MakeVar("v"), l = MakeVar("l"), at = Mad(v, 16, l);
  LoweredProgram program;
  const std::vector<std::string> functions = {"exp", "sigmoid", "tanh", "erf"};
  for (const std::string& function : functions) {
    program.kernels.push_back(KernelOf(
        "f_" + function, {Global(0, "X", kCount), Global(1, "Y", kCount, true)},
        MakeFor(ForKind::kParallel, v, kCount / 16, Vectorize(l, 16, MakeStore(1, at, Call(function, {At(0, at)})))),
        kCount / 16));
  }
  Program compiled;
  compiled.source = PrintSource(program, compiled.target);
  ASSERT_TRUE(CompileSource(compiled, 60).ok());
  const Loaded library(compiled);
  std::vector<float> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i - kCount / 2) / 256;  // -128 to 128
  x[0] = INFINITY;
  x[1] = -INFINITY;
  x[2] = NAN;
  x[3] = 1e-20f;
  void* args[] = {x.data(), y.data()};
  for (const std::string& function : functions) {
    library.Find("f_" + function)(args, 0, kCount / 16);
    EXPECT_TRUE(std::isnan(y[2])) << function;
    for (int64_t i = 0; i < kCount; ++i) {
      if (i == 2) continue;
      const double exact = function == "exp"    ? std::exp(double{x[i]})
                           : function == "tanh" ? std::tanh(double{x[i]})
                           : function == "erf"  ? std::erf(double{x[i]})
                                                : 1 / (1 + std::exp(-double{x[i]}));
      const float rounded = static_cast<float>(exact);
      if (std::isinf(rounded))
        ASSERT_EQ(y[i], rounded) << function << " " << x[i];
      else
        ASSERT_NEAR(y[i], exact, 4e-7 * std::fabs(exact) + (function == "exp" ? 2e-45 : 2e-38))
            << function << " " << x[i];
    }
  }
}

TEST(CPrinter, EveryElementTypeIsReadAndWritten) {
  const DType types[] = {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt32,
                         DType::kInt64,   DType::kBool,    DType::kInt8,    DType::kUint8};
  std::vector<KernelFunc> kernels;
  for (DType from : types) {
    for (DType to : types) {
      if (to == DType::kUint8 && from != DType::kUint8 && from != DType::kBool) continue;  // negative numbers
      kernels.push_back(
          LaneKernel([&](const Expr& p, const Expr& l) { return Cast(to, At(0, Mad(p, 12, l), from)); }, from, to));
    }
  }
  ExpectSameAsReference(kernels);
  ExpectSameAsReference(kernels, 1e-6, "x86-64");
}

// One instruction for the lanes, at any address.
TEST(CPrinter, BytesAreWidenedByVectors) {
  std::vector<KernelFunc> kernels;
  for (DType from : {DType::kInt8, DType::kUint8}) {
    for (DType to : {DType::kInt32, DType::kFloat32}) {
      for (int64_t lanes : {16, 8, 4, 2}) {
        const Expr p = MakeVar("p"), l = MakeVar("l");
        const Expr at = Mad(p, lanes, l), x = Cast(to, At(0, Add(at, I(3)), from));
        const Stmt body = Serial(p, 3, Vectorize(l, lanes, MakeStore(1, at, Mul(x, x))));
        kernels.push_back(KernelOf("widen", {Global(0, "X", 64, false, from), Global(1, "Y", 48, true, to)}, body));
      }
    }
  }
  ExpectSameAsReference(kernels);
  ExpectSameAsReference(kernels, 1e-6, "x86-64");
  ExpectSameAsReference(kernels, 1e-6, "x86-64-v3");
  const std::string source = SourceOf(kernels[0], 64);
  EXPECT_NE(source.find("i8x16_load(X + p * 16 + 3)"), std::string::npos) << source;
}

// Lanes of 8 bits as they are stored: of numbers and integers, of what is chosen, and copied as they are.
TEST(CPrinter, BytesAreNarrowedAndCopiedByVectors) {
  using Value = std::function<Expr(const Expr& at, DType to)>;
  const auto loaded = [](const Expr& at, DType type) { return At(type == DType::kInt8 ? 2 : 3, Add(at, I(1)), type); };
  const Value values[] = {
      [](const Expr& at, DType to) {  // requantised
        const Expr x = Call("round", {Mul(At(0, at), F(10.25))});
        const bool is_signed = to == DType::kInt8;
        return Cast(to, Min(Max(Add(x, F(3)), F(is_signed ? -128 : 0)), F(is_signed ? 127 : 255)));
      },
      [](const Expr& at, DType to) {
        return Cast(to, Mul(Max(At(4, at, DType::kInt32), IntImm(0, DType::kInt32)), IntImm(7, DType::kInt32)));
      },
      [&](const Expr& at, DType to) { return loaded(at, to); },
      [&](const Expr& at, DType to) {
        const Expr x = loaded(at, DType::kInt8);
        return Cast(to, to == DType::kInt8 ? x : Max(x, IntImm(0, DType::kInt8)));
      },
      [&](const Expr& at, DType to) { return Cast(to, loaded(at, DType::kUint8)); },
      [&](const Expr& at, DType to) {  // padding
        return Select(Lt(FloorDiv(at, 16), I(2)), loaded(at, to), IntImm(7, to));
      },
      [&](const Expr& at, DType to) {
        return Max(loaded(at, to), Min(At(to == DType::kInt8 ? 2 : 3, at, to), IntImm(9, to)));
      },
      [&](const Expr& at, DType to) {  // what was narrowed is widened again
        const Expr narrow = Cast(to, Call("floor", {Max(At(0, at), F(0))}));
        return Cast(to, Mul(Add(Cast(DType::kFloat32, narrow), F(2)), F(0.5)));
      },
  };
  std::vector<KernelFunc> kernels;
  for (const Value& value : values) {
    for (DType to : {DType::kInt8, DType::kUint8}) {
      for (int64_t lanes : {32, 16, 8, 4, 2}) {
        const Expr p = MakeVar("p"), l = MakeVar("l"), at = Mad(p, lanes, l);
        const std::vector<BufferDecl> params = {
            Global(0, "X", 64), Global(1, "Y", 64, true, to), Global(2, "S", 80, false, DType::kInt8),
            Global(3, "U", 80, false, DType::kUint8), Global(4, "I", 64, false, DType::kInt32)};
        kernels.push_back(
            KernelOf("narrow", params, Serial(p, 48 / lanes, Vectorize(l, lanes, MakeStore(1, at, value(at, to))))));
      }
    }
  }
  ExpectSameAsReference(kernels);
  ExpectSameAsReference(kernels, 1e-6, "x86-64");
  ExpectSameAsReference(kernels, 1e-6, "x86-64-v3");
  EXPECT_NE(SourceOf(kernels[2], 32).find("bytes8_store("), std::string::npos);
  EXPECT_NE(SourceOf(kernels[20], 32).find("memcpy(Y, S + 1, 32)"), std::string::npos) << SourceOf(kernels[20], 32);
}

class CPrinterOf : public ::testing::TestWithParam<DType> {};

TEST_P(CPrinterOf, ConversionIsExactOnAllBits) {
  const Expr v = MakeVar("v"), l = MakeVar("l"), at = Mad(v, 16, l);
  const KernelFunc kernel = KernelOf(
      "widen",
      {Global(0, "X", 65536, false, GetParam()), Global(1, "Y", 65536, true, GetParam()), Global(2, "Z", 65536, true)},
      MakeFor(
          ForKind::kParallel, v, 4096,
          Vectorize(l, 16,
                    MakeSeq({MakeStore(2, at, At(0, at, GetParam())), MakeStore(1, at, Cast(GetParam(), At(2, at)))}))),
      4096);
  for (const char* mcpu : {"native", "x86-64"}) {
    Target target;
    target.mcpu = mcpu;
    const absl::StatusOr<Program> program = CompileProgram(ProgramOf(kernel), target);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<uint16_t> halves(65536), back(65536);
    std::vector<float> floats(65536);
    for (int i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
    void* args[] = {halves.data(), back.data(), floats.data()};
    const Loaded library(*program);
    library.Find("widen")(args, 0, 4096);
    for (int i = 0; i < 65536; ++i) {
      if (std::isnan(NarrowToFloat(GetParam(), halves[i]))) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
        continue;
      }
      ASSERT_EQ(floats[i], NarrowToFloat(GetParam(), halves[i])) << i;
      ASSERT_EQ(back[i], halves[i]) << i;
    }
  }
}

TEST_P(CPrinterOf, FloatsRoundToTheNearest) {
  const Expr v = MakeVar("v"), l = MakeVar("l"), at = Mad(v, 16, l);
  const KernelFunc kernel = KernelOf(
      "narrow", {Global(0, "X", 1 << 16), Global(1, "Y", 1 << 16, true, GetParam())},
      MakeFor(ForKind::kParallel, v, 4096, Vectorize(l, 16, MakeStore(1, at, Cast(GetParam(), At(0, at))))), 4096);
  std::mt19937 random(3);
  std::vector<float> floats(1 << 16);
  for (float& f : floats) {  // all exponents, and many ties
    const uint32_t bits = random() & (random() % 2 ? 0xffffffffu : 0xfffff000u);
    f = std::bit_cast<float>(bits);
  }
  for (const char* mcpu : {"native", "x86-64"}) {
    Target target;
    target.mcpu = mcpu;
    const absl::StatusOr<Program> program = CompileProgram(ProgramOf(kernel), target);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<uint16_t> halves(1 << 16);
    void* args[] = {floats.data(), halves.data()};
    const Loaded library(*program);
    library.Find("narrow")(args, 0, 4096);
    for (int i = 0; i < 1 << 16; ++i) {
      if (std::isnan(floats[i]))
        ASSERT_TRUE(std::isnan(NarrowToFloat(GetParam(), halves[i])));
      else
        ASSERT_EQ(halves[i], FloatToNarrow(GetParam(), floats[i])) << floats[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(NarrowFloats, CPrinterOf, ::testing::Values(DType::kFloat16, DType::kBfloat16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(CPrinter, LocalBuffersOfEveryKindAreCorrect) {
  std::vector<KernelFunc> kernels;
  const Expr p = MakeVar("p"), i = MakeVar("i"), l = MakeVar("l"), k = MakeVar("k");
  auto kernel = [&](int64_t elements, Stmt body) {
    return KernelOf(
        "local", {Global(0, "X", 4096), Global(1, "Y", 4096, true)},
        MakeFor(ForKind::kParallel, p, 4, MakeAlloc(Scoped(9, "tile", elements, Scope::kLocal), std::move(body))), 4);
  };
  // Vectors written, single elements read, and the reverse.
  kernels.push_back(
      kernel(32, MakeSeq({Unroll(i, 2, Vectorize(l, 16, MakeStore(9, Mad(i, 16, l), At(0, Mad(p, 32, Mad(i, 16, l)))))),
                          Unroll(i, 32, MakeStore(1, Mad(p, 32, i), At(9, Sub(I(31), i))))})));
  kernels.push_back(kernel(32, MakeSeq({Unroll(i, 32, MakeStore(9, i, At(0, Mad(p, 32, i)))),
                                        Vectorize(l, 8, MakeStore(1, Mad(p, 32, l), At(9, Mad(l, 2, I(3)))))})));
  // Not constant: an array. Too large for the stack: allocated.
  for (int64_t elements : {64, 1 << 20}) {
    kernels.push_back(kernel(
        elements,
        MakeSeq(
            {Serial(k, 64, MakeStore(9, k, At(0, Mad(p, 64, k)))),
             Serial(k, 4,
                    Vectorize(l, 16, MakeStore(1, Mad(p, 64, Mad(k, 16, l)), At(9, Sub(I(63), Mad(k, 16, l))))))})));
  }
  // Overlapping vectors of different lengths.
  kernels.push_back(kernel(20, MakeSeq({Vectorize(l, 16, MakeStore(9, l, At(0, Mad(p, 16, l)))),
                                        Vectorize(i, 4, MakeStore(9, Add(i, I(14)), F(5))),
                                        Vectorize(k, 16, MakeStore(1, Mad(p, 16, k), At(9, k)))})));
  // A sum over lanes, and a store that falls back to single lanes of vector variables.
  kernels.push_back(kernel(
      17,
      MakeSeq(
          {MakeStore(9, I(16), F(0)), Vectorize(l, 16, MakeStore(9, l, At(0, Mad(p, 16, l)))),
           Vectorize(i, 16, MakeStore(9, I(16), Add(At(9, I(16)), At(9, i)))),
           Vectorize(k, 16, MakeIf(Lt(Add(k, p), I(10)), MakeStore(1, Mad(p, 16, k), Mul(At(9, k), At(9, I(16))))))})));
  ExpectSameAsReference(kernels);
}

TEST(CPrinter, ConditionsAndLetsInVectorLoops) {
  std::vector<KernelFunc> kernels;
  const Expr p = MakeVar("p"), l = MakeVar("l"), x = MakeVar("x"), k = MakeVar("k");
  auto kernel = [&](Stmt body) {
    return KernelOf("conditions", {Global(0, "X", 400), Global(1, "Y", 400, true)}, Serial(p, 5, std::move(body)));
  };
  const Expr at = Mad(p, 16, l);
  const Stmt copy = MakeStore(1, at, At(0, at));
  kernels.push_back(kernel(Vectorize(l, 16, MakeIf(Lt(at, I(71)), copy))));
  kernels.push_back(kernel(Vectorize(l, 16, MakeIf(And(Lt(at, I(64)), Le(I(3), p)), copy))));
  kernels.push_back(kernel(Vectorize(l, 16, MakeIf(Eq(FloorMod(l, 3), I(1)), copy))));
  kernels.push_back(kernel(Vectorize(l, 16, MakeIf(Lt(F(0), At(0, at)), copy))));
  kernels.push_back(kernel(Vectorize(l, 16, MakeLet(x, Mad(l, 2, p), MakeStore(1, at, At(0, x))))));
  kernels.push_back(kernel(MakeLet(x, FloorDiv(p, 2), Vectorize(l, 16, MakeStore(1, at, At(0, Mad(x, 16, l)))))));
  kernels.push_back(kernel(Vectorize(l, 16, Serial(k, 3, MakeStore(1, at, Add(At(1, at), At(0, Mad(k, 16, l))))))));
  kernels.push_back(
      kernel(Vectorize(k, 3, Vectorize(l, 16, MakeStore(1, Mad(p, 48, Mad(k, 16, l)), At(0, Mad(k, 16, l)))))));
  kernels.push_back(
      kernel(Vectorize(l, 16,
                       MakeAlloc(Scoped(9, "t", 1, Scope::kLocal),
                                 MakeSeq({MakeStore(9, I(0), At(0, at)), MakeStore(1, at, At(9, I(0)))})))));
  ExpectSameAsReference(kernels);
}

TEST(CPrinter, AVariableHasTheRangesOfAllPlacesThatBindIt) {
  const Expr i = MakeVar("i"), s = MakeVar("s"), k = MakeVar("k");
  const auto at = [&](int64_t first) {
    return MakeStore(1, Add(k, I(first)),
                     At(0, Mad(Add(FloorDiv(Sub(k, I(1)), 3), I(1)), 16, FloorMod(Sub(k, I(1)), 3))));
  };
  const Stmt start = Serial(i, 4, MakeLet(k, i, at(0)), 1),
             steps = Serial(s, 9, MakeLet(k, Min(Add(s, I(4)), I(8)), at(16)), 1);
  ExpectSameAsReference(
      KernelOf("two_places", {Global(0, "X", 80), Global(1, "Y", 32, true)}, MakeSeq({start, steps})));
}

TEST(CPrinter, ConditionsThatAllLanesShareCostNothingPerLane) {
  const Expr p = MakeVar("p"), l = MakeVar("l");
  const Expr at = Mad(p, 16, l);
  const KernelFunc kernel =
      KernelOf("tail", {Global(0, "X", 400), Global(1, "Y", 400, true)},
               Serial(p, 25, Vectorize(l, 16, MakeIf(Lt(at, I(320)), MakeStore(1, at, At(0, at))))));
  EXPECT_EQ(SourceOf(kernel, 64).find("for (int64 l"), std::string::npos) << SourceOf(kernel, 64);
  ExpectSameAsReference(kernel);
}

TEST(CPrinter, NamesThatAreWordsOfTheLanguageOrTakenAreChanged) {
  const Expr a = MakeVar("for"), b = MakeVar("x"), c = MakeVar("x"), d = MakeVar("args");
  const Expr at = Mad(Mad(Mad(a, 2, b), 2, c), 2, d);
  const KernelFunc kernel =
      KernelOf("names", {Global(0, "int", 16), Global(1, "x", 16, true)},
               Serial(a, 2, Serial(b, 2, Serial(c, 2, Serial(d, 2, MakeStore(1, at, At(0, at)))))));
  ExpectSameAsReference(kernel);
}

TEST(CPrinter, LoopsTooLongToUnrollStayLoops) {
  const Expr i = MakeVar("i"), j = MakeVar("j");
  const Expr at = Mad(i, 100, j);
  const KernelFunc kernel = KernelOf("unrolled", {Global(0, "X", 10000), Global(1, "Y", 10000, true)},
                                     Unroll(i, 100, Unroll(j, 100, MakeStore(1, at, At(0, at)))));
  EXPECT_LT(SourceOf(kernel, 64).size(), 20000u);
  ExpectSameAsReference(kernel);
}

// Integers have no vectors: each lane is a statement.
TEST(CPrinter, CopiesThatAreTooMuchTextStayLoops) {
  const Expr r = MakeVar("r"), i = MakeVar("i"), l = MakeVar("l");
  const DType type = DType::kInt64;
  const Expr at = Mad(i, 8, l), chosen = Select(Eq(At(0, r, type), at), r, I(0));
  const Stmt body = MakeStore(1, at, Add(At(1, at, type), chosen));
  const KernelFunc kernel = KernelOf("chosen", {Global(0, "X", 200, false, type), Global(1, "Y", 40, true, type)},
                                     Unroll(r, 200, Unroll(i, 5, Vectorize(l, 8, body))));
  EXPECT_LT(SourceOf(kernel, 64).size(), 100000u);
  ExpectSameAsReference(kernel);
}

TEST(CPrinter, InfinitiesAndNanArePrinted) {
  const Expr l = MakeVar("l");
  const KernelFunc kernel = KernelOf("infinite", {Global(0, "X", 16), Global(1, "Y", 16, true)},
                                     Vectorize(l, 16, MakeStore(1, l, Min(Max(At(0, l), F(-INFINITY)), F(INFINITY)))));
  ExpectSameAsReference(kernel);
}

// Random nests: tiles of random extents over random affine accesses with random conditions.
class RandomNest {
 public:
  explicit RandomNest(int seed) : random_(seed) {}

  KernelFunc Make() {
    const Expr p = MakeVar("p");
    vars_ = {{p, 3}};
    Stmt body = Nest(Pick(1, 3));
    std::vector<BufferDecl> params = {Global(0, "X", 4000), Global(1, "Y", kElements, true)};
    return KernelOf("nest", params, MakeFor(ForKind::kParallel, p, 3, body), 3);
  }

 private:
  static constexpr int64_t kElements = 3 * 20 * 20 * 20;
  int64_t Pick(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_() % (high - low + 1)); }

  Stmt Nest(int depth) {
    if (depth == 0) return MakeStore(1, Target(), Value(3));
    static constexpr ForKind kKinds[] = {ForKind::kSerial, ForKind::kUnroll, ForKind::kVectorize};
    const ForKind kind = depth == 1 ? ForKind::kVectorize : kKinds[Pick(0, 2)];
    const int64_t extents[] = {1, 2, 3, 7, 8, 12, 16, 20};
    const Expr var = MakeVar("i" + std::to_string(depth));
    vars_.emplace_back(var, extents[Pick(0, kind == ForKind::kUnroll ? 3 : 7)]);
    const int64_t extent = vars_.back().second;
    Stmt body = Nest(depth - 1);
    if (Pick(0, 3) == 0) body = MakeIf(Condition(), body);
    vars_.pop_back();
    return MakeFor(kind, var, extent, body);
  }

  Expr Target() {  // every iteration its own element
    Expr at = I(0);
    for (const auto& [var, extent] : vars_) at = Mad(at, 20, var);
    return at;
  }
  Expr Index() {
    Expr sum = I(Pick(0, 9));
    for (const auto& [var, extent] : vars_) {
      const int64_t coefficients[] = {0, 1, 1, 2, 16};
      Expr term = Mul(var, I(coefficients[Pick(0, 4)]));
      if (Pick(0, 5) == 0) term = FloorDiv(term, Pick(2, 5));
      if (Pick(0, 5) == 0) term = FloorMod(term, Pick(2, 9));
      sum = Add(sum, term);
    }
    return sum;
  }
  Expr Condition() {
    Expr c = Pick(0, 1) == 0 ? Lt(Index(), I(Pick(5, 60))) : Le(I(Pick(5, 30)), Index());
    return Pick(0, 3) == 0 ? And(c, Lt(Index(), I(Pick(5, 60)))) : Pick(0, 5) == 0 ? Not(c) : c;
  }
  Expr Value(int depth) {
    if (depth == 0) return Pick(0, 3) == 0 ? F(Pick(-4, 4) / 2.0) : At(0, Index());
    switch (Pick(0, 6)) {
      case 0: return Add(Value(depth - 1), Value(depth - 1));
      case 1: return Sub(Value(depth - 1), Value(depth - 1));
      case 2: return Mul(Value(depth - 1), F(Pick(-2, 2)));
      case 3: return Max(Value(depth - 1), Value(depth - 1));
      case 4: return Select(Condition(), Value(depth - 1), Value(depth - 1));
      case 5: return Select(Lt(Value(depth - 1), Value(0)), Value(depth - 1), F(1));
      default: return Min(Value(depth - 1), F(2));
    }
  }

  std::mt19937 random_;
  std::vector<std::pair<Expr, int64_t>> vars_;
};

TEST(CPrinter, RandomNestsGiveWhatTheReferenceGives) {
  for (int round = 0; round < 4 && !HasFailure(); ++round) {
    std::vector<KernelFunc> kernels;
    for (int seed = 0; seed < 20; ++seed) kernels.push_back(RandomNest(20 * round + seed).Make());
    ExpectSameAsReference(kernels);
  }
}

#if defined(__x86_64__)
TEST(CPrinter, NamedProcessorsGetCorrectCode) {
  for (const char* mcpu : {"haswell", "skylake-avx512", "znver3"}) {
    Target target;
    target.mcpu = mcpu;
    const absl::Status here = CheckRunsHere(target);
    if (here.ok()) {
      ExpectSameAsReference(MicroKernel(2, 3, 2, 16, 5), 1e-6, mcpu);
      ExpectSameAsReference(MicroKernel(4, 4, 1, 24, 7), 1e-6, mcpu);
      ExpectSameAsReference(ReluKernel(), 1e-6, mcpu);
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(here)) << here;  // it compiles all the same
    Program compiled;
    compiled.target = target;
    compiled.source = CPrelude() + SourceOf(MicroKernel(2, 3, 2, 16, 5), DefaultFacts(target).vector_bytes);
    EXPECT_EQ(CompileSource(compiled, 60), absl::OkStatus());
  }
}

// Under qemu, which Debian's qemu-user has, with the compiler of gcc-aarch64-linux-gnu.
TEST(CPrinter, KernelsForArmAreCorrect) {
  const Target target = Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1").value();
  if (!FeaturesOf(target).ok() || !RunProgram({.args = {"qemu-aarch64", "--version"}}).ok())
    GTEST_SKIP() << "gcc-aarch64-linux-gnu and qemu-user are not installed";
  const auto functions = [](const Expr& p, const Expr& l) {
    const Expr x = At(0, Mad(p, 12, l));
    return Add(Call("exp", {x}), Max(Call("tanh", {x}), Min(x, F(0.5))));
  };
  const auto halves = [](const Expr& p, const Expr& l) { return At(0, Mad(p, 12, l), DType::kFloat16); };
  const auto bytes = [](const Expr& p, const Expr& l) {
    const Expr x = Cast(DType::kInt32, At(0, Mad(p, 12, l), DType::kInt8));
    return Mul(x, x);
  };
  RunUnderQemu({ReluKernel(), MicroKernel(2, 3, 2, 16, 5), MicroKernel(4, 4, 1, 24, 7), MicroKernel(2, 3, 2, 64, 5),
                UnevenTile(4, 14), LaneKernel(functions), LaneKernel(halves, DType::kFloat16),
                LaneKernel(bytes, DType::kInt8, DType::kInt32)},
               target);
}
#endif

}  // namespace
}  // namespace diapason
