// Internal to db: shared by the sources that read and change a history.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "db/history.h"
#include "db/locked_database.h"
#include "db/record_row.h"

namespace diapason {

// The database of a History. `mu` of LockedDatabase guards options.now and options.new_uuid too.
class HistoryDatabase : public LockedDatabase {
 public:
  HistoryDatabase(std::string file, HistoryOptions opts, std::unique_ptr<Database> database)
      : LockedDatabase(std::move(database)), path(std::move(file)), options(std::move(opts)) {}

  int64_t Now() const { return options.now(); }
  // Sets uuid and time, and replaces invalid characters of texts. InvalidArgument: the message has only the reason.
  absl::Status Prepare(TuningRecord& record) const;
  absl::Status SetVerification(int64_t id, Verified verified, double max_error, const std::string& text);

  const std::string path;        // without a password
  const HistoryOptions options;  // with its functions filled in
};

// Opens the database of a history, with the errors of History::Open. Rejects damaged tables and, unless
// options.allow_damage is set, damaged pages. REQUIRES: the options are a result of WithDefaults.
absl::StatusOr<std::unique_ptr<Database>> OpenHistory(const std::string& path, HistoryMode mode,
                                                      const HistoryOptions& options);

// The options with the default clock and source of uuids where they are not set.
HistoryOptions WithDefaults(HistoryOptions options);

// Inserts records, with their workloads, into a history within a transaction of the caller.
class RecordWriter {
 public:
  static absl::StatusOr<RecordWriter> Create(Database* db);
  // Returns the id. InvalidArgument, whose message has only the reason: the uuid exists, or the run or workload does
  // not. REQUIRES: HistoryDatabase::Prepare succeeded.
  absl::StatusOr<int64_t> Insert(const TuningRecord& record);
  // The id of the record with this uuid; 0: there is none.
  absl::StatusOr<int64_t> IdOf(const std::string& uuid);
  // Stores the bytes unless the key exists.
  absl::Status StoreWorkload(const std::string& key, const std::string& dag);

 private:
  RecordWriter(Database* db, Statement workload, Statement record)
      : db_(db), workload_(std::move(workload)), record_(std::move(record)) {}
  Database* db_;
  Statement workload_, record_;
};

// All rows of a query over SelectRecords. DataLoss: a row is damaged.
absl::StatusOr<std::vector<TuningRecord>> ReadAll(const Database& db, Statement& query);

// SQL conditions on r, whose parameters 1 to 4 BindFilter sets.
extern const char* const kFilterConditions;
void BindFilter(Statement& query, const RecordFilter& filter);

absl::StatusOr<TuningRun> ReadRun(const Statement& row);
extern const char* const kSelectRuns;
absl::StatusOr<int64_t> InsertRun(Database& db, const TuningRun& run);

// Reads all records that match a filter in the order of their ids, and continues after damaged pages.
class RecordScan {
 public:
  // A record, or the reason why the records from `first_id` to `last_id` cannot be read (`last_id` is -1 if no later
  // one can be read).
  struct Item {
    int64_t first_id = 0, last_id = 0;
    absl::StatusOr<TuningRecord> record = absl::UnknownError("");
  };
  static absl::StatusOr<RecordScan> Create(Database* db, const RecordFilter& filter);
  // Nothing at the end.
  std::optional<Item> Next();

 private:
  RecordScan(Database* db, RecordFilter filter, Statement query)
      : db_(db), filter_(std::move(filter)), query_(std::move(query)) {}
  void Restart();
  // The first id above `id` that can be read, -1 if none. Sets *gap if ids in between cannot be read.
  int64_t NextReadable(int64_t id, bool* gap);
  Database* db_;
  RecordFilter filter_;
  Statement query_;
  int64_t last_ = 0;
  int64_t rows_ = 0;  // of this run of the query
  bool ended_ = false;
};

// History::Scan within a transaction of the caller; adds to `report`.
absl::Status ScanRecords(Database& db, const ExportOptions& options,
                         const std::function<absl::Status(const TuningRecord& record)>& take, ExportReport& report);

// "record 17: ...", "records 17 to 20 cannot be read: ...". REQUIRES: item.record is not OK.
std::string DescribeDamage(const RecordScan::Item& item);

// The error for a missing record. It says how to list the existing ones.
absl::Status NoSuchRecord(const std::string& path, int64_t id);

}  // namespace diapason
