// Every kind of task, random candidates of every sketch: what the lowered program computes is what the dag says.
// DIAPASON_CANDIDATES sets how many candidates of each sketch are run (default 2; before a release: 200).
#include "tests/scheduler/sketch/execute.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason {
namespace {

int CandidatesPerSketch() {
  const char* text = std::getenv("DIAPASON_CANDIDATES");
  return text ? std::atoi(text) : 2;
}

class ExecuteTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ExecuteTest, RandomCandidatesComputeTheDag) {
  const Target target = Target::Parse(GetParam()).value();
  auto device = OpenDevice(target);
  if (!device.ok() && target.kind == TargetKind::kCuda) GTEST_SKIP() << device.status().message();
  ASSERT_TRUE(device.ok()) << device.status();
  const DeviceFacts facts = (*device)->facts();
  for (const auto& [name, dag] : testing::AllKinds()) {
    const testing::Reference reference = testing::MakeReference(dag, 5);
    const auto task = TaskSpace::Create(dag, target, facts);
    ASSERT_TRUE(task.ok()) << name << ": " << task.status();
    for (int i = 0; i < (*task)->size(); ++i) {
      const Space& space = (*task)->space(i);
      std::mt19937 random(11);
      std::vector<int32_t> decisions = space.Default(), values;
      for (int n = 0; n < CandidatesPerSketch(); ++n) {
        for (int h = 0; n > 0 && h < space.size(); ++h) {
          space.Domain(h, decisions, &values);
          decisions[h] = values[random() % values.size()];
        }
        const std::string what = absl::StrCat(name, " ", space.name(), " candidate ", n);
        const auto lowered = Lower(dag, space.Instantiate(decisions), target, facts);
        ASSERT_TRUE(lowered.ok()) << what << ": " << lowered.status();
        const auto program = CompileProgram(*lowered, target);
        ASSERT_TRUE(program.ok()) << what << ": " << program.status() << "\n" << PrintSource(*lowered, target);
        const std::string wrong = testing::CompareOnDevice(**device, *program, dag, reference);
        EXPECT_EQ(wrong, "") << what << "\n" << program->source;
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ExecuteTest, ::testing::Values("cpu", "opencl", "cuda"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(' ')); });

}  // namespace
}  // namespace diapason
