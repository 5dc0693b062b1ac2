#include "db/text.h"

#include "gtest/gtest.h"

namespace diapason {
namespace {

TEST(TextTest, Base64IsThatOfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(Base64Encode(bytes), text);
    EXPECT_EQ(Base64Decode(text), bytes);
  }
}

TEST(TextTest, Base64ReadsBackAllBytes) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Base64Decode(Base64Encode(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
}

TEST(TextTest, Base64RefusesWhatNothingEncodesTo) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "====", "=Zg=", "Zg==Zg==", "Zm 9", "Zm9\xff"})
    EXPECT_EQ(Base64Decode(text), std::nullopt) << text;
}

TEST(TextTest, CleansWhatIsNoUtf8) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(CleanUtf8("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5"), "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5");
  EXPECT_EQ(CleanUtf8(std::string("a\0b", 3)), "a" + bad + "b");
  EXPECT_EQ(CleanUtf8("\xc0\x80"), bad + bad);            // overlong
  EXPECT_EQ(CleanUtf8("\xed\xa0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(CleanUtf8("\xf5\x80\x80\x80").size(), 12u);   // beyond U+10FFFF
  EXPECT_EQ(CleanUtf8("\xe2\x82"), bad + bad);            // cut off
  EXPECT_EQ(CleanUtf8("\x80g"), bad + "g");
}

TEST(TextTest, UuidsAreThirtyTwoDigitsAndDiffer) {
  EXPECT_TRUE(IsUuid(RandomUuid()));
  EXPECT_NE(RandomUuid(), RandomUuid());
  EXPECT_FALSE(IsUuid(std::string(31, 'a')));
  EXPECT_FALSE(IsUuid(std::string(31, 'a') + "G"));
  EXPECT_FALSE(IsUuid(std::string(32, '\0')));
}

TEST(TextTest, HashesAsPublished) {
  EXPECT_EQ(Fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(Hex64(0x85944171f73967e8u), "85944171f73967e8");
  EXPECT_EQ(Hex64(0), "0000000000000000");
}

TEST(TextTest, AMessageHasNoControlCharacters) {
  EXPECT_EQ(OneLine("a\nb\x1b[0m\x7f \xc3\xa9 \xff"), "a?b?[0m? \xc3\xa9 \xef\xbf\xbd");
}

}  // namespace
}  // namespace diapason
