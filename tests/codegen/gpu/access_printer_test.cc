#include "compiler/codegen/gpu/access_printer.h"

#include <gtest/gtest.h>

#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

class GpuAccessPrinterTest : public ::testing::Test {
 protected:
  GpuAccessPrinterTest() {
    for (GpuAccessPrinter* printer : {&cuda_, &opencl_}) {
      printer->Declare(Global(0, "x", 64, false, DType::kFloat16));
      printer->Declare(Global(1, "x", 64, true));
      printer->Declare(Scoped(2, "tile", 64, Scope::kShared, DType::kFloat16));
    }
  }

  const KernelFunc kernel_ = KernelOf("k", {}, nullptr);
  Helpers cuda_helpers_{Dialect::kCuda}, opencl_helpers_{Dialect::kOpenCl};
  GpuAccessPrinter cuda_{kernel_, Dialect::kCuda, cuda_helpers_};
  GpuAccessPrinter opencl_{kernel_, Dialect::kOpenCl, opencl_helpers_};
};

TEST_F(GpuAccessPrinterTest, BuffersOfOneNameGetNamesOfTheirOwn) {
  EXPECT_EQ(cuda_.NameOf(0), "x");
  EXPECT_NE(cuda_.NameOf(1), "x");
  const std::string name = cuda_.NameOf(1);
  cuda_.Declare(Global(1, "other", 64, true));
  EXPECT_EQ(cuda_.NameOf(1), name);
}

TEST_F(GpuAccessPrinterTest, HalvesAreConvertedWhereTheyLieInMemory) {
  EXPECT_EQ(cuda_.Text(At(0, I(3), DType::kFloat16)), "half_to_float(x[3])");
  EXPECT_EQ(opencl_.Text(At(0, I(3), DType::kFloat16)), "vload_half(3, x)");
  EXPECT_EQ(opencl_.StoreText(*MakeStore(2, I(3), I(0)), "v"), "vstore_half(v, 3, (__local half*)tile);");
  EXPECT_EQ(opencl_.ArrayType(DType::kFloat16), "ushort");
}

TEST_F(GpuAccessPrinterTest, StoresGoToOtherBlocksOfTheCluster) {
  const BufferDecl shared = Scoped(4, "h", 64, Scope::kShared);
  cuda_.Declare(shared);
  EXPECT_EQ(cuda_.StoreText(*MakeRemoteStore(4, I(5), I(0), I(2)), "v"), "in_cluster(h, 2)[5] = v;");
}

TEST_F(GpuAccessPrinterTest, SwizzledElementsAreFoundThroughTheirSwizzle) {
  BufferDecl swizzled = Scoped(3, "s", 64, Scope::kShared);
  swizzled.swizzle = 128;
  cuda_.Declare(swizzled);
  EXPECT_EQ(cuda_.Text(At(3, I(5))), "s[swizzled<3, 28>(5)]");
  EXPECT_EQ(cuda_.SwizzledAddressText(swizzled, I(5)), "s + swizzled<3, 28>(5)");
  EXPECT_EQ(cuda_.AddressText(3, I(8)), "s + 8");
  opencl_.Declare(swizzled);
  EXPECT_EQ(opencl_.Text(At(3, I(5))), "s[5]") << "no swizzles there";
}

TEST_F(GpuAccessPrinterTest, ALoadedElementIsPrintedAsPartOfItsVector) {
  const Expr t = MakeVar("t");
  cuda_.AddLoaded(At(1, Add(t, I(1))), "chunk0.y");
  const std::string name = cuda_.NameOf(1), index = cuda_.Text(t);
  EXPECT_EQ(cuda_.Text(At(1, Add(t, I(1)))), "chunk0.y");
  EXPECT_EQ(cuda_.Text(At(1, t)), name + "[" + index + "]");
  cuda_.ForgetLoaded();
  EXPECT_EQ(cuda_.Text(At(1, Add(t, I(1)))), name + "[" + index + " + 1]");
}

TEST_F(GpuAccessPrinterTest, VectorsAreReadThroughPointersOfTheBuffersAddressSpace) {
  EXPECT_EQ(cuda_.VectorText(cuda_.decl(2), "tile", "uint2", I(4), true), "*(const uint2*)(tile + 4)");
  EXPECT_EQ(opencl_.VectorText(opencl_.decl(2), "tile", "uint2", I(0), false), "*(__local uint2*)(tile)");
}

}  // namespace
}  // namespace diapason
