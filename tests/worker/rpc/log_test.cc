#include "worker/rpc/log.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(LogTest, ALineHasItsFields) {
  EXPECT_EQ(LogLine(LogLevel::kInfo, "worker_lost", {{"worker", "node1"}, {"leases", "3"}}),
            "info worker_lost worker=node1 leases=3");
}

TEST(LogTest, AValueStaysOnItsLine) {
  EXPECT_EQ(LogLine(LogLevel::kError, "fault", {{"why", "a \"b\"\nc\td"}, {"empty", ""}}),
            "error fault why=\"a \\\"b\\\"\\nc d\" empty=\"\"");
}

TEST(LogTest, LevelsHaveNames) {
  LogLevel level = LogLevel::kNone;
  EXPECT_TRUE(ParseLogLevel("warning", level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("loud", level));
  EXPECT_FALSE(ParseLogLevel("none", level));
}

}  // namespace
}  // namespace diapason
