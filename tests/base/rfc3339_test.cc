#include "base/rfc3339.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(Rfc3339Test, InstantsAreUtcWithMilliseconds) {
  EXPECT_EQ(Rfc3339(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(Rfc3339(1764043144123456789), "2025-11-25T03:59:04.123Z");
  EXPECT_EQ(Rfc3339(-1), "1969-12-31T23:59:59.999Z");
}

}  // namespace
}  // namespace diapason
