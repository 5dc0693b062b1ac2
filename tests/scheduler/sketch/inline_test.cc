// What is computed where it is read.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace diapason
