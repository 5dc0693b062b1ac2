// Checks networks on the workers that measure: those of a fleet, or the one of this process.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/network.h"
#include "service/import_plans.h"
#include "service/network_check.h"
#include "service/target.h"
#include "worker/client.h"

namespace diapason {

namespace v1 {
class NetworkCheck;
}

struct MeasuringJudgeOptions {
  std::string device_model;            // of the devices to use; empty: any of the target's kind
  double build_timeout_seconds = 120;  // per program
  uint64_t seed = 1;
  const std::atomic<bool>* stop = nullptr;  // when it becomes true, calls end with Cancelled
  // Name under which the history stores the latency of a correct network (NetworkLatency::network); empty: it is not
  // stored.
  std::string latency_network = {};
  // At most so long, for each plan, records that contend with the best ones (contenders.h) are verified once the
  // network is right, so that builds may choose among them.
  double contender_seconds = 0;
};
// What a run that took so long gives to that.
inline double ContenderSeconds(double tuned_seconds) { return 0.1 * tuned_seconds; }

// The check at the end of `tune` and of jobs: assembles the network of `model` from the best records of the history and
// checks it. REQUIRES: nobody else waits for results of the client. Errors are those of CheckNetwork.
absl::StatusOr<NetworkCheckReport> CheckTuned(const ImportedModel& model, const ResolvedTarget& target,
                                              History& history, MeasureClient& client,
                                              const MeasuringJudgeOptions& options);

// The check of one plan.
struct PlanCheck {
  SymbolSizes sizes;  // empty: the network has one plan
  NetworkCheckReport report;
};
// Checks all plans one after the other. options.latency_network is the name of all of them.
absl::StatusOr<std::vector<PlanCheck>> CheckTunedPlans(const std::vector<ImportedPlan>& plans,
                                                       const ResolvedTarget& target, History& history,
                                                       MeasureClient& client, const MeasuringJudgeOptions& options);
bool AllRight(const std::vector<PlanCheck>& checks);
// Summary() of each plan, one per line.
std::string Summary(const std::vector<PlanCheck>& checks);
// Why plans are wrong, in one sentence.
std::string WhyWrong(const std::vector<PlanCheck>& checks);

class MeasuringJudge : public NetworkJudge {
 public:
  // REQUIRES: the arguments outlive the judge, and nobody else waits for results of the client.
  MeasuringJudge(const Network& network, const ResolvedTarget& target, MeasureClient& client,
                 MeasuringJudgeOptions options);
  ~MeasuringJudge() override;

  absl::Status Use(const Assembly& assembly) override;
  absl::StatusOr<Verdict> Judge(const std::vector<bool>& in_place) override;
  absl::StatusOr<Verdict> Verify(const TuningRecord& record) override;
  // Verify of several at once, in their order. Nothing for those that were not done when so many seconds were over.
  absl::StatusOr<std::vector<std::optional<Verdict>>> VerifyAll(const std::vector<const TuningRecord*>& records,
                                                                double seconds);

 private:
  absl::StatusOr<const std::string*> DefaultScheduleOf(const Task& task);
  // Submits the measurements and waits for their results, for `seconds` at most; 0: for all of them.
  absl::StatusOr<std::vector<std::optional<Verdict>>> AskAll(std::vector<Measurement> measurements, double seconds);
  absl::StatusOr<Verdict> Ask(Measurement measurement);

  const Network& network_;
  const ResolvedTarget& target_;
  MeasureClient& client_;
  const MeasuringJudgeOptions options_;
  const Assembly* assembly_ = nullptr;
  std::unique_ptr<v1::NetworkCheck> check_;               // without schedules
  std::map<std::string, std::string> default_schedules_;  // by workload key
  int64_t next_id_;
};

}  // namespace diapason
