#include "compiler/lower/early_start.h"

#include "gtest/gtest.h"
#include "tests/codegen/gpu_kernels.h"
#include "tests/codegen/reference.h"

namespace diapason {
namespace {

using testing::At;
using testing::BlockLoop;
using testing::Global;
using testing::I;
using testing::KernelOf;
using testing::Mad;
using testing::Scoped;
using testing::Serial;
using testing::ThreadLoop;

constexpr int64_t kLanes = 8, kSteps = 3;
constexpr int kInput = 0, kOutput = 1, kWeights = 2, kTileX = 10, kTileW = 11, kAcc = 12;

// Y[t] = sum over k of X[k, t] * W[k, t]: all steps of both are asked for at once.
KernelFunc Pipeline(const std::function<Stmt(const Expr& ahead, const Expr& t)>& more = nullptr) {
  const Expr b = MakeVar("b"), t = MakeVar("t"), ahead = MakeVar("ahead"), k = MakeVar("k");
  const Expr place = Mad(ahead, kLanes, t), at = Mad(k, kLanes, t);
  const Stmt copies =
      MakeSeq({MakeStore(kTileX, place, At(kInput, place), true), MakeStore(kTileW, place, At(kWeights, place), true),
               more ? more(ahead, t) : nullptr, MakeCommit()});
  const Stmt clear = MakeStore(kAcc, I(0), FloatImm(0));
  const Stmt sum =
      Serial(k, kSteps,
             MakeSeq({MakeBarrier(), MakeStore(kAcc, I(0), Add(At(kAcc, I(0)), Mul(At(kTileX, at), At(kTileW, at))))}));
  Stmt body = MakeSeq({clear, Serial(ahead, kSteps, copies), MakeWait(0), sum, MakeStore(kOutput, t, At(kAcc, I(0)))});
  body = MakeAlloc(Scoped(kAcc, "sum", 1, Scope::kLocal), body);
  for (int tile : {kTileX, kTileW})
    body = MakeAlloc(Scoped(tile, tile == kTileX ? "tile_x" : "tile_w", kSteps * kLanes, Scope::kShared), body);
  KernelFunc kernel = KernelOf("sums",
                               {Global(kInput, "X", kSteps * kLanes), Global(kOutput, "Y", kLanes, true),
                                Global(kWeights, "W", kSteps * kLanes)},
                               BlockLoop(b, 1, ThreadLoop(t, kLanes, body)), 1, kLanes);
  kernel.params[2].constant = true;
  return kernel;
}

std::vector<double> Run(const KernelFunc& kernel) {
  testing::NestRunner runner;
  for (const BufferDecl& param : kernel.params) runner.buffers[param.id].assign(param.elements, -1);
  for (int64_t i = 0; i < kSteps * kLanes; ++i) {
    runner.buffers[kInput][i] = static_cast<double>(i);
    runner.buffers[kWeights][i] = static_cast<double>(i % 5);
  }
  runner.Run(kernel);
  return runner.buffers[kOutput];
}

std::string Early(KernelFunc kernel, EarlyStart next) {
  const std::vector<double> expected = Run(kernel);
  kernel.body = WithEarlyStart(kernel, next);
  EXPECT_EQ(Run(kernel), expected) << ToString(kernel);
  return ToString(kernel.body);
}

TEST(EarlyStart, CopiesOfConstantsAreALoopInFront) {
  const std::string text = Early(Pipeline(), EarlyStart::kAtOnce);
  const size_t w = text.find("tile_w[ahead"), x = text.find("tile_x[ahead");
  ASSERT_NE(w, std::string::npos) << text;
  EXPECT_LT(w, x) << text;
  EXPECT_NE(text.substr(w, x - w).find("for ahead in 3:"), std::string::npos) << "two loops:\n" << text;
  const size_t commit = text.find("commit");
  EXPECT_GT(commit, x) << "a step's copies are one group:\n" << text;
  EXPECT_EQ(text.find("commit", commit + 1), std::string::npos) << text;
}

TEST(EarlyStart, CopiesThatMeetStayInOneLoop) {
  // The next tile of constants is written over by what is awaited, or made from it.
  const auto overwrites = [](const Expr& ahead, const Expr& t) {
    return MakeStore(kTileW, Mad(ahead, kLanes, t), At(kInput, t), true);
  };
  KernelFunc kernel = Pipeline(overwrites);
  EXPECT_EQ(ToString(WithEarlyStart(kernel, EarlyStart::kAtOnce)), "launch dependents\n" + ToString(kernel.body));
  // Nothing is a constant, or everything.
  for (const bool constant : {false, true}) {
    kernel = Pipeline();
    for (BufferDecl& param : kernel.params) param.constant = constant && !param.written;
    EXPECT_EQ(ToString(WithEarlyStart(kernel, EarlyStart::kAtOnce)), "launch dependents\n" + ToString(kernel.body));
  }
  // A barrier in the loop is an order that threads rely on.
  kernel = Pipeline([](const Expr&, const Expr&) { return MakeBarrier(); });
  EXPECT_EQ(ToString(WithEarlyStart(kernel, EarlyStart::kAtOnce)), "launch dependents\n" + ToString(kernel.body));
}

TEST(EarlyStart, TheNextKernelStartsAtOnceOrBehindTheSums) {
  EXPECT_EQ(Early(Pipeline(), EarlyStart::kAtOnce).find("launch dependents"), 0U);
  const std::string text = Early(Pipeline(), EarlyStart::kBehindSums);
  const size_t launch = text.find("launch dependents");
  ASSERT_NE(launch, std::string::npos) << text;
  EXPECT_LT(text.find("barrier"), launch) << text;
  EXPECT_GT(text.find("B1["), launch) << text;
  EXPECT_EQ(text.find("launch dependents", launch + 1), std::string::npos) << text;
}

TEST(EarlyStart, WithoutSumsTheNextKernelStartsBeforeResultsAreWritten) {
  const Expr b = MakeVar("b"), t = MakeVar("t");
  const Stmt read = MakeStore(kAcc, I(0), At(kInput, t)), write = MakeStore(kOutput, t, At(kAcc, I(0)));
  const auto body_of = [&](const Stmt& body) {
    KernelFunc kernel = Pipeline();
    kernel.body = BlockLoop(b, 1, ThreadLoop(t, kLanes, MakeAlloc(Scoped(kAcc, "sum", 1, Scope::kLocal), body)));
    return Early(kernel, EarlyStart::kBehindSums);
  };
  const std::string two = body_of(MakeSeq({read, write}));
  EXPECT_LT(two.find("B0["), two.find("launch dependents")) << two;
  EXPECT_GT(two.find("B1["), two.find("launch dependents")) << two;
  EXPECT_EQ(body_of(MakeStore(kOutput, t, At(kInput, t))).find("launch dependents"), 0U);
}

// A kernel that starts behind the one in front has nothing to fetch before it, but the next one may start early.
TEST(EarlyStart, OfAnyKernelTheNextMayStartBehindTheSums) {
  KernelFunc kernel = Pipeline();
  const std::string text = Early(kernel, EarlyStart::kNever);
  const size_t launch = text.find("launch dependents");
  ASSERT_NE(launch, std::string::npos) << text;
  EXPECT_LT(text.find("barrier"), launch) << text;
  EXPECT_GT(text.find("B1["), launch) << text;
  EXPECT_EQ(text.find("for ahead"), text.rfind("for ahead")) << "one loop of copies:\n" << text;
}

}  // namespace
}  // namespace diapason
