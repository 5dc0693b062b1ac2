#include "base/document.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(Documents, BeginWithTheirSchemaAndEndInALineBreak) {
  EXPECT_EQ(DocumentText({"jobs", 2}, {{"jobs", Json::array()}}),
            "{\n  \"schema\": \"diapason.jobs/2\",\n  \"jobs\": []\n}\n");
}

TEST(Documents, HaveNullForWhatIsNotThere) {
  EXPECT_EQ(OrNull(std::optional<int>()), Json(nullptr));
  EXPECT_EQ(OrNull(std::optional<int>(3)), Json(3));
  EXPECT_EQ(Instant(0), Json(nullptr));
  EXPECT_EQ(Instant(1'000'000'000), Json("1970-01-01T00:00:01.000Z"));
}

}  // namespace
}  // namespace diapason
