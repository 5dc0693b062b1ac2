#include "service/records.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "diapason/v1/history.pb.h"
#include "worker/process/convert.h"

namespace diapason {

void ToProto(const TuningRecord& record, v1::Record& message) {
  message.set_id(record.id);
  message.set_uuid(record.uuid);
  message.set_workload_key(record.workload_key);
  message.set_task_name(record.task_name);
  message.set_target(record.target);
  message.set_device_model(record.device_model);
  message.set_device_uuid(record.device_uuid);
  message.set_rewrite(record.rewrite);
  message.set_sketch(record.sketch);
  message.set_schedule(record.schedule);
  *message.mutable_configuration() = {record.configuration.begin(), record.configuration.end()};
  message.set_configuration_hash(record.configuration_hash);
  if (record.timing() != nullptr) ToProto(*record.timing(), *message.mutable_timing());
  if (record.error() != nullptr) ToProto(*record.error(), *message.mutable_error());
  if (record.predicted.has_value()) message.set_predicted(*record.predicted);
  message.set_seed(record.seed);
  message.set_trial(record.trial);
  message.mutable_clocks()->set_sm_mhz(record.clocks.sm_mhz);
  message.mutable_clocks()->set_memory_mhz(record.clocks.memory_mhz);
  message.mutable_clocks()->set_cpu_mhz(record.clocks.cpu_mhz);
  message.set_driver(record.driver);
  message.set_compiler(record.compiler);
  message.set_created_at(record.created_at);
  message.set_verified(VerifiedName(record.verified));
  if (record.max_error.has_value()) message.set_max_error(*record.max_error);
  message.set_verify_text(record.verify_text);
}

absl::StatusOr<TuningRecord> FromProto(const v1::Record& message) {
  TuningRecord record;
  record.id = message.id();
  record.uuid = message.uuid();
  record.workload_key = message.workload_key();
  record.task_name = message.task_name();
  record.target = message.target();
  record.device_model = message.device_model();
  record.device_uuid = message.device_uuid();
  record.rewrite = message.rewrite();
  record.sketch = message.sketch();
  record.schedule = message.schedule();
  record.configuration = {message.configuration().begin(), message.configuration().end()};
  record.configuration_hash = message.configuration_hash();
  if (message.has_timing() && message.timing().samples_size() > 0) {
    record.outcome = FromProto(message.timing());
  } else if (message.has_error()) {
    record.outcome = FromProto(message.error());
  } else {
    return absl::DataLossError(absl::StrCat("the service sent record ", message.id(), " without an outcome"));
  }
  if (message.has_predicted()) record.predicted = message.predicted();
  record.seed = message.seed();
  record.trial = message.trial();
  record.clocks = {message.clocks().sm_mhz(), message.clocks().memory_mhz(), message.clocks().cpu_mhz()};
  record.driver = message.driver();
  record.compiler = message.compiler();
  record.created_at = message.created_at();
  for (Verified verified : {Verified::kUnknown, Verified::kOk, Verified::kFailed, Verified::kWrongInNetwork}) {
    if (message.verified() == VerifiedName(verified)) record.verified = verified;
  }
  if (message.has_max_error()) record.max_error = message.max_error();
  record.verify_text = message.verify_text();
  return record;
}

absl::StatusOr<std::string> ModelForBuild(History& history, const std::string& target, const std::string& own,
                                          bool may_differ) {
  ASSIGN_OR_RETURN(const HistoryInfo info, history.Info());
  std::string model = own;
  int64_t most = 0;
  for (const auto& workload : info.workloads) {
    if (workload.target != target) continue;
    if (workload.device_model == own) return own;
    if (workload.records > most) {
      most = workload.records;
      model = workload.device_model;
    }
  }
  return may_differ ? model : own;
}

absl::StatusOr<std::map<std::string, TuningRecord>> RecordsForBuild(History& history,
                                                                    const std::vector<std::string>& workload_keys,
                                                                    const std::string& device_model,
                                                                    const std::string& target) {
  std::map<std::string, TuningRecord> records;
  for (const std::string& key : workload_keys) {
    ASSIGN_OR_RETURN(std::optional<TuningRecord> best, history.BestForBuild(key, device_model, target));
    if (best.has_value()) records.emplace(key, *std::move(best));
  }
  return records;
}

void KeepTarget(const std::string& target, std::vector<TuningRecord>& records) {
  std::erase_if(records, [&](const TuningRecord& record) { return record.target != target; });
}

absl::StatusOr<std::map<std::string, double>> CountsOf(History& history, const std::string& network) {
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> tasks, history.NetworkTasks(network));
  std::map<std::string, double> counts;
  for (const NetworkTask& task : tasks) counts[task.workload_key] = task.weight;
  return counts;
}

absl::Status CheckNetwork(History& history, const std::string& network, const std::string& where) {
  if (network.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> tasks, history.NetworkTasks(network));
  if (!tasks.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(where, " knows no network ", network));
}

}  // namespace diapason
