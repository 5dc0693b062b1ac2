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
  s.tasks = {{1, "conv2d_3x3", 3, 2e6, 30, 1e-4}, {2, "dense", 1, 1e6, 10, 1e-4}};
  s.current_task = 2;
  s.total_seconds = 4e-4;
  return s;
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
  ProgressView view(out, false, nullptr);
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
  EXPECT_EQ(out.str(),
            "[0:10] 40/100 trials (3 failed), search -, builds -, runs -, estimate 400.0 us, errors: run_timeout 2, compile "
            "1, left 0:15\n"
            "[0:20] 40/100 trials (3 failed), search 5000/s, builds 3.000/s, runs 2.000/s, estimate 400.0 us, errors: "
            "run_timeout 2, compile 1, left 0:30\n");
}

TEST(ProgressView, DrawsTheTableOfTasksOnATerminal) {
  std::ostringstream out;
  ProgressView view(out, true, [] { return std::make_pair(80, 24); });
  view.Update(TwoTasks());
  const std::string text = out.str();
  EXPECT_NE(text.find("40/100 trials (3 failed)  elapsed 0:20  left 0:30"), std::string::npos) << text;
  EXPECT_NE(text.find("   id  task        weight  latency us  GFLOP/s  trials  share"), std::string::npos) << text;
  EXPECT_NE(text.find("    1  conv2d_3x3       3       100.0    20.00      30  75.0%"), std::string::npos) << text;
  EXPECT_NE(text.find(">   2  dense            1       100.0    10.00      10  25.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("best total 400.0 us"), std::string::npos) << text;
  EXPECT_NE(text.find("errors     run_timeout 2, compile 1"), std::string::npos) << text;
}

TEST(ProgressView, RedrawsInPlace) {
  std::ostringstream out;
  ProgressView view(out, true, [] { return std::make_pair(80, 24); });
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
  for (int i = 3; i < 60; ++i) s.tasks.push_back({i, "a task with quite a long name", 1, 1e6, 1, 1e-6});
  std::ostringstream out;
  ProgressView view(out, true, [] { return std::make_pair(60, 12); });
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
  ProgressView view(out, true, [] { return std::make_pair(80, 24); });
  view.Update(s);
  EXPECT_EQ(out.str().find("conv2d_3x3"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("25.0%"), std::string::npos) << "shares are of all tasks\n" << out.str();
}

TEST(ProgressView, SaysHowManyTasksHaveATime) {
  ProgressSnapshot s = TwoTasks();
  s.total_seconds.reset();
  s.tasks[1].best_seconds.reset();
  std::ostringstream out;
  ProgressView view(out, false, nullptr);
  view.Finish(s);
  EXPECT_NE(out.str().find("estimate - (1 of 2 tasks timed)"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace diapason
