// A service with its jobs: submitted, watched, cancelled, resumed, and killed in between.
#include <sys/resource.h>

#include <filesystem>

#include "tests/cli/fleet_fixture.h"
#include "tests/paths.h"

namespace diapason {
namespace {

constexpr int kUsage = 2;

class ServiceCli : public FleetCli {
 protected:
  std::unique_ptr<Process> Serve(const std::string& listen = OwnLoopback(), std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"serve", "--listen", listen, "--history", Path("h.db")};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<Process>(args, Path("serve" + std::to_string(++services_)));
  }
  std::vector<std::string> Submit(const std::string& service, const std::string& trials, const std::string& m = "32",
                                  std::vector<std::string> more = {}) {
    std::vector<std::string> args =
        OnSmallProduct("submit", {"--trials", trials, "--min-repeat-ms", "1", "--service", service, "--json"});
    args[3] = m;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static nlohmann::json Jobs(const std::string& service) {
    return Cli({"jobs", "list", "--service", service, "--json"}).json()["jobs"];
  }
  int64_t Records() {
    const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
    return info.code == 0 ? static_cast<int64_t>(info.json()["record_count"]) : 0;
  }

 private:
  int services_ = 0;
};

TEST_F(ServiceCli, AWatcherIsToldWhyNothingHappens) {
  auto service = Serve();
  const std::string address = service->Address();
  ASSERT_NE(address, "") << service->err();
  Process watcher(Submit(address, "4", "32", {"--wait"}), Path("watcher"));
  const std::string told = "warning: no cpu device is registered; start one with `diapason worker --tracker " +
                           address + " --devices cpu`\n";
  ASSERT_TRUE(WaitFor([&] { return watcher.err().find(told) != std::string::npos; })) << watcher.err();
  const CliResult shown = Cli({"jobs", "show", "1", "--service", address});
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.out.rfind("job 1 is running\nmodel      gemm for cpu -num-cores=1\nsubmitted  2", 0), 0u)
      << shown.out;
  EXPECT_NE(shown.out.find("\ntrials     0 of 4, 0 failed, "), std::string::npos) << shown.out;
  auto worker = Worker(address, "worker");
  EXPECT_EQ(watcher.Wait(), 0) << watcher.err();
  EXPECT_EQ(watcher.err().find(told, watcher.err().find(told) + 1), std::string::npos) << "once is enough\n"
                                                                                       << watcher.err();
  const CliResult done = Cli({"jobs", "show", "1", "--service", address});
  EXPECT_NE(done.out.find("\nstopped    all trials are done\n"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\nid  task "), std::string::npos) << done.out;
  EXPECT_EQ(Cli({"jobs", "show", "1", "--service", address, "--json"}).json()["state"], "done");
  ExpectError(Cli({"jobs", "show", "7", "--service", address}),
              "there is no job 7; `diapason jobs list` shows those there are");
}

TEST_F(ServiceCli, TunesBuildsAndAnswersForItsHistory) {
  auto service = Serve();  // with a tracker of its own
  const std::string address = service->Address();
  ASSERT_NE(address, "") << service->err();
  auto worker = Worker(address, "worker");
  const CliResult done = Cli(Submit(address, "8", "32", {"--wait"}));
  ASSERT_EQ(done.code, 0) << done.err << service->err();
  const auto job = done.json();
  EXPECT_EQ(job["job"], 1);
  EXPECT_EQ(job["state"], "done");
  EXPECT_EQ(job["trials"], 8);
  EXPECT_EQ(job["measured"], 8);
  EXPECT_EQ(job["tasks"][0]["verified"], true);
  EXPECT_EQ(job["stop_reason"], "all trials are done");
  EXPECT_NE(done.err.find("8/8 trials"), std::string::npos) << done.err;

  const auto list = Jobs(address);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["state"], "done");
  EXPECT_EQ(list[0]["model"], "gemm");

  // The service answers as the file does.
  const std::vector<std::string> about = {"--model", "gemm", "--top", "3", "--json"};
  auto query = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "query");
    args.insert(args.end(), about.begin(), about.end());
    return Cli(args).json();
  };
  EXPECT_EQ(query({"--service", address}), query({"--history", Path("h.db")}));
  ExpectError(Cli({"query", "--service", address, "--model", "resnet-18"}),
              "the service's history knows no network resnet-18");
  const CliResult built = Cli({"build", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1",
                               "--service", address, "--out", Path("package"), "--json"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(built.err, "");
  EXPECT_EQ(built.json()["tasks"][0]["record"], job["tasks"][0]["record"]);

  // More of the same, from where it ended.
  const CliResult resumed = Cli({"jobs", "resume", "1", "--trials", "12", "--service", address});
  EXPECT_EQ(resumed.out, "job 1 is queued\n");
  const CliResult watched = Cli({"jobs", "watch", "1", "--service", address});
  EXPECT_EQ(watched.code, 0) << watched.err;
  EXPECT_NE(watched.out.find("job 1 is done: all trials are done\n"), std::string::npos) << watched.out;
  EXPECT_EQ(Jobs(address)[0]["measured"], 4);
  service->Signal(SIGTERM);
  EXPECT_EQ(service->Wait(), 0) << service->err();
  ExpectEachOnce(12);
}

TEST_F(ServiceCli, AKilledServiceGoesOnWithItsJobs) {
  auto tracker = Tracker();
  auto worker = Worker(tracker->Address(), "worker");
  auto service = Serve(OwnLoopback(), {"--tracker", tracker->Address()});
  const std::string address = service->Address();
  ASSERT_EQ(Cli(Submit(address, "30")).json()["job"], 1) << service->err();
  ASSERT_EQ(Cli(Submit(address, "30", "40", {"--priority", "1"})).json()["job"], 2) << service->err();
  for (int64_t records : {4, 12, 25}) {
    ASSERT_TRUE(WaitFor([&] { return Records() >= records; })) << service->err();
    service->Kill();
    service = Serve(address, {"--tracker", tracker->Address()});
    ASSERT_EQ(service->Address(), address) << service->err();
  }
  for (const char* job : {"1", "2"}) {
    const CliResult watched = Cli({"jobs", "watch", job, "--service", address});
    EXPECT_EQ(watched.code, 0) << watched.err << service->err();
  }
  for (const auto& job : Jobs(address)) EXPECT_EQ(job["trials"], 30);
  ExpectEachOnce(60);
}

// Before its tuner has found a tracker and read the history.
TEST_F(ServiceCli, AKilledServiceStillKnowsHowFarItsJobsWere) {
  auto tracker = Tracker();
  auto worker = Worker(tracker->Address(), "worker");
  auto service = Serve(OwnLoopback(), {"--tracker", tracker->Address()});
  const std::string address = service->Address();
  ASSERT_EQ(Cli(Submit(address, "100000")).json()["job"], 1) << service->err();
  ASSERT_TRUE(WaitFor([&] { return Jobs(address)[0]["trials"] >= 4; })) << service->err();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  tracker->Kill();
  service->Kill();
  service = Serve(address, {"--tracker", tracker->Address()});
  ASSERT_EQ(service->Address(), address) << service->err();
  EXPECT_GE(Jobs(address)[0]["trials"], 4);
}

// A limit of file sizes stands for a full disk. The job waits, says why, and goes on by itself when there is room.
TEST_F(ServiceCli, AFullDiskHoldsUpAJobAndLosesNothing) {
  auto service = Serve();
  const std::string address = service->Address();
  auto worker = Worker(address, "worker");
  ASSERT_EQ(Cli(Submit(address, "60")).json()["job"], 1) << service->err();
  ASSERT_TRUE(WaitFor([&] { return Jobs(address)[0]["trials"] >= 4; })) << service->err();
  rlimit unlimited{}, full{};
  ASSERT_EQ(prlimit(service->pid(), RLIMIT_FSIZE, nullptr, &unlimited), 0);
  full = {static_cast<rlim_t>(std::filesystem::file_size(Path("h.db-wal"))), unlimited.rlim_max};
  ASSERT_EQ(prlimit(service->pid(), RLIMIT_FSIZE, &full, nullptr), 0);
  const std::string why = "there is no room to write history '" + Path("h.db") +
                          "'; free space on its disk and try again: everything reported before is kept";
  ASSERT_TRUE(WaitFor([&] { return Jobs(address)[0].value("text", "") == why; })) << service->err();
  const int64_t records = Records();
  EXPECT_GE(records, 4);
  // It is tried now and then, to no avail.
  ASSERT_TRUE(WaitFor([&] {
    const std::string log = service->err();
    const size_t first = log.find(" job_ends job=1 state=JOB_STATE_QUEUED why=\"" + why);
    return first != std::string::npos &&
           log.find(" job_ends job=1 state=JOB_STATE_QUEUED", first + 1) != std::string::npos;
  })) << service->err();
  EXPECT_GE(Jobs(address)[0]["trials"], records);  // with those that were not stored in time
  EXPECT_EQ(Jobs(address)[0]["state"], "queued");
  EXPECT_EQ(Records(), records);
  ASSERT_EQ(prlimit(service->pid(), RLIMIT_FSIZE, &unlimited, nullptr), 0);
  EXPECT_EQ(Cli({"jobs", "watch", "1", "--service", address}).code, 0) << service->err();
  ExpectEachOnce(60);
}

TEST_F(ServiceCli, AModelIsSentOnceAndJobsAreCancelled) {
  auto service = Serve(OwnLoopback(), {"--max-running-jobs", "1"});
  const std::string address = service->Address();
  auto submit = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "submit",          TEST_PATH(DIAPASON_ONNX_TESTDATA) + "/node/test_matmul_2d/model.onnx",
        "--target",        "cpu -num-cores=1",
        "--trials",        "4",
        "--min-repeat-ms", "1",
        "--service",       address,
        "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  };
  // Nobody measures yet: the first one runs and waits, the second one waits for its place.
  ASSERT_EQ(submit({}).json()["job"], 1) << service->err();
  ASSERT_EQ(submit({"--seed", "3"}).json()["job"], 2);
  int64_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("h.db.models")))
    models += entry.path().extension() == ".onnx" ? 1 : 0;
  EXPECT_EQ(models, 1);
  ASSERT_TRUE(WaitFor([&] { return Jobs(address)[1]["state"] == "running"; }));
  EXPECT_EQ(Jobs(address)[0]["state"], "queued");
  EXPECT_EQ(Cli({"jobs", "cancel", "1", "--service", address}).out, "job 1 is cancelled\n");
  EXPECT_EQ(Cli({"jobs", "cancel", "1", "--service", address}).out, "job 1 is cancelled\n");
  const CliResult cancelled = Cli({"jobs", "watch", "1", "--service", address});
  EXPECT_EQ(cancelled.code, 1);
  EXPECT_EQ(cancelled.err, "error: job 1 was cancelled; `diapason jobs resume 1` resumes it\n");
  auto worker = Worker(address, "worker");
  const CliResult second = Cli({"jobs", "watch", "2", "--service", address, "--json"});
  ASSERT_EQ(second.code, 0) << second.err << service->err();
  EXPECT_EQ(second.json()["model"], "model.onnx");
  EXPECT_EQ(Cli({"jobs", "resume", "1", "--service", address}).code, 0);
  const CliResult first = Cli({"jobs", "watch", "1", "--service", address, "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.json()["measured"], 0);  // the other job has measured all that was asked for
  // A number that is no job's keeps the others too.
  ExpectError(Cli({"jobs", "delete", "1", "7", "--service", address}),
              "there is no job 7; `diapason jobs list` shows those there are");
  EXPECT_EQ(Jobs(address).size(), 2u);
  EXPECT_EQ(Cli({"jobs", "delete", "1", "--service", address}).out, "job 1 is deleted\n");
  EXPECT_EQ(Jobs(address).size(), 1u);
  EXPECT_EQ(Cli({"query", "--service", address, "--model", "model"}).code, 0);
}

TEST_F(ServiceCli, BadInput) {
  auto service = Serve();
  const std::string address = service->Address();
  const std::string none = "there is no job 7; `diapason jobs list` shows those there are";
  for (const char* command : {"watch", "cancel", "resume", "delete"})
    ExpectError(Cli({"jobs", command, "7", "--service", address}), none);
  ExpectError(Cli({"jobs", "watch", "--service", address}),
              "JOB is missing; `diapason jobs watch --help` shows what to give", kUsage);
  ExpectError(Cli({"jobs", "list", "--service", "nowhere"}),
              "--service nowhere is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  ExpectError(Cli({"jobs", "list", "--service", "10.0.0.1:1"}),
              "--service 10.0.0.1:1 would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, "
              "or add --insecure if every host that can reach it is trusted");
  // What `tune` refuses, in the same words.
  ExpectError(Cli(Submit(address, "8", "32", {"--tasks", "3"})),
              "--tasks 3 does not name tasks of this network; give ids from 1 to 1 as `diapason tasks` shows them, for "
              "example --tasks 1,4");
  ExpectError(Cli({"submit", "none.onnx", "--target", "cpu", "--service", address}),
              "cannot read 'none.onnx' (No such file or directory): name an .onnx file");
  EXPECT_EQ(Jobs(address).size(), 0u);
  ExpectError(Cli({"serve", "--listen", address, "--history", Path("other.db")}),
              "cannot listen on '" + address + "': the port is in use or the address is not of this host");
  ExpectError(
      Cli({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--tracker", "127.0.0.1:1", "--state", "x"}),
      "--state is for the service's own tracker; with --tracker there is none");
  ExpectError(Cli({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--tracker", "127.0.0.1:1",
                   "--max-pending-per-token", "10"}),
              "quotas per token are for the service's own tracker; give them to the one of --tracker instead");
  ExpectError(
      Cli({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--max-unfinished-jobs-per-token", "0"}),
      "--max-unfinished-jobs-per-token 0: give a whole number from 1 to 100000", kUsage);
  ExpectError(Cli({"build", "gemm", "--target", "cpu", "--history", "a", "--service", address, "--out", Path("p")}),
              "a build reads one history; give either --history or --service");
  Process full({"serve", "--listen", "127.0.0.1:0", "--history", Path("full.db"), "--max-queued-jobs", "1"},
               Path("full"));
  ASSERT_EQ(Cli(Submit(full.Address(), "8")).json()["job"], 1) << full.err();
  ExpectError(Cli(Submit(full.Address(), "8", "40")),
              "the service has 1 unfinished jobs and takes no more; cancel some, or wait");
  auto tracker = Tracker();
  ExpectError(
      Cli({"jobs", "list", "--service", tracker->Address()}),
      "'" + tracker->Address() + "' is not a tuning service: name the address that 'diapason serve' listens on");
  Process apart({"serve", "--listen", "127.0.0.1:0", "--history", Path("apart.db"), "--tracker", tracker->Address()},
                Path("apart"));
  ExpectError(Cli({"fleet", "status", "--tracker", apart.Address()}),
              "'" + apart.Address() + "' is no tracker: name the address that 'diapason tracker' listens on");
  ExpectError(Cli({"jobs", "list", "--service", address + ",nowhere"}),
              "--service nowhere is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  EXPECT_EQ(Cli({"jobs", "list", "--service", "127.0.0.1:1," + address, "--json"}).json(),
            Cli({"jobs", "list", "--service", address, "--json"}).json());
  service->Kill();
  ExpectError(Cli({"jobs", "list", "--service", "127.0.0.1:1," + address, "--timeout", "0.3"}),
              "no service of '127.0.0.1:1," + address +
                  "' answers ('127.0.0.1:1' does not answer: Connection refused; '" + address +
                  "' does not answer: Connection refused): start one with 'diapason serve', or check the addresses and "
                  "the network");
  const CliResult gone = Cli({"jobs", "list", "--service", address, "--timeout", "0.3"});
  ExpectError(gone,
              "the service at '" + address +
                  "' does not answer (Connection refused): start it with 'diapason serve', or check the address and "
                  "the network");
}

}  // namespace
}  // namespace diapason
