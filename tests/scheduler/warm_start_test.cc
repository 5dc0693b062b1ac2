#include "scheduler/warm_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/scheduler/fakes.h"

namespace diapason {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A product of m x k and k x n, with a relu behind it if asked.
ComputeDag Product(int64_t m, int64_t n, int64_t k, bool relu = false) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}), y = b.Placeholder("y", {k, n});
  int last = b.Reduce("product", {m, n}, {k}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(y, {r[0], i[1]}));
  });
  if (relu) last = b.Compute("relu", {m, n}, [&](const auto& i) { return Max(b.At(last, {i[0], i[1]}), FloatImm(0)); });
  return b.Build({last}).value();
}

std::unique_ptr<TaskSpace> Spaces() {
  FakeSpace::Options a, b;
  a.name = "direct/a";
  b.name = "gemm/b";
  a.parameters = 3;
  b.parameters = 2;
  std::vector<std::unique_ptr<Space>> spaces;
  for (const auto& options : {a, b}) spaces.push_back(std::make_unique<FakeSpace>(options));
  return std::make_unique<TaskSpace>(FakeDag(8), std::move(spaces));
}

std::vector<std::pair<int, std::vector<int32_t>>> Pairs(const std::vector<Suggestion>& suggestions) {
  std::vector<std::pair<int, std::vector<int32_t>>> pairs;
  for (const Suggestion& one : suggestions) pairs.push_back({one.space, one.configuration});
  return pairs;
}

TEST(KindOf, TellsTasksByTheirHeaviestStage) {
  EXPECT_EQ(KindOf(FakeDag(8)), KindOf(FakeDag(16)));
  EXPECT_EQ(KindOf(Product(8, 8, 8)), KindOf(Product(4, 64, 16, true)));
  EXPECT_NE(KindOf(Product(8, 8, 8)), KindOf(Product(8, 1, 8)));
  DagBuilder builder;
  const int x = builder.Placeholder("x", {8, 4});
  builder.Compute("double", {8, 4}, [&](const auto& i) {
    return Add(builder.At(x, {i[0], i[1]}), builder.At(x, {i[0], i[1]}));
  });
  EXPECT_NE(KindOf(builder.Build({1}).value()), KindOf(FakeDag(8)));
}

TEST(WarmStart, DistanceCountsPowersOfTwoOfTheHeaviestStage) {
  const TaskShape small = ShapeOf(Product(32, 64, 128));
  EXPECT_EQ(Distance(small, ShapeOf(Product(32, 64, 128, true))), 0);
  EXPECT_EQ(Distance(small, ShapeOf(Product(64, 16, 128))), 3);
  EXPECT_EQ(Distance(ShapeOf(Product(64, 16, 128)), small), 3);
  EXPECT_EQ(Distance(small, ShapeOf(Product(32, 1, 128))), kInfinity);
  EXPECT_EQ(Distance(small, ShapeOf(FakeDag(32))), kInfinity);
}

TEST(WarmStart, TakesTheNearestWorkloadsInTurnsAndTheFastestFirst) {
  const TaskShape here{"k", {5, 5}};
  const std::vector<TunedWorkload> tuned = {
      {{"k", {5, 14}}, {{"gemm/b", {64, 1}}}},                         // too far
      {{"k", {8, 5}}, {{"gemm/b", {32, 1}}}},                          // the fourth
      {{"k", {6, 5}}, {{"gemm/b", {1, 2}}, {"direct/a", {4, 4, 8}}}},  // the second
      {{"other", {5, 5}}, {{"gemm/b", {16, 1}}}},                      // of another kind
      {{"k", {5, 7}}, {{"gemm/b", {1, 4}}}},                           // the third
      {{"k", {5, 5}}, {{"direct/a", {2, 2, 2}}, {"gemm/b", {1, 2}}}},  // the nearest
  };
  EXPECT_THAT(Pairs(Suggest(*Spaces(), here, tuned, "own")),
              ElementsAre(std::pair(0, std::vector<int32_t>{2, 2, 2}), std::pair(1, std::vector<int32_t>{1, 2}),
                          std::pair(1, std::vector<int32_t>{1, 4}), std::pair(0, std::vector<int32_t>{4, 4, 8})));
}

TEST(WarmStart, ItsOwnWorkloadComesBeforeOthersOfTheSameShape) {
  const TaskShape here{"k", {5, 5}};
  const std::vector<TunedWorkload> tuned = {
      {here, {{"gemm/b", {1, 2}}}, "first"},   {here, {{"gemm/b", {1, 4}}}, "second"},
      {here, {{"gemm/b", {64, 1}}}, "third"},  {here, {{"direct/a", {2, 2, 2}}, {"direct/a", {4, 4, 8}}}, "own"},
      {here, {{"gemm/b", {32, 1}}}, "fourth"},
  };
  EXPECT_THAT(Pairs(Suggest(*Spaces(), here, tuned, "own")),
              ElementsAre(std::pair(0, std::vector<int32_t>{2, 2, 2}), std::pair(1, std::vector<int32_t>{1, 2}),
                          std::pair(1, std::vector<int32_t>{1, 4}), std::pair(0, std::vector<int32_t>{4, 4, 8})));
}

TEST(WarmStart, ConfigurationsArePutIntoTheDomainsOfTheTask) {
  const TaskShape here{"k", {5}};
  // The first two parameters may have a product of 128 at most.
  EXPECT_THAT(Pairs(Suggest(*Spaces(), here, {{{"k", {6}}, {{"direct/a", {64, 64, 2}}}}}, "own")),
              ElementsAre(std::pair(0, std::vector<int32_t>{64, 2, 2})));
  EXPECT_THAT(
      Suggest(*Spaces(), here, {{{"k", {6}}, {{"direct/a", {1, 1}}, {"gone/c", {1, 1}}, {"gemm/b", {}}}}}, "own"),
      IsEmpty());
  EXPECT_THAT(Suggest(*Spaces(), here, {}, "own"), IsEmpty());
}

}  // namespace
}  // namespace diapason
