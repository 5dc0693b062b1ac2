#include "cli/table.h"

#include <gtest/gtest.h>

#include <limits>

namespace diapason {
namespace {

TEST(TextTable, AlignsNumbersToTheRight) {
  TextTable table({{"id", true}, {"task"}, {"us", true}});
  table.AddRow({"1", "conv", "10.5"});
  table.AddRow({"12", "a longer name", "7"});
  EXPECT_EQ(table.ToString(),
            "id  task             us\n"
            " 1  conv           10.5\n"
            "12  a longer name     7\n");
}

TEST(TextTable, CutsTheWidestTextColumnToTheWidth) {
  TextTable table({{"id", true}, {"task"}, {"us", true}});
  table.AddRow({"1", "a name that is much too long", "10.5"});
  EXPECT_EQ(table.ToString(24),
            "id  task              us\n"
            " 1  a name that i…  10.5\n");
}

TEST(TextTable, CountsCodePointsAsColumns) {
  TextTable table({{"µ"}, {"b"}});
  table.AddRow({"éé", "x"});
  EXPECT_EQ(table.ToString(), "µ   b\néé  x\n");
}

TEST(Digits, KeepFourThatMatter) {
  EXPECT_EQ(Digits(12345.6), "12346");
  EXPECT_EQ(Digits(123.456), "123.5");
  EXPECT_EQ(Digits(12.3456), "12.35");
  EXPECT_EQ(Digits(0.0123), "0.012");
  EXPECT_EQ(Digits(1.5e-5), "1.50e-05");
  EXPECT_EQ(Digits(0), "-");
  EXPECT_EQ(Digits(std::numeric_limits<double>::infinity()), "-");
}

TEST(Duration, ChoosesTheUnit) {
  EXPECT_EQ(Duration(12.3461e-6), "12.35 us");
  EXPECT_EQ(Duration(3.4e-3), "3.400 ms");
  EXPECT_EQ(Duration(1.2), "1.200 s");
  EXPECT_EQ(Duration(0), "-");
}

TEST(ClockText, ShowsHoursOnlyWhenThereAreAny) {
  EXPECT_EQ(ClockText(7), "0:07");
  EXPECT_EQ(ClockText(725), "12:05");
  EXPECT_EQ(ClockText(3723), "1:02:03");
}

TEST(Bytes, ChoosesTheUnit) {
  EXPECT_EQ(Bytes(512), "512 B");
  EXPECT_EQ(Bytes(48 << 10), "48.0 KiB");
  EXPECT_EQ(Bytes(int64_t{3} << 30), "3.0 GiB");
}

TEST(Cut, EndsInAnEllipsisWhenSomethingIsLost) {
  EXPECT_EQ(Cut("abcdef", 6), "abcdef");
  EXPECT_EQ(Cut("abcdef", 4), "abc…");
  EXPECT_EQ(Cut("ééé", 2), "é…");
}

}  // namespace
}  // namespace diapason
