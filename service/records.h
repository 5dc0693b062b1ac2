// Records as messages (history.proto), and the choice of the records that a build uses.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/tensor/target.h"
#include "db/history.h"

namespace diapason {

namespace v1 {
class Record;
}

void ToProto(const TuningRecord& record, v1::Record& message);
// DataLoss if the message names an outcome or a verification that this version does not know.
absl::StatusOr<TuningRecord> FromProto(const v1::Record& message);

// The device model whose records a build for `target` uses: `own` when the history has records of it or `may_differ` is
// false; else the one that it has most records of for the target, or `own` when it has none at all.
absl::StatusOr<std::string> ModelForBuild(History& history, const std::string& target, const std::string& own,
                                          bool may_differ);
// By workload key: History::BestForBuild of each that has a record.
absl::StatusOr<std::map<std::string, TuningRecord>> RecordsForBuild(History& history,
                                                                    const std::vector<std::string>& workload_keys,
                                                                    const std::string& device_model,
                                                                    const std::string& target);

// Leaves the records of this very target: the target of a RecordFilter matches longer ones as well.
void KeepTarget(const std::string& target, std::vector<TuningRecord>& records);

// How often each workload occurs in a network; empty: the history knows no such network.
absl::StatusOr<std::map<std::string, double>> CountsOf(History& history, const std::string& network);

// NotFound when the history knows no network of the filter's name; the sentence names `where` it was looked for.
absl::Status CheckNetwork(History& history, const std::string& network, const std::string& where);

}  // namespace diapason
