#include "db/history.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"
#include "db/history_name.h"
#include "db/postgres.h"
#include "db/schema.h"
#include "db/sqlite.h"
#include "db/text.h"

namespace diapason {
namespace {

// SQLite's quick check reads about a gigabyte a second, so that up to this size opening stays imperceptible. Above it,
// damage is found by the checksums of the records that are read, and by Check.
constexpr int64_t kQuickCheckBytes = int64_t{256} << 20;

int64_t SystemNow() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// Size of the file, -1 when there is none.
int64_t SizeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? int64_t{info.st_size} : -1;
}

absl::Status MissingError(const std::string& path) {
  return absl::NotFoundError(
      absl::StrCat("history '", path, "' does not exist; name a file that 'diapason tune --history' has written"));
}

// OK when `path` is a file with content; NotFound when there is none.
absl::Status CheckFile(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the path of the history is empty; name a file");
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return MissingError(path);
    return absl::PermissionDeniedError(absl::StrCat("history '", path, "' cannot be reached (", std::strerror(errno),
                                                    "); correct the path or its permissions"));
  }
  if (S_ISDIR(info.st_mode))
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is a folder and no history; name a file in it"));
  if (!S_ISREG(info.st_mode))
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' is no regular file; name another file"));
  if (info.st_size == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is an empty file and no Diapason history; remove it or name another file"));
  }
  return absl::OkStatus();
}

absl::Status CreateIfMissing(const std::string& path, const HistoryOptions& options) {
  const std::string log = path + "-wal";
  // The log is looked at first: another process may be creating both.
  const bool stale_log = SizeOf(log) > 0;
  absl::Status found = CheckFile(path);
  if (!absl::IsNotFound(found)) return found;
  if (stale_log) {
    return absl::FailedPreconditionError(absl::StrCat("history '", path, "' is gone but its log '", log,
                                                      "' is there; put the history back or remove the log"));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return absl::NotFoundError(absl::StrCat("the folder of history '", path,
                                            "' does not exist; create it or name "
                                            "another file"));
  }
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("history '", path, "' cannot be created (", std::strerror(errno),
                     "); give yourself write permission for its folder, or name another file"));
  }
  return CreateHistoryFile(path, options.new_uuid());
}

absl::Status QuickCheck(SqliteDatabase& db) {
  ASSIGN_OR_RETURN(std::string result, db.QueryText("PRAGMA quick_check(1)"));
  if (result == "ok") return absl::OkStatus();
  const size_t line = result.find_last_of('\n', result.size() - 2);  // the first may be a heading
  if (line != std::string::npos) result = result.substr(line + 1);
  while (!result.empty() && result.back() == '\n') result.pop_back();
  return DamagedError(db.path(), CleanUtf8(result));
}

// CheckIdentity, and with allow_damage of a file that was cut too.
absl::Status Identify(SqliteDatabase& db, const HistoryOptions& options) {
  if (!options.allow_damage) return CheckIdentity(db);
  db.set_salvaging();
  absl::Status identity = CheckIdentity(db);
  if (!absl::IsDataLoss(identity)) return identity;
  RETURN_IF_ERROR(db.ReadCutFile());
  return CheckIdentity(db);
}

// A reader that may not write beside the file cannot share a log with writers; without a log there is nothing to share.
absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenAndIdentify(const std::string& path, HistoryMode mode,
                                                                const HistoryOptions& options) {
  const bool has_log = SizeOf(path + "-wal") > 0;
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db,
                   SqliteDatabase::Open(path, SqliteDatabase::Access::kReadWrite, options.busy_timeout));
  // Until the file is known to be ours to write, closing it leaves its log as it is.
  if (has_log) sqlite3_db_config(db->handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  const bool writable = sqlite3_db_readonly(db->handle(), "main") == 0;
  if (mode != HistoryMode::kReadOnly && !writable) return ReadOnlyError(path);
  if (mode == HistoryMode::kReadOnly) RETURN_IF_ERROR(db->Exec("PRAGMA query_only=ON"));
  absl::Status identity = Identify(*db, options);
  if (absl::IsPermissionDenied(identity) && mode == HistoryMode::kReadOnly && !has_log) {
    ASSIGN_OR_RETURN(db, SqliteDatabase::Open(path, SqliteDatabase::Access::kImmutable, options.busy_timeout));
    identity = Identify(*db, options);
  }
  if (!identity.ok()) return identity;
  return db;
}

absl::Status MakeDurable(Database& db) {
  ASSIGN_OR_RETURN(const std::string journal, db.QueryText("PRAGMA journal_mode"));
  // Where a write-ahead log cannot be had (another process holds the file, or the file system has no shared memory),
  // the rollback journal is as durable.
  if (journal != "wal") (void)db.Exec("PRAGMA journal_mode=WAL");
  return db.Exec("PRAGMA synchronous=FULL");
}

}  // namespace

HistoryOptions WithDefaults(HistoryOptions options) {
  if (!options.now) options.now = SystemNow;
  if (!options.new_uuid) options.new_uuid = RandomUuid;
  return options;
}

absl::StatusOr<std::unique_ptr<Database>> OpenHistory(const std::string& path, HistoryMode mode,
                                                      const HistoryOptions& options) {
  if (IsPostgresUri(path)) {
    const auto idle = options.fence == nullptr ? std::chrono::milliseconds(0) : options.fence->lasts();
    return OpenPostgres(path, mode, {options.busy_timeout, idle, options.fence});
  }
  if (mode == HistoryMode::kCreate) RETURN_IF_ERROR(CreateIfMissing(path, options));
  RETURN_IF_ERROR(CheckFile(path));
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, OpenAndIdentify(path, mode, options));
  if (!options.allow_damage && SizeOf(path) <= kQuickCheckBytes) RETURN_IF_ERROR(QuickCheck(*db));
  ASSIGN_OR_RETURN(const int64_t version, db->QueryInt("PRAGMA user_version"));
  if (version < kSchemaVersion && mode == HistoryMode::kReadOnly) {
    ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> copy, SqliteDatabase::OpenInMemory(path, options.busy_timeout));
    RETURN_IF_ERROR(db->CopyTo(*copy));
    db = std::move(copy);
  }
  if (version < kSchemaVersion) RETURN_IF_ERROR(Migrate(*db));
  RETURN_IF_ERROR(CheckTables(*db));
  if (mode == HistoryMode::kReadOnly) {
    RETURN_IF_ERROR(db->Exec("PRAGMA query_only=ON"));
  } else {
    RETURN_IF_ERROR(MakeDurable(*db));
    sqlite3_db_config(db->handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  }
  return db;
}

absl::StatusOr<std::unique_ptr<History>> History::Open(const std::string& path, HistoryMode mode,
                                                       HistoryOptions options) {
  DIAPASON_CHECK(mode == HistoryMode::kReadOnly || !options.allow_damage);
  options = WithDefaults(std::move(options));
  ASSIGN_OR_RETURN(std::unique_ptr<Database> db, OpenHistory(path, mode, options));
  const std::string name = db->path();
  return std::unique_ptr<History>(
      new History(std::make_unique<HistoryDatabase>(name, std::move(options), std::move(db))));
}

History::History(std::unique_ptr<HistoryDatabase> database) : database_(std::move(database)) {}
History::~History() = default;
const std::string& History::path() const { return database_->path; }

absl::Status NoSuchRecord(const std::string& path, int64_t id) {
  return absl::NotFoundError(absl::StrCat("history '", path, "' has no record ", id, "; 'diapason query --history ",
                                          path, "' lists the best ones with their ids"));
}

absl::Status HistoryDatabase::Prepare(TuningRecord& record) const {
  if (record.uuid.empty()) record.uuid = options.new_uuid();
  if (record.created_at == 0) record.created_at = Now();
  NormaliseRecord(record);
  return ValidateRecord(record);
}

absl::StatusOr<RecordWriter> RecordWriter::Create(Database* db) {
  ASSIGN_OR_RETURN(Statement workload, db->Prepare("INSERT INTO workloads(workload_key, dag, checksum) VALUES(?, ?, ?) "
                                                   "ON CONFLICT DO NOTHING"));
  ASSIGN_OR_RETURN(Statement record, db->Prepare(kInsertRecord));
  return RecordWriter(db, std::move(workload), std::move(record));
}

absl::Status RecordWriter::StoreWorkload(const std::string& key, const std::string& dag) {
  workload_.BindText(1, key);
  workload_.BindBlob(2, dag);
  workload_.BindInt(3, static_cast<int64_t>(Fnv1a(dag)));
  return workload_.Run();
}

absl::StatusOr<int64_t> RecordWriter::Insert(const TuningRecord& record) {
  if (!record.workload.empty()) RETURN_IF_ERROR(StoreWorkload(record.workload_key, record.workload));
  absl::StatusOr<int64_t> id = InsertRecord(record_, record);
  if (record_.broken() == Statement::Broken::kUnique)
    return absl::InvalidArgumentError(absl::StrCat("the history has a record with its uuid ", record.uuid));
  if (record_.broken() == Statement::Broken::kForeignKey) {
    return absl::InvalidArgumentError(record.workload.empty()
                                          ? "its workload is empty, and its key not known yet"
                                          : absl::StrCat("its run ", record.run_id, " is not known"));
  }
  return id;
}

absl::StatusOr<int64_t> RecordWriter::IdOf(const std::string& uuid) {
  ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT id FROM records WHERE uuid = ?"));
  query.BindText(1, uuid);
  return query.RunForInt();
}

absl::StatusOr<std::vector<int64_t>> History::Append(const std::vector<TuningRecord>& records) {
  if (records.empty()) return std::vector<int64_t>();
  std::vector<TuningRecord> prepared = records;
  const auto refuse = [&](size_t i, const absl::Status& reason) {
    return absl::InvalidArgumentError(absl::StrCat("record ", i + 1, " of ", records.size(),
                                                   " cannot be stored in history '", database_->path,
                                                   "': ", std::string(reason.message())));
  };
  {
    MutexLock lock(database_->mu);  // of options.now and options.new_uuid
    for (size_t i = 0; i < prepared.size(); ++i)
      if (absl::Status status = database_->Prepare(prepared[i]); !status.ok()) return refuse(i, status);
  }
  return database_->Writing([&](Database& db, bool again) -> absl::StatusOr<std::vector<int64_t>> {
    ASSIGN_OR_RETURN(RecordWriter writer, RecordWriter::Create(&db));
    std::vector<int64_t> ids;
    for (size_t i = 0; i < prepared.size(); ++i) {
      // A connection that was lost at COMMIT may have stored all of them, or none.
      absl::StatusOr<int64_t> id = again ? writer.IdOf(prepared[i].uuid) : 0;
      if (id.ok() && *id == 0) id = writer.Insert(prepared[i]);
      if (absl::IsInvalidArgument(id.status())) return refuse(i, id.status());
      RETURN_IF_ERROR(id.status());
      ids.push_back(*id);
    }
    return ids;
  });
}

absl::Status History::SetVerified(int64_t id, bool ok, double max_error, const std::string& text) {
  return database_->SetVerification(id, ok ? Verified::kOk : Verified::kFailed, max_error, text);
}

absl::Status History::MarkWrongInNetwork(int64_t id, double max_error, const std::string& text) {
  return database_->SetVerification(id, Verified::kWrongInNetwork, max_error, text);
}

absl::Status HistoryDatabase::SetVerification(int64_t id, Verified verified, double max_error,
                                              const std::string& text) {
  return Writing([&](Database& database, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement update,
                     database.Prepare("UPDATE records SET verified = ?, max_error = ?, verify_text = ? WHERE id = ?"));
    update.BindText(1, VerifiedName(verified));
    update.BindReal(2, std::isnan(max_error) ? std::numeric_limits<double>::infinity() : max_error);
    update.BindText(3, CleanUtf8(text));
    update.BindInt(4, id);
    RETURN_IF_ERROR(update.Run());
    return database.changes() == 0 ? NoSuchRecord(path, id) : absl::OkStatus();
  });
}

absl::StatusOr<double> History::AddSamples(int64_t id, const std::vector<double>& samples) {
  std::vector<double> complete;  // what the record shall have, from the first attempt on
  return database_->Writing([&](Database& db, bool again) -> absl::StatusOr<double> {
    TuningRecord record;
    {
      ASSIGN_OR_RETURN(Statement query, db.Prepare(SelectRecords("WHERE r.id = ?1")));
      query.BindInt(1, id);
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return NoSuchRecord(database_->path, id);
      ASSIGN_OR_RETURN(record, ReadRecordOf(db, query));
    }
    auto* timing = std::get_if<Timing>(&record.outcome);
    if (timing == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat("record ", id, " of history '", database_->path, "' is of a failure and can get no samples"));
    if (again && !complete.empty() && timing->samples == complete) return MedianSeconds(*timing);
    timing->samples.insert(timing->samples.end(), samples.begin(), samples.end());
    complete = timing->samples;
    timing->stopped_early = false;
    absl::Status valid = samples.empty() ? absl::InvalidArgumentError("there are none") : ValidateRecord(record);
    if (!valid.ok())
      return absl::InvalidArgumentError(absl::StrCat("record ", id, " of history '", database_->path,
                                                     "' cannot get these samples: ", std::string(valid.message())));
    ASSIGN_OR_RETURN(Statement update, db.Prepare(kUpdateTiming));
    RETURN_IF_ERROR(UpdateTiming(update, record));
    return MedianSeconds(*timing);
  });
}

absl::Status History::SetLatency(const NetworkLatency& latency) {
  for (double seconds : {latency.measured, latency.tasks}) {
    if (!std::isfinite(seconds) || seconds <= 0)
      return absl::InvalidArgumentError(absl::StrCat("the latency of network '", latency.network,
                                                     "' cannot be stored in history '", database_->path, "': ", seconds,
                                                     " s is no positive time"));
  }
  return database_->Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement upsert,
        db.Prepare("INSERT INTO latencies(network, target, device_model, measured, tasks, measured_at) "
                   "VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(network, target, device_model) DO UPDATE SET measured = "
                   "excluded.measured, tasks = excluded.tasks, measured_at = excluded.measured_at"));
    upsert.BindText(1, CleanUtf8(latency.network));
    upsert.BindText(2, CleanUtf8(latency.target));
    upsert.BindText(3, CleanUtf8(latency.device_model));
    upsert.BindReal(4, latency.measured);
    upsert.BindReal(5, latency.tasks);
    upsert.BindInt(6, latency.measured_at != 0 ? latency.measured_at : database_->Now());
    return upsert.Run();
  });
}

absl::StatusOr<std::optional<NetworkLatency>> History::Latency(const std::string& network, const std::string& target,
                                                               const std::string& device_model) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::optional<NetworkLatency>> {
    ASSIGN_OR_RETURN(Statement query, db.Prepare("SELECT measured, tasks, measured_at FROM latencies WHERE "
                                                 "network = ? AND target = ? AND device_model = ?"));
    query.BindText(1, CleanUtf8(network));
    query.BindText(2, CleanUtf8(target));
    query.BindText(3, CleanUtf8(device_model));
    ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return std::nullopt;
    return NetworkLatency{network, target, device_model, query.Real(0), query.Real(1), query.Int(2)};
  });
}

const char* const kSelectRuns = "SELECT id, uuid, command_line, seed, host, version, started_at, ended_at FROM runs ";

absl::StatusOr<TuningRun> ReadRun(const Statement& row) {
  TuningRun run;
  run.id = row.Int(0);
  run.uuid = row.Bytes(1);
  run.command_line = row.Bytes(2);
  run.seed = static_cast<uint64_t>(row.Int(3));
  run.host = row.Bytes(4);
  run.version = row.Bytes(5);
  run.started_at = row.Int(6);
  run.ended_at = row.Int(7);
  return run;
}

absl::StatusOr<int64_t> InsertRun(Database& db, const TuningRun& run) {
  ASSIGN_OR_RETURN(Statement insert, db.Prepare("INSERT INTO runs(uuid, command_line, seed, host, version, started_at, "
                                                "ended_at) VALUES(?, ?, ?, ?, ?, ?, ?) RETURNING id"));
  insert.BindText(1, run.uuid);
  insert.BindText(2, CleanUtf8(run.command_line));
  insert.BindInt(3, static_cast<int64_t>(run.seed));
  insert.BindText(4, CleanUtf8(run.host));
  insert.BindText(5, CleanUtf8(run.version));
  insert.BindInt(6, run.started_at);
  insert.BindInt(7, run.ended_at);
  return insert.RunForInt();
}

absl::StatusOr<int64_t> History::StartRun(const TuningRun& run) {
  TuningRun complete = run;
  {
    MutexLock lock(database_->mu);  // of options.now and options.new_uuid
    if (complete.uuid.empty()) complete.uuid = database_->options.new_uuid();
    if (complete.started_at == 0) complete.started_at = database_->Now();
  }
  if (!IsUuid(complete.uuid)) return absl::InvalidArgumentError("the run's uuid is not of 32 hexadecimal digits");
  return database_->Writing([&](Database& db, bool again) -> absl::StatusOr<int64_t> {
    if (again) {
      ASSIGN_OR_RETURN(Statement query, db.Prepare("SELECT id FROM runs WHERE uuid = ?"));
      query.BindText(1, complete.uuid);
      ASSIGN_OR_RETURN(const int64_t id, query.RunForInt());
      if (id != 0) return id;
    }
    return InsertRun(db, complete);
  });
}

absl::Status History::EndRun(int64_t run_id) {
  return database_->Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(Statement update, db.Prepare("UPDATE runs SET ended_at = ? WHERE id = ?"));
    update.BindInt(1, database_->Now());
    update.BindInt(2, run_id);
    RETURN_IF_ERROR(update.Run());
    if (db.changes() == 0)
      return absl::NotFoundError(absl::StrCat("history '", database_->path, "' has no run ", run_id));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<TuningRun>> History::Runs() {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::vector<TuningRun>> {
    ASSIGN_OR_RETURN(Statement query, db.Prepare(absl::StrCat(kSelectRuns, "ORDER BY id")));
    std::vector<TuningRun> runs;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return runs;
      ASSIGN_OR_RETURN(TuningRun run, ReadRun(query));
      runs.push_back(std::move(run));
    }
  });
}

absl::Status History::LinkNetwork(const std::vector<NetworkTask>& tasks) {
  return database_->Writing([&](Database& db, bool) -> absl::Status {
    ASSIGN_OR_RETURN(RecordWriter writer, RecordWriter::Create(&db));
    ASSIGN_OR_RETURN(
        Statement upsert,
        db.Prepare("INSERT INTO networks(network, workload_key, task_name, weight) VALUES(?, ?, ?, ?) "
                   "ON CONFLICT(network, workload_key) DO UPDATE SET task_name = excluded.task_name, weight = "
                   "excluded.weight"));
    for (const NetworkTask& task : tasks) {
      if (task.network.empty() || task.workload_key.empty() || task.workload.empty() || !std::isfinite(task.weight)) {
        return absl::InvalidArgumentError(absl::StrCat("task '", task.task_name, "' of network '", task.network,
                                                       "' has no name, workload or finite weight to link"));
      }
      RETURN_IF_ERROR(writer.StoreWorkload(CleanUtf8(task.workload_key), task.workload));
      upsert.BindText(1, CleanUtf8(task.network));
      upsert.BindText(2, CleanUtf8(task.workload_key));
      upsert.BindText(3, CleanUtf8(task.task_name));
      upsert.BindReal(4, task.weight);
      RETURN_IF_ERROR(upsert.Run());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<NetworkTask>> History::NetworkTasks(const std::string& network) {
  return database_->Reading([&](Database& db) -> absl::StatusOr<std::vector<NetworkTask>> {
    ASSIGN_OR_RETURN(Statement query,
                     db.Prepare("SELECT n.network, n.workload_key, w.dag, n.task_name, n.weight FROM networks n "
                                "LEFT JOIN workloads w USING(workload_key) WHERE ?1 = '' OR n.network = ?1 "
                                "ORDER BY n.network, n.workload_key"));
    query.BindText(1, network);
    std::vector<NetworkTask> tasks;
    while (true) {
      ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return tasks;
      tasks.push_back({query.Bytes(0), query.Bytes(1), query.Bytes(2), query.Bytes(3), query.Real(4)});
    }
  });
}

}  // namespace diapason
