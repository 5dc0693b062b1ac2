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
using testing::Unroll;

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

// What is published has arrived.
TEST(LateWaits, AWaitOfItsOwnStandsInFrontOfWhatIsPublished) {
  const ScoreParts p;
  const Stmt publish = MakeGroupSync(GroupSync::kPublish);
  const std::string text = ToString(WithLateWaits(
      p.Kernel({p.CopyRow(), MakeCommit(), MakeWait(0), publish, MakeBarrier(), p.Clear(), publish, MakeBarrier()})));
  const size_t wait = text.find("wait until 0");
  ASSERT_NE(wait, std::string::npos) << text;
  EXPECT_LT(wait, text.find("group publish")) << text;
  EXPECT_EQ(text.find("wait until", wait + 1), std::string::npos) << text;
}

// A publication would have to move into the loop, or other threads meet there.
TEST(LateWaits, LoopsThatMeetOtherwiseKeepTheWait) {
  const ScoreParts p;
  const auto kernel = [&](std::vector<Stmt> meeting) {
    meeting.insert(meeting.begin(), {p.CopyTile(p.step, I(0)), MakeCommit(), MakeWait(0)});
    meeting.push_back(p.AddTile(I(0)));
    return p.Kernel({p.CopyRow(), MakeCommit(), MakeWait(0), MakeGroupSync(GroupSync::kPublish), MakeBarrier(),
                     p.Clear(), Serial(p.step, kSteps, MakeSeq(std::move(meeting)))});
  };
  for (const std::vector<Stmt>& meeting :
       {std::vector<Stmt>{MakeBarrier()}, {MakeGroupSync(GroupSync::kPublish), MakeBarrier(kLanes / 2)}})
    EXPECT_EQ(ToString(WithLateWaits(kernel(meeting))), ToString(kernel(meeting)));
  const std::vector<Stmt> same = {MakeGroupSync(GroupSync::kPublish), MakeBarrier()};
  EXPECT_EQ(Waits(WithLateWaits(kernel(same))), 1);
}

constexpr int kTable = 3, kIndex = 13, kScores = 14, kMma = 15;

// Threads that wait for a copy, multiply, and then do `behind` with the scores.
struct MaskParts {
  Expr t = MakeVar("t"), i = MakeVar("i"), step = MakeVar("step");

  static Stmt Product() {
    return MakeMma(TensorMode::kHalf, {DType::kFloat16, DType::kFloat16}, kMma,
                   {I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), I(9)}, true);
  }
  Stmt Arrive() const {
    return MakeSeq({MakeStore(kKeyTile, t, At(kKeys, t), true), MakeCommit(), MakeWait(0), MakeBarrier()});
  }
  KernelFunc Kernel(std::vector<Stmt> body) const {
    Stmt all = MakeSeq(std::move(body));
    all = MakeAlloc(Scoped(kMma, "sums", 10, Scope::kLocal), all);
    all = MakeAlloc(Scoped(kScores, "scores", 64, Scope::kLocal), all);
    all = MakeAlloc(Scoped(kIndex, "index", 1, Scope::kLocal, DType::kInt64), all);
    all = MakeAlloc(Scoped(kKeyTile, "tile", 32, Scope::kShared), all);
    KernelFunc kernel = KernelOf("scores",
                                 {Global(kQueries, "mask", 8192), Global(kKeys, "K", 32),
                                  Global(kOutput, "Y", 8192, true), Global(kTable, "table", 8192)},
                                 BlockLoop(MakeVar("b"), 1, ThreadLoop(t, 32, all)), 1, 32);
    kernel.params[3].constant = true;
    return kernel;
  }
  Stmt Store(const Expr& at, const Expr& value) const { return MakeStore(kScores, at, value); }
};

std::string Ahead(const KernelFunc& kernel) {
  int next = 100;
  return ToString(WithEarlyLoads(kernel, &next));
}

TEST(EarlyLoads, InputsStandInFrontOfTheWaitAndConstantsAtTheHead) {
  const MaskParts p;
  const std::string text = Ahead(
      p.Kernel({p.Arrive(), MaskParts::Product(),
                Unroll(p.i, 8, p.Store(p.i, Add(At(kQueries, Mad(p.i, 32, p.t)), At(kTable, Add(p.t, I(64))))))}));
  const size_t constant = text.find("= table["), mask = text.find("= mask["), wait = text.find("wait until 0");
  ASSERT_NE(constant, std::string::npos) << text;
  ASSERT_NE(mask, std::string::npos) << text;
  EXPECT_LT(constant, text.find("async K")) << text;
  EXPECT_GT(mask, text.find("async K")) << text;
  EXPECT_LT(mask, wait) << text;
  EXPECT_EQ(text.find("table[", wait), std::string::npos) << "behind, registers are read:\n" << text;
  EXPECT_EQ(text.find("mask[", wait), std::string::npos) << text;
  EXPECT_NE(text.find("local float32 mask_ahead"), std::string::npos) << text;
  EXPECT_NE(text.find("[8]"), std::string::npos) << text;
}

TEST(EarlyLoads, WhatMayNotBeLoadedYetStays) {
  const MaskParts p;
  const Expr mask = At(kQueries, p.t);
  // By an index that is made behind the wait, where it may not be possible, of what the kernel writes, into memory.
  const std::vector<Stmt> behind[] = {
      {MakeStore(kIndex, I(0), Cast(DType::kInt64, At(kKeyTile, p.t))),
       p.Store(I(0), At(kQueries, At(kIndex, I(0), DType::kInt64)))},
      {MakeIf(Lt(p.t, I(4)), p.Store(I(0), mask))},
      {p.Store(I(0), Select(Lt(p.t, I(4)), mask, FloatImm(0)))},
      {p.Store(I(0), At(kOutput, p.t))},
      {MakeStore(kOutput, p.t, mask)},
      {Serial(p.i, 8, p.Store(p.i, At(kQueries, Mad(p.i, 32, p.t))))},
  };
  for (const std::vector<Stmt>& some : behind) {
    std::vector<Stmt> body = {p.Arrive(), MaskParts::Product()};
    body.insert(body.end(), some.begin(), some.end());
    const KernelFunc kernel = p.Kernel(body);
    EXPECT_EQ(Ahead(kernel), ToString(kernel));
  }
  // In front of the product, or without a wait.
  for (const std::vector<Stmt>& body : {std::vector<Stmt>{p.Arrive(), p.Store(I(0), mask), MaskParts::Product()},
                                        {MaskParts::Product(), p.Store(I(0), mask)}})
    EXPECT_EQ(Ahead(p.Kernel(body)), ToString(p.Kernel(body)));
}

// One variable may stand for several values.
TEST(EarlyLoads, LetsArePutIntoIndices) {
  const MaskParts p;
  const Expr key = MakeVar("key");
  const auto use = [&](int64_t value, int64_t to) {
    return MakeLet(key, I(value), p.Store(I(to), At(kQueries, Mad(key, 32, p.t))));
  };
  const std::string text = Ahead(p.Kernel({p.Arrive(), MaskParts::Product(), use(0, 0), use(1, 1), use(1, 2)}));
  EXPECT_NE(text.find("scores[0] = mask_ahead100[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("scores[1] = mask_ahead101[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("scores[2] = mask_ahead101[0]"), std::string::npos) << text;
}

// An iteration's loads are in front of its own wait, and what is loaded for behind the loop counts too.
TEST(EarlyLoads, AThreadHasRegistersForSomeOfThem) {
  const MaskParts p;
  const auto kernel = [&](int64_t in_loop, int64_t behind) {
    const Expr j = MakeVar("j");
    return p.Kernel(
        {p.Arrive(),
         Serial(p.step, 2,
                MakeSeq({p.Arrive(), MaskParts::Product(),
                         Unroll(p.i, in_loop, p.Store(p.i, At(kQueries, Mad(p.i, 64, Mad(p.step, 32, p.t)))))})),
         Unroll(j, behind, p.Store(j, At(kQueries, Mad(j, 32, p.t))))});
  };
  const auto count = [](const std::string& text) {
    int found = 0;
    for (size_t at = text.find("= mask["); at != std::string::npos; at = text.find("= mask[", at + 1))
      found += text.rfind("mask_ahead", at) > text.rfind('\n', at) && text.rfind("mask_ahead", at) != std::string::npos;
    return found;
  };
  EXPECT_EQ(count(Ahead(kernel(40, 32))), 2);
  EXPECT_EQ(count(Ahead(kernel(64, 32))), 1);
  EXPECT_EQ(count(Ahead(kernel(80, 80))), 0);
}

}  // namespace
}  // namespace diapason
