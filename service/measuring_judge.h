// Has networks judged by the services that measure: the fleet's workers, or those of this process.
#pragma once

#include <atomic>
#include <map>
#include <memory>
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
  std::string device_model;            // of the devices that judge; empty: any of the target's kind
  double build_timeout_seconds = 120;  // of a program
  uint64_t seed = 1;
  const std::atomic<bool>* stop = nullptr;  // when it becomes true, calls end with Cancelled
  // Under which the history keeps what the network took when it was right (NetworkLatency::network); empty: it is not
  // kept.
  std::string latency_network = {};
};

// What `tune` and jobs end with: the network from the best records of the history. The client's results are awaited
// meanwhile. `model` has its network. Errors are those of CheckNetwork.
absl::StatusOr<NetworkCheckReport> CheckTuned(const ImportedModel& model, const ResolvedTarget& target,
                                              History& history, MeasureClient& client,
                                              const MeasuringJudgeOptions& options);

// The check of one plan.
struct PlanCheck {
  SymbolSizes sizes;  // empty: the network has one plan
  NetworkCheckReport report;
};
// All plans one after the other, with their networks; options.latency_network is the name that all of them have.
absl::StatusOr<std::vector<PlanCheck>> CheckTunedPlans(const std::vector<ImportedPlan>& plans,
                                                       const ResolvedTarget& target, History& history,
                                                       MeasureClient& client, const MeasuringJudgeOptions& options);
bool AllRight(const std::vector<PlanCheck>& checks);
// Summary() of each plan, a line each; why those that are wrong are so, in one sentence.
std::string Summary(const std::vector<PlanCheck>& checks);
std::string WhyWrong(const std::vector<PlanCheck>& checks);

class MeasuringJudge : public NetworkJudge {
 public:
  // All outlive it. Nobody else waits for results of the client meanwhile.
  MeasuringJudge(const Network& network, const ResolvedTarget& target, MeasureClient& client,
                 MeasuringJudgeOptions options);
  ~MeasuringJudge() override;

  absl::Status Use(const Assembly& assembly) override;
  absl::StatusOr<Verdict> Judge(const std::vector<bool>& in_place) override;
  absl::StatusOr<Verdict> Verify(const TuningRecord& record) override;

 private:
  absl::StatusOr<const std::string*> DefaultScheduleOf(const Task& task);
  // Submits it and waits for its result.
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
