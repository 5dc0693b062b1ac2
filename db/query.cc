// Best records, and statistics.
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"
#include "db/history_name.h"

namespace diapason {
namespace {

// A time that was not refuted, of a workload on a device: parameters 1 to 3.
constexpr const char* kUsable =
    "WHERE r.workload_key = ?1 AND r.device_model = ?2 AND (?3 = '' OR r.target = ?3) AND r.median IS NOT NULL "
    "AND r.verified NOT IN ('failed', 'wrong_in_network') ";

absl::StatusOr<std::optional<TuningRecord>> First(Database& db, const std::string& sql, const std::string& workload_key,
                                                  const std::string& device_model, const std::string& target) {
  ASSIGN_OR_RETURN(Statement query, db.Prepare(sql));
  query.BindText(1, workload_key);
  query.BindText(2, device_model);
  query.BindText(3, target);
  ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return std::nullopt;
  ASSIGN_OR_RETURN(TuningRecord record, ReadRecordOf(db, query));
  return record;
}

// Calls visit(row) for each row.
template <typename Visit>
absl::Status ForEach(Database& db, const std::string& sql, Visit visit) {
  ASSIGN_OR_RETURN(Statement query, db.Prepare(sql));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    visit(query);
  }
}

int64_t FileBytes(const std::string& path) {
  int64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    struct stat info;
    if (stat((path + suffix).c_str(), &info) == 0) bytes += info.st_size;
  }
  return bytes;
}

absl::Status FillTotals(Database& db, HistoryInfo& info) {
  RETURN_IF_ERROR(ForEach(db,
                          "SELECT COUNT(*), COUNT(error_kind), COALESCE(MIN(created_at), 0), "
                          "COALESCE(MAX(created_at), 0) FROM records",
                          [&](const Statement& row) {
                            info.records = row.Int(0);
                            info.failed = row.Int(1);
                            info.first_at = row.Int(2);
                            info.last_at = row.Int(3);
                          }));
  ASSIGN_OR_RETURN(info.runs, db.QueryInt("SELECT COUNT(*) FROM runs"));
  RETURN_IF_ERROR(
      ForEach(db,
              "SELECT error_kind, COUNT(*) AS n FROM records WHERE error_kind IS NOT NULL GROUP BY error_kind "
              "ORDER BY n DESC, error_kind",
              [&](const Statement& row) { info.errors.emplace_back(row.Bytes(0), row.Int(1)); }));
  return ForEach(db, "SELECT network, COUNT(*) FROM networks GROUP BY network ORDER BY network",
                 [&](const Statement& row) {
                   info.networks.push_back({row.Bytes(0), row.Int(1)});
                 });
}

absl::Status FillWorkloads(Database& db, HistoryInfo& info) {
  RETURN_IF_ERROR(ForEach(
      db,
      "SELECT workload_key, MAX(task_name), target, device_model, COUNT(*), COUNT(error_kind), COUNT(CASE WHEN "
      "verified = 'ok' THEN 1 END), "
      "COALESCE(MIN(CASE WHEN verified NOT IN ('failed', 'wrong_in_network') AND raced_out = 0 THEN median END), "
      "MIN(CASE WHEN verified NOT IN ('failed', 'wrong_in_network') THEN median END)) "
      "FROM records GROUP BY workload_key, target, device_model ORDER BY workload_key, target, device_model",
      [&](const Statement& row) {
        HistoryInfo::Workload workload{row.Bytes(0), row.Bytes(1), row.Bytes(2), row.Bytes(3),
                                       row.Int(4),   row.Int(5),   row.Int(6),   std::nullopt};
        if (!row.IsNull(7)) workload.best_seconds = row.Real(7);
        info.workloads.push_back(std::move(workload));
      }));
  return ForEach(db,
                 "SELECT device_model, device_uuid, COUNT(*) FROM records GROUP BY device_model, device_uuid "
                 "ORDER BY device_model, device_uuid",
                 [&](const Statement& row) {
                   info.devices.push_back({row.Bytes(0), row.Bytes(1), row.Int(2)});
                 });
}

}  // namespace

const char* const kFilterConditions =
    "(?1 = '' OR r.target = ?1 OR substr(r.target, 1, length(?1) + 1) = ?1 || ' ') "
    "AND (?2 = '' OR substr(r.workload_key, 1, length(?2)) = ?2) AND (?3 = '' OR r.device_model = ?3) "
    "AND (?4 = '' OR r.workload_key IN (SELECT workload_key FROM networks WHERE network = ?4)) ";

void BindFilter(Statement& query, const RecordFilter& filter) {
  query.BindText(1, filter.target);
  query.BindText(2, filter.workload);
  query.BindText(3, filter.device_model);
  query.BindText(4, filter.network);
}

absl::StatusOr<std::vector<TuningRecord>> ReadAll(const Database& db, Statement& query) {
  std::vector<TuningRecord> records;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return records;
    ASSIGN_OR_RETURN(TuningRecord record, ReadRecordOf(db, query));
    records.push_back(std::move(record));
  }
}

absl::StatusOr<TuningRecord> History::Get(int64_t id) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<TuningRecord> {
    ASSIGN_OR_RETURN(Statement query, db.Prepare(SelectRecords("WHERE r.id = ?1")));
    query.BindInt(1, id);
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return NoSuchRecord(database_->path, id);
    return ReadRecordOf(db, query);
  });
}

absl::StatusOr<std::optional<TuningRecord>> History::Best(const std::string& workload_key,
                                                          const std::string& device_model, const std::string& target) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::optional<TuningRecord>> {
    return First(db, SelectRecords(absl::StrCat(kUsable, "ORDER BY r.raced_out, r.median, r.id LIMIT 1")), workload_key,
                 device_model, target);
  });
}

absl::StatusOr<std::optional<TuningRecord>> History::BestForBuild(const std::string& workload_key,
                                                                  const std::string& device_model,
                                                                  const std::string& target) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::optional<TuningRecord>> {
    return First(
        db, SelectRecords(absl::StrCat(kUsable, "ORDER BY r.verified <> 'ok', r.raced_out, r.median, r.id LIMIT 1")),
        workload_key, device_model, target);
  });
}

absl::StatusOr<std::vector<TuningRecord>> History::TopK(const RecordFilter& filter, int64_t k) {
  DIAPASON_CHECK(k >= 1);
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::vector<TuningRecord>> {
    const std::string ranked = absl::StrCat(
        "(SELECT *, ROW_NUMBER() OVER (PARTITION BY workload_key, target, device_model "
        "ORDER BY raced_out, median, id) AS place FROM records r WHERE r.median IS NOT NULL AND r.verified NOT IN "
        "('failed', 'wrong_in_network') "
        "AND ",
        kFilterConditions, ")");
    ASSIGN_OR_RETURN(Statement query,
                     db.Prepare(SelectRecords(
                         "WHERE r.place <= ?5 ORDER BY r.workload_key, r.target, r.device_model, r.place", ranked)));
    BindFilter(query, filter);
    query.BindInt(5, k);
    return ReadAll(db, query);
  });
}

absl::StatusOr<std::vector<TuningRecord>> History::ForWorkload(const std::string& workload_key,
                                                               const std::string& device_model,
                                                               const std::string& target) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::vector<TuningRecord>> {
    ASSIGN_OR_RETURN(Statement query, db.Prepare(SelectRecords("WHERE r.workload_key = ?1 AND r.device_model = ?2 "
                                                               "AND (?3 = '' OR r.target = ?3) ORDER BY r.id")));
    query.BindText(1, workload_key);
    query.BindText(2, device_model);
    query.BindText(3, target);
    return ReadAll(db, query);
  });
}

absl::StatusOr<HistoryInfo> History::Info() {
  return database_->Reading([&](Database& db) -> absl::StatusOr<HistoryInfo> {
    HistoryInfo info;
    ASSIGN_OR_RETURN(const int64_t version, db.SchemaVersion());
    info.schema_version = static_cast<int>(version);
    if (IsPostgresUri(database_->path)) {
      ASSIGN_OR_RETURN(info.bytes, db.Bytes());
    } else {
      info.bytes = FileBytes(database_->path);
    }
    RETURN_IF_ERROR(FillTotals(db, info));
    RETURN_IF_ERROR(FillWorkloads(db, info));
    return info;
  });
}

}  // namespace diapason
