#include "compiler/lower/stmt.h"

#include "gtest/gtest.h"

namespace diapason {
namespace {

BufferDecl Decl(int id, const std::string& name, int64_t elements, Scope scope) {
  BufferDecl decl;
  decl.id = id;
  decl.name = name;
  decl.elements = elements;
  decl.scope = scope;
  return decl;
}

TEST(Stmt, SequencesAreFlatAndHoldNoNulls) {
  const Stmt a = MakeBarrier(), b = MakeComment("b");
  const Stmt seq = MakeSeq({a, nullptr, MakeSeq({b, a}), nullptr});
  ASSERT_EQ(seq->kind, StmtKind::kSeq);
  EXPECT_EQ(seq->body, (std::vector<Stmt>{a, b, a}));
  EXPECT_EQ(MakeSeq({nullptr, a}), a);
  EXPECT_EQ(MakeSeq({}), nullptr);
}

TEST(Stmt, DecidedConditionsVanish) {
  const Stmt body = MakeBarrier();
  EXPECT_EQ(MakeIf(IntImm(1, DType::kBool), body), body);
  EXPECT_EQ(MakeIf(IntImm(0, DType::kBool), body), nullptr);
  EXPECT_EQ(MakeIf(Lt(MakeVar("i"), IntImm(3)), body)->kind, StmtKind::kIf);
}

TEST(Stmt, NothingAroundNothingIsNothing) {
  EXPECT_EQ(MakeFor(ForKind::kSerial, MakeVar("i"), 4, nullptr), nullptr);
  EXPECT_EQ(MakeLet(MakeVar("x"), IntImm(1), nullptr), nullptr);
  EXPECT_EQ(MakeAlloc(Decl(0, "t", 4, Scope::kLocal), nullptr), nullptr);
  EXPECT_EQ(MakeIf(Lt(MakeVar("i"), IntImm(3)), nullptr), nullptr);
}

TEST(Stmt, PrintsAsIndentedLoops) {
  const Expr b = MakeVar("b"), t = MakeVar("t"), k = MakeVar("k"), x = MakeVar("x");
  const Stmt store = MakeStore(1, x, Add(Load(5, DType::kFloat32, {k}), Load(0, DType::kFloat32, {x})));
  const Stmt inner =
      MakeSeq({MakeComment("sum"), MakeBarrier(),
               MakeFor(ForKind::kSerial, k, 3, MakeLet(x, Add(t, k), MakeIf(Lt(x, IntImm(9)), store)), 2)});
  KernelFunc kernel;
  kernel.name = "add";
  kernel.params = {Decl(0, "X", 10, Scope::kGlobal), Decl(1, "Y", 10, Scope::kGlobal)};
  kernel.params[1].written = true;
  kernel.blocks = 2;
  kernel.threads = 8;
  kernel.shared_bytes = 16;
  kernel.body = MakeFor(ForKind::kBlockX, b, 2,
                        MakeFor(ForKind::kThreadX, t, 8, MakeAlloc(Decl(5, "tile", 4, Scope::kShared), inner)));
  EXPECT_EQ(ToString(kernel), R"(kernel add(float32 X[10], float32 out Y[10]) blocks 2 threads 8 shared 16:
  blockIdx.x b in 2:
    threadIdx.x t in 8:
      shared float32 tile[4]
      # sum
      barrier
      for k in 3 (unroll 2):
        let x = t + k
        if x < 9:
          Y[x] = tile[k] + X[x]
)");
}

}  // namespace
}  // namespace diapason
