#include "diapason/history.h"

#include <gtest/gtest.h>

namespace diapason::api {
namespace {

TEST(HistoryNames, HavePathsOrUrisWithoutPasswords) {
  EXPECT_EQ(HistoryName("some folder/h.db"), "some folder/h.db");
  EXPECT_FALSE(IsDatabase("some folder/h.db"));
  const std::string uri = "postgresql://ann:secret@db.example.org/tuning";
  EXPECT_TRUE(IsDatabase(uri));
  EXPECT_EQ(HistoryName(uri), "postgresql://ann@db.example.org/tuning");
}

}  // namespace
}  // namespace diapason::api
