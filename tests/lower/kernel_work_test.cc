#include "compiler/lower/kernel_work.h"

#include "compiler/lower/lower.h"
#include "compiler/tensor/target.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

BufferDecl Param(int id, int64_t elements) {
  BufferDecl decl;
  decl.id = id;
  decl.name = "p" + std::to_string(id);
  decl.elements = elements;
  return decl;
}

Stmt SerialLoop(const Expr& var, int64_t extent, Stmt body) {
  return MakeFor(ForKind::kSerial, var, extent, std::move(body));
}

// c[i, j] += a[i, k] * b[k, j] over 4 x 8 x 16.
KernelFunc Gemm() {
  const Expr i = MakeVar("i"), j = MakeVar("j"), k = MakeVar("k");
  const Expr at = Add(Mul(i, IntImm(8)), j);
  const Expr product = Mul(Load(0, DType::kFloat32, {Add(Mul(i, IntImm(16)), k)}),
                           Load(1, DType::kFloat32, {Add(Mul(k, IntImm(8)), j)}));
  KernelFunc kernel;
  kernel.params = {Param(0, 64), Param(1, 128), Param(2, 32)};
  kernel.body = SerialLoop(
      i, 4, SerialLoop(j, 8, SerialLoop(k, 16, MakeStore(2, at, Add(Load(2, DType::kFloat32, {at}), product)))));
  return kernel;
}

TEST(KernelWork, AProductIsTwoOperationsAndReadsEachElementOnce) {
  const KernelWork work = WorkOf(Gemm());
  EXPECT_EQ(work.flops, 2 * 4 * 8 * 16);
  EXPECT_EQ(work.bytes, 4 * (64 + 128 + 32)) << "the sums are written, and read from where they were written";
  EXPECT_EQ(work.tensor, TensorMode::kNone);
}

// y[i] = x[0] * (i == 0 ? 1 : i == 1 ? 0 : 3) + x[1]
TEST(KernelWork, FactorsOfZeroAndOneAreNoOperations) {
  const Expr i = MakeVar("i");
  const Expr factor = Select(Eq(i, IntImm(0)), FloatImm(1), Select(Eq(i, IntImm(1)), FloatImm(0), FloatImm(3)));
  const Expr x0 = Load(0, DType::kFloat32, {IntImm(0)}), x1 = Load(0, DType::kFloat32, {IntImm(1)});
  KernelFunc kernel;
  kernel.params = {Param(0, 2), Param(1, 3)};
  kernel.body = SerialLoop(i, 3, MakeStore(1, i, Add(Mul(x0, factor), x1)));
  const KernelWork work = WorkOf(kernel);
  EXPECT_LE(work.flops, 1 + 1 + 2 + 1) << "a product with 0 may be left to stand, since x may be infinite";
  EXPECT_GE(work.flops, 1 + 0 + 2);
}

TEST(KernelWork, OfALargeTableOnlyTheRowsThatAreReadCount) {
  const Expr i = MakeVar("i");
  KernelFunc kernel;
  kernel.params = {Param(0, 1'000'000), Param(1, 10)};
  kernel.params.push_back(Param(2, 10));
  kernel.params.back().dtype = DType::kInt64;
  kernel.body = SerialLoop(i, 10, MakeStore(1, i, Load(0, DType::kFloat32, {Load(2, DType::kInt64, {i})})));
  const KernelWork work = WorkOf(kernel);
  EXPECT_EQ(work.bytes, 10 * 4 + 10 * 4 + 10 * 8);
  EXPECT_EQ(work.flops, 0) << "an index is no arithmetic";
}

TEST(KernelWork, ProductsOnTensorCoresAreSharedByTheLanes) {
  const Expr t = MakeVar("t"), k = MakeVar("k");
  KernelFunc kernel;
  kernel.threads = 32;
  const std::vector<Expr> operands(10, IntImm(0));
  kernel.body =
      MakeFor(ForKind::kThreadX, t, 32,
              SerialLoop(k, 5, MakeMma(TensorMode::kHalf, {DType::kFloat16, DType::kFloat16}, 7, operands, false)));
  const KernelWork work = WorkOf(kernel);
  EXPECT_EQ(work.flops, 5 * 2.0 * 16 * 8 * 16);
  EXPECT_EQ(work.tensor, TensorMode::kHalf);
}

TEST(KernelWork, OfACallIsThatOfItsProduct) {
  GemmCall gemm;
  gemm.m = 4, gemm.n = 8, gemm.k = 16;
  gemm.lda = 16, gemm.ldb = 8, gemm.ldc = 8;
  KernelFunc kernel;
  kernel.library = std::make_shared<const LibraryCall>(LibraryCall{0, gemm});
  const KernelWork work = WorkOf(kernel);
  EXPECT_EQ(work.flops, 2 * 4 * 8 * 16);
  EXPECT_EQ(work.bytes, 4 * (64 + 128 + 32));
}

}  // namespace
}  // namespace diapason
