#include "compiler/lower/wide_stores.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/lower/count_statements.h"
#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

constexpr int kOutput = 0, kResidual = 1, kAccumulators = 2;

// What a warp does with 16 rows of `tiles` times 8 columns: a lane has two columns of two rows of each tile.
struct Nest {
  explicit Nest(int64_t tiles_of_row) : tiles(tiles_of_row) {}

  KernelFunc Kernel() const {
    const Expr row = Add(Mul(half, IntImm(8)), FloorDiv(thread, 4));
    const Expr index =
        Add(Mul(row, IntImm(stride)), Add(Mul(tile, IntImm(8)), Add(Mul(FloorMod(thread, 4), IntImm(2)), column)));
    const Expr sum =
        Load(kAccumulators, DType::kFloat32, {Add(Add(Mul(half, IntImm(2 * tiles)), Mul(tile, IntImm(2))), column)});
    Expr value = sum;
    if (adds) value = Add(sum, Cast(DType::kFloat32, Load(kResidual, dtype, {index})));
    Stmt body = MakeStore(kOutput, index, Cast(dtype, value));
    if (inner) body = MakeIf(inner(*this), body);
    body = MakeFor(ForKind::kVectorize, column, 2, body);
    body = MakeFor(ForKind::kUnroll, half, 2, body);
    body = MakeFor(ForKind::kUnroll, tile, tiles, body);
    if (outer) body = MakeIf(outer(*this), body);
    if (names_lane) body = MakeLet(lane, FloorMod(thread, 4), body);
    KernelFunc kernel;
    kernel.name = "k";
    kernel.threads = threads;
    kernel.params = {{kOutput, "y", dtype, Scope::kGlobal, 1024, true, 0},
                     {kResidual, "r", dtype, Scope::kGlobal, 1024}};
    kernel.body = MakeFor(ForKind::kThreadX, thread, 32, MakeFor(ForKind::kBlockX, block, 4, body));
    return kernel;
  }

  int64_t tiles, stride = 64, threads = 32;
  DType dtype = DType::kFloat16;
  bool adds = false, names_lane = false;
  std::function<Expr(const Nest&)> inner, outer;  // conditions
  Expr thread = MakeVar("thread"), block = MakeVar("block"), tile = MakeVar("tile"), lane = MakeVar("lane"),
       half = MakeVar("half"), column = MakeVar("column");
};

Stmt Wide(const Nest& nest) {
  int next_buffer = 10;
  return WithWideStores(nest.Kernel(), &next_buffer).body;
}

std::vector<Stmt> QuadStores(const Stmt& body) {
  if (body->kind == StmtKind::kQuadStore) return {body};
  std::vector<Stmt> all;
  for (const Stmt& child : body->body)
    for (const Stmt& store : QuadStores(child)) all.push_back(store);
  return all;
}

// The loop over groups of tiles, at whatever depth.
Expr GroupOf(const Stmt& body) { return IsLoop(body, ForKind::kUnroll) ? body->var : GroupOf(body->body[0]); }

TEST(WideStores, TilesAreStoredInGroupsOfFourOrTwo) {
  for (const auto& [tiles, together] : {std::pair<int64_t, int64_t>{8, 4}, {4, 4}, {6, 2}, {2, 2}}) {
    const Nest nest(tiles);
    const Stmt body = Wide(nest);
    const std::vector<Stmt> stores = QuadStores(body);
    ASSERT_EQ(stores.size(), 1u) << ToString(body);
    const StmtNode& store = *stores[0];
    EXPECT_EQ(store.buffer, kOutput);
    EXPECT_EQ(store.extent, 32);
    ASSERT_EQ(static_cast<int64_t>(store.operands.size()), 2 * together);
    const Expr group = GroupOf(body);
    for (int64_t g = 0; g < tiles / together; ++g)
      for (int64_t half : {0, 1})
        for (int64_t thread : {0, 3, 4, 31}) {
          const std::vector<std::pair<Expr, int64_t>> at = {
              {nest.thread, thread}, {group, g}, {nest.half, half}, {nest.block, 0}};
          EXPECT_EQ(testing::NumberAt(store.index, at), (half * 8 + thread / 4) * 64 + g * together * 8);
          for (int64_t i = 0; i < 2 * together; ++i) {
            ASSERT_EQ(store.operands[i]->kind, ExprKind::kCast);
            const Expr& sum = store.operands[i]->args[0];
            EXPECT_EQ(sum->buffer, kAccumulators);
            EXPECT_EQ(testing::NumberAt(sum->args[0], at), half * 2 * tiles + g * together * 2 + i);
          }
        }
  }
}

// 16 bytes of a lane lie at a multiple of 16 bytes, or else 8 of 8.
TEST(WideStores, LanesStoreWhereItIsAligned) {
  Nest eights(4), fours(4), twos(4);
  eights.stride = 40;
  fours.stride = 36;
  twos.stride = 34;
  EXPECT_EQ(QuadStores(Wide(eights)).at(0)->operands.size(), 8u);
  EXPECT_EQ(QuadStores(Wide(fours)).at(0)->operands.size(), 4u);
  EXPECT_TRUE(QuadStores(Wide(twos)).empty());
}

TEST(WideStores, OthersStayAsTheyAre) {
  Nest wide(4), odd(3), part(4), columns(4), tile(4), named(4);
  wide.dtype = DType::kFloat32;
  part.threads = 64;
  columns.inner = [](const Nest& n) { return Lt(Add(Mul(n.tile, IntImm(8)), n.column), IntImm(30)); };
  tile.inner = [](const Nest& n) { return Lt(Add(FloorMod(n.thread, 4), n.tile), IntImm(5)); };
  named.names_lane = true;
  named.inner = [](const Nest& n) { return Lt(n.lane, IntImm(3)); };
  for (const Nest* nest : {&wide, &odd, &part, &columns, &tile, &named}) {
    const KernelFunc kernel = nest->Kernel();
    int next_buffer = 10;
    EXPECT_EQ(WithWideStores(kernel, &next_buffer).body, kernel.body) << ToString(kernel);
    EXPECT_EQ(next_buffer, 10);
  }
}

// A warp exchanges in one operation only if all its lanes are there.
TEST(WideStores, LanesOfOtherRowsMayBeElsewhere) {
  Nest rows(4), around(4), blocks(4);
  rows.inner = [](const Nest& n) { return Lt(Add(Mul(n.half, IntImm(8)), FloorDiv(n.thread, 4)), IntImm(13)); };
  around.outer = [](const Nest& n) { return Lt(n.thread, IntImm(16)); };
  blocks.outer = [](const Nest& n) { return Lt(n.block, IntImm(3)); };
  EXPECT_EQ(QuadStores(Wide(rows)).at(0)->extent, 4);
  EXPECT_EQ(QuadStores(Wide(around)).at(0)->extent, 4);
  EXPECT_EQ(QuadStores(Wide(blocks)).at(0)->extent, 32);
}

// Two columns of a residual are loaded at once.
TEST(WideStores, WhatIsAddedFromMemoryIsLoadedInPairs) {
  Nest nest(4);
  nest.adds = true;
  const Stmt body = Wide(nest);
  const Stmt store = QuadStores(body).at(0);
  ASSERT_EQ(store->operands.size(), 8u);
  EXPECT_EQ(store->operands[0]->buffer, 10) << "a buffer of its own";
  EXPECT_EQ(testing::CountStatements(body,
                                     [](const StmtNode& s) {
                                       return s.kind == StmtKind::kFor && s.for_kind == ForKind::kVectorize &&
                                              LoadsFrom(s.body[0]->value,
                                                        [](int buffer) { return buffer == kResidual; });
                                     }),
            1);
}

// What a warp does with 16 columns of `tiles` times 8 rows: a lane has two rows of two columns of each tile.
struct TurnedNest {
  KernelFunc Kernel() const {
    const Expr row = Add(Mul(tile, IntImm(8)), Add(Mul(FloorMod(thread, 4), IntImm(2)), pair));
    const Expr column = Add(Mul(half, IntImm(8)), FloorMod(FloorDiv(thread, 4), 8));
    const Expr index = Add(Mul(row, IntImm(stride)), column);
    Expr value = Load(kAccumulators, DType::kFloat32, {Add(Mul(half, IntImm(2)), pair)});
    if (adds) value = Add(value, Cast(DType::kFloat32, Load(kResidual, dtype, {index})));
    Stmt body = MakeStore(kOutput, index, Cast(dtype, value));
    if (inner) body = MakeIf(inner(row, column), body);
    body = MakeFor(ForKind::kUnroll, half, 2, MakeFor(ForKind::kVectorize, pair, 2, body));
    body = MakeFor(ForKind::kUnroll, tile, 3, body);
    if (outer) body = MakeIf(outer(thread), body);
    body = MakeAlloc({kAccumulators, "c", DType::kFloat32, accumulators, 4}, body);
    KernelFunc kernel;
    kernel.name = "k";
    kernel.threads = 32;
    kernel.params = {{kOutput, "y", dtype, Scope::kGlobal, 1024, true, 0},
                     {kResidual, "r", dtype, Scope::kGlobal, 1024}};
    kernel.body = MakeFor(ForKind::kThreadX, thread, 32, body);
    return kernel;
  }

  int64_t stride = 40;
  DType dtype = DType::kFloat16;
  bool adds = false;
  Scope accumulators = Scope::kLocal;
  std::function<Expr(const Expr& row, const Expr& column)> inner;
  std::function<Expr(const Expr& thread)> outer;
  Expr thread = MakeVar("thread"), tile = MakeVar("tile"), half = MakeVar("half"), pair = MakeVar("pair");
};

// A lane says where its row of the eight begins, and has two elements of two columns for others.
TEST(TransposedStores, RowsOfSixteenAreStoredTogether) {
  TurnedNest nest;
  nest.inner = [](const Expr& row, const Expr&) { return Lt(row, IntImm(21)); };
  int next_buffer = 10;
  const Stmt body = WithWideStores(nest.Kernel(), &next_buffer).body;
  ASSERT_EQ(QuadStores(body).size(), 1u) << ToString(body);
  const StmtNode& store = *QuadStores(body)[0];
  EXPECT_TRUE(store.transposed);
  ASSERT_EQ(store.operands.size(), 4u);
  for (int64_t tile = 0; tile < 3; ++tile)
    for (int64_t thread : {0, 3, 4, 22, 31}) {
      const std::vector<std::pair<Expr, int64_t>> at = {{nest.thread, thread}, {nest.tile, tile}};
      const int64_t row = tile * 8 + thread / 4;
      EXPECT_EQ(testing::NumberAt(store.index, at), row * 40);
      EXPECT_EQ(testing::NumberAt(store.condition, at), row < 21);
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(testing::NumberAt(store.operands[i]->args[0]->args[0], at), i);
    }
}

// Conditions that both rows of a lane share, and those of eight columns.
TEST(TransposedStores, ALaneStoresWhatItsConditionIsOf) {
  TurnedNest nest;
  nest.inner = [&](const Expr&, const Expr&) {
    return And(Lt(Add(Mul(nest.tile, IntImm(4)), FloorMod(nest.thread, 4)), IntImm(10)), Lt(nest.half, IntImm(1)));
  };
  int next_buffer = 10;
  const Stmt body = WithWideStores(nest.Kernel(), &next_buffer).body;
  ASSERT_EQ(QuadStores(body).size(), 1u) << ToString(body);
  for (int64_t tile = 0; tile < 3; ++tile)
    for (int64_t thread = 0; thread < 32; ++thread) {
      const std::vector<std::pair<Expr, int64_t>> at = {{nest.thread, thread}, {nest.tile, tile}};
      const int64_t row = tile * 8 + thread / 4, half = thread % 2;
      EXPECT_EQ(testing::NumberAt(QuadStores(body)[0]->condition, at), row < 20 && half < 1) << thread;
    }
}

TEST(TransposedStores, OthersStayAsTheyAre) {
  TurnedNest words, odd, columns, divergent, adds, shared;
  words.dtype = DType::kFloat32;
  odd.stride = 42;
  columns.inner = [](const Expr&, const Expr& column) { return Lt(column, IntImm(13)); };
  divergent.outer = [](const Expr& thread) { return Lt(thread, IntImm(16)); };
  adds.adds = true;
  shared.accumulators = Scope::kShared;  // where a condition may be what keeps a load inside
  for (const TurnedNest* nest : {&words, &odd, &columns, &divergent, &adds, &shared}) {
    const KernelFunc kernel = nest->Kernel();
    int next_buffer = 10;
    EXPECT_EQ(WithWideStores(kernel, &next_buffer).body, kernel.body) << ToString(kernel);
  }
}

}  // namespace
}  // namespace diapason
