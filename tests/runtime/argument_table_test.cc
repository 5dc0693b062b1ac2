#include "compiler/runtime/argument_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Bytes : public DeviceBuffer {
 public:
  int64_t bytes() const override { return 16; }
};

TEST(ArgumentTable, NamesEveryArgumentThatIsABuffer) {
  Bytes x, y, z;
  const ArgumentTable table({{nullptr, KernelOf("a", {}, 1), {&x, &y}},
                             {nullptr, KernelOf("b", {}, 1), {&y}},
                             {nullptr, KernelOf("c", {}, 1), {&y, &x, &y}}});
  EXPECT_THAT(table.PlacesOf(x), ElementsAre(ArgumentPlace{0, 0}, ArgumentPlace{2, 1}));
  EXPECT_THAT(table.PlacesOf(y),
              ElementsAre(ArgumentPlace{0, 1}, ArgumentPlace{1, 0}, ArgumentPlace{2, 0}, ArgumentPlace{2, 2}));
  EXPECT_THAT(table.PlacesOf(z), IsEmpty());
  EXPECT_THAT(ArgumentTable().PlacesOf(x), IsEmpty());
}

TEST(ArgumentTable, BuffersThatACallOfALibraryHasAreLeftOut) {
  Bytes x, y, z;
  Kernel call = KernelOf("call", {}, 1);
  call.library = std::make_shared<const LibraryCall>();
  const ArgumentTable table({{nullptr, KernelOf("a", {}, 1), {&x, &y}},
                             {nullptr, call, {&y, &z}},
                             {nullptr, KernelOf("b", {}, 1), {&z, &x}}});
  EXPECT_THAT(table.PlacesOf(x), ElementsAre(ArgumentPlace{0, 0}, ArgumentPlace{2, 1}));
  EXPECT_THAT(table.PlacesOf(y), IsEmpty());
  EXPECT_THAT(table.PlacesOf(z), IsEmpty());
}

}  // namespace
}  // namespace diapason
