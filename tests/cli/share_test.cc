// Two jobs, or two tuners, that tune the same workload at once: what one asks for and the other has under way, or has
// just had, is measured once.
#include <map>

#include "tests/cli/fleet_fixture.h"

namespace diapason {
namespace {

class ShareCli : public FleetCli {
 protected:
  // Of one seed and deterministic: both propose the same candidates as long as they get the same results.
  static std::vector<std::string> Gemm(const std::string& command, std::vector<std::string> more) {
    std::vector<std::string> args =
        OnSmallProduct(command, {"--trials", "8", "--seed", "3", "--min-repeat-ms", "1", "--deterministic"});
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // The samples of each candidate, once for each record of it.
  std::map<std::string, std::vector<std::string>> Timings(const std::string& history) {
    std::map<std::string, std::vector<std::string>> timings;
    std::istringstream lines(Cli({"history", "export", Path(history)}).out);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("decision_hash") && json.contains("timing"))
        timings[json["decision_hash"]].push_back(json["timing"]["samples"].dump());
    }
    return timings;
  }
  // What the worker has measured, by its own log: the eight trials of both, and what verifies the best and the network,
  // each for both.
  static void ExpectEachMeasuredOnce(const std::string& tracker, const Process& worker) {
    const std::string log = worker.err(), begins = " trial_begins ";
    int measured = 0;
    for (size_t at = log.find(begins); at != std::string::npos; at = log.find(begins, at + 1)) ++measured;
    const double leases = Number(tracker, "diapason_tracker_leases_total"),
                 shared = Number(tracker, "diapason_tracker_shared_total");
    EXPECT_EQ(measured, leases);
    EXPECT_GE(leases, 9);
    EXPECT_LE(leases, 15);
    EXPECT_GT(shared, 0);
    EXPECT_LE(shared, leases);
    EXPECT_EQ(Number(tracker, "diapason_tracker_outcomes_total{kind=\"timing\"}"), leases);
  }
};

TEST_F(ShareCli, TwoJobsOfAServiceMeasureEachCandidateOnce) {
  Process service({"serve", "--listen", OwnLoopback(), "--history", Path("h.db"), "--metrics", "127.0.0.1:0"},
                  Path("serve"));
  const std::string address = service.Address();
  // The worker comes when both have asked.
  for (const std::string job : {"1", "2"})
    ASSERT_EQ(Cli(Gemm("submit", {"--service", address})).out, "job " + job + "\n") << service.err();
  ASSERT_TRUE(WaitFor([&] { return Number(Fetch(MetricsAddress(service)), "diapason_tracker_queues") == 2; }))
      << service.err();
  const auto worker = Worker(address, "worker", {"--log-level", "debug"});
  for (const std::string job : {"1", "2"}) {
    const CliResult watched = Cli({"jobs", "watch", job, "--service", address, "--json"});
    ASSERT_EQ(watched.code, 0) << watched.err << service.err();
    // Who lags takes from the history what the other has put there, and counts that as no measurement of its own.
    EXPECT_LE(watched.json()["measured"], 8);
    EXPECT_EQ(watched.json()["trials"], 8);
  }
  ExpectEachMeasuredOnce(Fetch(MetricsAddress(service)), *worker);
  // A record for each job that asked, of the same measurement.
  const auto timings = Timings("h.db");
  EXPECT_EQ(timings.size(), 8u);
  for (const auto& [candidate, samples] : timings) {
    EXPECT_LE(samples.size(), 2u) << candidate;
    EXPECT_EQ(samples.front(), samples.back()) << candidate;
  }
}

TEST_F(ShareCli, TwoTunersOfATrackerMeasureEachCandidateOnce) {
  const auto tracker = Tracker(OwnLoopback(), {"--metrics", "127.0.0.1:0"});
  const std::string address = tracker->Address();
  Process first(Gemm("tune", {"--history", Path("first.db"), "--tracker", address}), Path("first"));
  Process second(Gemm("tune", {"--history", Path("second.db"), "--tracker", address}), Path("second"));
  ASSERT_TRUE(WaitFor([&] { return Number(Fetch(MetricsAddress(*tracker)), "diapason_tracker_queues") == 2; }))
      << first.err();
  const auto worker = Worker(address, "worker", {"--log-level", "debug"});
  EXPECT_EQ(first.Wait(), 0) << first.err();
  EXPECT_EQ(second.Wait(), 0) << second.err();
  const std::string metrics = Fetch(MetricsAddress(*tracker));
  ExpectEachMeasuredOnce(metrics, *worker);
  // Their histories are apart: all is asked for twice.
  EXPECT_EQ(Number(metrics, "diapason_tracker_shared_total"), Number(metrics, "diapason_tracker_leases_total"));
  const auto timings = Timings("first.db");
  EXPECT_EQ(timings.size(), 8u);
  EXPECT_EQ(timings, Timings("second.db"));
}

}  // namespace
}  // namespace diapason
