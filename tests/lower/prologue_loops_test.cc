#include "compiler/lower/prologue_loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/lower/count_statements.h"

namespace diapason {
namespace {

constexpr int kFrom = 0, kTo = 1, kSum = 2;

// Runs a kernel of loops, stores and registers.
class Machine {
 public:
  explicit Machine(std::vector<double> from) { memory_[kFrom] = std::move(from); }

  const std::vector<double>& Run(const KernelFunc& kernel, size_t elements) {
    memory_[kTo].assign(elements, -1);
    memory_[kSum].assign(16, -1);
    Execute(kernel.body);
    return memory_[kTo];
  }

 private:
  void Execute(const Stmt& stmt) {
    if (stmt->kind == StmtKind::kStore) {
      memory_[stmt->buffer].at(static_cast<size_t>(ValueOf(stmt->index))) = ValueOf(stmt->value);
      return;
    }
    const int64_t times = stmt->kind == StmtKind::kFor ? stmt->extent : 1;
    for (int64_t i = 0; i < times; ++i) {
      if (stmt->kind == StmtKind::kFor) variables_[stmt->var.get()] = i;
      for (const Stmt& child : stmt->body) Execute(child);
    }
  }

  double ValueOf(const Expr& e) {
    const auto arg = [&](int i) { return ValueOf(e->args[i]); };
    const auto whole = [&](int i) { return static_cast<int64_t>(arg(i)); };
    switch (e->kind) {
      case ExprKind::kIntImm: return static_cast<double>(e->value);
      case ExprKind::kFloatImm: return e->fvalue;
      case ExprKind::kVar: return static_cast<double>(variables_.at(e.get()));
      case ExprKind::kAdd: return arg(0) + arg(1);
      case ExprKind::kSub: return arg(0) - arg(1);
      case ExprKind::kMul: return arg(0) * arg(1);
      case ExprKind::kFloorDiv: return static_cast<double>(whole(0) / whole(1));
      case ExprKind::kFloorMod: return static_cast<double>(whole(0) % whole(1));
      case ExprKind::kEq: return arg(0) == arg(1) ? 1 : 0;
      case ExprKind::kLt: return arg(0) < arg(1) ? 1 : 0;
      case ExprKind::kSelect: return arg(0) != 0 ? arg(1) : arg(2);
      case ExprKind::kLoad: return memory_[e->buffer].at(static_cast<size_t>(whole(0)));
      default: ADD_FAILURE() << ToString(e); return 0;
    }
  }

  std::map<int, std::vector<double>> memory_;
  std::map<const ExprNode*, int64_t> variables_;
};

KernelFunc Over(const Expr& var, int64_t extent, Stmt body) {
  KernelFunc kernel;
  kernel.name = "k";
  kernel.body = MakeFor(ForKind::kParallel, var, extent, std::move(body));
  kernel.blocks = extent;
  return kernel;
}

std::vector<double> Numbers(size_t count) {
  std::vector<double> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<double>(i * i % 1000 + i);
  return numbers;
}

int VectorsIn(const KernelFunc& kernel, int64_t lanes) {
  return testing::CountStatements(kernel.body, [&](const StmtNode& s) {
    return s.kind == StmtKind::kFor && s.for_kind == ForKind::kVectorize && s.extent == lanes;
  });
}

// 6 rows of 96 elements in tiles of `tile`, and how far the elements of a row lie apart.
KernelFunc PackRows(int64_t tile, int64_t apart = 1) {
  const Expr row = MakeVar("row"), i = MakeVar("i");
  const Expr to = Add(Add(Mul(FloorDiv(i, tile), IntImm(6 * tile)), Mul(row, IntImm(tile))), FloorMod(i, tile));
  const Expr from = apart == 1 ? Add(Mul(row, IntImm(96)), i) : Add(row, Mul(i, IntImm(apart)));
  return Over(row, 6, MakeFor(ForKind::kSerial, i, 96, MakeStore(kTo, to, Load(kFrom, DType::kFloat32, {from}))));
}

TEST(PrologueLoops, CopiesIntoTilesAreOfVectors) {
  Machine machine(Numbers(6 * 96));
  for (const auto& [tile, lanes] : std::vector<std::pair<int64_t, int64_t>>{{32, 16}, {16, 16}, {24, 8}, {12, 4}}) {
    const KernelFunc plain = PackRows(tile), fast = WithFasterLoops(plain, 64);
    EXPECT_EQ(VectorsIn(fast, lanes), 1) << tile << "\n" << ToString(fast);
    const std::vector<double> want = machine.Run(plain, 6 * 96);
    EXPECT_EQ(machine.Run(fast, 6 * 96), want) << ToString(fast);
  }
  EXPECT_EQ(VectorsIn(WithFasterLoops(PackRows(32), 32), 8), 1) << "of a processor with shorter ones";
}

TEST(PrologueLoops, CopiesOfElementsThatLieApartStay) {
  for (const KernelFunc& kernel : {PackRows(32, 6), PackRows(3), PackRows(1)}) {
    const KernelFunc same = WithFasterLoops(kernel, 64);
    EXPECT_EQ(same.body, kernel.body) << ToString(same);
  }
}

// to[t, c, 0..16) = from[c, 0..16) * factor of t / 2 + from[c, 16..32) * factor of t % 2, over t * c.
KernelFunc Transform(int64_t places, int64_t rows, int64_t divisor) {
  const Expr tc = MakeVar("t_c"), part = MakeVar("part"), lane = MakeVar("lane"), other = MakeVar("lane");
  const Expr t = FloorDiv(tc, divisor), c = FloorMod(tc, rows);
  const auto factor = [](const Expr& number, double a, double b) {
    return Select(Eq(number, IntImm(0)), FloatImm(a), FloatImm(b));
  };
  const Expr given = Load(kFrom, DType::kFloat32, {Add(Add(Mul(c, IntImm(32)), Mul(part, IntImm(16))), lane)});
  const Expr term = Select(Eq(part, IntImm(0)), Mul(given, factor(FloorDiv(tc, 2 * divisor), 0.5, -2)),
                           Select(Eq(FloorMod(t, 2), IntImm(0)), FloatImm(-0.0), Mul(given, FloatImm(3))));
  BufferDecl sum;
  sum.id = kSum;
  sum.name = "sum";
  sum.scope = Scope::kLocal;
  sum.elements = 16;
  const auto vector = [](const Expr& var, Stmt store) {
    return MakeFor(ForKind::kVectorize, var, 16, std::move(store));
  };
  const Expr held = Load(kSum, DType::kFloat32, {lane});
  return Over(
      tc, places * rows,
      MakeAlloc(sum, MakeSeq({vector(other, MakeStore(kSum, other, FloatImm(0))),
                              MakeFor(ForKind::kSerial, part, 2, vector(lane, MakeStore(kSum, lane, Add(held, term)))),
                              vector(other, MakeStore(kTo, Add(Mul(tc, IntImm(16)), other),
                                                      Load(kSum, DType::kFloat32, {other})))})));
}

TEST(PrologueLoops, TransformsHaveTheirCoefficientsInTheCode) {
  const KernelFunc plain = Transform(4, 10, 10), fast = WithFasterLoops(plain, 64);
  EXPECT_EQ(fast.blocks, 10);
  EXPECT_EQ(fast.body->extent, 10);
  const std::string text = ToString(fast);
  EXPECT_EQ(text.find("?"), std::string::npos) << text;
  // Of each of the four places: zeros, one or both parts, and the result.
  EXPECT_EQ(VectorsIn(fast, 16), 4 * 2 + 4 + 2) << text;
  EXPECT_EQ(testing::CountStatements(fast.body, StmtKind::kAlloc), 1);
  Machine machine(Numbers(10 * 32));
  const std::vector<double> want = machine.Run(plain, 4 * 10 * 16);
  EXPECT_EQ(machine.Run(fast, 4 * 10 * 16), want) << text;
}

TEST(PrologueLoops, TransformsThatWouldBeTooLongStay) {
  for (const KernelFunc& kernel : {Transform(66, 10, 10), Transform(4, 10, 7)})
    EXPECT_EQ(WithFasterLoops(kernel, 64).body, kernel.body);
}

TEST(PrologueLoops, OtherKernelsStay) {
  const Expr i = MakeVar("i");
  const KernelFunc guarded = Over(i, 8, MakeIf(Lt(i, IntImm(5)), MakeStore(kTo, i, Load(kFrom, DType::kFloat32, {i}))));
  EXPECT_EQ(WithFasterLoops(guarded, 64).body, guarded.body);
  const KernelFunc single = Over(i, 8, MakeStore(kTo, i, Load(kFrom, DType::kFloat32, {i})));
  EXPECT_EQ(WithFasterLoops(single, 64).body, single.body);
}

}  // namespace
}  // namespace diapason
