#include "compiler/lower/remote_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/codegen/gpu_kernels.h"
#include "tests/codegen/reference.h"

namespace diapason {
namespace {

using testing::At;
using testing::BlockLoop;
using ::testing::ElementsAre;
using testing::Global;
using testing::I;
using testing::KernelOf;
using testing::Mad;
using testing::Scoped;
using testing::ThreadLoop;
using testing::Unroll;
using testing::Vectorize;

constexpr int64_t kClusterBlocks = 2, kSummers = 4, kVector = 2;
constexpr int kMatrices = 0, kSumBias = 1, kSumResidual = 2, kSummedTiles = 3, kPartTile = 10, kPartSums = 11;

// The blocks of a cluster copy a matrix each to their tiles; then each stores its share of the rounds of sums.
struct SummedTiles {
  int64_t rounds = 3;
  bool unrolled = true;
  int64_t sums = 0;  // registers of products in front of all; 0: none
  Expr rank = MakeVar("rank"), round = MakeVar("round"), thread = MakeVar("thread"), lane = MakeVar("lane");

  int64_t elements() const { return rounds * kClusterBlocks * kSummers * kVector; }
  Expr place() const { return Mad(Mad(Mad(round, kClusterBlocks, rank), kSummers, thread), kVector, lane); }
  Expr bias_place() const { return Mad(thread, kVector, lane); }
  Expr Part(int64_t which) const {
    Expr own = At(kPartTile, place());
    return which == 0 ? own
                      : Load(kPartTile, DType::kFloat32, {place(), FloorMod(Add(rank, I(which)), kClusterBlocks)});
  }
  Expr Sum() const { return Add(Add(Add(Part(0), Part(1)), At(kSumBias, bias_place())), At(kSumResidual, place())); }

  KernelFunc Kernel(const Expr& value, const Expr& condition = nullptr) const {
    const Expr t = MakeVar("t"), i = MakeVar("i");
    const Expr from = Mad(i, kSummers, t);
    const Stmt copy = ThreadLoop(
        t, kSummers,
        Unroll(i, elements() / kSummers, MakeStore(kPartTile, from, At(kMatrices, Mad(rank, elements(), from)))));
    Stmt store = MakeStore(kSummedTiles, place(), value);
    if (condition) store = MakeIf(condition, store);
    store = Vectorize(lane, kVector, store);
    store = unrolled ? Unroll(round, rounds, store) : testing::Serial(round, rounds, store);
    const Stmt product = sums == 0 ? nullptr
                                   : MakeMma(TensorMode::kHalf, {DType::kFloat16, DType::kFloat16}, kPartSums,
                                             {I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), I(9)}, true);
    Stmt body = MakeSeq({copy, product, MakeClusterBarrier(), ThreadLoop(thread, kSummers, store), MakeClusterEnd()});
    if (product) body = MakeAlloc(Scoped(kPartSums, "sums", sums, Scope::kLocal), body);
    body = MakeAlloc(Scoped(kPartTile, "tile", elements(), Scope::kShared), body);
    body = BlockLoop(MakeVar("b"), 1, MakeFor(ForKind::kCluster, rank, kClusterBlocks, body));
    KernelFunc kernel =
        KernelOf("sum",
                 {Global(kMatrices, "X", kClusterBlocks * elements()), Global(kSumBias, "bias", kSummers * kVector),
                  Global(kSumResidual, "R", elements()), Global(kSummedTiles, "Y", elements(), true)},
                 body, kClusterBlocks, kSummers);
    kernel.cluster = kClusterBlocks;
    kernel.params[kSumBias].constant = true;
    return kernel;
  }
};

std::vector<double> SumsOf(const KernelFunc& kernel) {
  testing::NestRunner runner;
  for (const BufferDecl& param : kernel.params)
    for (int64_t i = 0; i < param.elements; ++i)
      runner.buffers[param.id].push_back(param.written ? -1 : static_cast<double>(i * (param.id + 3) % 29));
  runner.Run(kernel);
  return runner.buffers[kSummedTiles];
}

// The kernel with loads ahead, which computes the same, as text; empty if it stays as it is.
std::string LoadsAhead(const KernelFunc& kernel) {
  int next = 20;
  const KernelFunc ahead = WithRemoteLoadsAhead(kernel, &next);
  EXPECT_EQ(SumsOf(ahead), SumsOf(kernel)) << ToString(ahead);
  EXPECT_EQ(next == 20, ToString(ahead) == ToString(kernel));
  return next == 20 ? "" : ToString(ahead);
}

TEST(RemoteLoads, ComeInFrontOfTheFirstResult) {
  const SummedTiles tiles;
  const std::string text = LoadsAhead(tiles.Kernel(tiles.Sum()));
  const size_t barrier = text.find("cluster barrier"), store = text.find("Y[", barrier);
  ASSERT_NE(store, std::string::npos) << text;
  for (const char* load : {"tile[", "bias[", "R["}) {
    EXPECT_LT(text.find(load, barrier), store) << text;
    EXPECT_EQ(text.find(load, store), std::string::npos) << text;
  }
  EXPECT_NE(text.find("local float32 ahead20[6]"), std::string::npos) << text;  // a vector of each round
  EXPECT_NE(text.find("local float32 ahead22[2]"), std::string::npos) << text;  // the bias is the same in all rounds
}

// Where they load with the products: a bias at the kernel's head, a residual, which the kernel in front may have to
// write first, in front of the products.
std::vector<std::string> OrderBehindProducts(const SummedTiles& tiles, const Expr& condition = nullptr) {
  int next = 20;
  const std::string text = ToString(WithRemoteLoadsAhead(tiles.Kernel(tiles.Sum(), condition), &next));
  std::map<size_t, std::string> order;
  for (const char* part : {"= bias[", "= X[", "= R[", "mma", "cluster barrier"}) order[text.find(part)] = part;
  EXPECT_EQ(order.size(), 5u) << text;
  std::vector<std::string> parts;
  for (const auto& [at, part] : order) parts.push_back(part);
  return parts;
}

TEST(RemoteLoads, WhatNoBlockWritesIsLoadedInFrontOfTheProducts) {
  SummedTiles tiles;
  tiles.sums = 10;
  for (int64_t rounds : {1, 3}) {
    tiles.rounds = rounds;
    for (const bool guarded : {false, true})
      EXPECT_THAT(
          OrderBehindProducts(tiles, guarded ? Lt(Mad(tiles.round, kClusterBlocks, tiles.rank), I(1)) : nullptr),
          ElementsAre("= bias[", "= X[", "= R[", "mma", "cluster barrier"))
          << rounds << guarded;
  }
}

TEST(RemoteLoads, ProductsNeedTheirRegisters) {
  SummedTiles tiles;
  tiles.sums = 174;  // of 240, all else needs 64: the bias fits, the residual does not
  EXPECT_THAT(OrderBehindProducts(tiles), ElementsAre("= bias[", "= X[", "mma", "cluster barrier", "= R["));
}

TEST(RemoteLoads, HappenWhereTheResultIsNeeded) {
  const SummedTiles tiles;
  const Expr condition = Lt(Mad(tiles.round, kClusterBlocks, tiles.rank), I(5));
  const std::string text = LoadsAhead(tiles.Kernel(tiles.Sum(), condition));
  size_t conditions = 0;
  for (size_t at = text.find("if round"); at != std::string::npos; at = text.find("if round", at + 1)) ++conditions;
  EXPECT_EQ(conditions, 5u) << text;  // of the four loads and of the store
}

TEST(RemoteLoads, OfOneResultStayWhereTheyAre) {
  SummedTiles tiles;
  tiles.rounds = 1;
  EXPECT_EQ(LoadsAhead(tiles.Kernel(tiles.Sum())), "");
}

TEST(RemoteLoads, InLoopsThatAreNotUnrolledStayWhereTheyAre) {
  SummedTiles tiles;
  tiles.unrolled = false;
  EXPECT_EQ(LoadsAhead(tiles.Kernel(tiles.Sum())), "");
}

TEST(RemoteLoads, OfTheBlockItselfStayWhereTheyAre) {
  const SummedTiles tiles;
  EXPECT_EQ(LoadsAhead(tiles.Kernel(Add(tiles.Part(0), At(kSumResidual, tiles.place())))), "");
}

TEST(RemoteLoads, ThatAThreadHasNoRegistersForStayWhereTheyAre) {
  SummedTiles tiles;
  tiles.rounds = 21;  // 3 x 21 vectors of two, and the bias: 128 registers
  EXPECT_NE(LoadsAhead(tiles.Kernel(tiles.Sum())), "");
  tiles.rounds = 22;
  EXPECT_EQ(LoadsAhead(tiles.Kernel(tiles.Sum())), "");
}

TEST(RemoteLoads, WhoseConditionIsReadStayWhereTheyAre) {
  const SummedTiles tiles;
  EXPECT_EQ(LoadsAhead(tiles.Kernel(tiles.Sum(), Lt(At(kSumResidual, tiles.place()), FloatImm(10)))), "");
}

// What is not chosen need not be possible to load.
TEST(RemoteLoads, ThatAreChosenStayInTheChoice) {
  const SummedTiles tiles;
  const Expr chosen = Select(Lt(tiles.round, I(2)), At(kSumResidual, tiles.place()), FloatImm(0));
  const std::string text = LoadsAhead(tiles.Kernel(Add(Add(tiles.Part(0), tiles.Part(1)), chosen)));
  const size_t barrier = text.find("cluster barrier"), store = text.find("Y[", barrier);
  EXPECT_LT(store, text.find("R[", barrier)) << text;
  EXPECT_EQ(text.find("tile[", store), std::string::npos) << text;
}

}  // namespace
}  // namespace diapason
