#include "compiler/lower/roles.h"

#include <gtest/gtest.h>

#include "tests/lower/count_statements.h"

namespace diapason {
namespace {

// Blocks of so many threads with a barrier, behind shared memory that is allocated inside of the loop over threads.
KernelFunc SomeKernel(int64_t threads) {
  const Expr block = MakeVar("block"), thread = MakeVar("thread");
  BufferDecl shared{3, "copy", DType::kFloat16, Scope::kShared, 64, true, 16};
  BufferDecl local{4, "sum", DType::kFloat32, Scope::kLocal, 1, true, 4};
  const Stmt inner = MakeSeq({MakeBarrier(), MakeStore(4, IntImm(0), FloatImm(1))});
  KernelFunc kernel;
  kernel.name = "k";
  kernel.threads = threads;
  kernel.body = MakeFor(ForKind::kBlockX, block, 5,
                        MakeFor(ForKind::kThreadX, thread, threads, MakeAlloc(local, MakeAlloc(shared, inner))));
  kernel.producer = MakeComment("asks");
  kernel.before_roles = MakeComment("initializes");
  return kernel;
}

TEST(Roles, AWarpgroupMoreHasOneThreadThatAsks) {
  const KernelFunc kernel = WithRoles(SomeKernel(256));
  EXPECT_EQ(kernel.threads, 384);
  EXPECT_EQ(kernel.producers, 128);
  EXPECT_EQ(kernel.producer, nullptr);
  ASSERT_TRUE(IsLoop(kernel.body, ForKind::kBlockX));
  const Stmt shared = kernel.body->body[0];
  ASSERT_EQ(shared->kind, StmtKind::kAlloc) << "both roles use shared memory";
  EXPECT_EQ(shared->decl.id, 3);
  const Stmt roles = shared->body[0];
  ASSERT_TRUE(IsLoop(roles, ForKind::kThreadX));
  EXPECT_EQ(roles->extent, 384);
  const std::vector<Stmt>& parts = roles->body[0]->body;
  ASSERT_EQ(parts.size(), 4u) << ToString(kernel);
  EXPECT_EQ(parts[0]->body[0]->text, "initializes");
  EXPECT_EQ(parts[1]->kind, StmtKind::kBarrier);
  EXPECT_EQ(parts[1]->extent, 0) << "of all threads";
  EXPECT_EQ(ToString(parts[2]->condition), "role < 256");
  EXPECT_EQ(ToString(parts[3]->condition), "256 <= role");
  Contains(parts[2], [](const StmtNode& s) {
    if (s.kind == StmtKind::kBarrier) {
      EXPECT_EQ(s.extent, 256) << "the producer does not come to it";
    }
    return false;
  });
  const Stmt alone = parts[3]->body[0]->body.back();
  EXPECT_EQ(ToString(alone->condition), "role == 256");
  EXPECT_EQ(alone->body[0]->text, "asks");
}

// 65,536 registers: 168 a thread of 384, of which the producer's warpgroup keeps few.
TEST(Roles, RegistersMoveToThoseThatCompute) {
  for (const auto& [threads, few, many] : {std::tuple(256, 32, 232), {384, 32, 160}}) {
    const KernelFunc kernel = WithRoles(SomeKernel(threads));
    std::vector<int64_t> set;
    int64_t sum = 0;
    Contains(kernel.body, [&](const StmtNode& s) {
      if (s.kind == StmtKind::kSetRegisters) set.push_back(s.extent);
      return false;
    });
    ASSERT_EQ(set.size(), 2u) << threads;
    EXPECT_GE(set[0], many) << threads;
    EXPECT_LE(set[1], few) << threads;
    sum = set[0] * threads + set[1] * 128;
    EXPECT_LE(sum, 65536) << threads;
  }
  // One warpgroup has all that a thread can have.
  EXPECT_EQ(testing::CountStatements(WithRoles(SomeKernel(128)).body, StmtKind::kSetRegisters), 0);
}

TEST(Roles, KernelsWithoutAProducerStayAsTheyAre) {
  KernelFunc kernel = SomeKernel(256);
  kernel.producer = nullptr;
  const Stmt body = kernel.body;
  EXPECT_EQ(WithRoles(kernel).body, body);
  EXPECT_EQ(WithRoles(kernel).threads, 256);
}

// Where the producer asks for constants before it waits for the kernel in front.
TEST(Roles, WaitByThemselvesWhereConstantsComeFirst) {
  for (const bool first : {false, true}) {
    KernelFunc kernel = SomeKernel(256);
    kernel.constants_first = first;
    int roles = 0;
    Contains(WithRoles(kernel).body, [&](const StmtNode& s) {
      roles += s.role;
      return false;
    });
    EXPECT_EQ(roles, first ? 3 : 0) << "those that compute, the producer's warpgroup, and the producer";
  }
}

TEST(Roles, WhatLetsTheNextKernelStartStaysInFront) {
  KernelFunc kernel = SomeKernel(256);
  kernel.body = MakeSeq({MakeLaunchDependents(), kernel.body});
  const KernelFunc made = WithRoles(kernel);
  ASSERT_EQ(made.body->kind, StmtKind::kSeq);
  EXPECT_EQ(made.body->body[0]->kind, StmtKind::kLaunchDependents);
  EXPECT_TRUE(IsLoop(made.body->body[1], ForKind::kBlockX)) << "blocks are known to both roles";
}

}  // namespace
}  // namespace diapason
