// Tracker, workers and tuners as processes of their own.
#include <regex>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "tests/cli/fleet_fixture.h"

namespace diapason {
namespace {

constexpr int kUsage = 2;

std::string ThisHost() {
  char host[256] = {};
  EXPECT_EQ(gethostname(host, sizeof host - 1), 0);
  return host;
}

TEST_F(FleetCli, TunesOnAFleet) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  ASSERT_NE(address, "") << tracker->err();
  // The tuner may be first: it waits for a device.
  Process tune(Tune(address, "8", {"--selector", "rack=a"}), Path("tune"));
  auto other = Worker(address, "other", {"--labels", "rack=b"});
  auto worker = Worker(address, "worker", {"--labels", "rack=a,room=1"});
  ASSERT_EQ(tune.Wait(), 0) << tune.err();
  const auto report = nlohmann::json::parse(tune.out());
  EXPECT_EQ(report["trials"], 8);
  EXPECT_EQ(report["tasks"][0]["verified"], true);
  ExpectEachOnce(8);
  worker->Signal(SIGTERM);
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_NE(worker->err().find(" info worker_drains"), std::string::npos) << worker->err();
  tracker->Signal(SIGTERM);
  EXPECT_EQ(tracker->Wait(), 0) << tracker->err();
  EXPECT_NE(tracker->err().find(" info worker_registered worker=worker devices=1"), std::string::npos)
      << tracker->err();
}

TEST_F(FleetCli, KilledWorkersAndTrackersLoseNothing) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  auto a = Worker(address, "a"), b = Worker(address, "b");
  Process tune(Tune(address, "40"), Path("tune"));
  auto records = [&] {
    const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
    return info.code == 0 ? static_cast<int64_t>(info.json()["record_count"]) : 0;
  };
  ASSERT_TRUE(WaitFor([&] { return records() >= 3; })) << tune.err() << a->err();
  a->Kill();
  ASSERT_TRUE(WaitFor([&] { return records() >= 10; })) << tune.err();
  tracker->Kill();
  tracker = Tracker(address);
  ASSERT_TRUE(WaitFor([&] { return records() >= 20; })) << tune.err();
  a = Worker(address, "a");
  b->Kill();
  ASSERT_EQ(tune.Wait(), 0) << tune.err();
  ExpectEachOnce(40);
}

TEST_F(FleetCli, StatusShowsDevicesAndQueues) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  auto a = Worker(address, "a", {"--labels", "rack=a"}), b = Worker(address, "b");
  auto status = [&] { return Cli({"fleet", "status", "--tracker", address, "--json"}).json(); };
  ASSERT_TRUE(WaitFor([&] { return status()["devices"].size() == 2; })) << a->err();
  auto fleet = status();
  EXPECT_EQ(fleet["device_models"][0]["target_kind"], "cpu");
  EXPECT_EQ(fleet["device_models"][0]["total"], 2);
  EXPECT_EQ(fleet["device_models"][0]["free"], 2);
  EXPECT_EQ(fleet["devices"][0]["host"], ThisHost());
  EXPECT_EQ(fleet["devices"][0]["worker"], "a");
  EXPECT_EQ(fleet["devices"][0]["labels"]["rack"], "a");
  EXPECT_EQ(fleet["devices"][0]["name"], "cpu:0");
  EXPECT_EQ(fleet["devices"][0]["state"], "ready");
  EXPECT_LT(fleet["devices"][0]["last_seen_s"], 2);
  Process tune(Tune(address, "12"), Path("tune"));
  ASSERT_TRUE(WaitFor([&] {
    fleet = status();
    return !fleet["queues"].empty() && fleet["queues"][0]["done"] > 0 && fleet["devices"][0]["runs"] > 0;
  })) << fleet.dump()
      << tune.err();
  EXPECT_EQ(fleet["queues"][0]["queue"], "tune gemm");
  ASSERT_EQ(tune.Wait(), 0) << tune.err();
  const CliResult table = Cli({"fleet", "status", "--tracker", address});
  EXPECT_NE(table.out.find("key"), std::string::npos) << table.out;
  EXPECT_TRUE(std::regex_search(table.out, std::regex("\n" + ThisHost() + " +a +cpu:0 "))) << table.out;
  b->Kill();
  ASSERT_TRUE(WaitFor([&] { return status()["devices"].size() == 1; }));
  tracker->Kill();
  ExpectError(
      Cli({"fleet", "status", "--tracker", address, "--wait-timeout", "0.3"}),
      "the tracker at '" + address +
          "' does not answer (Connection refused): start it with 'diapason tracker', or check the address and the "
          "network");
}

TEST_F(FleetCli, ServesMetrics) {
  const std::vector<std::string> metrics = {"--metrics", "127.0.0.1:0"};
  Process service({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--metrics", "127.0.0.1:0"},
                  Path("serve"));
  const std::string address = service.Address();
  auto worker = Worker(address, "worker", metrics);
  const CliResult done = Cli({"submit", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1",
                              "--trials", "5", "--min-repeat-ms", "1", "--service", address, "--wait"});
  ASSERT_EQ(done.code, 0) << done.err << service.err();
  const std::string text = Fetch(MetricsAddress(service));
  for (const std::string line :
       {"diapason_tracker_workers 1", "diapason_tracker_leases_expired_total 0",
        "diapason_build_info{version=\"0.1.0\"} 1", "diapason_tracker_oldest_request_seconds 0",
        "diapason_connections_refused_total 0", "diapason_service_jobs{state=\"done\"} 1",
        "diapason_service_trials_total 5", "diapason_tracker_requests_pending 0",
        "# TYPE diapason_tracker_stage_seconds histogram"}) {
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << " is not in\n" << text;
  }
  // Names as Prometheus has them.
  const std::regex type("# TYPE (diapason_[a-z_]+) (counter|gauge|histogram)\n");
  int counters = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), type), end; it != end; ++it) {
    const std::string name = (*it)[1];
    EXPECT_EQ(name.ends_with("_total"), (*it)[2] == "counter") << name;
    EXPECT_FALSE(name.ends_with("_percent") || name.ends_with("_utilisation")) << name;  // ratios are _ratio
    counters += (*it)[2] == "counter" ? 1 : 0;
  }
  EXPECT_GE(counters, 5);
  // Five trials, and the best one verified once or more.
  const double leases = Number(text, "diapason_tracker_leases_total");
  EXPECT_GE(leases, 6);
  EXPECT_EQ(Number(text, "diapason_tracker_requests_leased"), 0);
  double outcomes = 0;
  for (size_t found = text.find("\ndiapason_tracker_outcomes_total{"); found != std::string::npos;
       found = text.find("\ndiapason_tracker_outcomes_total{", found + 1)) {
    outcomes += std::stod(text.substr(text.find("} ", found) + 2));
  }
  EXPECT_EQ(outcomes, leases);
  for (const std::string stage : {"queued", "build", "run"}) {
    EXPECT_EQ(Number(text, "diapason_tracker_stage_seconds_count{stage=\"" + stage + "\"}"), leases) << stage;
    EXPECT_GT(Number(text, "diapason_tracker_stage_seconds_sum{stage=\"" + stage + "\"}"), 0) << stage;
  }
  // Of what the last heartbeat told.
  const std::string utilisation = "diapason_tracker_device_utilisation_ratio{worker=\"worker\",device=\"cpu:0\"}";
  EXPECT_TRUE(WaitFor([&] { return Number(Fetch(MetricsAddress(service)), utilisation) > 0; })) << text;
  EXPECT_LE(Number(Fetch(MetricsAddress(service)), utilisation), 1);
  const std::string of_worker = Fetch(MetricsAddress(*worker));
  EXPECT_EQ(Number(of_worker, "diapason_worker_leases"), 0);
  EXPECT_EQ(Number(of_worker, "diapason_worker_waiting_for_runner"), 0);
  EXPECT_GE(Number(of_worker, "diapason_worker_builds_total"), 6);  // the trials and the reference implementation
  EXPECT_GE(Number(of_worker, "diapason_worker_runs_total{device=\"cpu:0\"}"), leases);
  EXPECT_GT(Number(of_worker, "diapason_worker_device_busy_seconds_total{device=\"cpu:0\"}"), 0);
  EXPECT_NE(of_worker.find("\ndiapason_worker_registered 1\n"), std::string::npos) << of_worker;
  EXPECT_NE(of_worker.find("\ndiapason_worker_device_ready{device=\"cpu:0\"} 1\n"), std::string::npos) << of_worker;
  ExpectError(Cli({"tracker", "--listen", "127.0.0.1:0", "--metrics", MetricsAddress(*worker)}),
              "cannot serve --metrics on '" + MetricsAddress(*worker) +
                  "': the port is in use or the address is not of this host");
  ExpectError(
      Cli({"tracker", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"}),
      "--metrics 0.0.0.0:0 would speak plain text beyond this host; add --insecure if every host that can reach "
      "it is trusted, or let something on this host fetch them");
}

// Workers that the tuner launches: lost ones are replaced, and all end with it.
TEST_F(FleetCli, LaunchesItsWorkers) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  const std::vector<std::string> launch = {
      "--launch", "local", "--workers", "2", "--worker-args", "--devices=cpu --builders 1 --scratch " + Path("")};
  Process tune(Tune(address, "24", launch), Path("tune"));
  auto workers = [&] {
    std::set<std::string> names;
    const CliResult status = Cli({"fleet", "status", "--tracker", address, "--json"});
    const nlohmann::json fleet = status.code == 0 ? status.json() : nlohmann::json::object();
    for (const auto& device : fleet.value("devices", nlohmann::json::array())) names.insert(device["worker"]);
    return names;
  };
  ASSERT_TRUE(WaitFor([&] { return workers().size() == 2; })) << tune.err();
  const std::string name = *workers().begin();
  EXPECT_EQ(name.rfind("local-", 0), 0u) << name;
  EXPECT_EQ(name.back(), '1') << name;
  for (pid_t pid : Descendants(tune.pid())) {
    if (ReadText("/proc/" + std::to_string(pid) + "/cmdline").find(name + '\0') != std::string::npos)
      kill(pid, SIGKILL);
  }
  ASSERT_EQ(tune.Wait(), 0) << tune.err();
  EXPECT_NE(tune.err().find(" warning workers_lost workers=1\n"), std::string::npos) << tune.err();
  EXPECT_TRUE(WaitFor([&] { return workers().empty(); }));
  ExpectEachOnce(24);
}

// Workers of one host that were given no name.
TEST_F(FleetCli, NamelessWorkersAreToldApart) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  const std::vector<std::string> args = {"worker", "--tracker", address, "--devices", "cpu", "--builders", "1"};
  Process one(args, Path("one")), two(args, Path("two"));
  std::set<std::string> names;
  ASSERT_TRUE(WaitFor([&] {
    names.clear();
    const nlohmann::json status = Cli({"fleet", "status", "--tracker", address, "--json"}).json();
    for (const auto& device : status["devices"]) names.insert(device["worker"]);
    return status["devices"].size() == 2;
  })) << tracker->err();
  EXPECT_EQ(names, (std::set<std::string>{absl::StrCat(ThisHost(), "-", one.pid()),
                                          absl::StrCat(ThisHost(), "-", two.pid())}));
}

// Who looks for a trial finds it by its job and number in the logs of all that had to do with it.
TEST_F(FleetCli, ATrialIsFollowedThroughTheLogs) {
  Process service({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--log-level", "debug"},
                  Path("serve"));
  auto worker = Worker(service.Address(), "worker", {"--log-level", "debug"});
  const CliResult done = Cli({"submit", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1",
                              "--trials", "4", "--min-repeat-ms", "1", "--service", service.Address(), "--wait"});
  ASSERT_EQ(done.code, 0) << done.err << service.err();
  std::istringstream lines(service.err());
  const std::regex leased(
      R"(\S+Z debug trial_leased (job=1 trial=\d+) queue=[0-9a-f]{6} attempt=1 (lease=\d+) worker=worker device=cpu:0)");
  std::set<std::string> trials;
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (!std::regex_match(line, found, leased)) continue;
    const std::string trial = found[1], lease = found[2];
    EXPECT_TRUE(trials.insert(trial).second) << line;
    for (const std::string& event : {"trial_begins " + trial + " " + lease + " device=cpu:0\n",
                                     "trial_ends " + trial + " " + lease + " outcome="}) {
      EXPECT_NE(worker->err().find(" debug " + event), std::string::npos) << event << worker->err();
    }
    EXPECT_NE(service.err().find(" debug trial_ends " + trial + " queue="), std::string::npos) << service.err();
    EXPECT_NE(service.err().find(" debug trial_answered " + trial + " outcome="), std::string::npos) << service.err();
  }
  EXPECT_GE(trials.size(), 5u) << service.err();  // four, and the best one verified
}

// The agent outlives whatever a driver does, since it has none.
TEST_F(FleetCli, AWorkersAgentKeepsOffItsDevices) {
  auto tracker = Tracker();
  Process worker({"worker", "--tracker", tracker->Address(), "--devices", "opencl:*", "--builders", "1", "--scratch",
                  Path(""), "--sandbox", "off"},
                 Path("worker"));
  ASSERT_TRUE(worker.Says("worker measures on ")) << worker.err();
  auto has_driver = [](pid_t pid) {
    return ReadText("/proc/" + std::to_string(pid) + "/maps").find("/libOpenCL.so") != std::string::npos;
  };
  int drivers = 0;
  for (pid_t pid : Descendants(worker.pid())) drivers += has_driver(pid);
  EXPECT_GE(drivers, 1);  // its runners
  EXPECT_FALSE(has_driver(worker.pid()));
}

// Commands give up after a time that can be said, and at once when they are interrupted.
TEST_F(FleetCli, TuneSaysThatThereIsNoTracker) {
  const std::string address = Tracker()->Address();
  ExpectError(
      Cli(Tune(address, "8", {"--wait-timeout", "0.3"})),
      "the tracker at '" + address +
          "' does not answer (Connection refused): start it with 'diapason tracker', or check the address and the "
          "network");
  Process waits(Tune(address, "8"), Path("waits"));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_FALSE(waits.Poll().has_value());
  waits.Signal(SIGINT);
  EXPECT_EQ(waits.Wait(10), 130);
  EXPECT_EQ(waits.err(), "error: stopped while waiting for the tracker\n");
}

// A worker asks for its tracker for ever.
TEST_F(FleetCli, AWorkerWaitsForItsTracker) {
  const std::string address = Tracker()->Address();
  auto worker = Worker(address, "early");
  ASSERT_TRUE(WaitFor([&] {
    return worker->err().find("worker_not_registered tracker=" + address + " worker=early why=\"the tracker at '" +
                              address +
                              "' does not answer (Connection refused): start it with 'diapason tracker', or check the "
                              "address and the network\"\n") != std::string::npos;
  })) << worker->err();
  auto tracker = Tracker(address);
  ASSERT_TRUE(WaitFor([&] {
    return worker->err().find(" info worker_registered tracker=" + address + " worker=early\n") != std::string::npos;
  })) << worker->err()
      << tracker->err();
}

// A worker that was started again while the one before still hangs takes its place.
TEST_F(FleetCli, TwoWorkersOfOneNameAreOneWorker) {
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  auto status = [&] { return Cli({"fleet", "status", "--tracker", address, "--json"}).json(); };
  auto first = Worker(address, "same");
  ASSERT_TRUE(WaitFor([&] { return status()["devices"].size() == 1; })) << first->err();
  first->Signal(SIGSTOP);
  auto second = Worker(address, "same");
  // By the new one, or on a slow machine by its silence.
  ASSERT_TRUE(WaitFor([&] { return tracker->err().find(" session_ended worker=same ") != std::string::npos; }))
      << tracker->err();
  ASSERT_TRUE(WaitFor([&] { return second->err().find(" worker_registered ") != std::string::npos; })) << second->err();
  EXPECT_EQ(status()["devices"].size(), 1u);
}

// The walls around builders and runners: what is in force is in the log, and that there are none is an error when they
// are asked for.
TEST_F(FleetCli, SaysWhatTheSandboxIs) {
  const std::string address = Tracker()->Address();
  auto logs = [](const Process& worker, const std::string& line) {
    return WaitFor([&] { return worker.err().find(" sandbox " + line + "\n") != std::string::npos; });
  };
  auto worker = Worker(address, "walled");
  EXPECT_TRUE(WaitFor([&] { return worker->err().find(" sandbox in_force=") != std::string::npos; })) << worker->err();
  worker = Worker(address, "open", {"--sandbox", "off"});
  EXPECT_TRUE(logs(*worker, "in_force=nothing")) << worker->err();
  const std::string path = std::getenv("PATH");
  setenv("PATH", Path("").c_str(), 1);
  const std::string why = "there is no program bwrap on the PATH: install it (Debian's package is bubblewrap)";
  worker = Worker(address, "poor");
  EXPECT_TRUE(logs(*worker, "in_force=nothing why=\"" + why + "\"")) << worker->err();
  const std::string refusal = "the sandbox is not to be had: " + why + ", or say --sandbox off to go without";
  ExpectError(Cli({"worker", "--tracker", address, "--devices", "cpu", "--sandbox", "on"}), refusal);
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("h.db"), "--sandbox", "on"}), refusal);
  setenv("PATH", path.c_str(), 1);
  ExpectError(Cli({"worker", "--tracker", address, "--devices", "cpu", "--sandbox", "yes"}),
              "--sandbox yes: give auto, on or off", kUsage);
  ExpectError(Cli(Tune(address, "8", {"--sandbox", "off"})),
              "--sandbox is for this host's own processes; with --tracker it is for each 'diapason worker' to say");
}

// What a worker refuses is an error of the candidate, in the history with its text.
TEST_F(FleetCli, WorkersRefuseWhatIsPastTheirLimits) {
  struct Case {
    std::string flag, value, text;
  };
  const Case cases[] = {
      {"--max-nodes", "6", "the program has 7 nodes of expressions, more than the 6"},
      {"--max-iterations", "98303", "stage 'gemm' has 98304 iterations, more than the 98303"},
      {"--max-tensor-gib", "0.00001", "the program's tensors need 2.48e-05 GiB, more than the 1e-05 GiB"},
      {"--max-steps", "0", "the schedule has "},
  };
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  for (const Case& c : cases) {
    auto worker = Worker(address, "limited", {c.flag, c.value});
    // Such a worker refuses the check of the network too.
    EXPECT_EQ(Cli(Tune(address, "1", {"--no-check"})).code, 0) << worker->err();
    std::istringstream lines(Cli({"history", "export", Path("h.db")}).out);
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("error")) text = json["error"]["text"];
    }
    EXPECT_EQ(text.rfind(c.text, 0), 0u) << text;
    const std::string fix = " that this worker takes; start it with a larger " + c.flag;
    EXPECT_EQ(text.substr(std::max(text.size(), fix.size()) - fix.size()), fix);
    std::filesystem::remove(Path("h.db"));
  }
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)  // they reserve more than any limit
TEST_F(FleetCli, AWorkerWhoseRunnerHasTooLittleMemoryDoesNotStart) {
  auto tracker = Tracker();
  const CliResult poor =
      Cli({"worker", "--tracker", tracker->Address(), "--devices", "cpu", "--max-process-gib", "0.001"});
  EXPECT_EQ(poor.code, 1);
  EXPECT_EQ(poor.err.rfind("error: the runner of 'cpu' does not start: ", 0), 0u) << poor.err;
}
#endif

// What a host has decides which sentence it is, and the numbers in it.
TEST_F(FleetCli, DevicesThatDoNotExist) {
  const std::string no_opencl_library =
      "target 'opencl' needs libOpenCL\\.so\\.1, which is not on this machine; install an OpenCL driver \\(Debian: "
      "ocl-icd-libopencl1 with pocl-opencl-icd, or the GPU vendor's\\)";
  const std::string no_opencl =
      "target 'opencl': no OpenCL device on this machine; install a driver \\(Debian: pocl-opencl-icd, or the GPU "
      "vendor's\\)";
  const std::string few_opencl =
      "target 'opencl -device=63': there (is 1 OpenCL device|are [0-9]+ OpenCL devices) here; give a -device from 0 to "
      "[0-9]+";
  const std::string no_cuda_library =
      "target 'cuda' needs the NVIDIA driver, and its library libcuda\\.so\\.1 is not on this machine; install the "
      "driver, or "
      "choose target 'cpu' or 'opencl'";
  const std::string no_cuda_built =
      "target 'cuda' is not part of this build, which had no cuda\\.h; install the CUDA headers and build again, or "
      "choose "
      "target 'cpu' or 'opencl'";
  const std::string no_cuda_start =
      "target 'cuda': the NVIDIA driver does not start: .*; check that nvidia-smi lists a GPU";
  const std::string no_cuda =
      "target 'cuda': the NVIDIA driver lists no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose target "
      "'cpu'";
  const std::string few_cuda =
      "target 'cuda -device=63': there (is 1 GPU|are [0-9]+ GPUs) here; give a -device from 0 to [0-9]+";
  const auto expect = [&](const std::string& kind, const std::vector<std::string>& sentences) {
    const CliResult result = Cli({"worker", "--tracker", "127.0.0.1:1", "--devices", kind + ":63"});
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    int same = 0;
    for (const std::string& sentence : sentences) {
      const std::string whole = "error: the runner of '" + kind + " -device=63' does not start: " + sentence + "\n";
      same += std::regex_match(result.err, std::regex(whole));
    }
    EXPECT_EQ(same, 1) << result.err;
  };
  expect("opencl", {no_opencl_library, no_opencl, few_opencl});
  expect("cuda", {no_cuda_library, no_cuda_built, no_cuda_start, no_cuda, few_cuda});
}

TEST_F(FleetCli, BadInput) {
  ExpectError(Cli({"tracker"}), "--listen is missing; `diapason tracker --help` shows what to give", kUsage);
  ExpectError(Cli({"tracker", "--listen", "localhost"}),
              "--listen localhost is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  ExpectError(Cli({"tracker", "--listen", "localhost:99999"}),
              "--listen localhost:99999 is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  ExpectError(
      Cli({"tracker", "--listen", "0.0.0.0:0"}),
      "--listen 0.0.0.0:0 would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, or add "
      "--insecure if every host that can reach it is trusted");
  ExpectError(
      Cli({"tracker", "--listen", "127.0.0.1:0", "--session", "1"}),
      "--heartbeat 1, --session 1 and --lease 15 do not fit each other: a session is to last more than two heartbeats, "
      "and a lease no less than a session");
  ExpectError(Cli({"tracker", "--listen", "127.0.0.1:0", "--log-level", "loud"}),
              "--log-level loud: give error, warning, info or debug", kUsage);
  ExpectError(Cli({"tracker", "--listen", "127.0.0.1:0", "--max-queues-per-token", "0"}),
              "--max-queues-per-token 0: give a whole number from 1 to 1024", kUsage);
  ExpectError(Cli({"tracker", "--listen", "127.0.0.1:0", "--max-pending-per-token", "many"}),
              "--max-pending-per-token many: give a whole number from 1 to 1073741824", kUsage);
  ExpectError(Cli({"tracker", "--listen", "127.0.0.1:0", "--max-stored-mib-per-token", "257"}),
              "--max-stored-mib-per-token 257: give a whole number from 1 to 256", kUsage);
  auto tracker = Tracker();
  const std::string address = tracker->Address();
  ExpectError(Cli({"tracker", "--listen", address}),
              "cannot listen on '" + address + "': the port is in use or the address is not of this host");

  const std::string names =
      " is not understood; give names such as cpu, opencl:0, cuda:0 or cuda:*, with commas between them";
  for (const std::string wrong : {"tpu", "cpu:1", "cuda:x", "cuda:", "cpu -cores=3"}) {
    ExpectError(Cli({"worker", "--tracker", address, "--devices", wrong}), "--devices " + wrong + names);
  }
  ExpectError(Cli({"worker", "--tracker", address, "--devices", "cpu,"}), "--devices \"\"" + names);
  ExpectError(Cli({"worker", "--tracker", address, "--devices", "cpu,cpu:0"}),
              "--devices cpu,cpu:0 names the device \"cpu\" twice; give each once");
  ExpectError(Cli({"worker", "--tracker", address, "--devices", "cpu", "--labels", "rack"}),
              "--labels rack is not understood; write it as rack=a,room=2");
  ExpectError(
      Cli({"worker", "--tracker", "example.org:1", "--devices", "cpu"}),
      "--tracker example.org:1 would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, "
      "or add --insecure if every host that can reach it is trusted");
  if (Cli({"devices"}).out.find("cuda") == std::string::npos) {
    ExpectError(Cli({"worker", "--tracker", address, "--devices", "cuda:*"}),
                "--devices cuda:* finds no cuda device on this host; `diapason devices` lists those there are");
  }
  ExpectError(Cli(Tune(address, "8", {"--builders", "2"})),
              "--builders is for this host's own processes; with --tracker the workers say how many they have");
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("h.db"), "--launch", "local"}),
              "--launch starts workers of a fleet; name its tracker with --tracker");
  ExpectError(Cli(Tune(address, "8", {"--launch", "local"})), "--launch needs the number of workers; give --workers");
  ExpectError(Cli(Tune(address, "8", {"--launch", "local", "--workers", "2", "--min-workers", "3"})),
              "--min-workers 3 is more than --workers 2");
  ExpectError(Cli(Tune(address, "8", {"--launch", "local", "--workers", "5", "--max-workers", "4"})),
              "--workers 5 is more than --max-workers 4");
  ExpectError(Cli(Tune(address, "8", {"--launch", "local", "--min-workers", "5", "--max-workers", "4"})),
              "--min-workers 5 is more than --max-workers 4");
  ExpectError(Cli(Tune(address, "8", {"--launch", "local", "--workers", "2"})),
              "--worker-args is to name the devices to measure on, for example --worker-args \"--devices cuda:*\"");
  const std::vector<std::string> launch = {"--launch", "local",         "--workers",
                                           "1",        "--worker-args", "--devices cpu --token-file F"};
  const auto with = [&](const std::string& flag, const std::string& file) {
    std::vector<std::string> more = launch;
    more.insert(more.end(), {flag, Path(file)});
    return Tune(address, "8", more);
  };
  ExpectError(Cli(with("--worker-token-file", "none")),
              "cannot read --worker-token-file '" + Path("none") + "' (No such file or directory)");
  std::ofstream(Path("token")) << "q3Zf0nYwK1bXc8aRt5sVu2eJ\n";
  std::filesystem::permissions(Path("token"), std::filesystem::perms(0644));
  ExpectError(
      Cli(with("--worker-token-file", "token")),
      "--worker-token-file '" + Path("token") + "' may be read by others than its owner: chmod 600 " + Path("token"));
  std::filesystem::permissions(Path("token"), std::filesystem::perms(0600));
  ExpectError(Cli(with("--worker-token-file", "token")),
              "--worker-args names --token-file, which --worker-token-file gives already; leave one out");
  ExpectError(Cli(with("--worker-tls-key", "token")),
              "--worker-tls-cert, --worker-tls-key and --worker-tls-ca go together: give all three or none");
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("h.db"), "--device", "X"}),
              "--device chooses among the devices of a fleet; name its tracker with --tracker");
  EXPECT_FALSE(std::filesystem::exists(Path("h.db")));
}

}  // namespace
}  // namespace diapason
