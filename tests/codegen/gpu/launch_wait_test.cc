#include "compiler/codegen/gpu/launch_wait.h"

#include <gtest/gtest.h>

#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

class LaunchWaitTest : public ::testing::Test {
 protected:
  LaunchWaitTest() {
    kernel_ = KernelOf("k", {Global(0, "x", 32), Global(1, "y", 32, true), Global(2, "w", 32)}, MakeBarrier());
    kernel_.params[2].constant = true;
  }

  const Expr t_ = MakeVar("t");
  KernelFunc kernel_;
};

TEST_F(LaunchWaitTest, ParametersThatAreNoConstantsAreAwaited) {
  const LaunchWait wait(kernel_, true);
  EXPECT_TRUE(wait.IsAwaited(0));
  EXPECT_TRUE(wait.IsAwaited(1));
  EXPECT_FALSE(wait.IsAwaited(2));
  EXPECT_FALSE(wait.IsAwaited(10)) << "not a parameter";
}

TEST_F(LaunchWaitTest, AKernelThatDoesNotStartEarlyAwaitsNothing) {
  const LaunchWait wait(kernel_, false);
  EXPECT_FALSE(wait.pending());
  EXPECT_FALSE(wait.IsAwaited(0));
  EXPECT_FALSE(wait.StandsBefore(MakeStore(1, t_, At(0, t_))));
}

TEST_F(LaunchWaitTest, StandsBeforeWhatTouchesAnAwaitedBuffer) {
  const LaunchWait wait(kernel_, true);
  EXPECT_TRUE(wait.StandsBefore(MakeStore(10, t_, At(0, t_)))) << "reads";
  EXPECT_TRUE(wait.StandsBefore(MakeStore(1, t_, F(0)))) << "writes";
  EXPECT_TRUE(wait.StandsBefore(Serial(t_, 4, MakeIf(Lt(At(0, t_), F(1)), MakeBarrier())))) << "inside";
  EXPECT_FALSE(wait.StandsBefore(MakeStore(10, t_, At(2, t_)))) << "a constant";
  EXPECT_FALSE(wait.StandsBefore(MakeBarrier()));
}

TEST_F(LaunchWaitTest, StandsInsideWhatEveryThreadRunsOnce) {
  const LaunchWait wait(kernel_, true);
  const Stmt store = MakeStore(1, t_, At(0, t_));
  EXPECT_FALSE(wait.StandsBefore(ThreadLoop(t_, 32, store)));
  EXPECT_FALSE(wait.StandsBefore(MakeSeq({MakeBarrier(), store})));
  EXPECT_TRUE(wait.StandsBefore(Serial(t_, 32, store)));
}

TEST_F(LaunchWaitTest, StandsInsideRoles) {
  const LaunchWait wait(kernel_, true);
  const Stmt store = MakeStore(1, t_, At(0, t_));
  EXPECT_TRUE(wait.StandsBefore(MakeIf(Lt(t_, IntImm(4)), store)));
  EXPECT_FALSE(wait.StandsBefore(MakeRole(Lt(t_, IntImm(4)), store)));
}

TEST_F(LaunchWaitTest, IsPrintedOnce) {
  LaunchWait wait(kernel_, true);
  EXPECT_TRUE(wait.pending());
  wait.SetPrinted();
  EXPECT_FALSE(wait.pending());
  EXPECT_FALSE(wait.StandsBefore(MakeStore(1, t_, F(0))));
  EXPECT_TRUE(wait.IsAwaited(0));
}

}  // namespace
}  // namespace diapason
