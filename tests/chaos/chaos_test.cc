// A chaos test: a service with two jobs, a tracker and four workers, while a killer takes one process after the other,
// or one of the builders and runners below them, and ends it with SIGKILL or holds it for a while with SIGSTOP. What
// was ended is started again. Afterwards nothing may be lost and nothing doubled.
//
// A seed tells all that the killer does. In CI two of them, a few seconds each; at length by
//   DIAPASON_CHAOS_SEEDS=20 DIAPASON_CHAOS_SECONDS=120 build/bin/chaos_tests
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/cli/fleet_fixture.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWorkers = 4;

int64_t Setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

class Chaos : public FleetCli, public testing::WithParamInterface<int64_t> {
 protected:
  // A process of the fleet, started again whenever it was ended.
  struct Post {
    std::string name;
    std::function<std::unique_ptr<Process>()> start;
    std::unique_ptr<Process> process;
    Clock::time_point start_at;
  };
  struct Held {
    pid_t pid;
    Clock::time_point until;
  };

  void SetUp() override {
    FleetCli::SetUp();
    tracker_ = StartTracker(OwnLoopback())->Address();
    service_ = StartService(OwnLoopback())->Address();
    posts_.push_back({"tracker", [this] { return StartTracker(tracker_); }, nullptr, {}});
    posts_.push_back({"service", [this] { return StartService(service_); }, nullptr, {}});
    for (int i = 0; i < kWorkers; ++i) {
      const std::string name = absl::StrCat("worker", i);
      posts_.push_back({name,
                        [this, name] {
                          return Worker(tracker_, name, {"--reference-interval", "5"});
                        },
                        nullptr,
                        {}});
    }
    for (Post& post : posts_) post.process = post.start();
  }
  std::unique_ptr<Process> StartTracker(const std::string& address) {
    return Tracker(address, {"--queue-expiry", "3"});
  }
  std::unique_ptr<Process> StartService(const std::string& address) {
    return std::make_unique<Process>(std::vector<std::string>{"serve", "--listen", address, "--history", Path("h.db"),
                                                              "--tracker", tracker_.empty() ? "127.0.0.1:1" : tracker_},
                                     Path("service"));
  }

  nlohmann::json Jobs(const std::vector<std::string>& args) {
    std::vector<std::string> all = {"jobs"};
    all.insert(all.end(), args.begin(), args.end());
    for (const char* more : {"--service", service_.c_str(), "--json", "--timeout", "30"}) all.push_back(more);
    const CliResult result = Cli(all);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? result.json() : nlohmann::json();
  }
  void SubmitJob(const std::string& m, std::vector<std::string> more) {
    std::vector<std::string> args = {"submit",
                                     "gemm",
                                     "--m",
                                     m,
                                     "--n",
                                     "48",
                                     "--k",
                                     "64",
                                     "--target",
                                     "cpu -num-cores=1",
                                     "--trials",
                                     "100000",
                                     "--trials-per-round",
                                     "8",
                                     "--min-repeat-ms",
                                     "1",
                                     "--service",
                                     service_,
                                     "--timeout",
                                     "30"};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult result = Cli(args);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  int64_t Records() {
    const CliResult info = Cli({"history", "info", Path("h.db"), "--json"});
    return info.code == 0 ? static_cast<int64_t>(info.json()["record_count"]) : 0;
  }

  // One act of the killer.
  void Act(std::mt19937& random) {
    Post& post = posts_[random() % posts_.size()];
    const bool below = random() % 3 == 0, hold = random() % 5 < 2;
    const auto time = std::chrono::milliseconds(300 + random() % 3000);
    const size_t which = random();
    if (post.process == nullptr) return;
    const pid_t pid = post.process->pid();
    pid_t victim = pid;
    if (below) {
      const std::vector<pid_t> pids = Descendants(victim);
      if (!pids.empty()) victim = pids[which % pids.size()];
    }
    if (hold) {
      kill(victim, SIGSTOP);
      held_.push_back({victim, Clock::now() + time});
    } else {
      kill(victim, SIGKILL);
      if (victim == pid) {
        post.process->Kill();
        post.process.reset();
        post.start_at = Clock::now() + time / 3;
      }
    }
    const bool its_own = victim == pid;
    ++acts_[absl::StrCat(post.name.substr(0, post.name.find_first_of("0123456789")), its_own ? " " : "'s process ",
                         hold ? "held" : "killed")];
  }
  // Resumes what was suspended for long enough and starts what was killed.
  void Restart(bool all = false) {
    std::erase_if(held_, [&](const Held& held) {
      if (!all && Clock::now() < held.until) return false;
      kill(held.pid, SIGCONT);
      return true;
    });
    for (Post& post : posts_) {
      if (post.process != nullptr && post.process->Poll().has_value()) {
        ADD_FAILURE() << post.name << " ended by itself with " << *post.process->Poll() << ": " << post.process->err();
        post.process.reset();
      }
      if (post.process == nullptr && (all || Clock::now() >= post.start_at)) post.process = post.start();
    }
  }

  std::string tracker_, service_;
  std::vector<Post> posts_;
  std::vector<Held> held_;
  std::map<std::string, int> acts_;
};

TEST_P(Chaos, NothingIsLostAndNothingDoubled) {
  SubmitJob("32", {});
  SubmitJob("40", {"--deterministic", "--weight", "2"});
  ASSERT_TRUE(WaitFor([&] { return Records() >= 4; })) << ReadText(Path("service.err"));

  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  const auto until = Clock::now() + std::chrono::seconds(Setting("DIAPASON_CHAOS_SECONDS", 6));
  const int64_t before = Records();
  for (auto next = Clock::now(); Clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    Restart();
    if (Clock::now() < next) continue;
    next += std::chrono::seconds(1);
    Act(random);
  }
  Restart(/*all=*/true);
  for (const auto& [act, times] : acts_) std::cout << times << " x " << act << "\n";

  // It still measures, with all four workers, and what it reported is in the history.
  ASSERT_TRUE(WaitFor([&] {
    Restart(true);
    const CliResult status = Cli({"fleet", "status", "--tracker", tracker_, "--json"});
    if (status.code != 0) return false;
    int ready = 0;
    const nlohmann::json fleet = status.json();
    for (const auto& device : fleet["devices"]) ready += device["state"] == "ready" ? 1 : 0;
    return ready == kWorkers;
  })) << Cli({"fleet", "status", "--tracker", tracker_}).out;
  const int64_t after = Records();
  ASSERT_TRUE(WaitFor([&] { return Records() > after; })) << ReadText(Path("service.err"));
  const nlohmann::json told = Jobs({"list"})["jobs"];
  EXPECT_GE(Records(), static_cast<int64_t>(told[0]["trials"]) + static_cast<int64_t>(told[1]["trials"]));

  // Both end, and go on to the very trial that they are asked for.
  int64_t trials = 0;
  for (const std::string job : {"1", "2"}) {
    const int64_t has = Jobs({"cancel", job})["trials"];
    trials += has + 6;
    Jobs({"resume", job, "--trials", absl::StrCat(has + 6)});
  }
  for (const std::string job : {"1", "2"}) EXPECT_EQ(Jobs({"watch", job})["state"], "done");
  ExpectEachOnce(trials);
  std::cout << before << " trials before, " << after - before << " meanwhile, " << trials << " in all\n";

  // Nobody is left behind, and nothing.
  for (Post& post : posts_) post.process->Signal(SIGTERM);
  for (Post& post : posts_) EXPECT_EQ(post.process->Wait(), 0) << post.name << ": " << post.process->err();
  EXPECT_EQ(Descendants(getpid()).size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, testing::Range<int64_t>(1, 1 + Setting("DIAPASON_CHAOS_SEEDS", 2)));

}  // namespace
}  // namespace diapason
