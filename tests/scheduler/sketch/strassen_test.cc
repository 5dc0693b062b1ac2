// Products in Strassen's way: which tasks are offered them, and how precise they are. numbers_test.cc and
// execute_test.cc go over their candidates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason {
namespace {

// Rewrites of the task's sketches.
std::set<std::string> RewritesOf(const TaskSpace& task) {
  std::set<std::string> rewrites;
  for (int i = 0; i < task.size(); ++i) rewrites.insert(task.space(i).name().substr(0, task.space(i).name().find('/')));
  return rewrites;
}

TEST(Strassen, IsOfferedWhereItPaysOnTheDevice) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  DeviceFacts facts = DefaultFacts(target);
  facts.flops = 67e12, facts.bandwidth = 4.8e12;
  auto rewrites = [&](int64_t size) {
    return RewritesOf(*TaskSpace::Create(testing::Product(size, size, size), target, facts).value());
  };
  EXPECT_EQ(rewrites(4096), (std::set<std::string>{"direct", "strassen(1)", "strassen(2)"}));
  EXPECT_EQ(rewrites(1024), (std::set<std::string>{"direct"}));
  facts.bandwidth *= 4;
  EXPECT_EQ(rewrites(1024), (std::set<std::string>{"direct", "strassen(1)", "strassen(2)"}));
}

// A user who wants plain products leaves it out; the rest of the space stays.
TEST(Strassen, MayBeLeftOut) {
  DeviceFacts facts = DefaultFacts(Target::Parse("cuda -arch=sm_90").value());
  facts.flops = 67e12, facts.bandwidth = 4.8e12;
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  auto sketches = [&](const std::vector<std::string>& without) {
    const auto task = TaskSpace::CreateWithout(testing::Product(4096, 4096, 4096), target, facts, without).value();
    std::set<std::string> names;
    for (int i = 0; i < task->size(); ++i) names.insert(task->space(i).name());
    return names;
  };
  std::set<std::string> all = sketches({});
  const std::set<std::string> plain = sketches({"strassen", "rows"});
  EXPECT_GT(std::erase_if(all, [](const std::string& name) { return name.rfind("strassen", 0) == 0; }), 0u);
  EXPECT_EQ(all, plain);
}

// Rows that are 0 stay 0 in other products, and a network may divide by their norms.
TEST(Strassen, IsNoDefault) {
  const Target target = Target::Parse("cpu").value();
  DeviceFacts facts = DefaultFacts(target);
  facts.bandwidth = 1e30;
  const auto task = TaskSpace::Create(testing::Product(2048, 2048, 2048), target, facts).value();
  double plain = INFINITY, mixed = INFINITY;
  for (int i = 0; i < task->size(); ++i) {
    Metrics metrics;
    task->space(i).Evaluate(task->space(i).Default(), &metrics);
    double& least = task->space(i).rewrite().name == "strassen" ? mixed : plain;
    least = std::min(least, metrics.seconds);
  }
  EXPECT_LT(mixed, plain) << "the estimate does not prefer it: the test shows nothing";
  EXPECT_NE(task->DefaultSchedule().rewrite.name, "strassen");
}

// One kernel each for the sums of the left and the right operand, the products and the result.
TEST(Strassen, TakesAKernelForSumsOfEachMatrix) {
  const Target target = Target::Parse("cuda -arch=sm_90").value();
  DeviceFacts facts = DefaultFacts(target);
  facts.bandwidth = 1e30;
  for (const auto& [dag, kernels] :
       {std::pair(testing::Product(256, 256, 256), 4), {testing::MatMul(256, 256, 256, true), 3}}) {
    const auto task = TaskSpace::Create(dag, target, facts).value();
    const Space& space = task->space(task->Find("strassen(2)/tile"));
    const auto lowered = Lower(dag, space.Instantiate(space.Default()), target, facts).value();
    EXPECT_EQ(static_cast<int>(lowered.kernels.size()), kernels);
    EXPECT_EQ(lowered.prologue.empty(), kernels == 4) << "sums of constants are made when the package is loaded";
  }
}

TEST(Strassen, IsNearlyAsPreciseAsPlainProducts) {
  constexpr int64_t kSize = 384;
  const Target target = Target::Parse("cpu").value();
  const auto device = OpenDevice(target).value();
  DeviceFacts facts = device->facts();
  facts.bandwidth = 1e30;
  const ComputeDag dag = testing::Product(kSize, kSize, kSize);
  const auto reference = testing::MakeReferenceOnDevice(*device, target, dag, 7).value();
  const Array &x = reference.inputs.at(0), &y = reference.inputs.at(1);
  std::vector<double> exact(kSize * kSize, 0);
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t k = 0; k < kSize; ++k)
      for (int64_t j = 0; j < kSize; ++j) exact[i * kSize + j] += x.at(i * kSize + k) * y.at(k * kSize + j);
  const auto task = TaskSpace::Create(dag, target, facts).value();
  auto error_of = [&](const std::string& rewrite) -> double {
    for (int s = 0; s < task->size(); ++s) {
      const Space& space = task->space(s);
      if (space.name().rfind(rewrite + "/", 0) != 0) continue;
      const auto program =
          CompileProgram(Lower(dag, space.Instantiate(space.Default()), target, facts).value(), target).value();
      const Array output = testing::RunOnDevice(*device, program, dag, reference.inputs).value().at(0);
      double error = 0;
      for (int64_t i = 0; i < kSize * kSize; ++i) error = std::max(error, std::abs(output.at(i) - exact[i]));
      return error;
    }
    ADD_FAILURE() << "no sketch of " << rewrite;
    return INFINITY;
  };
  const double plain = error_of("direct"), once = error_of("strassen(1)"), twice = error_of("strassen(2)");
  std::printf("largest error: %.2e plain, %.2e once, %.2e twice\n", plain, once, twice);
  EXPECT_LE(once, 3 * plain);
  EXPECT_LE(twice, 6 * plain);
}

}  // namespace
}  // namespace diapason
