#include "db/integrity.h"

// Finding damage, and reading around it.
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"
#include "db/text.h"

namespace diapason {
namespace {

constexpr size_t kMaxProblems = 1000;
// A page holds far fewer records than this; a larger gap is crossed in growing steps.
constexpr int64_t kCarefulSteps = 4096;

class Checker {
 public:
  Checker(Database* db, const CheckHooks& hooks) : db_(db), hooks_(hooks) {}

  CheckReport Run() {
    db_->CheckStorage(kMaxProblems, [this](const std::string& problem) { Problem(problem); });
    CheckWorkloads();
    CheckRecords();
    CheckReport report{records_, std::move(problems_)};
    if (count_ > kMaxProblems) report.problems.push_back(absl::StrCat("there are ", count_, " problems in all"));
    return report;
  }

 private:
  void Problem(const std::string& sentence) {
    if (++count_ <= kMaxProblems) problems_.push_back(OneLine(sentence));
  }

  // Calls visit(row) for each row; that the rows cannot be read is a problem of `what`.
  template <typename Visit>
  void ForEach(const std::string& sql, const std::string& what, Visit visit) {
    absl::StatusOr<Statement> query = db_->Prepare(sql);
    absl::StatusOr<bool> row = query.ok() ? query->Step() : absl::StatusOr<bool>(query.status());
    for (; row.ok() && *row; row = query->Step()) visit(*query);
    if (!row.ok())
      Problem(
          absl::StrCat(what, " cannot be read: ", query.ok() ? query->why() : std::string(query.status().message())));
  }

  void CheckWorkloads() {
    ForEach("SELECT workload_key, dag, checksum FROM workloads", "the workloads", [&](const Statement& row) {
      const std::string key = row.Bytes(0), dag = row.Bytes(1);
      if (static_cast<uint64_t>(row.Int(2)) != Fnv1a(dag)) {
        Problem(absl::StrCat("workload ", key, ": its checksum does not match"));
        return;
      }
      if (!hooks_.workload_key) return;
      absl::StatusOr<std::string> recomputed = hooks_.workload_key(dag);
      if (!recomputed.ok()) {
        Problem(absl::StrCat("workload ", key, ": ", std::string(recomputed.status().message())));
      } else if (*recomputed != key) {
        Problem(absl::StrCat("workload ", key, ": its program has the key ", *recomputed));
      }
    });
  }

  void CheckRecords() {
    absl::StatusOr<RecordScan> scan = RecordScan::Create(db_, {});
    if (!scan.ok()) return Problem("the records cannot be read");
    while (std::optional<RecordScan::Item> item = scan->Next()) {
      if (item->first_id == item->last_id) ++records_;
      if (item->record.ok()) {
        CheckRecord(*item->record);
      } else {
        Problem(DescribeDamage(*item));
      }
    }
  }

  void CheckRecord(const TuningRecord& record) {
    if (hooks_.configuration_hash) {
      const uint64_t hash = hooks_.configuration_hash(record);
      if (hash != record.configuration_hash) {
        Problem(absl::StrCat("record ", record.id, ": the hash of its configuration is ", Hex64(hash), ", not ",
                             Hex64(record.configuration_hash)));
      }
    }
    if (!hooks_.schedule) return;
    absl::Status schedule = hooks_.schedule(record);
    if (!schedule.ok()) Problem(absl::StrCat("record ", record.id, ": ", std::string(schedule.message())));
  }

  Database* db_;
  const CheckHooks& hooks_;
  int64_t records_ = 0;
  size_t count_ = 0;
  std::vector<std::string> problems_;
};

constexpr const char* kScanWhere = "r.id > ?5 AND ";
// As many records are in memory at once, where the database hands over whole results.
constexpr int64_t kScanRows = 1000;

}  // namespace

std::string DescribeDamage(const RecordScan::Item& item) {
  const std::string why(item.record.status().message());
  if (item.last_id == item.first_id) return absl::StrCat("record ", item.first_id, ": ", why);
  if (item.last_id < 0) return absl::StrCat("records from ", item.first_id, " on cannot be read: ", why);
  return absl::StrCat("records ", item.first_id, " to ", item.last_id, " cannot be read: ", why);
}

absl::Status ScanRecords(Database& db, const ExportOptions& options,
                         const std::function<absl::Status(const TuningRecord& record)>& take, ExportReport& report) {
  ASSIGN_OR_RETURN(RecordScan scan, RecordScan::Create(&db, options.filter));
  bool damaged = false;
  while (std::optional<RecordScan::Item> item = scan.Next()) {
    if (item->record.ok()) {
      RETURN_IF_ERROR(take(*item->record));
      ++report.records;
      continue;
    }
    if (!absl::IsDataLoss(item->record.status())) return item->record.status();
    if (!options.skip_damaged) return db.Damaged(DescribeDamage(*item));
    report.damaged.push_back(DescribeDamage(*item));
    damaged = true;
  }
  // An earlier export is worth more than one of nothing.
  return damaged && report.records == 0 ? db.Damaged("none of its records can be read") : absl::OkStatus();
}

absl::StatusOr<ExportReport> History::Scan(const ExportOptions& options,
                                           const std::function<absl::Status(const TuningRecord& record)>& take) {
  MutexLock lock(database_->mu);
  ASSIGN_OR_RETURN(const Transaction snapshot, Transaction::Begin(database_->db.get(), /*for_writing=*/false));
  ExportReport report;
  RETURN_IF_ERROR(ScanRecords(*database_->db, options, take, report));
  return report;
}

absl::StatusOr<RecordScan> RecordScan::Create(Database* db, const RecordFilter& filter) {
  ASSIGN_OR_RETURN(Statement query, db->Prepare(SelectRecords(absl::StrCat("WHERE ", kScanWhere, kFilterConditions,
                                                                           "ORDER BY r.id LIMIT ", kScanRows))));
  RecordScan scan(db, filter, std::move(query));
  scan.Restart();
  return scan;
}

void RecordScan::Restart() {
  query_.Reset();
  BindFilter(query_, filter_);
  query_.BindInt(5, last_);
  rows_ = 0;
}

std::optional<RecordScan::Item> RecordScan::Next() {
  if (ended_) return std::nullopt;
  absl::StatusOr<bool> row = query_.Step();
  if (row.ok() && !*row && rows_ == kScanRows) {
    Restart();
    row = query_.Step();
  }
  if (row.ok() && !*row) {
    ended_ = true;
    return std::nullopt;
  }
  Item item;
  // A damaged page may give any id, also one of a record before, which would not end.
  const bool ordered = row.ok() && query_.Int(0) > last_;
  if (ordered) {
    ++rows_;
    last_ = query_.Int(0);
    item.first_id = item.last_id = last_;
    item.record = ReadRecord(query_);
    return item;
  }
  item.first_id = last_ + 1;
  item.last_id = -1;
  ended_ = true;
  if (!row.ok() && !absl::IsDataLoss(row.status())) {
    item.record = row.status();
    return item;
  }
  item.record = absl::DataLossError(row.ok() ? "they are out of order" : query_.why());
  bool gap = false;
  const int64_t next = NextReadable(last_, &gap);
  if (next < 0) return item;
  ended_ = false;
  // Without a gap it is the rest of the next record that cannot be read: another page, or its workload.
  if (!gap) item.first_id = next;
  item.last_id = gap ? next - 1 : next;
  last_ = item.last_id;
  Restart();
  return item;
}

int64_t RecordScan::NextReadable(int64_t id, bool* gap) {
  absl::StatusOr<Statement> query = db_->Prepare(
      absl::StrCat("SELECT r.id FROM records r WHERE ", kScanWhere, kFilterConditions, "ORDER BY r.id LIMIT 1"));
  if (!query.ok()) return -1;
  for (int64_t step = 0; id < std::numeric_limits<int64_t>::max() - step; step += step < kCarefulSteps ? 1 : step) {
    query->Reset();
    BindFilter(*query, filter_);
    query->BindInt(5, id + step);
    absl::StatusOr<bool> row = query->Step();
    *gap = step > 0;
    if (row.ok() && !*row) return -1;
    if (row.ok() && query->Int(0) > id + step) return query->Int(0);
    if (step > std::numeric_limits<int64_t>::max() / 2) break;
  }
  return -1;
}

absl::StatusOr<CheckReport> CheckHistory(const std::string& path, const CheckHooks& hooks, HistoryOptions options) {
  options = WithDefaults(std::move(options));
  options.allow_damage = true;
  absl::StatusOr<std::unique_ptr<Database>> db = OpenHistory(path, HistoryMode::kReadOnly, options);
  if (absl::IsDataLoss(db.status())) return CheckReport{0, {std::string(db.status().message())}};
  RETURN_IF_ERROR(db.status());
  ASSIGN_OR_RETURN(Transaction snapshot, Transaction::Begin(db->get(), /*for_writing=*/false));
  return Checker(db->get(), hooks).Run();
}

}  // namespace diapason
