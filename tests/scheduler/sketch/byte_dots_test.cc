// Products of 8-bit integers on processors as dot products of four bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

using ::testing::_;
using ::testing::Each;
using ::testing::Pair;

// Whether the default candidate of each sketch is made of dot products.
std::map<std::string, bool> DotsOfSketches(const ComputeDag& dag) {
  const Target target = Target::Parse("cpu -mcpu=x86-64-v3 -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  const auto task = TaskSpace::Create(dag, target, facts).value();
  std::map<std::string, bool> dots;
  for (int s = 0; s < task->size(); ++s) {
    const Space& space = task->space(s);
    const std::string source =
        PrintSource(Lower(dag, space.Instantiate(space.Default()), target, facts).value(), target);
    dots[space.name()] = source.find("_u8i8(") != std::string::npos;
  }
  return dots;
}

TEST(ByteDots, AreWhatAllSketchesOfQuantisedProductsUse) {
  for (const ComputeDag& dag : {testing::MatMulOfBytes(33, 40, 96), testing::MatMulOfBytes(33, 40, 96, true),
                                testing::Convolution({14, 14, 32, 24, 3, 1, 1, 1, DType::kUint8})})
    EXPECT_THAT(DotsOfSketches(dag), Each(Pair(_, true)));
}

TEST(ByteDots, NeedGroupsOfFourAlongTheReduction) {
  EXPECT_THAT(DotsOfSketches(testing::MatMulOfBytes(33, 40, 75)), Each(Pair(_, false)));
}

#ifdef __x86_64__
// GCC kept sums that assembly changes in memory: each of them was read and written by each step.
TEST(ByteDots, KeepTheirSumsInRegisters) {
  const Target target = Target::Parse("cpu -mcpu=icelake-server -num-cores=2").value();
  const DeviceFacts facts = DefaultFacts(target);
  const ComputeDag dag = testing::MatMulOfBytes(128, 768, 768);
  const auto program =
      CompileProgram(Lower(dag, DefaultSchedule(dag, target, facts).value(), target, facts).value(), target);
  ASSERT_TRUE(program.ok()) << program.status();
  const std::filesystem::path object = std::filesystem::path(::testing::TempDir()) / "byte_dots.so";
  std::ofstream(object, std::ios::binary) << program->binary;
  ProgramOptions options;
  options.args = {"objdump", "-d", object};
  options.environment = CleanEnvironment();
  const auto disassembly = RunProgram(options);
  std::filesystem::remove(object);
  ASSERT_TRUE(disassembly.ok()) << disassembly.status();
  int products = 0, stored = 0;
  std::istringstream lines(disassembly->output);
  for (std::string line; std::getline(lines, line);) {
    products += line.find("vpdpbusd") != std::string::npos;
    stored += line.find("zmm") != std::string::npos && line.find("(%rsp)") != std::string::npos;
  }
  EXPECT_GT(products, 8);
  EXPECT_LT(stored, products / 2);
}
#endif

// Rows of im2col whose places change within a vector are gathered byte by byte, which takes longer than the products.
TEST(ByteDots, OfImagesWithFewChannelsReadThemInPlaceByDefault) {
  const Target target = Target::Parse("cpu -mcpu=x86-64-v3 -num-cores=2").value();
  const auto best = [&](const testing::ConvShape& shape) {
    const ComputeDag dag = testing::Convolution(shape);
    const auto task = TaskSpace::Create(dag, target, DefaultFacts(target)).value();
    std::map<std::string, double> seconds;  // of rewrites, their fastest sketch
    for (int s = 0; s < task->size(); ++s) {
      Metrics metrics;
      task->space(s).Evaluate(task->space(s).Default(), &metrics);
      const std::string rewrite = task->space(s).name().substr(0, task->space(s).name().find('/'));
      const auto [known, fresh] = seconds.emplace(rewrite, metrics.seconds);
      if (!fresh) known->second = std::min(known->second, metrics.seconds);
    }
    return seconds;
  };
  auto few = best({224, 224, 4, 64, 7, 2, 3, 1, DType::kUint8}),
       many = best({56, 56, 64, 64, 3, 1, 1, 1, DType::kUint8});
  EXPECT_LT(1.15 * few["direct"], few["gemm"]);    // measured on Zen 5 at this width: 1,010 and 1,351 us
  EXPECT_LT(many["gemm"], 1.25 * many["direct"]);  // whose rows are copied by vectors: 818 and 678 us
}

}  // namespace
}  // namespace diapason
