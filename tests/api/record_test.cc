#include "api/record.h"

#include <gtest/gtest.h>

namespace diapason::api {
namespace {

Record Measured(const std::string& workload, double median_us, const std::string& device = "a processor") {
  Record record;
  record.workload = workload;
  record.target = "cpu";
  record.device = device;
  record.median_us = median_us;
  return record;
}

TEST(RankByShare, PutsTheWorkloadsThatTakeMostOfTheNetworkFirst) {
  std::vector<Record> records = {Measured("a", 10), Measured("a", 12), Measured("b", 20), Measured("c", 100)};
  RankByShare({{"a", 6}, {"b", 2}, {"c", 0}}, records);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].workload, "a");
  EXPECT_EQ(records[0].median_us, 10);
  EXPECT_EQ(records[0].count, 6);
  EXPECT_DOUBLE_EQ(*records[0].share, 0.6);
  EXPECT_EQ(records[1].median_us, 12) << "the records of a workload stay together, in their order";
  EXPECT_DOUBLE_EQ(*records[1].share, 0.6) << "that of the best";
  EXPECT_EQ(records[2].workload, "b");
  EXPECT_DOUBLE_EQ(*records[2].share, 0.4);
  EXPECT_EQ(records[3].workload, "c");
  EXPECT_EQ(records[3].share, 0) << "of fusion alternatives";
}

TEST(RankByShare, CountsEachDeviceByItself) {
  std::vector<Record> records = {Measured("a", 10, "x"), Measured("a", 10, "y"), Measured("b", 30, "y")};
  RankByShare({{"a", 1}, {"b", 1}}, records);
  EXPECT_EQ(records[0].device, "x");
  EXPECT_DOUBLE_EQ(*records[0].share, 1);
  EXPECT_EQ(records[1].workload, "b");
  EXPECT_DOUBLE_EQ(*records[1].share, 0.75);
  EXPECT_DOUBLE_EQ(*records[2].share, 0.25);
}

}  // namespace
}  // namespace diapason::api
