// Children that stand still, of a process that dies.
#include "worker/process/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace diapason {
namespace {

bool Soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

bool Lives(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  return std::getline(file, line) && line[line.rfind(')') + 2] != 'Z';
}

pid_t ChildOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  pid_t child = 0;
  return file >> child ? child : 0;
}

class ChildProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/diapason_child_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_EQ(mkfifo(Path("held").c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

// The child waits in vfork for a process that does not execute its program before the pipe "held" is opened. Were that
// one stopped, both would stay for ever when the agent dies.
TEST_F(ChildProcessTest, DiesWithItsAgentAlsoWhenPausedWhileItStartsAnother) {
  int found[2];
  ASSERT_EQ(pipe(found), 0);
  const pid_t agent = fork();
  if (agent == 0) {
    ChildOptions options;
    options.args = {"worker_tests", "slow-to-execute", Path("held")};
    options.scratch = folder_;
    auto child = ChildProcess::Spawn(options);
    if (!child.ok()) _exit(1);
    pid_t pids[2] = {(*child)->pid(), 0};
    if (!Soon([&] { return (pids[1] = ChildOf(pids[0])) != 0; })) _exit(1);
    (*child)->Pause();
    if (write(found[1], pids, sizeof pids) != sizeof pids) _exit(1);
    while (true) pause();
  }
  close(found[1]);
  pid_t pids[2] = {0, 0};
  EXPECT_EQ(read(found[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
  close(found[0]);
  EXPECT_TRUE(Lives(pids[0]) && Lives(pids[1]));
  kill(agent, SIGKILL);
  waitpid(agent, nullptr, 0);
  const int held = open(Path("held").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // now it executes
  for (const pid_t pid : pids) {
    EXPECT_TRUE(Soon([pid] { return !Lives(pid); })) << pid;
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);  // an orphan of this process if a test before has started children
  }
  close(held);
}

}  // namespace
}  // namespace diapason
