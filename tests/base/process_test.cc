#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "base/run_program.h"

namespace diapason {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <typename Done>
bool Soon(const Done& done, double seconds = 10) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// False also for one that is dead and not yet waited for.
bool Lives(pid_t pid) {
  const std::string stat = Contents("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_ends = stat.rfind(')');
  return name_ends != std::string::npos && stat[name_ends + 2] != 'Z' && stat[name_ends + 2] != 'X';
}

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    std::string pattern = testing::TempDir() + "process-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of what the tests kill come here
  }
  ~ProcessTest() override {
    for (const char* name : {"out", "in", "pids"}) unlink(Path(name).c_str());
    rmdir(folder_.c_str());
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // The wait status of a shell.
  int Shell(const std::string& script, SpawnOptions options = {}) {
    options.args = {"sh", "-c", script};
    options.environment = CleanEnvironment({{"OUT", Path("out")}, {"PIDS", Path("pids")}});
    const absl::StatusOr<pid_t> pid = Spawn(options);
    EXPECT_TRUE(pid.ok()) << pid.status();
    int status = -1;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    return status;
  }
  // The numbers in the file "pids", when there are so many.
  std::vector<pid_t> Pids(size_t count) {
    std::vector<pid_t> pids;
    EXPECT_TRUE(Soon([&] {
      std::istringstream text(Contents(Path("pids")));
      pids.clear();
      for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
      return pids.size() >= count;
    }));
    return pids;
  }

  std::string folder_;
};

TEST_F(ProcessTest, LeadsAGroupAndReadsNothing) {
  EXPECT_EQ(Shell("read line; read p name state parent group session rest </proc/$$/stat; echo $$ $group $session "
                  "\"[$line]\" >$OUT; exit 3"),
            3 << 8);
  std::istringstream text(Contents(Path("out")));
  int pid = 0, group = 0, session = 0;
  std::string line;
  text >> pid >> group >> session >> line;
  EXPECT_GT(pid, 0);
  EXPECT_EQ(group, pid);
  EXPECT_EQ(session, getsid(0));
  EXPECT_EQ(line, "[]");
}

TEST_F(ProcessTest, LeadsASessionWhenAsked) {
  SpawnOptions options;
  options.session = true;
  EXPECT_EQ(Shell("read p name state parent group session rest </proc/$$/stat; echo $$ $session >$OUT", options), 0);
  std::istringstream text(Contents(Path("out")));
  int pid = 0, session = 0;
  text >> pid >> session;
  EXPECT_GT(pid, 0);
  EXPECT_EQ(session, pid);
}

// Files that are not closed at exec, of which there may be some in a library, too.
TEST_F(ProcessTest, HasNoFileButThoseItIsGiven) {
  const int open_for_all = open("/dev/null", O_RDONLY);  // NOLINT: no O_CLOEXEC, on purpose
  const int first = open(Path("in").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int second = open(Path("out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(first, "hello\n", 6), 6);
  lseek(first, 0, SEEK_SET);
  SpawnOptions options;
  // Each in the other's place, and one twice.
  options.descriptors = {{first, second}, {second, first}, {second, 1}};
  const std::string in = std::to_string(second), out = std::to_string(first);
  EXPECT_EQ(Shell("cat <&" + in + " >&" + out + "; [ -e /proc/$$/fd/" + std::to_string(open_for_all) + " ]", options),
            1 << 8);
  EXPECT_EQ(Contents(Path("out")), "hello\n");
  for (int fd : {open_for_all, first, second}) close(fd);
}

TEST_F(ProcessTest, SignalsAreAsAtTheStartOfTheSystem) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(Shell("grep -E '^Sig(Blk|Ign)' /proc/$$/status | cut -f2 >$OUT; ulimit -c >>$OUT"), 0);
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, &before, &after);
  signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(Contents(Path("out")), "0000000000000000\n0000000000000000\n0\n");
  EXPECT_EQ(sigismember(&after, SIGTERM), 1);  // ours are as they were
  EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
}

TEST_F(ProcessTest, CpuTimeHasALimit) {
  SpawnOptions options;
  options.cpu_seconds = 1;
  const int status = Shell("while :; do :; done", options);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

TEST_F(ProcessTest, SaysWhyThereIsNoProgram) {
  SpawnOptions options;
  options.args = {"no-such-program"};
  EXPECT_EQ(Spawn(options).status(), absl::NotFoundError("cannot start 'no-such-program': No such file or directory"));
  options.args = {"/etc/passwd"};
  EXPECT_EQ(Spawn(options).status(), absl::NotFoundError("cannot start '/etc/passwd': Permission denied"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no process is left
}

// A parent that is killed by SIGKILL: no handler of its own runs.
TEST_F(ProcessTest, DiesWithWhoStartedIt) {
  const pid_t parent = fork();
  if (parent == 0) {
    SpawnOptions options;
    options.args = {"sh", "-c", "echo $$ >>$PIDS; exec sleep 100"};
    options.environment = CleanEnvironment({{"PIDS", Path("pids")}});
    if (!Spawn(options).ok()) _exit(1);
    while (true) pause();
  }
  const std::vector<pid_t> pids = Pids(1);
  ASSERT_EQ(pids.size(), 1u);
  EXPECT_TRUE(Lives(pids[0]));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(Soon([&] { return !Lives(pids[0]); }, 2));
}

// A builder and its compiler, which starts processes of its own; the one that started the builder is killed. `stopped`:
// the builder and its compiler stand still then, as they do while something is timed.
void ExpectNothingOutlives(const std::string& file, const std::function<std::vector<pid_t>(size_t)>& pids_of,
                           bool stopped) {
  const pid_t agent = fork();
  if (agent == 0) {
    const pid_t builder = fork();
    if (builder == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      DieWithParentAndGroups();
      ProgramOptions options;
      options.args = {"sh", "-c", "echo $$ >>$PIDS; sh -c 'echo $$ >>$PIDS; sleep 100; :' & sleep 100; :"};
      options.environment = CleanEnvironment({{"PIDS", file}});
      (void)RunProgram(options);
      _exit(0);
    }
    std::ofstream(file, std::ios::app) << builder << "\n";
    while (true) pause();
  }
  const std::vector<pid_t> pids = pids_of(3);
  ASSERT_EQ(pids.size(), 3u);
  for (pid_t pid : pids) EXPECT_TRUE(Lives(pid));
  if (stopped)
    for (pid_t pid : pids) kill(pid, SIGSTOP);
  kill(agent, SIGKILL);
  waitpid(agent, nullptr, 0);
  for (pid_t pid : pids) EXPECT_TRUE(Soon([&] { return !Lives(pid); }, 2)) << pid;
}

TEST_F(ProcessTest, GroupsUnderWayDieWithWhoStartedTheirStarter) {
  ExpectNothingOutlives(
      Path("pids"), [this](size_t count) { return Pids(count); }, false);
}

TEST_F(ProcessTest, AlsoWhenTheyStandStill) {
  ExpectNothingOutlives(
      Path("pids"), [this](size_t count) { return Pids(count); }, true);
}

// A SIGCONT by itself changes nothing.
TEST_F(ProcessTest, GoesOnWhenItsParentLives) {
  const pid_t child = fork();
  if (child == 0) {
    DieWithParentAndGroups();
    raise(SIGCONT);
    kill(getpid(), SIGCONT);
    _exit(5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 5 << 8);
}

TEST_F(ProcessTest, ManyThreadsMayStartProcesses) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20; ++i) {
        ProgramOptions options;
        options.args = {"sh", "-c", "echo one; exit 7"};
        options.environment = CleanEnvironment();
        const absl::StatusOr<ProgramResult> result = RunProgram(options);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->exit_code, 7);
        EXPECT_EQ(result->output, "one\n");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace diapason
