#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(Json, KeepsTheOrderOfFields) {
  const std::string text = R"({"b":1,"a":[true,null,"c"]})";
  EXPECT_EQ(JsonText(ParseJson(text)), text);
}

TEST(Json, TextThatIsNoJsonIsDiscarded) {
  EXPECT_TRUE(ParseJson("{\"a\":").is_discarded());
  EXPECT_TRUE(ParseJson("").is_discarded());
}

TEST(Json, BytesThatAreNoUtf8BecomeReplacementCharacters) { EXPECT_EQ(JsonText("a\xff"), "\"a\uFFFD\""); }

TEST(Json, StylesIndentAndEscape) {
  EXPECT_EQ(JsonText({{"a", 1}}, {.indent = 1}), "{\n \"a\": 1\n}");
  EXPECT_EQ(JsonText("\u00e9", {.ascii = true}), "\"\\u00e9\"");
}

TEST(Json, IntegersDoNotWrapAround) {
  EXPECT_THAT(JsonInt(ParseJson("9223372036854775807")), testing::Optional(INT64_MAX));
  EXPECT_EQ(JsonInt(ParseJson("9223372036854775808")), std::nullopt);
  EXPECT_EQ(JsonInt(ParseJson("1.0")), std::nullopt);
  EXPECT_EQ(JsonInt(ParseJson("\"1\"")), std::nullopt);
  EXPECT_EQ(JsonInt(ParseJson("8"), 0, 7), std::nullopt);
  EXPECT_THAT(JsonInt(ParseJson("-1"), -1, 7), testing::Optional(-1));

  EXPECT_EQ(JsonInt32List(ParseJson("[]")), std::vector<int32_t>());
  EXPECT_EQ(JsonInt32List(ParseJson("[1, -2147483648]")), (std::vector<int32_t>{1, INT32_MIN}));
  for (const char* other : {"[1, 2147483648]", "[1.0]", "[null]", "{}", "1", "["})
    EXPECT_EQ(JsonInt32List(ParseJson(other)), std::nullopt) << other;
}

}  // namespace
}  // namespace diapason
