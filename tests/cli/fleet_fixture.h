// A fleet of real processes on one host, for tests of the commands.
#pragma once

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {

class FleetCli : public CliTest {
 protected:
  std::unique_ptr<Process> Tracker(const std::string& listen = OwnLoopback(), std::vector<std::string> more = {}) {
    std::vector<std::string> args = {
        "tracker",   "--listen", listen,    "--state", Path("state.db"), "--heartbeat", "0.2",
        "--session", "2",        "--lease", "2"};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<Process>(args, Path("tracker" + std::to_string(++trackers_)));
  }
  std::unique_ptr<Process> Worker(const std::string& tracker, const std::string& name,
                                  std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"worker", "--tracker", tracker, "--devices", "cpu",   "--builders",
                                     "1",      "--name",    name,    "--scratch", Path("")};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<Process>(args, Path(name));
  }
  std::vector<std::string> Tune(const std::string& tracker, const std::string& trials,
                                std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"tune",      "gemm",       "--m",       "32",       "--n",
                                     "48",        "--k",        "64",        "--target", "cpu -num-cores=1",
                                     "--history", Path("h.db"), "--trials",  trials,     "--min-repeat-ms",
                                     "1",         "--json",     "--tracker", tracker};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // The history is whole, and no candidate is in it twice.
  void ExpectEachOnce(int64_t trials) {
    EXPECT_EQ(Cli({"history", "check", Path("h.db"), "--json"}).json()["ok"], true);
    std::istringstream lines(Cli({"history", "export", Path("h.db")}).out);
    std::set<std::string> seen;
    int64_t records = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (!json.contains("decision_hash")) continue;
      ++records;
      EXPECT_TRUE(seen.insert(json["workload_key"].dump() + json["decision_hash"].dump()).second) << line;
      if (json.contains("error")) {
        EXPECT_NE(json["error"]["kind"], "infrastructure") << line;
      }
    }
    EXPECT_EQ(records, trials);
  }

 private:
  int trackers_ = 0;
};

}  // namespace diapason
