#include "compiler/lower/early_operands.h"

#include "gtest/gtest.h"
#include "tests/codegen/gpu_kernels.h"
#include "tests/codegen/reference.h"
#include "tests/lower/count_statements.h"

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
using testing::Unroll;

constexpr int64_t kRowThreads = 8, kWindowRounds = 3, kWindowLanes = 4,
                  kMatrixElements = kRowThreads * kWindowRounds * kWindowLanes;
constexpr int kRowInput = 0, kCacheInput = 1, kFreshInput = 2, kConstantInput = 3, kRowResult = 4, kSharedRow = 10,
              kWindowBuffer = 11, kRowSum = 12;

struct RowParts {
  Expr t = MakeVar("t"), round = MakeVar("round"), lane = MakeVar("lane");
  Expr place() const { return Mad(Mad(round, kRowThreads, t), kWindowLanes, lane); }

  // Every thread needs what another one has read.
  std::vector<Stmt> Reduction() const { return {MakeStore(kSharedRow, t, At(kRowInput, t)), MakeBarrier()}; }
  // Adds up elements of a tensor, a window of some at a time, times the other thread's.
  Stmt Products(const Expr& element, bool unrolled = true) const {
    const Stmt copy = testing::Vectorize(lane, kWindowLanes, MakeStore(kWindowBuffer, lane, element));
    Stmt sum;
    {
      const Expr l = MakeVar("l");
      sum = Unroll(
          l, kWindowLanes,
          MakeStore(kRowSum, I(0),
                    Add(At(kRowSum, I(0)), Mul(At(kWindowBuffer, l), At(kSharedRow, Sub(I(kRowThreads - 1), t))))));
    }
    const Stmt both = MakeSeq({copy, sum});
    return unrolled ? Unroll(round, kWindowRounds, both) : Serial(round, kWindowRounds, both);
  }

  KernelFunc Kernel(std::vector<Stmt> body) const {
    body.insert(body.begin(), MakeStore(kRowSum, I(0), FloatImm(0)));
    body.push_back(MakeStore(kRowResult, t, At(kRowSum, I(0))));
    Stmt all = MakeAlloc(Scoped(kRowSum, "sum", 1, Scope::kLocal), MakeSeq(std::move(body)));
    all = MakeAlloc(Scoped(kWindowBuffer, "window", kWindowLanes, Scope::kLocal), all);
    all = MakeAlloc(Scoped(kSharedRow, "row", kRowThreads, Scope::kShared), all);
    KernelFunc kernel =
        KernelOf("product",
                 {Global(kRowInput, "X", kRowThreads), Global(kCacheInput, "C", kMatrixElements),
                  Global(kFreshInput, "F", kMatrixElements), Global(kConstantInput, "W", kMatrixElements),
                  Global(kRowResult, "Y", kRowThreads, true)},
                 BlockLoop(MakeVar("b"), 1, ThreadLoop(t, kRowThreads, all)), 1, kRowThreads);
    kernel.params[kConstantInput].constant = true;
    return kernel;
  }
};

std::vector<double> ResultOf(const KernelFunc& kernel) {
  testing::NestRunner runner;
  for (const BufferDecl& param : kernel.params)
    for (int64_t i = 0; i < param.elements; ++i)
      runner.buffers[param.id].push_back(static_cast<double>(i * (param.id + 3) % 11));
  runner.Run(kernel);
  return runner.buffers[kRowResult];
}

// The kernel with operands ahead, which computes the same, as text; empty if none are.
std::string OperandsAhead(const KernelFunc& kernel) {
  int next = 20;
  const KernelFunc ahead = WithEarlyOperands(kernel, &next);
  EXPECT_EQ(ResultOf(ahead), ResultOf(kernel)) << ToString(ahead);
  return next == 20 ? "" : ToString(ahead);
}

TEST(EarlyOperands, AreLoadedInFrontOfTheRowsReduction) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  body.push_back(p.Products(At(kCacheInput, p.place())));
  body.push_back(p.Products(At(kConstantInput, p.place())));
  const std::string text = OperandsAhead(p.Kernel(body));
  // Constants come first: they need not wait for another kernel.
  const size_t weights = text.find("= W["), cache = text.find("= C["), row = text.find("= X["),
               barrier = text.find("barrier");
  EXPECT_LT(weights, cache) << text;
  EXPECT_LT(cache, row) << text;
  EXPECT_LT(row, barrier) << text;
  EXPECT_EQ(text.find("C[", barrier), std::string::npos) << text;
}

TEST(EarlyOperands, ChooseBetweenTensorsByWhatIsKnown) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  const Expr first = Lt(Mad(p.round, kRowThreads, p.t), I(20));
  body.push_back(p.Products(Select(first, At(kCacheInput, p.place()), At(kFreshInput, p.place()))));
  const std::string text = OperandsAhead(p.Kernel(body));
  EXPECT_LT(text.find("F["), text.find("barrier")) << text;
  // A condition that is read, from what the barrier publishes or from memory, is not.
  for (const int buffer : {kSharedRow, kRowInput}) {
    body.back() = p.Products(Select(Lt(At(buffer, p.t), FloatImm(4)), At(kCacheInput, p.place()), FloatImm(0)));
    EXPECT_EQ(OperandsAhead(p.Kernel(body)), "");
  }
}

// What a kernel does with constants first need not wait for another kernel.
TEST(EarlyOperands, InputsComeBehindWhatIsDoneWithConstants) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  body.insert(body.begin(), MakeStore(kRowSum, I(0), At(kConstantInput, Mul(p.t, I(3)))));
  body.push_back(p.Products(At(kCacheInput, p.place())));
  const std::string text = OperandsAhead(p.Kernel(body));
  EXPECT_LT(text.find("= W[t * 3]"), text.find("= C[")) << text;
  EXPECT_LT(text.find("= C["), text.find("= X[")) << text;
}

// A bias and a residual behind the sums, where there are any for the thread.
TEST(EarlyOperands, OfResultsAreLoadedUnderTheirConditions) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  const Expr value = Add(At(kSharedRow, Sub(I(kRowThreads - 1), p.t)),
                         Mul(At(kCacheInput, p.t), Add(At(kConstantInput, p.t), At(kCacheInput, p.t))));
  body.push_back(MakeIf(Lt(p.t, I(5)), MakeStore(kRowSum, I(0), value)));
  const std::string text = OperandsAhead(p.Kernel(body));
  const size_t barrier = text.find("barrier");
  EXPECT_LT(text.find("= t < 5 ? W[t] : 0.0"), barrier) << text;
  EXPECT_LT(text.find("= t < 5 ? C[t] : 0.0"), barrier) << text;
  EXPECT_LT(text.rfind("C["), barrier) << text;  // once
}

TEST(EarlyOperands, OthersStayWhereTheyAre) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  // Registers would be chosen by a loop's variable.
  body.push_back(p.Products(At(kCacheInput, p.place()), /*unrolled=*/false));
  EXPECT_EQ(OperandsAhead(p.Kernel(body)), "");
  body.back() = p.Products(Select(Lt(p.t, I(4)), Add(At(kCacheInput, p.place()), FloatImm(1)), FloatImm(0)));
  EXPECT_EQ(OperandsAhead(p.Kernel(body)), "");
  body.back() = p.Products(At(kSharedRow, p.t));
  EXPECT_EQ(OperandsAhead(p.Kernel(body)), "");
  // Nothing is waited for.
  EXPECT_EQ(OperandsAhead(p.Kernel({MakeStore(kSharedRow, Sub(I(kRowThreads - 1), p.t), At(kRowInput, p.t)),
                                    p.Products(At(kCacheInput, p.place()))})),
            "");
}

TEST(EarlyOperands, LeaveRegistersToOthers) {
  const RowParts p;
  std::vector<Stmt> body = p.Reduction();
  body.push_back(p.Products(At(kCacheInput, p.place())));
  KernelFunc kernel = p.Kernel(body);
  const auto moves = [&](int64_t threads) {
    kernel.threads = threads;
    int next = 20;
    return ToString(WithEarlyOperands(kernel, &next)) != ToString(kernel);
  };
  EXPECT_FALSE(moves(512));  // two blocks: 64 registers each
  EXPECT_TRUE(moves(256));
  kernel.resident = 1;
  EXPECT_FALSE(moves(1024));
  EXPECT_TRUE(moves(512));
}

}  // namespace
}  // namespace diapason
