#include "compiler/codegen/gpu/shared_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codegen/kernels.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Allocates the buffers, one inside the other.
SharedLayout LayoutOf(const std::vector<BufferDecl>& decls) {
  Stmt body = MakeBarrier();
  for (const BufferDecl& decl : decls) body = MakeAlloc(decl, body);
  return LayOutShared(body);
}

std::vector<std::pair<int, int64_t>> OffsetsOf(const SharedLayout& layout) {
  std::vector<std::pair<int, int64_t>> offsets;
  for (const auto& [decl, offset] : layout.offsets) offsets.emplace_back(decl.id, offset);
  return offsets;
}

TEST(SharedLayout, BuffersAreAlignedForVectorsAndLocalOnesLeftOut) {
  const SharedLayout layout =
      LayoutOf({testing::Scoped(10, "a", 3, Scope::kShared), testing::Scoped(11, "b", 5, Scope::kLocal),
                testing::Scoped(12, "c", 4, Scope::kShared)});
  EXPECT_THAT(OffsetsOf(layout), ElementsAre(Pair(10, 0), Pair(12, 16)));
  EXPECT_EQ(layout.bytes, 32);
  EXPECT_FALSE(layout.overlaid);
  EXPECT_EQ(LayOutShared(nullptr).bytes, 0);
}

TEST(SharedLayout, SwizzledBuffersComeFirstAndAlignTheWhole) {
  BufferDecl swizzled = testing::Scoped(11, "b", 256, Scope::kShared);
  swizzled.swizzle = 128;
  swizzled.alignment = 1024;
  const SharedLayout layout = LayoutOf({testing::Scoped(10, "a", 4, Scope::kShared), swizzled});
  EXPECT_THAT(OffsetsOf(layout), ElementsAre(Pair(11, 0), Pair(10, 1024)));
  EXPECT_EQ(layout.alignment, 1024);
  EXPECT_EQ(layout.bytes, 1040);
}

TEST(SharedLayout, AnOverlayReusesAllButWhatIsApart) {
  BufferDecl overlay = testing::Scoped(11, "sums", 6, Scope::kShared),
             apart = testing::Scoped(12, "barriers", 2, Scope::kShared, DType::kInt64);
  overlay.overlay = true;
  apart.apart = true;
  const SharedLayout layout = LayoutOf({testing::Scoped(10, "tile", 4, Scope::kShared), overlay, apart});
  EXPECT_THAT(OffsetsOf(layout), ElementsAre(Pair(10, 0), Pair(11, 0), Pair(12, 32)));
  EXPECT_TRUE(layout.overlaid);
  EXPECT_EQ(layout.bytes, 48);
}

TEST(SharedLayout, ParametersAreAlignedAsTheRuntimeAlignsThem) {
  EXPECT_EQ(GpuAlignmentOf(testing::Global(0, "x", 1)), kParameterAlignment);
  EXPECT_EQ(GpuAlignmentOf(testing::Scoped(1, "s", 1, Scope::kShared)), 16);
  EXPECT_EQ(GpuAlignmentOf(testing::Scoped(2, "l", 1, Scope::kLocal, DType::kFloat16)), 2);
}

}  // namespace
}  // namespace diapason
