#include "cli/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/str_split.h"
#include "cli/table.h"

namespace diapason {
namespace {

ProgressSnapshot TwoTasks() {
  ProgressSnapshot s;
  s.elapsed_s = 20;
  s.trials = 40;
  s.measured = 40;
  s.failed = 3;
  s.trial_limit = 100;
  s.seconds_limit = 120;
  s.errors = {{"run_timeout", 2}, {"compile", 1}};
  s.tasks = {{1, "conv2d_3x3", 3, 30, 1e-4, 1.5e-4, 1e-4}, {2, "dense", 1, 10, 1e-4, 1e-4, 1e-4}};
  s.current_task = 2;
  s.total_seconds = 4e-4;
  return s;
}

ProgressStyle Live(int columns, int rows) {
  return {"gemm for cpu", true, false, [columns, rows] { return std::make_pair(columns, rows); }};
}

TEST(SecondsLeft, IsTheLimitThatComesFirst) {
  ProgressSnapshot s = TwoTasks();
  EXPECT_DOUBLE_EQ(*SecondsLeft(s), 30);  // 60 trials at 2 a second, before the 100 seconds that are left
  s.trial_limit = 1000;
  EXPECT_DOUBLE_EQ(*SecondsLeft(s), 100);
  s.trial_limit = 100;
  s.measured = 20;  // the others are of an earlier run
  EXPECT_DOUBLE_EQ(*SecondsLeft(s), 60);
  s.trial_limit.reset();
  s.seconds_limit.reset();
  EXPECT_FALSE(SecondsLeft(s).has_value());
}

TEST(ProgressView, PrintsWholeLinesWithRatesWhenPiped) {
  std::ostringstream out;
  ProgressView view(out, {});
  ProgressSnapshot s = TwoTasks();
  s.elapsed_s = 10;
  view.Update(s);
  s.elapsed_s = 12;
  view.Update(s);  // too soon for another line
  s = TwoTasks();
  s.searched = 50000;
  s.built = 30;
  s.run = 20;
  view.Update(s);
  EXPECT_EQ(
      out.str(),
      "[0:10] 40/100 trials (3 failed), search -, builds -, runs -, estimate 400.0 us, errors: run_timeout 2, compile "
      "1, left 0:15\n"
      "[0:20] 40/100 trials (3 failed), search 5000/s, builds 3.000/s, runs 2.000/s, estimate 400.0 us, errors: "
      "run_timeout 2, compile 1, left 0:30\n");
}

TEST(ProgressView, DrawsTheTableOfTasksOnATerminal) {
  std::ostringstream out;
  ProgressView view(out, Live(80, 24));
  view.Update(TwoTasks());
  const std::string text = out.str();
  EXPECT_NE(text.find("40/100 trials (3 failed)  elapsed 0:20  left 0:30"), std::string::npos) << text;
  EXPECT_EQ(text.rfind("tuning gemm for cpu\x1b[K\n", 0), 0u) << text;
  EXPECT_NE(text.find("   id  task        count  fallback us  best us  speed-up  trials  share"), std::string::npos)
      << text;
  EXPECT_NE(text.find("    1  conv2d_3x3      3        150.0    100.0     1.50x      30  75.0%"), std::string::npos)
      << text;
  EXPECT_NE(text.find(">   2  dense           1        100.0    100.0     1.00x      10  25.0%"), std::string::npos)
      << text;
  EXPECT_NE(text.find("estimated latency 400.0 us"), std::string::npos) << text;
  EXPECT_NE(text.find("errors run_timeout 2, compile 1"), std::string::npos) << text;
  EXPECT_EQ(text.find("\x1b[1m"), std::string::npos) << "nobody asked for colour";
}

TEST(ProgressView, RedrawsInPlace) {
  std::ostringstream out;
  ProgressView view(out, Live(80, 24));
  view.Update(TwoTasks());
  const std::string first = out.str();
  const auto lines = std::count(first.begin(), first.end(), '\n');
  out.str("");
  ProgressSnapshot later = TwoTasks();
  later.elapsed_s += 1;
  view.Update(later);
  EXPECT_EQ(out.str().substr(0, 4), "\x1b[" + std::to_string(lines) + "A");
}

TEST(ProgressView, FitsIntoASmallTerminal) {
  ProgressSnapshot s = TwoTasks();
  for (int i = 3; i < 60; ++i) s.tasks.push_back({i, "a task with quite a long name", 1, 1, 1e-6, 1e-6, 1e-6});
  std::ostringstream out;
  ProgressView view(out, Live(60, 12));
  view.Update(s);
  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n');
  EXPECT_LE(lines.size(), 12u);
  for (std::string line : lines) {
    if (const size_t escape = line.find('\x1b'); escape != std::string::npos) line.resize(escape);
    EXPECT_LT(Columns(line), 60) << line;
  }
  EXPECT_NE(out.str().find("conv2d_"), std::string::npos) << "the largest share is shown";
}

TEST(ProgressView, ShowsOnlyTheTasksThatAreTuned) {
  ProgressSnapshot s = TwoTasks();
  s.tasks[0].tuned = false;
  std::ostringstream out;
  ProgressView view(out, Live(80, 24));
  view.Update(s);
  EXPECT_EQ(out.str().find("conv2d_3x3"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("25.0%"), std::string::npos) << "shares are of all tasks\n" << out.str();
}

// The task that has no time, where 40 us are expected of its fallback schedule.
ProgressSnapshot OneUntimed() {
  ProgressSnapshot s = TwoTasks();
  s.tasks[0].best_seconds.reset();
  s.tasks[0].fallback_seconds.reset();
  s.tasks[0].expected_seconds = 4e-5;
  s.tasks[0].trials = 0;
  s.total_seconds = 2.2e-4;
  return s;
}

TEST(ProgressView, EstimatesWhatIsNotTimedYet) {
  std::ostringstream out;
  ProgressView view(out, {});
  view.Finish(OneUntimed());
  EXPECT_NE(out.str().find("estimate 220.0 us (1 of 2 tasks timed)"), std::string::npos) << out.str();
}

TEST(ProgressView, FitsATerminalOfEightyByTwentyFour) {
  ProgressSnapshot s = TwoTasks();
  s.tasks[0].name = "conv2d_3x3_s1_56x56x64_64_bias_add_relu_and_something_that_is_very_long";
  for (int i = 3; i < 60; ++i)
    s.tasks.push_back({i, "conv2d_3x3_s1_56x56x64_64_bias_add_relu", 12, 1000, 1.2345e-2, 1.2345e-1, 1e-6});
  s.errors = {{"compile_timeout", 1000},
              {"run_timeout", 2000},
              {"illegal_access", 3000},
              {"wrong_result", 4000},
              {"infrastructure", 10}};
  std::ostringstream out;
  ProgressView view(out, Live(80, 24));
  view.Update(s);
  std::vector<std::string> lines = absl::StrSplit(out.str(), "\x1b[K\n");
  EXPECT_EQ(lines.back(), "\x1b[J");
  lines.pop_back();
  EXPECT_LE(lines.size(), 23u) << "the cursor stands in the line below";
  for (const std::string& line : lines) EXPECT_LT(Columns(line), 80) << line;
  EXPECT_NE(out.str().find("   ... and 43 tasks more"), std::string::npos) << out.str();
}

TEST(ProgressView, IsColouredWhenThatIsWanted) {
  ProgressStyle style = Live(80, 24);
  style.colour = true;
  std::ostringstream out;
  ProgressView view(out, style);
  view.Update(OneUntimed());
  EXPECT_NE(out.str().find("\x1b[1mtuning gemm for cpu\x1b[0m\x1b[K\n"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("\x1b[36m>   2  dense "), std::string::npos) << "what is worked on\n" << out.str();
  EXPECT_NE(out.str().find("\x1b[2m    1  conv2d_3x3 "), std::string::npos) << "what is not timed\n" << out.str();
  EXPECT_NE(out.str().find("\x1b[31merrors run_timeout 2, compile 1\x1b[0m"), std::string::npos) << out.str();
}

TEST(TableOfTasks, HasMeasuredTasksFirstAndTheSlowestOfThem) {
  ProgressSnapshot s = OneUntimed();
  s.tasks.push_back({3, "softmax", 2, 5, 2e-4, 3e-4, 2e-4});
  const ProgressTable table = TableOfTasks(s.tasks, 2, 0, 10);
  EXPECT_EQ(table.lines,
            (std::vector<std::string>{"   id  task        count  fallback us  best us  speed-up  trials   share",
                                      "    3  softmax         2        300.0    200.0     1.50x       5   64.5%",
                                      ">   2  dense           1        100.0    100.0     1.00x      10   16.1%",
                                      "    1  conv2d_3x3      3       ~40.00                          0  ~19.4%"}));
  EXPECT_EQ(table.marked, 2);
  EXPECT_EQ(table.measured, (std::vector<bool>{true, true, true, false}));
  const ProgressTable cut = TableOfTasks(s.tasks, 0, 0, 1);
  ASSERT_EQ(cut.lines.size(), 3u);
  EXPECT_EQ(cut.lines[2], "   ... and 2 tasks more");
}

TEST(TableOfTasks, ShowsSchedulesWhereThereAreAny) {
  ProgressSnapshot s = TwoTasks();
  s.tasks[1].schedule = "direct/tile1";
  const ProgressTable table = TableOfTasks(s.tasks, 0, 0, 10);
  EXPECT_EQ(table.lines[0], "  id  task        count  fallback us  best us  speed-up  trials  share  schedule");
  EXPECT_EQ(table.lines[2], "   2  dense           1        100.0    100.0     1.00x      10  25.0%  direct/tile1");
}

}  // namespace
}  // namespace diapason
