#include "base/nearest.h"

#include "gtest/gtest.h"

namespace diapason {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("tune", "tune"), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("tunes", "tune"), 1u);
  EXPECT_EQ(EditDistance("tun", "tune"), 1u);
  EXPECT_EQ(EditDistance("tone", "tune"), 1u);
  EXPECT_EQ(EditDistance("tnue", "tune"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(Nearest, IsFoundWhereFewCharactersDiffer) {
  const std::vector<std::string> known = {"tune", "build", "run", "history", "bert-base", "bert-large"};
  EXPECT_EQ(Nearest("tunes", known), "tune");
  EXPECT_EQ(Nearest("biuld", known), "build");
  EXPECT_EQ(Nearest("histroy", known), "history");
  EXPECT_EQ(Nearest("rum", known), "run");
  EXPECT_EQ(Nearest("bert", known), "bert-base") << "the first that begins with it";
  EXPECT_EQ(Nearest("be", known), "") << "too short to tell";
  EXPECT_EQ(Nearest("mend", known), "");
  EXPECT_EQ(Nearest("x", {"y"}), "") << "nothing of it is left";
  EXPECT_EQ(Nearest("", known), "");
}

TEST(DidYouMean, IsAQuestionOrNothing) {
  EXPECT_EQ(DidYouMean("biuld", {"build"}), "did you mean 'build'? ");
  EXPECT_EQ(DidYouMean("query", {"build"}), "");
}

}  // namespace
}  // namespace diapason
