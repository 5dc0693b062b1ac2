// What is computed where it is read.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "compiler/lower/lower.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/schedule/state.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

// y[i, c] = sum over t of x[place(i) + t, c], the place being as many additions long.
ComputeDag ReadAtPlaces(int additions, int64_t channels) {
  DagBuilder b;
  const int x = b.Placeholder("x", {64, channels});
  const int offsets = b.Placeholder("offsets", {32}, DType::kInt64);
  const int places = b.Compute("places", {32}, [&](const DagBuilder::Vars& i) {
    Expr place = IntImm(0);
    for (int k = 0; k < additions; ++k) place = Max(Add(place, b.At(offsets, {i[0]})), IntImm(k % 2));
    return Min(place, IntImm(60));
  });
  const int y = b.Reduce("y", {32, channels}, {4}, Combiner::kSum, [&](const DagBuilder::Vars& i, const auto& r) {
    return b.At(x, {Add(b.At(places, {i[0]}), r[0]), i[1]});
  });
  return b.Build({y}).value();
}

bool InlinesPlaces(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  const Schedule schedule = DefaultSchedule(dag, target, DefaultFacts(target)).value();
  const State state = Replay(ApplyRewrite(dag, schedule.rewrite).value(), schedule.steps).value();
  for (int id = 0; id < state.size(); ++id)
    if (state.stage(id).op.name == "places") return state.stage(id).attach == StageState::Attach::kInlined;
  ADD_FAILURE() << "no places";
  return false;
}

TEST(Inline, LongPlacesThatAreReadOftenAreComputedOnce) {
  for (const char* target : {"cpu -num-cores=2", "cuda -arch=sm_90"}) {
    SCOPED_TRACE(target);
    EXPECT_FALSE(InlinesPlaces(ReadAtPlaces(20, 64), target));
    EXPECT_TRUE(InlinesPlaces(ReadAtPlaces(2, 64), target)) << "a short one";
    EXPECT_TRUE(InlinesPlaces(ReadAtPlaces(20, 2), target)) << "read eight times";
  }
}

// A maximum over 3x3 of an image with a border of `value`, `lanes`: and a channel of it.
ComputeDag PoolOfPadding(double value, bool lanes) {
  DagBuilder b;
  const int x = b.Placeholder("x", {16, 16, 32});
  const int pad = b.Compute("pad", {18, 18, 33}, [&](const DagBuilder::Vars& i) {
    Expr inside = And(And(Le(IntImm(1), i[0]), Lt(i[0], IntImm(17))), And(Le(IntImm(1), i[1]), Lt(i[1], IntImm(17))));
    if (lanes) inside = And(inside, Lt(i[2], IntImm(32)));
    return Select(inside, b.At(x, {Sub(i[0], IntImm(1)), Sub(i[1], IntImm(1)), lanes ? i[2] : Min(i[2], IntImm(31))}),
                  FloatImm(value));
  });
  const int pool =
      b.Reduce("pool", {16, 16, 33}, {3, 3}, Combiner::kMax, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(pad, {Add(i[0], r[0]), Add(i[1], r[1]), i[2]});
      });
  return b.Build({pool}).value();
}

// Kernels of the fallback schedule.
LoweredProgram LoweredDefault(const ComputeDag& dag, const std::string& target_text) {
  const Target target = Target::Parse(target_text).value();
  const DeviceFacts facts = DefaultFacts(target);
  return Lower(dag, DefaultSchedule(dag, target, facts).value(), target, facts).value();
}

TEST(Inline, PaddingOfAPoolIsLeftOutByBranches) {
  const LoweredProgram program = LoweredDefault(PoolOfPadding(-INFINITY, false), "cpu -num-cores=2");
  ASSERT_EQ(program.kernels.size(), 1u);
  const std::string text = ToString(program.kernels[0]);
  EXPECT_EQ(text.find('?'), std::string::npos) << text;
  EXPECT_NE(text.find("if "), std::string::npos) << text;
}

TEST(Inline, PaddingThatCountsInAPoolOrDiffersBetweenLanesIsAKernel) {
  EXPECT_EQ(LoweredDefault(PoolOfPadding(0, false), "cpu -num-cores=2").kernels.size(), 2u);
  EXPECT_EQ(LoweredDefault(PoolOfPadding(-INFINITY, true), "cpu -num-cores=2").kernels.size(), 2u);
}

}  // namespace
}  // namespace diapason
