#include "worker/process/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "tests/paths.h"
#include "tests/worker/testing.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// In a child, since it changes the process: the exit status is 0 when `action` returned true.
template <typename Action>
bool InAChild(const Action& action) {
  const pid_t child = fork();
  if (child == 0) _exit(action() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

// Whether the kernel gives us namespaces with processes and files of their own, found without bubblewrap.
bool KernelAllows() {
  return InAChild([] {
    return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET) == 0 &&
           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           InAChild([] { return mount("proc", "/proc", "proc", 0, nullptr) == 0; });
  });
}

// The environment variable has this value while the object lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* before = getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

// A port of this host that takes connections.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~Listener() { close(fd_); }
  std::string port() const { return std::to_string(port_); }

 private:
  const int fd_;
  int port_ = 0;
};

class SandboxTest : public testing::Test {
 protected:
  void Start(const PipelineOptions& options) {
    auto pipeline = Pipeline::Start(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
  }
  void Start(SandboxMode mode) {
    PipelineOptions options = FakeOptions(folder_);
    options.sandbox = mode;
    options.build_timeout_seconds = options.run_timeout_seconds = 3;
    Start(options);
  }
  // True when the pipeline runs in a sandbox. Where there can be none, checks that this is said and that all works
  // without, and marks the case as skipped: the caller returns.
  bool StartInside() {
    Start(SandboxMode::kAuto);
    if (pipeline_ == nullptr) return false;
    if (pipeline_->sandbox().in_force()) return true;
    const std::string why = pipeline_->sandbox().why_not();
    if (!MayLack("bubblewrap")) {
      EXPECT_FALSE(KernelAllows()) << "bubblewrap is missing or fails, but the kernel allows it: " << why;
      EXPECT_THAT(why, HasSubstr("bwrap fails here ("));
      EXPECT_THAT(why, HasSubstr("): allow unprivileged user namespaces on this host"));
    }
    EXPECT_EQ(pipeline_->sandbox().Describe(), "nothing");
    EXPECT_TRUE(Measure("").has_timing());
    MarkSkipped(why);
    return false;
  }
  static void MarkSkipped(const std::string& why) { GTEST_SKIP() << why; }
  v1::MeasureResult Measure(const std::string& words) {
    const uint64_t id = next_id_++;
    pipeline_->Submit(0, FakeRequest(id, words), box_.Taker());
    return box_.Wait(id);
  }
  PipelineOptions CompilerOptions(const std::string& target, SandboxMode mode) const {
    PipelineOptions options;
    options.builder_args[0] = options.runner_args[0] = "worker_tests";
    options.devices = {target};
    options.builders = 1;
    options.scratch_base = folder_.path();
    options.sandbox = mode;
    return options;
  }
  void ExpectMeasures(const std::string& target) {
    for (const uint64_t first = next_id_; next_id_ < first + 3; ++next_id_) {
      v1::MeasureRequest request = FakeRequest(next_id_, "", DoublingDag(1024));
      request.set_schedule(SerializeSchedule(Schedule()));
      request.set_target(target);
      request.set_mode(v1::MEASURE_MODE_TIME_AND_VERIFY);
      pipeline_->Submit(0, request, box_.Taker());
      const v1::MeasureResult result = box_.Wait(next_id_, 60);
      EXPECT_TRUE(result.has_timing()) << target << " " << result.DebugString();
      EXPECT_TRUE(result.verification().ok()) << target;
    }
  }
  void TearDown() override {
    if (pipeline_ != nullptr) pipeline_->Stop();
    EXPECT_TRUE(folder_.empty());
    EXPECT_THAT(Children(), IsEmpty());
  }

  TemporaryFolder folder_, outside_;
  Listener listener_;
  ScopedVariable outside_variable_{"DIAPASON_FAKE_OUTSIDE", outside_.path()};
  ScopedVariable port_variable_{"DIAPASON_FAKE_PORT", listener_.port()};
  ScopedVariable pid_variable_{"DIAPASON_FAKE_PID", std::to_string(getpid())};
  ResultBox box_;
  std::unique_ptr<Pipeline> pipeline_;
  uint64_t next_id_ = 1;
};

TEST_F(SandboxTest, ReadsItsModes) {
  EXPECT_EQ(ParseSandboxMode("off"), SandboxMode::kOff);
  EXPECT_EQ(ParseSandboxMode("auto"), SandboxMode::kAuto);
  EXPECT_EQ(ParseSandboxMode("on"), SandboxMode::kOn);
  EXPECT_EQ(ParseSandboxMode("On"), std::nullopt);
}

TEST_F(SandboxTest, WithoutItProcessesReachWhatTheUserMay) {
  Start(SandboxMode::kOff);
  EXPECT_FALSE(pipeline_->sandbox().in_force());
  EXPECT_EQ(pipeline_->sandbox().why_not(), "");
  EXPECT_EQ(Measure("look_around").error().text(), "can reach: scratch files network processes");
  EXPECT_EQ(Measure("kernel=look_around").error().text(), "can reach: scratch files network processes");
  EXPECT_FALSE(outside_.empty());
}

TEST_F(SandboxTest, InsideTheyReachTheirScratchFolderOnly) {
  if (!StartInside()) return;
  EXPECT_THAT(pipeline_->sandbox().Describe(), StartsWith("no network, files read-only but for scratch folders, by /"));
  EXPECT_EQ(Measure("look_around").error().text(), "can reach: scratch");
  EXPECT_EQ(Measure("kernel=look_around").error().text(), "can reach: scratch");
  EXPECT_TRUE(outside_.empty());
  EXPECT_TRUE(Measure("").has_timing());
}

// What happens to a process is told as if there were no walls.
TEST_F(SandboxTest, FaultsInsideAreToldApart) {
  if (!StartInside()) return;
  const std::vector<std::vector<std::string>> cases = {
      {"crash", "build_crash", "builder: the process died of signal 11 (Segmentation fault)"},
      {"abort", "build_crash", "builder: the process died of signal 6 (Aborted): assertion failed on purpose"},
      {"exit", "build_crash", "builder: the process exited with status 3: giving up on purpose"},
      {"hang", "build_timeout", "not built within 3 s"},
      {"suicide", "infrastructure", "builder: the process died of signal 9 (Killed)"},
      {"kernel=crash", "run_crash", "runner: the process died of signal 11 (Segmentation fault)"},
      {"kernel=hang", "run_timeout", "not finished within 3 s"},
      {"kernel=suicide", "infrastructure", "runner: the process died of signal 9 (Killed)"},
  };
  for (const auto& c : cases) {
    const v1::MeasureResult result = Measure(c[0]);
    EXPECT_EQ(result.error().kind(), c[1]) << c[0];
    EXPECT_EQ(result.error().text(), c[2]) << c[0];
    EXPECT_TRUE(Measure("").has_timing());
  }
}

// This process' own, with all that they started.
std::vector<pid_t> Descendants() {
  std::vector<pid_t> family = {getpid()};
  for (size_t i = 0; i < family.size(); ++i) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(family[i]) + "/task")) {
      std::ifstream children(task.path() / "children");
      for (pid_t pid = 0; children >> pid;) family.push_back(pid);
    }
  }
  family.erase(family.begin());
  return family;
}

bool IsSleep(pid_t pid) {
  std::ifstream name("/proc/" + std::to_string(pid) + "/comm");
  std::string text;
  return std::getline(name, text) && text == "sleep";
}

bool EndsSoon(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(SandboxTest, ADeadlineEndsTheWholeTree) {
  if (!StartInside()) return;
  pipeline_->Submit(0, FakeRequest(100, "grandchild"), box_.Taker());
  std::vector<pid_t> sleeps;
  for (int i = 0; i < 300 && sleeps.empty(); ++i) {
    for (pid_t pid : Descendants()) {
      if (IsSleep(pid)) sleeps.push_back(pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(sleeps.size(), 1u);
  EXPECT_EQ(box_.Wait(100).error().text(), "not built within 3 s");
  EXPECT_TRUE(EndsSoon(sleeps[0]));
}

// Who kills the wall kills what is behind it.
TEST_F(SandboxTest, NothingOutlivesItsWall) {
  if (!StartInside()) return;
  pipeline_->Submit(0, FakeRequest(100, "kernel=hang"), box_.Taker());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::vector<pid_t> family = Descendants();
  for (const std::string& child : Children()) kill(std::atoi(child.c_str()), SIGKILL);
  const v1::MeasureResult result = box_.Wait(100);
  EXPECT_EQ(result.error().kind(), "infrastructure") << result.DebugString();
  EXPECT_GE(family.size(), 6u);  // two builders, a runner and their walls
  for (pid_t pid : family) EXPECT_TRUE(EndsSoon(pid)) << pid;
  EXPECT_TRUE(Measure("").has_timing());
}

// The real compilers and drivers: where they put their files must be writable.
TEST_F(SandboxTest, CompilesAndRunsInside) {
  if (!StartInside()) return;
  for (const char* target : {"cpu", "opencl"}) {
    Start(CompilerOptions(target, SandboxMode::kOn));
    ExpectMeasures(target);
  }
}

TEST_F(SandboxTest, MeasuresOnAGpuInside) {
  if (!StartInside()) return;
  const absl::Status outside = Pipeline::Start(CompilerOptions("cuda", SandboxMode::kOff)).status();
  if (!outside.ok()) GTEST_SKIP() << outside.message();
  Start(CompilerOptions("cuda", SandboxMode::kOn));
  ExpectMeasures("cuda");
}

TEST_F(SandboxTest, GoesWithoutWhereARunnerStartsOnlyOutside) {
  if (!StartInside()) return;
  PipelineOptions options = FakeOptions(folder_);
  options.devices = {"cuda -device=5"};
  options.sandbox = SandboxMode::kAuto;
  Start(options);
  EXPECT_FALSE(pipeline_->sandbox().in_force());
  EXPECT_EQ(pipeline_->sandbox().why_not(),
            "inside, the runner of 'cuda -device=5' does not start: the device opens only outside");
  options.sandbox = SandboxMode::kOn;
  EXPECT_EQ(Pipeline::Start(options).status(),
            absl::UnavailableError("the runner of 'cuda -device=5' does not start: the device opens only outside"));
}

TEST_F(SandboxTest, SaysThatBubblewrapIsMissing) {
  ScopedVariable path("PATH", outside_.path());
  Start(SandboxMode::kAuto);
  EXPECT_FALSE(pipeline_->sandbox().in_force());
  const std::string why = "there is no program bwrap on the PATH: install it (Debian's package is bubblewrap)";
  EXPECT_EQ(pipeline_->sandbox().why_not(), why);
  EXPECT_TRUE(Measure("").has_timing());
  PipelineOptions options = FakeOptions(folder_);
  options.sandbox = SandboxMode::kOn;
  EXPECT_EQ(Pipeline::Start(options).status(),
            absl::UnavailableError("the sandbox is not to be had: " + why + ", or say --sandbox off to go without"));
}

// As on hosts that forbid user namespaces.
TEST_F(SandboxTest, SaysWhyBubblewrapFails) {
  const std::string program = outside_.path() + "/bwrap";
  std::ofstream(program) << "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  ScopedVariable path("PATH", outside_.path() + ":" + getenv("PATH"));
  Start(SandboxMode::kAuto);
  EXPECT_FALSE(pipeline_->sandbox().in_force());
  const std::string why = program +
                          " fails here (bwrap: No permissions to create a new namespace): allow unprivileged user "
                          "namespaces on this host";
  EXPECT_EQ(pipeline_->sandbox().why_not(), why);
  EXPECT_TRUE(Measure("").has_timing());
  PipelineOptions options = FakeOptions(folder_);
  options.sandbox = SandboxMode::kOn;
  EXPECT_EQ(Pipeline::Start(options).status(),
            absl::UnavailableError("the sandbox is not to be had: " + why + ", or say --sandbox off to go without"));
}

}  // namespace
}  // namespace diapason
