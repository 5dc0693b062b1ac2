// The last step of tuning and of a build: is the network that the best records make right? Where it is not, the records
// that make it wrong are found, marked and replaced.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/network.h"
#include "db/history.h"
#include "service/network_assembly.h"

namespace diapason {

// Runs assembled networks and compares them with their reference.
class NetworkJudge {
 public:
  struct Verdict {
    bool ok = false;
    bool compared = false;     // it ran to its end, and its numbers were compared
    double max_abs_error = 0;  // infinite when it did not run to its end
    double max_rel_error = 0;
    std::string text;        // the evidence, when not ok
    double run_seconds = 0;  // the median run, when ok and it was measured
  };

  virtual ~NetworkJudge() = default;
  // What follows is about this assembly, which outlives it.
  virtual absl::Status Use(const Assembly& assembly) = 0;
  // With the records of the tasks that `in_place` names, and fallback schedules for the others. A fault of the programs
  // (wrong numbers, a crash, a deadline) is a verdict; an error means that nothing could be found out.
  virtual absl::StatusOr<Verdict> Judge(const std::vector<bool>& in_place) = 0;
  // One record by itself, as tuning verifies it. Unimplemented where that is not possible.
  virtual absl::StatusOr<Verdict> Verify(const TuningRecord& record) = 0;
};

// Where records come from and where what was found of them goes.
class RecordShelf {
 public:
  virtual ~RecordShelf() = default;
  // The best record of each workload that has one, those that were marked here left out.
  virtual absl::StatusOr<RecordsByWorkload> Best(const std::vector<std::string>& workload_keys) = 0;
  virtual absl::Status SetVerified(const TuningRecord& record, const NetworkJudge::Verdict& verdict) = 0;
  virtual absl::Status MarkWrongInNetwork(const TuningRecord& record, double max_error,
                                          const std::string& evidence) = 0;
};

// The records of a history for a device model and target; it must be open for writing to be marked.
class HistoryShelf : public RecordShelf {
 public:
  HistoryShelf(History* history, std::string device_model, std::string target)
      : history_(history), device_model_(std::move(device_model)), target_(std::move(target)) {}
  absl::StatusOr<RecordsByWorkload> Best(const std::vector<std::string>& workload_keys) override;
  absl::Status SetVerified(const TuningRecord& record, const NetworkJudge::Verdict& verdict) override;
  absl::Status MarkWrongInNetwork(const TuningRecord& record, double max_error, const std::string& evidence) override;

 private:
  History* const history_;
  const std::string device_model_, target_;
};

struct NetworkCheckReport {
  bool right = false;        // the network is, as it is assembled now
  Assembly assembly;         // the last one
  double max_rel_error = 0;  // of the last one
  struct Wrong {
    TuningRecord record;
    std::string evidence;
    int64_t replacement = -1;      // its record; -1: the fallback schedule
    std::string Sentence() const;  // for people
  };
  std::vector<Wrong> wrong;  // records that were marked, in the order in which they were found
  std::string text;          // why it is not right, one sentence; empty when it is
  double seconds = 0;        // that the check took
  double run_seconds = 0;    // the median run of the network when it is right; 0: it was not measured
};

// "network check ok: ..." with what it rests on, or what is wrong.
std::string Summary(const NetworkCheckReport& report);

// Assembles the network from the best records of `shelf`, has it judged, and as long as it is wrong: finds the records
// that make it so (find_guilty.h), marks them and continues with the next best. A best record that was not verified yet
// is verified first. A network that is wrong with fallback schedules alone is reported (`right` is false) and marks
// nothing; so is one that was wrong once and not again. An error means that it could not be checked.
absl::StatusOr<NetworkCheckReport> CheckNetwork(const Network& network, const FusionChoices& fusion, RecordShelf& shelf,
                                                NetworkJudge& judge);

}  // namespace diapason
