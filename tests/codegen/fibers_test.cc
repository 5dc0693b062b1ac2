#include "tests/codegen/fibers.h"

#include <vector>

#include "gtest/gtest.h"

namespace diapason::testing {
namespace {

TEST(Fibers, ComeInOrderOrBackwardsAndTogetherAtBarriers) {
  for (bool backward : {false, true}) {
    Fibers fibers;
    FiberBarrier barrier(&fibers, 3);
    std::vector<int> seen;
    for (int i = 0; i < 3; ++i) {
      fibers.Add([&, i] {
        for (int round = 0; round < 2; ++round) {
          seen.push_back(10 * round + i);
          barrier.ArriveAndWait();
        }
      });
    }
    fibers.Run(backward);
    // The last one to come to a barrier goes on at once.
    EXPECT_EQ(seen, backward ? std::vector({2, 1, 0, 10, 12, 11}) : std::vector({0, 1, 2, 12, 10, 11}));
  }
}

TEST(Fibers, CanRunAgain) {
  Fibers fibers;
  int sum = 0;
  for (int count : {5, 2, 9}) {
    for (int i = 0; i < count; ++i) fibers.Add([&] { ++sum; });
    fibers.Run(/*backward=*/false);
  }
  EXPECT_EQ(sum, 16);
  fibers.Run(/*backward=*/false);
  EXPECT_EQ(sum, 16);
}

TEST(Fibers, HaveRoomForDeepCalls) {
  Fibers fibers;
  const std::function<int(int)> depth = [&](int n) { return n == 0 ? 0 : 1 + depth(n - 1); };
  std::vector<int> depths;
  for (int i = 0; i < 4; ++i) fibers.Add([&] { depths.push_back(depth(500)); });
  fibers.Run(/*backward=*/false);
  EXPECT_EQ(depths, std::vector(4, 500));
}

TEST(Fibers, WaitForWhatOthersDo) {
  Fibers fibers;
  int stage = 0;
  std::vector<int> seen;
  fibers.Add([&] {
    fibers.WaitUntil([&] { return stage == 1; });
    seen.push_back(stage++);
  });
  fibers.Add([&] {
    stage = 1;
    fibers.WaitUntil([&] { return stage == 2; });
    seen.push_back(stage);
  });
  fibers.Run(/*backward=*/false);
  EXPECT_EQ(seen, (std::vector{1, 2}));
}

TEST(FibersDeathTest, SayWhenNoneCanGoOn) {
  const auto run = [] {
    Fibers fibers;
    FiberBarrier barrier(&fibers, 3);  // of which two come
    for (int i = 0; i < 2; ++i) fibers.Add([&] { barrier.ArriveAndWait(); });
    fibers.Run(/*backward=*/false);
  };
  EXPECT_DEATH(run(), "threads that wait for each other");
}

}  // namespace
}  // namespace diapason::testing
