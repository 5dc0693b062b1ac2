#include "compiler/lower/overlapped_loads.h"

#include "gtest/gtest.h"
#include "tests/codegen/gpu_kernels.h"
#include "tests/codegen/reference.h"
#include "tests/lower/count_statements.h"

namespace diapason {
namespace {

using testing::At;
using testing::BlockLoop;
using testing::CountStatements;
using testing::Global;
using testing::I;
using testing::KernelOf;
using testing::Mad;
using testing::Scoped;
using testing::Serial;
using testing::ThreadLoop;

constexpr int64_t kLanes = 8, kSteps = 3;
constexpr int kQueries = 0, kKeys = 1, kOutput = 2, kQueryRow = 10, kKeyTile = 11, kTotal = 12;

struct ScoreParts {
  Expr t = MakeVar("t"), step = MakeVar("step");

  // Of the row that all steps read, and of a step's tile.
  Stmt CopyRow() const { return MakeStore(kQueryRow, t, At(kQueries, t), true); }
  Stmt CopyTile(const Expr& of, const Expr& slot) const {
    return MakeStore(kKeyTile, Mad(slot, kLanes, t), At(kKeys, Mad(of, kLanes, t)), true);
  }
  // Reads what another thread has copied.
  Stmt AddTile(const Expr& slot) const {
    const Expr other = Sub(I(kLanes - 1), t);
    return MakeStore(kTotal, I(0),
                     Add(At(kTotal, I(0)), Mul(At(kQueryRow, other), At(kKeyTile, Mad(slot, kLanes, other)))));
  }
  Stmt Clear() const { return MakeStore(kTotal, I(0), FloatImm(0)); }
  Stmt Await() const { return MakeSeq({MakeWait(0), MakeBarrier()}); }

  KernelFunc Kernel(std::vector<Stmt> body) const {
    body.push_back(MakeStore(kOutput, t, At(kTotal, I(0))));
    Stmt all = MakeAlloc(Scoped(kTotal, "sum", 1, Scope::kLocal), MakeSeq(std::move(body)));
    all = MakeAlloc(Scoped(kKeyTile, "tile", kSteps * kLanes, Scope::kShared), all);
    all = MakeAlloc(Scoped(kQueryRow, "row", kLanes, Scope::kShared), all);
    return KernelOf(
        "scores",
        {Global(kQueries, "Q", kLanes), Global(kKeys, "K", kSteps * kLanes), Global(kOutput, "Y", kLanes, true)},
        BlockLoop(MakeVar("b"), 1, ThreadLoop(t, kLanes, all)), 1, kLanes);
  }
};

std::vector<double> Run(const KernelFunc& kernel) {
  testing::NestRunner runner;
  for (const BufferDecl& param : kernel.params) {
    runner.buffers[param.id].assign(param.elements, -1);
    for (int64_t i = 0; i < param.elements; ++i)
      runner.buffers[param.id][i] = static_cast<double>(param.id == kQueries ? i + 1 : i % 5);
  }
  runner.Run(kernel);
  return runner.buffers[kOutput];
}

int Waits(const KernelFunc& kernel) { return CountStatements(kernel.body, StmtKind::kWait); }
int Barriers(const KernelFunc& kernel) { return CountStatements(kernel.body, StmtKind::kBarrier); }

// The kernel with late waits, which computes the same: copies arrive when they are waited for, not before.
KernelFunc Late(const KernelFunc& kernel) {
  KernelFunc late = WithLateWaits(kernel);
  EXPECT_EQ(Run(late), Run(kernel)) << ToString(late);
  return late;
}

TEST(LateWaits, TwoOperandsAreWaitedForAtOnce) {
  const ScoreParts p;
  const KernelFunc late = Late(p.Kernel({p.CopyRow(), MakeCommit(), p.Await(), p.Clear(), p.CopyTile(I(0), I(0)),
                                         MakeCommit(), p.Await(), p.AddTile(I(0))}));
  EXPECT_EQ(Waits(late), 1) << ToString(late);
  EXPECT_EQ(Barriers(late), 1) << ToString(late);
}

// The late wait leaves the last group unfinished, which the early one is in front of.
TEST(LateWaits, WhatIsAskedForLastMayStayOnItsWay) {
  const ScoreParts p;
  const auto kernel = [&](int64_t unfinished) {
    return p.Kernel({p.CopyRow(), MakeCommit(), p.Await(), p.Clear(), p.CopyTile(I(0), I(0)), MakeCommit(),
                     p.CopyTile(I(1), I(1)), MakeCommit(), MakeWait(unfinished), MakeBarrier(), p.AddTile(I(0)),
                     p.Await(), p.AddTile(I(1))});
  };
  const KernelFunc late = Late(kernel(1));
  EXPECT_EQ(Waits(late), 2) << ToString(late);
  // A wait for none of three groups is none for the row either.
  EXPECT_EQ(ToString(WithLateWaits(kernel(3))), ToString(kernel(3)));
}

TEST(LateWaits, WhatIsReadBeforeStaysWaitedFor) {
  const ScoreParts p;
  const Stmt reads = MakeStore(kTotal, I(0), At(kQueryRow, I(0)));
  const Stmt writes = MakeStore(kKeyTile, p.t, FloatImm(1));
  for (const Stmt& between : {reads, writes, MakeBarrier(kLanes / 2)}) {
    const KernelFunc kernel = p.Kernel({p.Clear(), p.CopyRow(), MakeCommit(), p.Await(), between,
                                        p.CopyTile(I(0), I(0)), MakeCommit(), p.Await(), p.AddTile(I(0))});
    EXPECT_EQ(ToString(WithLateWaits(kernel)), ToString(kernel));
  }
  // Not every thread may have passed the condition.
  const KernelFunc some = p.Kernel({p.Clear(), MakeIf(Lt(p.t, I(4)), MakeSeq({p.CopyRow(), MakeCommit()})), p.Await(),
                                    p.CopyTile(I(0), I(0)), MakeCommit(), p.Await(), p.AddTile(I(0))});
  EXPECT_EQ(ToString(WithLateWaits(some)), ToString(some));
}

// The barrier at the head of a loop protects the tile of the iteration before.
TEST(LateWaits, ALoopMayBeginWithABarrierAndItsCopies) {
  const ScoreParts p;
  const KernelFunc late = Late(
      p.Kernel({p.CopyRow(), MakeCommit(), p.Await(), p.Clear(),
                Serial(p.step, kSteps,
                       MakeSeq({MakeBarrier(), p.CopyTile(p.step, I(0)), MakeCommit(), p.Await(), p.AddTile(I(0))}))}));
  EXPECT_EQ(Waits(late), 1) << ToString(late);
  EXPECT_EQ(Barriers(late), 2) << ToString(late);
}

// Iterations that work on what was asked for some iterations before: the row comes in one group with the first tile.
TEST(LateWaits, OfASkewedLoopTheFirstWaitIsForNothing) {
  const ScoreParts p;
  for (int64_t ahead : {1, 2}) {
    const Stmt copies = MakeIf(Lt(p.step, I(kSteps)), p.CopyTile(p.step, p.step));
    const Stmt work = MakeIf(Le(I(ahead), p.step), p.AddTile(Max(Sub(p.step, I(ahead)), I(0))));
    const auto kernel = [&](int64_t unfinished) {
      return p.Kernel(
          {p.CopyRow(), MakeCommit(), p.Await(), p.Clear(),
           Serial(p.step, kSteps + ahead, MakeSeq({MakeWait(unfinished), MakeBarrier(), copies, MakeCommit(), work}))});
    };
    const KernelFunc late = Late(kernel(ahead - 1));
    EXPECT_EQ(Waits(late), 1) << ToString(late);
    EXPECT_EQ(CountStatements(late.body, StmtKind::kCommit), 1) << ToString(late);
    // The work would begin before the first tile is there.
    EXPECT_EQ(ToString(WithLateWaits(kernel(ahead))), ToString(kernel(ahead)));
  }
}

TEST(LateWaits, AWaitOfItsOwnMovesInFrontOfTheNextBarrier) {
  const ScoreParts p;
  const KernelFunc kernel =
      p.Kernel({p.CopyRow(), MakeCommit(), MakeWait(0), MakeGroupSync(GroupSync::kPublish), MakeBarrier(), p.Clear(),
                MakeStore(kKeyTile, p.t, At(kKeys, p.t), true), MakeBarrier(), p.AddTile(I(0))});
  const std::string text = ToString(WithLateWaits(kernel));
  const size_t wait = text.find("wait until 0"), publish = text.find("group publish"), barrier = text.find("barrier");
  ASSERT_NE(wait, std::string::npos) << text;
  EXPECT_LT(text.find("async "), wait) << text;
  EXPECT_LT(wait, publish) << text;
  EXPECT_LT(publish, barrier) << text;
  EXPECT_EQ(text.find("barrier", barrier + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace diapason
