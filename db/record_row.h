// A TuningRecord as a row of the table `records`, and its checksum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "db/history.h"

namespace diapason {

// A query whose rows ReadRecord reads: of `source`, a table expression with the columns of `records`, called r in
// `rest`.
std::string SelectRecords(const std::string& rest, const std::string& source = "records");

// DataLoss, with the reason alone ("its checksum does not match"), for a row that is not as it was written.
absl::StatusOr<TuningRecord> ReadRecord(const Statement& row);
// As ReadRecord, in a sentence that names the history and the record.
absl::StatusOr<TuningRecord> ReadRecordOf(const Database& db, const Statement& row);

// The statement that InsertRecord binds and runs.
extern const char* const kInsertRecord;
// Returns the id. REQUIRES: ValidateRecord(record) is OK; the workload is stored.
absl::StatusOr<int64_t> InsertRecord(Statement& insert, const TuningRecord& record);

// The statement that UpdateTiming binds and runs: the timing of a record and its checksum.
extern const char* const kUpdateTiming;
// REQUIRES: the record holds a timing, and ValidateRecord(record) is OK.
absl::Status UpdateTiming(Statement& update, const TuningRecord& record);

// InvalidArgument with the reason alone ("it has no workload key"). REQUIRES: uuid and created_at are filled in.
absl::Status ValidateRecord(const TuningRecord& record);

// Texts as UTF-8, NaN as infinity, negative zeros as zeros: what reading it back will give.
void NormaliseRecord(TuningRecord& record);

// Of everything but the ids, the workload's bytes and the verification.
uint64_t RecordChecksum(const TuningRecord& record);

// "unknown", "ok", "failed", "wrong_in_network".
std::optional<Verified> ParseVerified(const std::string& name);

}  // namespace diapason
