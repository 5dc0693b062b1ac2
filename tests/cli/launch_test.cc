// Workers that commands ask of an engine, which the scripts of tests/cli/engines play: each worker is a real one.
#include <algorithm>
#include <filesystem>

#include "tests/cli/fleet_fixture.h"
#include "tests/paths.h"

namespace diapason {
namespace {

class LaunchCli : public FleetCli {
 protected:
  void SetUp() override {
    FleetCli::SetUp();
    std::filesystem::create_directories(Path("engine"));
    std::filesystem::create_directories(Path("bin"));
    for (const char* name : {"sbatch", "squeue", "scancel"})
      std::filesystem::create_symlink(TEST_PATH(DIAPASON_ENGINES) + "/slurm", Path("bin") + "/" + name);
    std::filesystem::create_symlink(TEST_PATH(DIAPASON_ENGINES) + "/kubectl", Path("bin/kubectl"));
    path_ = std::getenv("PATH");
    setenv("PATH", (Path("bin") + ":" + path_).c_str(), 1);
    setenv("ENGINE", Path("engine").c_str(), 1);
    setenv("DIAPASON", TEST_PATH(DIAPASON_PROGRAM).c_str(), 1);
  }
  void TearDown() override {
    for (pid_t pid : Jobs()) kill(pid, SIGKILL);
    setenv("PATH", path_.c_str(), 1);
    FleetCli::TearDown();
  }
  // The processes of the workers that the engine runs.
  std::vector<pid_t> Jobs() const {
    std::vector<pid_t> jobs;
    for (const auto& entry : std::filesystem::directory_iterator(Path("engine"))) {
      if (entry.path().filename().string().find(':') == std::string::npos) continue;
      const pid_t pid = std::atoi(ReadText(entry.path()).c_str());
      const std::string status = ReadText("/proc/" + std::to_string(pid) + "/status");
      if (!status.empty() && status.find("State:\tZ") == std::string::npos) jobs.push_back(pid);
    }
    std::sort(jobs.begin(), jobs.end());
    return jobs;
  }
  int64_t Calls(const std::string& beginning) const {
    std::istringstream lines(ReadText(Path("engine/calls")));
    int64_t count = 0;
    for (std::string line; std::getline(lines, line);) count += line.rfind(beginning, 0) == 0;
    return count;
  }
  int64_t Records() const {
    const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
    return info.code == 0 ? static_cast<int64_t>(info.json()["record_count"]) : 0;
  }
  std::vector<std::string> Launch(const std::string& engine, const std::string& workers) const {
    return {"--launch", engine,          "--workers",
            workers,    "--worker-args", "--devices cpu --builders 1 --scratch " + Path("")};
  }
  std::string path_;
};

// The coordinator is killed; the same command takes over what it had asked for, and releases it when the work is done.
TEST_F(LaunchCli, SlurmJobsOfAKilledTunerAreFoundAgain) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  const std::vector<std::string> args = Tune(address, "32", Launch("slurm", "2"));
  auto tune = std::make_unique<Process>(args, Path("tune1"));
  ASSERT_TRUE(WaitFor([&] { return Records() >= 6; })) << tune->err() << ReadText(Path("engine/workers.log"));
  const std::vector<pid_t> before = Jobs();
  EXPECT_EQ(before.size(), 2u);
  tune->Kill();
  EXPECT_EQ(Jobs(), before);
  Process again(args, Path("tune2"));
  ASSERT_EQ(again.Wait(), 0) << again.err();
  EXPECT_EQ(Calls("sbatch"), 1);  // nothing more was asked for
  EXPECT_TRUE(WaitFor([&] { return Jobs().empty(); }, 20));
  ExpectEachOnce(32);
}

// `submit` brings workers of its own to a service that has none.
TEST_F(LaunchCli, PodsOfASubmissionEndWithItsJob) {
  Process service({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db")}, Path("serve"));
  const std::string address = service.Address();
  std::vector<std::string> args = OnSmallProduct(
      "submit", {"--trials", "48", "--min-repeat-ms", "200", "--service", address});  // a queue that lasts
  std::vector<std::string> launch = Launch("kubernetes", "1");
  launch.insert(launch.end(),
                {"--max-workers", "2", "--kube-template", TEST_PATH(DIAPASON_DEPLOY) + "/kubernetes/worker-pod.yaml"});
  args.insert(args.end(), launch.begin(), launch.end());
  ExpectError(Cli(args), "--launch starts workers that end with this command; add --wait");
  args.push_back("--wait");
  auto submit = std::make_unique<Process>(args, Path("submit"));
  ASSERT_TRUE(WaitFor([&] { return Records() >= 4; })) << submit->err() << ReadText(Path("engine/workers.log"));
  EXPECT_TRUE(WaitFor([&] { return Jobs().size() == 2; }));  // with the queue
  const std::vector<pid_t> before = Jobs();
  submit->Kill();
  EXPECT_EQ(Jobs(), before);
  std::vector<std::string> watch = {"jobs", "watch", "1", "--service", address};
  watch.insert(watch.end(), launch.begin(), launch.end());
  Process again(watch, Path("watch"));
  ASSERT_EQ(again.Wait(), 0) << again.err();
  EXPECT_NE(again.out().find("job 1 is done: all trials are done\n"), std::string::npos) << again.out();
  EXPECT_TRUE(WaitFor([&] { return Jobs().empty(); }, 20));
  EXPECT_LE(Calls("kubectl apply"), 2) << ReadText(Path("engine/calls"));  // the first, and the one that grew
  ExpectEachOnce(48);
}

// Before a job is submitted, a history made or a worker asked for.
TEST_F(LaunchCli, WhatThisHostCanTellIsAnErrorAtTheStart) {
  std::ofstream(Path("token")) << "q3Zf0nYwK1bXc8aRt5sVu2eJ\n";
  std::filesystem::permissions(Path("token"), std::filesystem::perms(0600));
  const auto all = [&](const std::vector<std::string>& flags, const std::string& sentence) {
    const std::vector<std::string> commands[] = {
        Tune("127.0.0.1:1", "8"),
        {"submit", "gemm", "--target", "cpu", "--service", "127.0.0.1:1", "--wait"},
        {"jobs", "watch", "1", "--service", "127.0.0.1:1"},
        {"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db")},
    };
    for (std::vector<std::string> args : commands) {
      args.insert(args.end(), flags.begin(), flags.end());
      ExpectError(Cli(args), sentence);
    }
  };
  const auto launch = [&](const std::string& engine, const std::vector<std::string>& more) {
    std::vector<std::string> flags = Launch(engine, "1");
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  for (const char* engine : {"local", "slurm"}) {
    const auto secrets = [&](const std::string& folder) {
      return launch(engine, {"--worker-token-file", Path("token"), "--worker-secrets", folder});
    };
    for (const auto& [name, why] : {std::pair{"none", "No such file or directory"}, {"token", "Not a directory"}}) {
      const std::string folder = std::filesystem::path(Path(name)).lexically_normal();
      all(secrets(folder), "cannot keep the workers' credentials in '" + folder + "' (" + why +
                               "); name another folder with --worker-secrets");
    }
  }
  all(launch("local", {"--worker-program", Path("none")}),
      "the workers' program '" + Path("none") +
          "' cannot be run (No such file or directory); name another with "
          "--worker-program");
  all(launch("kubernetes", {"--kube-template", Path("none")}),
      "cannot read --kube-template '" + Path("none") + "' (No such file or directory)");
  all(launch("kubernetes", {"--kube-template", Path("token")}),
      "the manifest of --kube-template has no {{name}}: start from deploy/kubernetes/worker-pod.yaml");
  all(launch("lsf", {}), "--launch lsf is not understood; give local, slurm or kubernetes");
  std::filesystem::remove(Path("bin/scancel"));
  setenv("PATH", Path("bin").c_str(), 1);
  all(launch("slurm", {}),
      "--launch slurm needs the program 'scancel', which is not on this host; start the command on one that has it");
  EXPECT_FALSE(std::filesystem::exists(Path("h.db")));
  EXPECT_FALSE(std::filesystem::exists(Path("engine/calls")));
}

// A service has some while it waits, more with its queue, and replaces what is lost.
TEST_F(LaunchCli, AServiceGrowsShrinksAndReplaces) {
  std::vector<std::string> args = {
      "serve", "--listen",       "127.0.0.1:0", "--history",     Path("h.db"), "--min-workers",
      "1",     "--shrink-after", "2",           "--max-workers", "3"};
  const std::vector<std::string> launch = Launch("slurm", "1");
  args.insert(args.end(), launch.begin(), launch.end());
  Process service(args, Path("serve"));
  const std::string address = service.Address();
  ASSERT_TRUE(WaitFor([&] { return Jobs().size() == 1; })) << service.err();
  // A queue that lasts on any host: the pool looks at it every two seconds, and three workers are useful from nine
  // waiting trials on; one worker needs some 0.4 seconds for each.
  Process submit(OnSmallProduct("submit", {"--trials", "64", "--min-repeat-ms", "300", "--service", address, "--wait"}),
                 Path("submit"));
  ASSERT_TRUE(WaitFor([&] { return Jobs().size() == 3; })) << service.err();
  kill(Jobs().front(), SIGKILL);
  EXPECT_TRUE(WaitFor([&] { return service.err().find(" warning workers_lost workers=1\n") != std::string::npos; }));
  ASSERT_EQ(submit.Wait(), 0) << submit.err();
  EXPECT_TRUE(WaitFor([&] { return Jobs().size() == 1; }, 30)) << service.err();
  service.Signal(SIGTERM);
  EXPECT_EQ(service.Wait(), 0) << service.err();
  EXPECT_TRUE(WaitFor([&] { return Jobs().empty(); }, 20));
  ExpectEachOnce(64);
}

// Workers that cannot start: the tuner ends when no more are replaced, not after the hour that it waits for a first
// one.
TEST_F(LaunchCli, ATunerWithoutWorkersSaysSoAndCanGoOn) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  std::vector<std::string> args = {"--launch",       "local", "--workers",     "1",
                                   "--max-replaced", "1",     "--worker-args", "--devices nothing"};
  const std::string no_worker_left =
      "error: no worker is left: all that were launched are lost, and --max-replaced 1 allows no more; see in their "
      "output "
      "what ends them, all trials are in " +
      Path("h.db") + ", the same command resumes there\n";
  Process early(Tune(address, "24", args), Path("early"));
  EXPECT_EQ(early.Wait(30), 1);
  EXPECT_NE(early.err().find(no_worker_left), std::string::npos) << early.err();
  // The last one is lost half-way.
  args.back() = "--devices cpu --builders 1 --scratch " + Path("");
  Process tune(Tune(address, "24", args), Path("tune"));
  const auto worker = [&] {
    for (pid_t pid : Descendants(tune.pid())) {
      const std::string line = ReadText("/proc/" + std::to_string(pid) + "/cmdline");
      if (line.find(std::string("--name\0local-", 13)) != std::string::npos) return pid;
    }
    return pid_t{0};
  };
  for (int64_t records : {4, 8}) {
    ASSERT_TRUE(WaitFor([&] { return Records() >= records && worker() != 0; })) << tune.err();
    kill(worker(), SIGKILL);
    ASSERT_TRUE(WaitFor([&] { return tune.err().find("workers_lost") != std::string::npos; }));
  }
  EXPECT_EQ(tune.Wait(60), 1) << tune.err();
  EXPECT_NE(tune.err().find(no_worker_left), std::string::npos) << tune.err();
  ASSERT_LT(Records(), 24);
  Process again(Tune(address, "24", args), Path("again"));
  ASSERT_EQ(again.Wait(), 0) << again.err();
  ExpectEachOnce(24);
}

// Tokens and keys of workers, through each engine.
class LaunchSecrets : public LaunchCli, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LaunchCli::SetUp();
    ASSERT_EQ(std::system(
                  ("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + Path("certs") + " tracker worker client >/dev/null")
                      .c_str()),
              0);
    std::filesystem::create_directories(Base());
  }
  bool InPods() const { return std::string(GetParam()) == "kubernetes"; }
  std::string Base() const { return Path(InPods() ? "engine/secrets" : "shared"); }
  // Of workers or, with another `prefix`, of the command itself.
  std::vector<std::string> Tls(const std::string& peer, const std::string& prefix) const {
    return {prefix + "cert", Path("certs/" + peer + ".crt"),
            prefix + "key",  Path("certs/" + peer + ".key"),
            prefix + "ca",   Path("certs/ca.crt")};
  }
  std::vector<std::string> TuneArgs(const std::string& tracker) {
    std::vector<std::string> more = Launch(GetParam(), "1");
    for (const auto& args : {Tls("client", "--tls-"), Tls("worker", "--worker-tls-")})
      more.insert(more.end(), args.begin(), args.end());
    more.insert(more.end(),
                {"--token-file", Path("certs/submitter.token"), "--worker-token-file", Path("certs/worker.token")});
    const std::vector<std::string> where =
        InPods()
            ? std::vector<std::string>{"--kube-template", TEST_PATH(DIAPASON_DEPLOY) + "/kubernetes/worker-pod.yaml"}
            : std::vector<std::string>{"--worker-secrets", Base()};
    more.insert(more.end(), where.begin(), where.end());
    return Tune(tracker, "32", more);
  }
  // A token, and a line of a key.
  std::vector<std::string> Secret() const {
    std::istringstream key(ReadText(Path("certs/worker.key"))), token(ReadText(Path("certs/worker.token")));
    std::vector<std::string> texts(2);
    std::getline(token, texts[0]);
    std::getline(key, texts[1]);  // -----BEGIN
    std::getline(key, texts[1]);
    return texts;
  }
  void ExpectNoSecretIn(const std::string& path) const {
    const std::string text = ReadText(path);
    for (const std::string& secret : Secret()) EXPECT_EQ(text.find(secret), std::string::npos) << path;
  }
  std::vector<std::filesystem::path> HandedOver() const {
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(Base())) folders.push_back(entry.path());
    return folders;
  }
  static int ModeOf(const std::string& path) {
    return static_cast<int>(std::filesystem::status(path).permissions() & std::filesystem::perms::mask);
  }
};

TEST_P(LaunchSecrets, ReachWorkersAndAreRemovedAlsoAfterACrash) {
  std::vector<std::string> listens = Tls("tracker", "--tls-");
  listens.insert(listens.end(), {"--tokens", Path("certs/tokens")});
  auto tracker = Tracker("127.0.0.1:0", listens);
  const std::vector<std::string> args = TuneArgs(tracker->Address());
  auto tune = std::make_unique<Process>(args, Path("tune1"));
  ASSERT_TRUE(WaitFor([&] { return Records() >= 4; })) << tune->err() << ReadText(Path("engine/workers.log"));

  ASSERT_EQ(HandedOver().size(), 1u);
  const std::string folder = HandedOver()[0];
  if (!InPods()) {
    EXPECT_EQ(ModeOf(folder), 0700);
  }
  for (const char* name : {"worker.token", "worker.crt", "worker.key", "ca.crt"}) {
    EXPECT_EQ(ReadText(folder + "/" + name), ReadText(Path(std::string("certs/") + name))) << name;
    EXPECT_EQ(ModeOf(folder + "/" + name), 0600) << name;
  }
  std::vector<pid_t> processes = Descendants(tune->pid());
  for (pid_t job : Jobs()) {
    processes.push_back(job);
    for (pid_t below : Descendants(job)) processes.push_back(below);
  }
  EXPECT_GE(processes.size(), 3u);  // a worker, its builder and its runner
  for (pid_t pid : processes)
    for (const char* shown : {"/cmdline", "/environ"}) ExpectNoSecretIn("/proc/" + std::to_string(pid) + shown);

  tune->Kill();
  EXPECT_EQ(HandedOver().size(), 1u);  // a job that is requeued reads them again
  Process again(args, Path("tune2"));
  ASSERT_EQ(again.Wait(), 0) << again.err();
  EXPECT_TRUE(HandedOver().empty());
  EXPECT_TRUE(WaitFor([&] { return Jobs().empty(); }, 20));
  ExpectEachOnce(32);
  for (const char* log : {"tune1.err", "tune1.out", "tune2.err", "tune2.out", "tracker1.err", "engine/calls",
                          "engine/workers.log", "h.db", "h.db.rounds"})
    ExpectNoSecretIn(Path(log));
}

INSTANTIATE_TEST_SUITE_P(Engines, LaunchSecrets, testing::Values("local", "slurm", "kubernetes"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace diapason
