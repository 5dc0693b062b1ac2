// A fleet of real processes on one host, for tests of the commands.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {

// What a program gets from http://ADDRESS/metrics.
inline std::string Fetch(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  std::string text;
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  char bytes[4096];
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
    for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(count));
  }
  close(fd);
  return text;
}

// Where the process serves its metrics, of --metrics HOST:0.
inline std::string MetricsAddress(const Process& process) {
  const std::string before = "metrics_served address=";
  const std::string log = process.err();
  const size_t found = log.find(before);
  return found == std::string::npos ? ""
                                    : log.substr(found + before.size(), log.find('\n', found) - found - before.size());
}

// The value of a metric, whose labels are part of its name.
inline double Number(const std::string& metrics, const std::string& name) {
  const size_t found = metrics.find("\n" + name + " ");
  EXPECT_NE(found, std::string::npos) << name << " is not in\n" << metrics;
  return found == std::string::npos ? -1 : std::stod(metrics.substr(found + name.size() + 2));
}

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
