#include "base/run_program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/environment.h"

namespace diapason {
namespace {

ProgramOptions Shell(const std::string& script) {
  ProgramOptions options;
  options.args = {"sh", "-c", script};
  options.environment = CleanEnvironment();
  options.timeout_seconds = 20;
  return options;
}

double SecondsSince(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

TEST(RunProgram, GivesOutputAndExitCode) {
  const absl::StatusOr<ProgramResult> apart = RunProgram(Shell("echo out; echo err >&2; exit 3"));
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->exit_code, 3);
  EXPECT_FALSE(apart->signalled);
  EXPECT_EQ(apart->output, "out\n");
  EXPECT_EQ(apart->errors, "err\n");
  ProgramOptions options = Shell("echo out; echo err >&2; kill -9 $$");
  options.one_output = true;
  const absl::StatusOr<ProgramResult> together = RunProgram(options);
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_EQ(together->exit_code, 128 + SIGKILL);
  EXPECT_TRUE(together->signalled);
  EXPECT_EQ(together->output, "out\nerr\n");
  EXPECT_EQ(together->errors, "");
}

TEST(RunProgram, HandsOnItsInput) {
  ProgramOptions options = Shell("cat");
  options.input.assign(3 << 20, 'x').append("end");
  options.max_output_bytes = 8 << 20;
  EXPECT_EQ(RunProgram(options)->output, options.input);
  options.args = {"true"};  // reads nothing of it
  EXPECT_EQ(RunProgram(options)->exit_code, 0);
}

TEST(RunProgram, KeepsABoundedOutput) {
  ProgramOptions options = Shell("yes | head -c 3000000; echo more >&2");
  options.max_output_bytes = 1000;
  const absl::StatusOr<ProgramResult> result = RunProgram(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);  // it was read to its end all the same
  EXPECT_EQ(result->output.size(), 1000u);
  EXPECT_EQ(result->errors, "more\n");
}

TEST(RunProgram, ProgramsSeeACleanEnvironment) {
  setenv("SOME_TOKEN", "secret", 1);
  EXPECT_EQ(RunProgram(Shell("echo \"[$SOME_TOKEN]\""))->output, "[]\n");
}

bool Lives(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  const char state = line[line.rfind(')') + 2];
  return state != 'Z' && state != 'X';
}

bool EndsSoon(pid_t pid) {
  for (int i = 0; i < 200 && Lives(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !Lives(pid);
}

TEST(RunProgram, TheDeadlineEndsTheWholeGroup) {
  std::string file = testing::TempDir() + "run-program-XXXXXX";
  close(mkstemp(file.data()));
  ProgramOptions options = Shell("sleep 100 & echo $! >" + file + "; sleep 100; :");
  options.timeout_seconds = 0.5;
  EXPECT_EQ(RunProgram(options).status(), absl::DeadlineExceededError("sh: killed after 0.5 seconds"));
  pid_t other = 0;
  std::ifstream(file) >> other;
  unlink(file.c_str());
  ASSERT_GT(other, 0);
  EXPECT_TRUE(EndsSoon(other));
}

// One that holds the output open.
TEST(RunProgram, WhatIsLeftOfTheGroupEndsWithTheProgram) {
  const auto began = std::chrono::steady_clock::now();
  const absl::StatusOr<ProgramResult> result = RunProgram(Shell("sleep 100 & echo $!"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(SecondsSince(began), 5);
  EXPECT_TRUE(EndsSoon(std::atoi(result->output.c_str())));
}

TEST(RunProgram, IsNotHeldUpByWhatLeftTheGroup) {
  const auto began = std::chrono::steady_clock::now();
  const absl::StatusOr<ProgramResult> result = RunProgram(Shell("setsid sleep 100 & echo $!; sleep 0.2"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(SecondsSince(began), 5);
  const pid_t left = std::atoi(result->output.c_str());
  ASSERT_GT(left, 0);
  kill(left, SIGKILL);
}

}  // namespace
}  // namespace diapason
