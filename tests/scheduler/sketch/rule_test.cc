// Rules of users.
#include "scheduler/sketch/rule.h"

#include <gtest/gtest.h>

#include <thread>

#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/schedule/state.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"
#include "tests/scheduler/sketch/execute.h"

namespace diapason {
namespace {

// Computes a product as it stands: its first axis over the threads, everything else as written.
class SimpleRule : public SketchRule {
 public:
  explicit SimpleRule(std::string part) : part_(std::move(part)) {}
  std::string name() const override { return part_; }
  Answer Condition(const Draft& draft, int stage) const override {
    return NeedsTiling(draft.state(), stage) && !IsBound(draft.state(), stage) ? Answer::kApplyAndSkipRest
                                                                               : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    next.Name(part_);
    next.Annotate(stage, SpatialAxes(next.state(), stage).front(), Annotation::kParallel);
    std::vector<Derived> derived;
    derived.push_back({std::move(next), false});
    return derived;
  }

 private:
  const std::string part_;
};

SketchRuleMaker MakeSimpleRule(const std::string& part) {
  return [part](const Target& target) -> std::unique_ptr<SketchRule> {
    return target.is_gpu() ? nullptr : std::make_unique<SimpleRule>(part);
  };
}

// Of a convolution, one sketch a rewrite.
std::vector<std::string> Both(const std::string& part) { return {"direct/" + part, "gemm/" + part}; }

class UserRulesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    UnregisterSketchRule("first");
    UnregisterSketchRule("second");
  }
  std::vector<std::string> Names(const std::string& target_text = "cpu -num-cores=2") const {
    const Target target = Target::Parse(target_text).value();
    const auto spaces = TaskSpace::Create(dag_, target, DefaultFacts(target));
    std::vector<std::string> names;
    for (int i = 0; i < (*spaces)->size(); ++i) names.push_back((*spaces)->space(i).name());
    return names;
  }
  const ComputeDag dag_ = testing::Convolution({.height = 9, .width = 7, .in = 12, .out = 24, .stride = 2});
};

TEST_F(UserRulesTest, GoInFrontOfTheBuiltInOnes) {
  const std::vector<std::string> before = Names(), on_gpu = Names("cuda -arch=sm_90");
  RegisterSketchRule("first", MakeSimpleRule("mine"));
  EXPECT_EQ(Names(), Both("mine"));
  EXPECT_EQ(Names("cuda -arch=sm_90"), on_gpu);  // where it offers nothing
  RegisterSketchRule("second", MakeSimpleRule("late"));
  EXPECT_EQ(Names(), Both("mine"));
  RegisterSketchRule("first", MakeSimpleRule("renewed"));
  EXPECT_EQ(Names(), Both("renewed"));
  EXPECT_TRUE(UnregisterSketchRule("first"));
  EXPECT_FALSE(UnregisterSketchRule("first"));
  EXPECT_EQ(Names(), Both("late"));
  EXPECT_TRUE(UnregisterSketchRule("second"));
  EXPECT_EQ(Names(), before);
}

// Splits a loop that is not there.
class Wrong : public SketchRule {
 public:
  std::string name() const override { return "wrong"; }
  Answer Condition(const Draft& draft, int stage) const override {
    return NeedsTiling(draft.state(), stage) ? Answer::kApplyAndSkipRest : Answer::kSkip;
  }
  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    Draft next = draft;
    const std::vector<int> pieces = next.Split(stage, 99, {Factor::Of(4)});
    next.Annotate(stage, pieces[1], Annotation::kVectorize);
    next.Fuse(stage, {pieces[0], pieces[1]});
    std::vector<Derived> derived;
    derived.push_back({std::move(next), false});
    return derived;
  }
};

TEST_F(UserRulesTest, AStepThatDoesNotApplyIsAnError) {
  RegisterSketchRule("first", [](const Target&) { return std::make_unique<Wrong>(); });
  const Target target = Target::Parse("cpu -num-cores=2").value();
  const absl::Status status = TaskSpace::Create(dag_, target, DefaultFacts(target)).status();
  EXPECT_EQ(status,
            absl::InvalidArgumentError("sketch rule 'wrong' takes a step that does not apply (step " +
                                       ToString(Step{StepKind::kSplit, 4, {99}, {Factor::Of(4)}, -1, {}}) +
                                       ": stage conv: there is no loop 99): correct the rule, or leave it out"));
}

// What a record keeps needs the compiler only.
TEST_F(UserRulesTest, TheirSchedulesReplayWithoutThem) {
  auto device = OpenDevice(Target::Parse("cpu").value());
  ASSERT_TRUE(device.ok());
  const Target target = Target::Parse("cpu").value();
  RegisterSketchRule("first", MakeSimpleRule("mine"));
  std::string stored;
  {
    const auto spaces = TaskSpace::Create(dag_, target, (*device)->facts());
    ASSERT_TRUE(spaces.ok()) << spaces.status();
    const Space& space = (*spaces)->space(0);
    ASSERT_EQ(space.name(), "direct/mine");
    stored = SerializeSchedule(space.Instantiate(space.Default()));
  }
  ASSERT_TRUE(UnregisterSketchRule("first"));

  const auto schedule = ParseSchedule(stored);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_FALSE(schedule->steps.empty());
  const auto state = Replay(ApplyRewrite(dag_, schedule->rewrite).value(), schedule->steps);
  ASSERT_TRUE(state.ok()) << state.status();
  const auto lowered = Lower(dag_, *schedule, target, (*device)->facts());
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const auto program = CompileProgram(*lowered, target);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(testing::CompareOnDevice(**device, *program, dag_, testing::MakeReference(dag_, 3)), "");
}

TEST_F(UserRulesTest, MayBeRegisteredWhileSpacesAreMade) {
  const std::vector<std::string> without = Names();
  std::thread other([] {
    for (int i = 0; i < 200; ++i) {
      RegisterSketchRule("first", MakeSimpleRule("mine"));
      UnregisterSketchRule("first");
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::string> names = Names();
    EXPECT_TRUE(names == without || names == Both("mine"));
  }
  other.join();
}

}  // namespace
}  // namespace diapason
