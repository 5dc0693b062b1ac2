// Two services with one history in PostgreSQL: one acts, the other stands by and takes over.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>

#include "db/history_name.h"
#include "tests/cli/fleet_fixture.h"
#include "tests/db/postgres_server.h"
#include "tests/paths.h"

namespace diapason {
namespace {

// An address of this process alone that nobody listens at.
std::string FreeAddress() {
  const std::string any = OwnLoopback(), host = any.substr(0, any.rfind(':'));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return host + ":" + std::to_string(ntohs(address.sin_port));
}

class PostgresFailover : public FleetCli {
 protected:
  void SetUp() override {
    FleetCli::SetUp();
    schema_ = "failover" + std::to_string(++tests_);
    history_ = PostgresServer::Get().Uri(schema_);
    both_ = first_ + "," + second_;
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    FleetCli::TearDown();
  }
  // Each as on a host of its own.
  std::unique_ptr<Process> Serve(const std::string& listen, const std::string& lease) {
    const std::string name = listen == first_ ? "first" : "second";
    setenv("XDG_STATE_HOME", Path("state-" + name).c_str(), 1);
    const std::vector<std::string> args = {"serve",  "--listen",        listen, "--history",
                                           history_, "--history-lease", lease};
    return std::make_unique<Process>(args, Path(name));
  }
  static std::string Listens(const std::string& address) { return "service listens on " + address + "\n"; }
  static std::string StandsBy(const std::string& active) {
    return "standby: " + active + " has the history's lease; this service takes over when it ends\n";
  }
  int64_t Submitted(const std::string& trials) {
    const CliResult submitted =
        Cli(OnSmallProduct("submit", {"--trials", trials, "--min-repeat-ms", "1", "--service", both_, "--json"}));
    EXPECT_EQ(submitted.code, 0) << submitted.err;
    return submitted.code == 0 ? submitted.json()["job"].get<int64_t>() : 0;
  }
  nlohmann::json Jobs() {
    const CliResult listed = Cli({"jobs", "list", "--service", both_, "--json"});
    EXPECT_EQ(listed.code, 0) << listed.err;
    return listed.code == 0 ? listed.json()["jobs"] : nlohmann::json::array();
  }
  // What was measured: workload and candidate of each record; a candidate that is there twice fails the test.
  std::set<std::string> Measured() {
    std::istringstream lines(Cli({"history", "export", history_}).out);
    std::set<std::string> seen;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (!json.contains("decision_hash")) continue;
      EXPECT_TRUE(seen.insert(json["workload_key"].dump() + json["decision_hash"].dump()).second) << line;
      EXPECT_FALSE(json.contains("error") && json["error"]["kind"] == "infrastructure") << line;
    }
    return seen;
  }
  bool HasMeasured(size_t records) {
    return WaitFor([&] {
      const CliResult info = Cli({"history", "info", history_, "--json"});
      return info.code == 0 && info.json()["record_count"].get<size_t>() >= records;
    });
  }
  void ExpectDone(int64_t job, int64_t trials) {
    const CliResult watched = Cli({"jobs", "watch", std::to_string(job), "--service", both_});
    EXPECT_EQ(watched.code, 0) << watched.err << ReadText(Path("first.err")) << ReadText(Path("second.err"));
    const auto jobs = Jobs();
    const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& one) { return one["job"] == job; });
    ASSERT_NE(found, jobs.end());
    EXPECT_EQ((*found)["state"], "done");
    EXPECT_EQ((*found)["trials"], trials);
  }

  static inline int tests_ = 0;
  std::string schema_, history_, both_;
  const std::string first_ = FreeAddress(), second_ = FreeAddress();
};

TEST_F(PostgresFailover, AServiceThatIsKilledIsTakenOverFrom) {
  auto first = Serve(first_, "3");
  ASSERT_TRUE(first->Says(Listens(first_))) << first->err();
  auto second = Serve(second_, "3");
  ASSERT_TRUE(second->Says(StandsBy(first_))) << second->err();
  EXPECT_EQ(Cli({"jobs", "list", "--service", second_, "--timeout", "0.2"}).code, 1);  // it does not listen
  auto worker = Worker(both_, "worker");
  const int64_t job = Submitted("40");
  ASSERT_TRUE(HasMeasured(8)) << first->err() << worker->err();
  Process watcher({"jobs", "watch", std::to_string(job), "--service", both_}, Path("watcher"));
  ASSERT_TRUE(WaitFor([&] { return !watcher.out().empty() || !watcher.err().empty(); }));
  first->Kill();
  const std::set<std::string> before = Measured();
  EXPECT_LT(before.size(), 40u);
  ASSERT_TRUE(second->Says(Listens(second_))) << second->err();
  ExpectDone(job, 40);
  EXPECT_EQ(watcher.Wait(), 0) << watcher.err();
  const std::set<std::string> after = Measured();
  EXPECT_EQ(after.size(), 40u);
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  EXPECT_EQ(Jobs().size(), 1u);
  EXPECT_EQ(Cli({"history", "check", history_}).out, "ok, 40 records\n");
}

TEST_F(PostgresFailover, AServiceThatIsStoppedHandsOverAtOnceWithItsModels) {
  auto first = Serve(first_, "3600");
  ASSERT_TRUE(first->Says(Listens(first_))) << first->err();
  auto second = Serve(second_, "3600");
  ASSERT_TRUE(second->Says(StandsBy(first_))) << second->err();
  const CliResult submitted =
      Cli({"submit", TEST_PATH(DIAPASON_ONNX_TESTDATA) + "/node/test_matmul_2d/model.onnx", "--target",
           "cpu -num-cores=1", "--trials", "4", "--min-repeat-ms", "1", "--service", both_, "--json"});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  // Who waits for the job need not know.
  Process watcher({"jobs", "watch", "1", "--service", both_}, Path("watcher"));
  ASSERT_TRUE(WaitFor([&] { return !watcher.out().empty() || !watcher.err().empty(); }));
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(), 0) << first->err();
  const auto ended = std::chrono::steady_clock::now();
  ASSERT_TRUE(second->Says(Listens(second_))) << second->err();
  EXPECT_LT(std::chrono::steady_clock::now() - ended, std::chrono::seconds(20));
  auto worker = Worker(both_, "worker");
  ExpectDone(submitted.json()["job"].get<int64_t>(), 4);
  EXPECT_EQ(watcher.Wait(), 0) << watcher.err();
  EXPECT_NE(watcher.out().find("job 1 is done: all trials are done\n"), std::string::npos) << watcher.out();
  EXPECT_EQ(Measured().size(), 4u);
}

TEST_F(PostgresFailover, AServiceThatStoodStillTooLongWritesNothingAndStandsBy) {
  auto first = Serve(first_, "2");
  ASSERT_TRUE(first->Says(Listens(first_))) << first->err();
  auto worker = Worker(both_, "worker");
  const int64_t job = Submitted("60");
  ASSERT_TRUE(HasMeasured(4)) << first->err() << worker->err();
  auto second = Serve(second_, "2");
  ASSERT_TRUE(second->Says(StandsBy(first_))) << second->err();
  first->Signal(SIGSTOP);
  ASSERT_TRUE(second->Says(Listens(second_))) << second->err();
  const std::set<std::string> before = Measured();
  first->Signal(SIGCONT);
  ASSERT_TRUE(first->Says(StandsBy(second_))) << first->err();
  EXPECT_NE(first->err().find("lease_lost"), std::string::npos) << first->err();
  EXPECT_EQ(Cli({"jobs", "list", "--service", first_, "--timeout", "0.2"}).code, 1);
  ExpectDone(job, 60);
  const std::set<std::string> after = Measured();
  EXPECT_EQ(after.size(), 60u);
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  // And back.
  second->Signal(SIGTERM);
  EXPECT_EQ(second->Wait(), 0) << second->err();
  ASSERT_TRUE(WaitFor([&] { return first->out().rfind(Listens(first_)) > first->out().find(StandsBy(second_)); }))
      << first->err();
  ExpectDone(job, 60);
}

TEST_F(PostgresFailover, AJobGoesOnWhenTheDatabaseIsBack) {
  auto service = Serve(first_, "60");
  ASSERT_TRUE(service->Says(Listens(first_))) << service->err();
  auto worker = Worker(both_, "worker");
  const int64_t job = Submitted("30");
  ASSERT_TRUE(HasMeasured(4)) << service->err() << worker->err();
  PostgresServer::Get().Stop();
  usleep(500000);
  PostgresServer::Get().Start();
  ExpectDone(job, 30);
  EXPECT_EQ(Measured().size(), 30u);
  EXPECT_EQ(service->err().find("lease_lost"), std::string::npos) << service->err();
  EXPECT_EQ(service->out(), Listens(first_));
}

TEST_F(PostgresFailover, AServiceStandsByWhileTheDatabaseIsAwayForLong) {
  auto service = Serve(first_, "1");
  ASSERT_TRUE(service->Says(Listens(first_))) << service->err();
  auto worker = Worker(both_, "worker");
  const int64_t job = Submitted("30");
  ASSERT_TRUE(HasMeasured(4)) << service->err() << worker->err();
  PostgresServer::Get().Stop();
  EXPECT_TRUE(WaitFor([&] { return service->err().find("history_away") != std::string::npos; })) << service->err();
  EXPECT_NE(service->err().find("lease_lost"), std::string::npos) << service->err();
  EXPECT_EQ(Cli({"jobs", "list", "--service", both_, "--timeout", "0.2"}).code, 1);
  PostgresServer::Get().Start();
  ASSERT_TRUE(service->Says(Listens(first_) + Listens(first_))) << service->err();
  ExpectDone(job, 30);
  EXPECT_EQ(Measured().size(), 30u);
}

// systemd would take a process for dead that says nothing for as long as it does not listen.
TEST_F(PostgresFailover, AServiceThatStandsByTellsSystemdThatItIsWell) {
  const int notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  ASSERT_LT(Path("notify").size(), sizeof at.sun_path);
  Path("notify").copy(at.sun_path, sizeof at.sun_path - 1);
  ASSERT_EQ(bind(notified, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  const auto next = [&] {
    pollfd ready{notified, POLLIN, 0};
    char text[256];
    const ssize_t n = poll(&ready, 1, 20000) == 1 ? recv(notified, text, sizeof text, 0) : -1;
    return n < 0 ? std::string() : std::string(text, static_cast<size_t>(n));
  };
  auto first = Serve(first_, "3600");
  ASSERT_TRUE(first->Says(Listens(first_))) << first->err();
  setenv("NOTIFY_SOCKET", Path("notify").c_str(), 1);
  setenv("WATCHDOG_USEC", "900000", 1);
  auto second = Serve(second_, "3600");
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(next(), "READY=1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next(), "WATCHDOG=1");
  EXPECT_EQ(second->out(), StandsBy(first_)) << second->err();
  first->Signal(SIGTERM);
  ASSERT_TRUE(second->Says(Listens(second_))) << second->err();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next(), "WATCHDOG=1");
  second->Signal(SIGTERM);
  EXPECT_EQ(second->Wait(), 0) << second->err();
  std::string last;
  do last = next();
  while (last == "WATCHDOG=1");
  EXPECT_EQ(last, "STOPPING=1");
  EXPECT_EQ(second->err().find("self_check_"), std::string::npos) << second->err();
  close(notified);
}

// A tracker's state speaks of workers and queues that are gone once another service has worked.
TEST_F(PostgresFailover, AStateOfTheTrackerOutlivesARestartAndNoOtherService) {
  auto serve = [&](const std::string& listen) {
    auto service = Serve(listen, "3600");
    EXPECT_TRUE(service->Says(Listens(listen))) << service->err();
    service->Signal(SIGTERM);
    EXPECT_EQ(service->Wait(), 0) << service->err();
    std::filesystem::remove(Path(listen == first_ ? "first.out" : "second.out"));
  };
  serve(first_);
  setenv("XDG_STATE_HOME", Path("state-first").c_str(), 1);
  const std::string state = StatePath(history_, ".tracker"), before = Path("before");
  std::filesystem::create_hard_link(state, before);
  serve(first_);
  EXPECT_TRUE(std::filesystem::equivalent(state, before));
  serve(second_);
  serve(first_);
  EXPECT_FALSE(std::filesystem::equivalent(state, before));
}

TEST_F(PostgresFailover, ALeaseIsForAHistoryInPostgres) {
  ExpectError(Cli({"serve", "--listen", "127.0.0.1:0", "--history", Path("h.db"), "--history-lease", "5"}),
              "--history-lease is for services that share a history in PostgreSQL; leave it out for one in a file");
}

}  // namespace
}  // namespace diapason
