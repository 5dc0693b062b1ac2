// Launchers against programs that play the engine's part, and the plan of how many workers there should be.
#include "service/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "service/command.h"
#include "service/worker_pool.h"
#include "tests/paths.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RunCommand, GivesOutputAndReasons) {
  EXPECT_EQ(RunCommand({"cat"}, std::string(300000, 'x')).value(), std::string(300000, 'x'));
  EXPECT_EQ(RunCommand({"true"}, std::string(300000, 'x')).value(), "");
  EXPECT_EQ(RunCommand({"sh", "-c", "echo one >&2; echo two >&2; exit 3"}).status(),
            absl::UnknownError("'sh' failed with status 3: two"));
  EXPECT_EQ(RunCommand({"sh", "-c", "kill -9 $$"}).status(), absl::UnknownError("'sh' failed with signal 9: "));
  EXPECT_EQ(RunCommand({"no-such-program"}).status(),
            absl::NotFoundError("there is no program 'no-such-program' on this host"));
  EXPECT_EQ(RunCommand({"sleep", "60"}, "", 0.2).status(),
            absl::DeadlineExceededError("'sleep' took longer than 0.2 s and was killed"));
}

// A command of a cluster's engine starts processes of its own.
TEST(RunCommand, TheDeadlineEndsAllThatTheCommandHasStarted) {
  const std::string file = testing::TempDir() + "run-command-" + std::to_string(getpid());
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(RunCommand({"sh", "-c", "sleep 100 & echo $! >\"$0\"; sleep 100; :", file}, "", 0.5).status(),
            absl::DeadlineExceededError("'sh' took longer than 0.5 s and was killed"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  pid_t started = 0;
  std::ifstream(file) >> started;
  std::filesystem::remove(file);
  ASSERT_GT(started, 0);
  // Dead, or not yet buried by the first process.
  auto lives = [started] {
    std::ifstream stat("/proc/" + std::to_string(started) + "/stat");
    std::string line;
    return std::getline(stat, line) && line[line.rfind(')') + 2] != 'Z';
  };
  for (int i = 0; i < 200 && lives(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(lives());
}

TEST(RunCommand, ShellWordsKeepTheirText) {
  for (const std::string text : {"plain", "two words", "it's", "$HOME `x` \"q\" \\", ""})
    EXPECT_EQ(RunCommand({"sh", "-c", "printf %s " + ShellWord(text)}).value(), text);
}

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    std::string pattern = testing::TempDir() + "launcher-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    setenv("PLAYED", folder_.c_str(), 1);
  }
  ~LauncherTest() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  // A program that writes its arguments, a line each, to NAME.args, its stdin to NAME.in, and then does `more`.
  void Plays(const std::string& name, const std::string& more) {
    std::ofstream(folder_ + "/" + name) << "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$PLAYED/" << name << ".args\"\n"
                                        << more;
    std::filesystem::permissions(folder_ + "/" + name, std::filesystem::perms::owner_all);
  }
  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string Read(const std::string& name) const { return ReadFile(folder_ + "/" + name); }
  static std::string PodTemplate() { return ReadFile(TEST_PATH(DIAPASON_DEPLOY) + "/kubernetes/worker-pod.yaml"); }
  static LaunchOptions Options(const std::string& engine) {
    LaunchOptions options;
    options.engine = engine;
    options.command = {"worker", "--tracker", "host0:9190", "--devices", "cuda:*"};
    options.label = "0a1b";
    options.program = "/opt/my programs/diapason";
    return options;
  }
  std::string folder_, path_;
};

TEST_F(LauncherTest, SlurmGetsAnArrayAndItsListIsRead) {
  Plays("sbatch", "echo 42\n");
  Plays("squeue", "cat \"$PLAYED/queue\"\n");
  Plays("scancel", "");
  LaunchOptions options = Options("slurm");
  options.slurm_args = {"-p", "gpu", "--gres=gpu:1"};
  const auto launcher = MakeLauncher(options).value();
  ASSERT_TRUE(launcher->Start(3).ok());
  EXPECT_EQ(Read("sbatch.args"),
            "--parsable\n--job-name\ndiapason-0a1b\n--array\n1-3\n-p\ngpu\n--gres=gpu:1\n--wrap\nexec '/opt/my "
            "programs/diapason' 'worker' '--tracker' 'host0:9190' '--devices' 'cuda:*' --name "
            "\"slurm-$SLURM_JOB_ID\"\n");
  std::ofstream(folder_ + "/queue") << "42_1 RUNNING\n42_2 COMPLETING\n42_3 PENDING\n43_1 CANCELLED\n";
  EXPECT_THAT(launcher->List().value(), ElementsAre("42_1", "42_3"));
  EXPECT_EQ(Read("squeue.args"), "--noheader\n--array\n--name\ndiapason-0a1b\n--format\n%i %T\n");
  ASSERT_TRUE(launcher->Stop({"42_1", "42_3"}).ok());
  EXPECT_EQ(Read("scancel.args"), "--quiet\n42_1\n42_3\n");
  Plays("sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1\n");
  EXPECT_EQ(launcher->Start(1),
            absl::UnknownError("'sbatch' failed with status 1: sbatch: error: invalid partition specified: gpu"));
}

TEST_F(LauncherTest, KubernetesGetsAPodForEachWorker) {
  Plays("kubectl", "case $1 in apply) cat >\"$PLAYED/applied\";; get) cat \"$PLAYED/pods\";; esac\n");
  LaunchOptions options = Options("kubernetes");
  options.kube_template = PodTemplate();
  const auto launcher = MakeLauncher(options).value();
  ASSERT_TRUE(launcher->Start(2).ok());
  EXPECT_EQ(Read("kubectl.args"), "apply\n-f\n-\n");
  const std::string applied = Read("applied");
  std::vector<std::string> names;
  std::istringstream lines(applied);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  name: \"", 0) == 0) names.push_back(line.substr(9, line.size() - 10));
    const std::string key = "      args: ";
    if (line.rfind(key, 0) != 0) continue;
    const auto args = nlohmann::json::parse(line.substr(key.size()));
    EXPECT_EQ(args,
              nlohmann::json({"worker", "--tracker", "host0:9190", "--devices", "cuda:*", "--name", names.back()}));
  }
  ASSERT_EQ(names.size(), 2u);
  EXPECT_NE(names[0], names[1]);
  EXPECT_EQ(names[0].rfind("diapason-0a1b-", 0), 0u) << names[0];
  EXPECT_NE(applied.find("    diapason-fleet: \"0a1b\"\n"), std::string::npos);
  std::ofstream(folder_ + "/pods")
      << "a Running <none>\nb Pending <none>\nc Failed <none>\nd Running 2026-11-21T00:00:00Z\n";
  EXPECT_THAT(launcher->List().value(), ElementsAre("a", "b"));
  ASSERT_TRUE(launcher->Stop({"a"}).ok());
  EXPECT_EQ(Read("kubectl.args"), "delete\npod\n--ignore-not-found\n--wait=false\na\n");

  options.kube_template = "name: {{name}} {{args}}";
  EXPECT_EQ(MakeLauncher(options).status(),
            absl::InvalidArgumentError(
                "the manifest of --kube-template has no {{label}}: start from deploy/kubernetes/worker-pod.yaml"));
  EXPECT_EQ(MakeLauncher(Options("lsf")).status(),
            absl::InvalidArgumentError("--launch lsf is not understood; give local, slurm or kubernetes"));
}

int ModeOf(const std::string& path) {
  return static_cast<int>(std::filesystem::status(path).permissions() & std::filesystem::perms::mask);
}

constexpr char kToken[] = "q3Zf0nYwK1bXc8aRt5sVu2eJ";

TEST_F(LauncherTest, SlurmsWorkersGetSecretsAsFilesOfAPrivateFolder) {
  Plays("sbatch", "env >\"$PLAYED/sbatch.env\"\necho 42\n");
  LaunchOptions options = Options("slurm");
  options.secrets = {{"--token-file", "worker.token", kToken}};
  options.secrets_base = folder_;
  const std::string path = folder_ + "/diapason-0a1b";
  const auto launcher = MakeLauncher(options).value();
  EXPECT_FALSE(std::filesystem::exists(path));
  const mode_t before = umask(0);
  ASSERT_TRUE(launcher->Start(1).ok());
  umask(before);
  EXPECT_EQ(ModeOf(path), 0700);
  EXPECT_EQ(ModeOf(path + "/worker.token"), 0600);
  EXPECT_EQ(Read("diapason-0a1b/worker.token"), kToken);
  EXPECT_NE(Read("sbatch.args").find("'cuda:*' '--token-file' '" + path + "/worker.token' --name"), std::string::npos)
      << Read("sbatch.args");
  EXPECT_EQ((Read("sbatch.args") + Read("sbatch.env")).find(kToken), std::string::npos);
  // Again, after somebody opened it, and with another text.
  std::filesystem::permissions(path, std::filesystem::perms::all);
  options.secrets[0].text = "another";
  ASSERT_TRUE(MakeLauncher(options).value()->Start(1).ok());
  EXPECT_EQ(ModeOf(path), 0700);
  EXPECT_EQ(Read("diapason-0a1b/worker.token"), "another");
  // Who comes after a crash removes it, even without secrets of its own.
  options.secrets.clear();
  const auto next = MakeLauncher(options).value();
  ASSERT_TRUE(next->Start(1).ok());
  EXPECT_EQ(next->Release(), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(next->Release(), absl::OkStatus());
}

TEST_F(LauncherTest, SecretsAreNotWrittenToWhatIsNotTheirFolder) {
  Plays("sbatch", "");
  LaunchOptions options = Options("slurm");
  options.secrets = {{"--token-file", "worker.token", kToken}};
  options.secrets_base = folder_;
  const std::string path = folder_ + "/diapason-0a1b";
  std::filesystem::create_directory(folder_ + "/elsewhere");
  std::filesystem::create_symlink(folder_ + "/elsewhere", path);
  EXPECT_EQ(MakeLauncher(options).value()->Start(1),
            absl::FailedPreconditionError("cannot keep the workers' credentials in '" + path +
                                          "' (Not a directory); name another folder with --worker-secrets"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/elsewhere"));
  EXPECT_EQ(Read("sbatch.args"), "");  // no worker without them
  options.secrets_base = folder_ + "/none";
  EXPECT_EQ(MakeLauncher(options).value()->Start(1),
            absl::FailedPreconditionError("cannot keep the workers' credentials in '" + folder_ +
                                          "/none/diapason-0a1b' (No such file or directory); name another folder with "
                                          "--worker-secrets"));
  if (geteuid() == 0) {
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    options.secrets_base = folder_;
    EXPECT_EQ(MakeLauncher(options).value()->Start(1),
              absl::PermissionDeniedError("the folder '" + path +
                                          "' for the workers' credentials belongs to somebody else; name another place "
                                          "for it with --worker-secrets"));
  }
}

// What this host can tell before a worker is asked for.
TEST_F(LauncherTest, ChecksItsCommandsAndItsFolder) {
  LaunchOptions options = Options("local");
  const auto check = [&] { return MakeLauncher(options).value()->Check(); };
  EXPECT_EQ(check(),
            absl::NotFoundError("the workers' program '/opt/my programs/diapason' cannot be run (No such file or "
                                "directory); name another with --worker-program"));
  setenv("PATH", folder_.c_str(), 1);  // the tear-down brings back the other
  options.engine = "slurm";
  for (const char* name : {"sbatch", "squeue", "scancel"}) {
    EXPECT_EQ(check(), absl::NotFoundError(std::string("--launch slurm needs the program '") + name +
                                           "', which is not on this host; start the command on one that has it"));
    Plays(name, "");
  }
  EXPECT_EQ(check(), absl::OkStatus());
  options.engine = "kubernetes";
  options.kube_template = PodTemplate();
  std::filesystem::create_directory(folder_ + "/kubectl");
  EXPECT_EQ(check(),
            absl::NotFoundError("--launch kubernetes needs the program 'kubectl', which is not on this host; start "
                                "the command on one that has it"));
  std::filesystem::remove(folder_ + "/kubectl");
  Plays("kubectl", "");
  EXPECT_EQ(check(), absl::OkStatus());

  options.engine = "slurm";
  options.secrets = {{"--token-file", "worker.token", kToken}};
  const auto cannot = [](const std::string& folder, const std::string& why) {
    return absl::FailedPreconditionError("cannot keep the workers' credentials in '" + folder + "' (" + why +
                                         "); name another folder with --worker-secrets");
  };
  options.secrets_base = folder_ + "/none";
  EXPECT_EQ(check(), cannot(folder_ + "/none", "No such file or directory"));
  options.secrets_base = folder_ + "/sbatch";
  EXPECT_EQ(check(), cannot(folder_ + "/sbatch", "Not a directory"));
  options.secrets_base = folder_ + "/keeps";
  std::filesystem::create_directory(options.secrets_base);
  EXPECT_EQ(check(), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_empty(options.secrets_base));
  std::filesystem::create_symlink("/", folder_ + "/keeps/diapason-0a1b");
  EXPECT_EQ(check(), cannot(folder_ + "/keeps/diapason-0a1b", "Not a directory"));
  std::filesystem::remove(folder_ + "/keeps/diapason-0a1b");
  // As somebody who may not write there.
  const bool root = geteuid() == 0;
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  std::filesystem::permissions(options.secrets_base, std::filesystem::perms(0555));
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status denied = check();
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(denied, cannot(options.secrets_base, "Permission denied"));
  std::filesystem::permissions(options.secrets_base, std::filesystem::perms(0755));
}

// One that was told to end drains for a while: nobody counts on it, and it is not lost when it ends.
TEST_F(LauncherTest, LocalWorkersThatDrainAreNotListed) {
  Plays("worker",
        "trap 'touch \"$PLAYED/asked\"; while ! [ -e \"$PLAYED/end\" ]; do sleep 0.01; done; exit' TERM\n"
        "touch \"$PLAYED/$$\"\nwhile :; do sleep 0.01; done\n");
  LaunchOptions options = Options("local");
  options.program = folder_ + "/worker";
  const auto launcher = MakeLauncher(options).value();
  ASSERT_TRUE(launcher->Start(2).ok());
  const std::vector<std::string> both = launcher->List().value();
  ASSERT_EQ(both.size(), 2u);
  const auto wait_for = [&](const std::string& name) {
    for (int i = 0; i < 1000 && !std::filesystem::exists(folder_ + "/" + name); ++i) usleep(10000);
    return std::filesystem::exists(folder_ + "/" + name);
  };
  for (const std::string& id : both) ASSERT_TRUE(wait_for(id));  // they heed SIGTERM now
  ASSERT_TRUE(launcher->Stop({both[0]}).ok());
  ASSERT_TRUE(wait_for("asked"));
  EXPECT_EQ(kill(std::stoi(both[0]), 0), 0);
  EXPECT_THAT(launcher->List().value(), ElementsAre(both[1]));
  std::ofstream(folder_ + "/end") << "";
}

TEST_F(LauncherTest, PodsMountASecretThatKubectlReadsFromStdin) {
  Plays("kubectl", "printf '%s\\n' \"$@\" >>\"$PLAYED/all\"\n[ $1 = apply ] && cat >>\"$PLAYED/applied\"; true\n");
  LaunchOptions options = Options("kubernetes");
  options.kube_template = PodTemplate();
  options.secrets = {{"--token-file", "worker.token", kToken}};
  const auto launcher = MakeLauncher(options).value();
  ASSERT_TRUE(launcher->Start(1).ok());
  const std::string applied = Read("applied");
  const size_t pod = applied.find("---\n");
  EXPECT_EQ(nlohmann::json::parse(applied.substr(0, pod)),
            nlohmann::json::parse(R"({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": "diapason-0a1b", "labels": {"app": "diapason-worker", "diapason-fleet": "0a1b"}},
                "data": {"worker.token": "cTNaZjBuWXdLMWJYYzhhUnQ1c1Z1MmVK"}})"));
  EXPECT_NE(applied.find("        secretName: \"diapason-0a1b\"\n", pod), std::string::npos) << applied;
  EXPECT_NE(applied.find("\"--token-file\",\"/etc/diapason/worker.token\"", pod), std::string::npos) << applied;
  ASSERT_TRUE(launcher->Release().ok());
  EXPECT_EQ(Read("all"), "apply\n-f\n-\napply\n-f\n-\ndelete\nsecret\n--ignore-not-found\ndiapason-0a1b\n");

  options.kube_template = "{{name}} {{label}} {{args}} /etc/diapason";
  EXPECT_EQ(MakeLauncher(options).status(),
            absl::InvalidArgumentError(
                "the manifest of --kube-template has no {{secret}}: start from deploy/kubernetes/worker-pod.yaml"));
}

std::vector<std::string> Ids(int first, int count) {
  std::vector<std::string> ids;
  for (int i = first; i < first + count; ++i) ids.push_back(std::to_string(i));
  return ids;
}

TEST(PoolPlan, GrowsWithTheQueueAndShrinksWithoutWork) {
  WorkerPoolOptions options;
  options.first_workers = 2;
  options.min_workers = 1;
  options.max_workers = 8;
  options.shrink_after_seconds = 60;
  PoolPlan plan(options);
  auto starts = [&](int there, int64_t demand, double now) {
    const int start = plan.Next(Ids(0, there), demand, now).start;
    plan.Started(start);
    return start;
  };
  EXPECT_EQ(starts(0, 0, 0), 2);
  EXPECT_EQ(starts(2, 10, 10), 1);  // 10 measurements keep 3 busy
  EXPECT_EQ(starts(3, 1000, 12), 5);
  EXPECT_EQ(plan.Next(Ids(0, 8), 3, 14).start, 0);
  EXPECT_THAT(plan.Next(Ids(0, 8), 0, 70).stop, IsEmpty());
  EXPECT_THAT(plan.Next(Ids(0, 8), -1, 100).stop, IsEmpty());  // a tracker that does not answer is no lack of work
  EXPECT_THAT(plan.Next(Ids(0, 8), 0, 159).stop, IsEmpty());
  EXPECT_EQ(plan.Next(Ids(0, 8), 0, 161).stop, Ids(1, 7));
  const PoolPlan::Step step = plan.Next(Ids(0, 1), 0, 163);  // those were not lost
  EXPECT_EQ(step.lost + step.start, 0);
}

TEST(PoolPlan, ReplacesLostOnesUpToALimit) {
  WorkerPoolOptions options;
  options.first_workers = options.min_workers = options.max_workers = 4;
  options.max_replaced = 3;
  PoolPlan plan(options);
  auto next = [&](const std::vector<std::string>& ids) {
    PoolPlan::Step step = plan.Next(ids, 0, 0);
    plan.Started(step.start);
    return step;
  };
  EXPECT_EQ(next({}).start, 4);
  EXPECT_EQ(next(Ids(0, 4)).start, 0);
  PoolPlan::Step step = next(Ids(2, 2));
  EXPECT_EQ(step.lost, 2);
  EXPECT_EQ(step.start, 2);
  EXPECT_FALSE(plan.exhausted());
  step = next(Ids(4, 2));  // these two before they were ever seen
  EXPECT_EQ(step.lost, 2);
  EXPECT_EQ(step.start, 1);
  EXPECT_TRUE(plan.exhausted());
  next(Ids(4, 3));
  EXPECT_EQ(next(Ids(4, 2)).start, 0);
  // Neither for a long queue, nor when there is nothing to do for long.
  EXPECT_EQ(plan.Next(Ids(4, 2), 1000, 1).start, 0);
  EXPECT_EQ(plan.Next(Ids(4, 2), 0, 1000).start, 0);
  // Only when the last is gone is nobody left.
  EXPECT_FALSE(plan.used_up());
  EXPECT_EQ(plan.Next({}, 0, 1001).lost, 2);
  EXPECT_TRUE(plan.used_up());
}

TEST(PoolPlan, TakesOverWhatAnEarlierCoordinatorLeft) {
  WorkerPoolOptions options;
  options.first_workers = options.min_workers = 2;
  options.max_workers = 4;
  options.shrink_after_seconds = 60;
  EXPECT_EQ(PoolPlan(options).Next(Ids(0, 1), 0, 0).start, 1);
  // More than to begin with: the queue may be short just now. They go as those do that this plan asked for.
  for (int64_t demand : {-1, 0, 1}) {
    PoolPlan plan(options);
    EXPECT_THAT(plan.Next(Ids(0, 4), demand, 0).stop, IsEmpty()) << demand;
    EXPECT_EQ(plan.Next(Ids(0, 4), 1000, 2).start, 0) << demand;
    EXPECT_THAT(plan.Next(Ids(0, 4), 0, 61).stop, IsEmpty()) << demand;
    EXPECT_EQ(plan.Next(Ids(0, 4), 0, 62).stop, Ids(2, 2)) << demand;
  }
  // Never more than the most.
  EXPECT_EQ(PoolPlan(options).Next(Ids(0, 6), 1000, 0).stop, Ids(4, 2));
}

}  // namespace
}  // namespace diapason
