#include "compiler/build/bench_package.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

TEST(StatisticsOf, HasPercentilesByNearestRank) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1);  // 100, 99, ..., 1
  const RunStatistics d = StatisticsOf(values);
  EXPECT_EQ(d.p50, 50);
  EXPECT_EQ(d.p90, 90);
  EXPECT_EQ(d.p99, 99);
  EXPECT_EQ(d.min, 1);
  EXPECT_EQ(d.max, 100);
  EXPECT_DOUBLE_EQ(d.mean, 50.5);
  EXPECT_NEAR(d.std, 29.0115, 1e-4);

  const RunStatistics few = StatisticsOf({3, 1, 2});
  EXPECT_EQ(few.p50, 2);
  EXPECT_EQ(few.p90, 3);
  EXPECT_EQ(few.p99, 3);
  const RunStatistics one = StatisticsOf({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(one.std, 0);
}

class BenchPackageTest : public FolderTest {
 protected:
  std::unique_ptr<PackageRunner> Loaded() {
    NetworkMaker m;
    const int product = m.Op("matmul", {m.In("x", {16, 16}), m.Const("w", {16, 16})});
    EXPECT_TRUE(BuildReferencePackage(Path("p"), m.Out({product}), TestTarget(TargetKind::kCpu)).ok());
    auto runner = PackageRunner::Load(Path("p"));
    EXPECT_TRUE(runner.ok()) << runner.status();
    return runner.ok() ? *std::move(runner) : nullptr;
  }
};

TEST_F(BenchPackageTest, MeasuresRunsOneByOneAndBackToBack) {
  const std::unique_ptr<PackageRunner> runner = Loaded();
  ASSERT_NE(runner, nullptr);
  const auto bench = BenchPackage(
      *runner, {.warm_up_seconds = 0.001, .seconds = 0.05, .least_runs = 2, .repeat = 3, .min_repeat_ms = 2});
  ASSERT_TRUE(bench.ok()) << bench.status();
  EXPECT_GT(bench->runs.size(), 2u);
  ASSERT_EQ(bench->back_to_back.samples.size(), 3u);
  EXPECT_GT(bench->back_to_back.number, 1) << "a run takes microseconds, and a sample milliseconds";
  EXPECT_GT(bench->RunsPerSecond(), 1 / StatisticsOf(bench->runs).max);
}

TEST_F(BenchPackageTest, RunsTheLeastNumberWhateverTheTime) {
  const std::unique_ptr<PackageRunner> runner = Loaded();
  ASSERT_NE(runner, nullptr);
  const auto bench = BenchPackage(
      *runner, {.warm_up_seconds = 1e-9, .seconds = 1e-9, .least_runs = 50, .repeat = 1, .min_repeat_ms = 0.01});
  ASSERT_TRUE(bench.ok()) << bench.status();
  EXPECT_EQ(bench->runs.size(), 50u);
}

}  // namespace
}  // namespace diapason
