#include <string>
#include <vector>

#include "diapason/runtime.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;

using WrapperTest = FolderTest;

Network Doubled() {
  NetworkMaker m;
  const int x = m.In("x", {2, 3});
  return m.Out({m.Op("add", {x, x}, {}, "y")});
}

TEST_F(WrapperTest, RunsAPackage) {
  ASSERT_EQ(BuildReferencePackage(Path("p"), Doubled(), TestTarget(TargetKind::kCpu)), absl::OkStatus());
  runtime::Package package(Path("p"));
  EXPECT_EQ(package.network(), "test");
  ASSERT_EQ(package.inputs().size(), 1u);
  EXPECT_EQ(package.inputs()[0].name, "x");
  EXPECT_THAT(package.inputs()[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(package.outputs()[0].symbols, ElementsAre("", ""));
  EXPECT_TRUE(package.symbols().empty());
  runtime::Context context(package, /*threads=*/1);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> y(context.Output(0).elements());
  context.Run({x}, {y});
  EXPECT_THAT(y, ElementsAre(2, 4, 6, 8, 10, 12));
  context.Input(0).as<float>()[5] = 7;
  runtime::Package other = std::move(package);
  context.Run();
  EXPECT_EQ(context.Output(0).as<float>()[5], 14);
}

TEST_F(WrapperTest, ErrorsAreExceptions) {
  try {
    runtime::Package package(Path("none"));
    FAIL() << "no such package";
  } catch (const runtime::Error& error) {
    EXPECT_EQ(error.status(), DIAPASON_NOT_FOUND);
    EXPECT_EQ(error.what(), "there is no file or folder '" + Path("none") +
                                "'; name a folder or a .dpk file made by 'diapason build'");
  }
}

}  // namespace
}  // namespace diapason
