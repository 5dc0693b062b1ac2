#include "db/trials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"

namespace diapason {
namespace {

// Of the best of each workload, target and device, in the order of History::Best.
constexpr const char* kBestIds =
    "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY workload_key, target, device_model "
    "ORDER BY raced_out, median, id) AS place FROM records WHERE median IS NOT NULL "
    "AND verified NOT IN ('failed', 'wrong_in_network')) AS ranked WHERE place = 1";

std::optional<double> RealOrNone(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional<double>(row.Real(column));
}

absl::StatusOr<Verified> VerifiedAt(const Database& db, const Statement& row, int column) {
  const std::optional<Verified> verified = ParseVerified(row.Bytes(column));
  if (verified.has_value()) return *verified;
  return db.Damaged(absl::StrCat("record ", row.Int(0), " has an unknown verification"));
}

absl::StatusOr<TrialRow> ReadTrial(const Database& db, const Statement& row) {
  TrialRow trial;
  trial.id = row.Int(0);
  trial.run_id = row.Int(1);
  trial.workload_key = row.Bytes(2);
  trial.task_name = row.Bytes(3);
  trial.target = row.Bytes(4);
  trial.device_model = row.Bytes(5);
  trial.sketch = row.Bytes(6);
  trial.trial = row.Int(7);
  trial.created_at = row.Int(8);
  trial.median = RealOrNone(row, 9);
  trial.stopped_early = row.Int(10) != 0;
  trial.predicted = RealOrNone(row, 11);
  trial.error_kind = row.Bytes(12);
  trial.error_stage = row.Bytes(13);
  trial.error_text = row.Bytes(14);
  ASSIGN_OR_RETURN(trial.verified, VerifiedAt(db, row, 15));
  return trial;
}

// The id from which on there are `limit` records; 0: there are fewer above `after`.
absl::StatusOr<int64_t> NewestFrom(Database& db, int64_t after, int64_t limit) {
  ASSIGN_OR_RETURN(Statement query,
                   db.Prepare("SELECT id FROM records WHERE id > ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2"));
  query.BindInt(1, after);
  query.BindInt(2, limit - 1);
  ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Int(0) : 0;
}

}  // namespace

absl::StatusOr<std::vector<TrialRow>> TrialLog::Trials(int64_t after, int64_t limit) {
  DIAPASON_CHECK(limit >= 1);
  return database_.Reading([&](Database& db) -> absl::StatusOr<std::vector<TrialRow>> {
    ASSIGN_OR_RETURN(const int64_t from, NewestFrom(db, after, limit));
    const std::string older = from > 0 ? absl::StrCat("AND (id >= ?2 OR id IN (", kBestIds, ")) ") : "";
    ASSIGN_OR_RETURN(
        Statement query,
        db.Prepare(absl::StrCat("SELECT id, run_id, workload_key, task_name, target, device_model, sketch, trial, "
                                "created_at, median, raced_out, predicted, error_kind, error_stage, "
                                "substr(error_text, 1, 400), verified FROM records WHERE id > ?1 ",
                                older, "ORDER BY id")));
    query.BindInt(1, after);
    if (from > 0) query.BindInt(2, from);
    std::vector<TrialRow> trials;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return trials;
      ASSIGN_OR_RETURN(TrialRow trial, ReadTrial(db, query));
      trials.push_back(std::move(trial));
    }
  });
}

absl::StatusOr<std::vector<TrialState>> TrialLog::States(int64_t from) {
  return database_.Reading([&](Database& db) -> absl::StatusOr<std::vector<TrialState>> {
    ASSIGN_OR_RETURN(Statement query,
                     db.Prepare("SELECT id, median, raced_out, verified FROM records WHERE id >= ?1 ORDER BY id"));
    query.BindInt(1, from);
    std::vector<TrialState> states;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return states;
      ASSIGN_OR_RETURN(const Verified verified, VerifiedAt(db, query, 3));
      states.push_back({query.Int(0), RealOrNone(query, 1), query.Int(2) != 0, verified});
    }
  });
}

absl::StatusOr<int64_t> TrialLog::Count() {
  return database_.Reading(
      [&](Database& db) -> absl::StatusOr<int64_t> { return db.QueryInt("SELECT COUNT(*) FROM records"); });
}

absl::StatusOr<std::vector<NetworkLatency>> TrialLog::Latencies() {
  return database_.Reading([&](Database& db) -> absl::StatusOr<std::vector<NetworkLatency>> {
    ASSIGN_OR_RETURN(Statement query, db.Prepare("SELECT network, target, device_model, measured, tasks, measured_at "
                                                 "FROM latencies ORDER BY network, target, device_model"));
    std::vector<NetworkLatency> latencies;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return latencies;
      latencies.push_back({query.Bytes(0), query.Bytes(1), query.Bytes(2), query.Real(3), query.Real(4), query.Int(5)});
    }
  });
}

absl::StatusOr<int64_t> TrialLog::ChangeCounter() {
  MutexLock lock(database_.mu);
  Database& db = *database_.db;
  return RepeatLost(db, [&](bool) { return db.ChangeCounter(); });
}

}  // namespace diapason
