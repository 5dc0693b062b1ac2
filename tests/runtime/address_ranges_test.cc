#include "compiler/runtime/address_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Merged, JoinsWhatTouches) {
  EXPECT_THAT(Merged({{30, 40}, {10, 20}, {20, 25}, {5, 5}, {12, 14}, {35, 50}}),
              ElementsAre(AddressRange{10, 25}, AddressRange{30, 50}));
  EXPECT_THAT(Merged({}), IsEmpty());
}

}  // namespace
}  // namespace diapason
