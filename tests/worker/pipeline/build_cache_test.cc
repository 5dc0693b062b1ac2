#include "worker/pipeline/build_cache.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

BuiltProgram Built(const std::string& bytes) {
  BuiltProgram built;
  built.program = std::make_shared<const std::string>(bytes);
  built.compiler = "of " + bytes;
  return built;
}

TEST(BuildCache, FindsWhatWasBuilt) {
  BuildCache cache(1000);
  EXPECT_EQ(cache.Find("a"), nullptr);
  cache.Put("a", Built("program"));
  ASSERT_NE(cache.Find("a"), nullptr);
  EXPECT_EQ(*cache.Find("a")->program, "program");
  EXPECT_EQ(cache.Find("a")->compiler, "of program");
  cache.Put("a", Built("another"));
  EXPECT_EQ(*cache.Find("a")->program, "another");
}

TEST(BuildCache, ForgetsWhatWasNotUsedForLongest) {
  BuildCache cache(30);  // three, with a key of one byte each
  for (const char* key : {"a", "b", "c"}) cache.Put(key, Built("12345678"));
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Put("d", Built("12345678"));
  EXPECT_EQ(cache.Find("b"), nullptr);
  for (const char* key : {"a", "c", "d"}) EXPECT_NE(cache.Find(key), nullptr) << key;
}

TEST(BuildCache, KeepsTheLastProgramHoweverLarge) {
  BuildCache cache(10);
  cache.Put("a", Built("1"));
  cache.Put("b", Built(std::string(100, 'x')));
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("b"), nullptr);
}

}  // namespace
}  // namespace diapason
