#include "worker/tracker/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

constexpr int64_t kTrackerApplicationId = 0x44707472;  // "Dptr"
constexpr int64_t kTrackerVersion = 2;
constexpr char kWhat[] = "tracker state";
constexpr std::chrono::milliseconds kBusy{3000};
// Of the write-ahead log, 64 MiB: moving it into the tables takes 10 to 20 ms whatever it holds, most of it the sync of
// the tables, and at 5,000 measurements per second is due every 1.4 s.
constexpr int kLogPages = 16384;
constexpr int kLogBytes = 64 << 20;
// Writeback of the log is started after so many bytes, and nobody waits for that. Otherwise the sync before the log
// is moved waits for all of it, 40 to 70 ms for 32 MiB, which was the p99 of bench/tracker_load.
constexpr int kHandedPages = 256;
// Of those that hold nothing any more: more are given back to the disk.
constexpr int kFreedPages = 16384;

constexpr char kTables[] = R"(
CREATE TABLE queues(id TEXT PRIMARY KEY NOT NULL, open BLOB NOT NULL) STRICT;
CREATE TABLE requests(
  queue TEXT NOT NULL, id INTEGER NOT NULL, message BLOB NOT NULL, submitted INTEGER NOT NULL,
  PRIMARY KEY(queue, id)) STRICT;
CREATE TABLE attempts(
  queue TEXT NOT NULL, id INTEGER NOT NULL, message BLOB NOT NULL, PRIMARY KEY(queue, id)) STRICT, WITHOUT ROWID;
CREATE TABLE results(
  queue TEXT NOT NULL, sequence INTEGER NOT NULL, message BLOB NOT NULL, PRIMARY KEY(queue, sequence)) STRICT;
CREATE TABLE sessions(id TEXT PRIMARY KEY NOT NULL, message BLOB NOT NULL) STRICT;
CREATE TABLE leases(
  id INTEGER PRIMARY KEY, session TEXT NOT NULL, device TEXT NOT NULL, batch INTEGER NOT NULL, queue TEXT NOT NULL,
  request INTEGER NOT NULL, waited INTEGER NOT NULL DEFAULT 0) STRICT;
)";
constexpr char kFromVersion1[] =
    "ALTER TABLE leases ADD COLUMN waited INTEGER NOT NULL DEFAULT 0; PRAGMA user_version=2";

enum StatementId : int {
  kPutQueue,
  kEraseQueue,
  kEraseQueueRequests,
  kEraseQueueAttempts,
  kEraseQueueResults,
  kPutRequest,
  kPutAttempts,
  kEraseRequest,
  kEraseAttempts,
  kPutResult,
  kEraseResults,
  kPutSession,
  kEraseSession,
  kPutLease,
  kEraseLease,
  kStatements,
};

constexpr const char* kSql[kStatements] = {
    "REPLACE INTO queues VALUES(?,?)",
    "DELETE FROM queues WHERE id=?",
    "DELETE FROM requests WHERE queue=?",
    "DELETE FROM attempts WHERE queue=?",
    "DELETE FROM results WHERE queue=?",
    "REPLACE INTO requests VALUES(?,?,?,?)",
    "REPLACE INTO attempts VALUES(?,?,?)",
    "DELETE FROM requests WHERE queue=? AND id=?",
    "DELETE FROM attempts WHERE queue=? AND id=?",
    "REPLACE INTO results VALUES(?,?,?)",
    "DELETE FROM results WHERE queue=? AND sequence<=?",
    "REPLACE INTO sessions VALUES(?,?)",
    "DELETE FROM sessions WHERE id=?",
    "REPLACE INTO leases VALUES(?,?,?,?,?,?,?)",
    "DELETE FROM leases WHERE id=?",
};

constexpr char kInteger = 'i', kText = 't', kBlob = 'b';

void AddNumber(std::string& bytes, char kind, uint64_t number) {
  bytes += kind;
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}
uint64_t TakeNumber(std::string_view bytes) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

void AddValue(std::string& bytes, uint64_t value) { AddNumber(bytes, kInteger, value); }
void AddValue(std::string& bytes, int64_t value) { AddNumber(bytes, kInteger, static_cast<uint64_t>(value)); }
void AddValue(std::string& bytes, const std::string& value) {
  AddNumber(bytes, kText, value.size());
  bytes += value;
}
void AddValue(std::string& bytes, const google::protobuf::MessageLite& value) {
  AddNumber(bytes, kBlob, value.ByteSizeLong());
  value.AppendToString(&bytes);
}

}  // namespace

struct TrackerStore::File {
  std::unique_ptr<SqliteDatabase> db;
  std::vector<Statement> statements;
  int log_pages = 0;     // in the write-ahead log, after the last transaction
  int handed_pages = 0;  // of these, those whose writeback was started
  int log_fd = -1;       // of the log, to tell the disk; below 0: none

  ~File() {
    if (log_fd >= 0) close(log_fd);
  }
  void HandToDisk();
};

TrackerStore::TrackerStore() : file_(std::make_unique<File>()) {}
TrackerStore::~TrackerStore() = default;

absl::StatusOr<std::unique_ptr<TrackerStore>> TrackerStore::Open(const std::string& path) {
  std::unique_ptr<TrackerStore> store(new TrackerStore);
  MutexLock lock(store->mutex_);
  if (absl::Status status = store->Prepare(path); !status.ok()) return status;
  return store;
}

absl::Status TrackerStore::Prepare(const std::string& path) {
  ASSIGN_OR_RETURN(file_->db, SqliteDatabase::Open(path, SqliteDatabase::Access::kCreatePrivate, kBusy, kWhat));
  SqliteDatabase& db = *file_->db;
  // What was cancelled leaves the file as well; of a new file, since another one would have to be written anew.
  RETURN_IF_ERROR(db.Exec("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_size_limit=" + std::to_string(kLogBytes)));
  // One tracker a file: the lock is held as long as it is open.
  RETURN_IF_ERROR(
      db.Exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
              " PRAGMA wal_autocheckpoint=0"));
  sqlite3_wal_hook(
      db.handle(),
      [](void* pages, sqlite3*, const char*, int count) {
        *static_cast<int*>(pages) = count;
        return SQLITE_OK;
      },
      &file_->log_pages);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t id, db.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    RETURN_IF_ERROR(db.Exec(std::string(kTables) + "PRAGMA application_id=" + std::to_string(kTrackerApplicationId) +
                            "; PRAGMA user_version=" + std::to_string(kTrackerVersion)));
  } else if (id != kTrackerApplicationId) {
    return absl::FailedPreconditionError("'" + path + "' is not a Diapason tracker state; name another file");
  } else if (version == 1) {
    RETURN_IF_ERROR(db.Exec(kFromVersion1));
  } else if (version != kTrackerVersion) {
    return absl::FailedPreconditionError("tracker state '" + path + "' is of version " + std::to_string(version) +
                                         " and this program writes version " + std::to_string(kTrackerVersion) +
                                         "; name another file, or run the program that wrote it");
  }
  RETURN_IF_ERROR(transaction.Commit());
  // An index by session, which files of before have, is half of what a lease would write.
  RETURN_IF_ERROR(db.Exec("DROP INDEX IF EXISTS leases_of_session"));
  for (const char* sql : kSql) {
    ASSIGN_OR_RETURN(Statement statement, db.Prepare(sql));
    file_->statements.push_back(std::move(statement));
  }
  return absl::OkStatus();
}

template <typename... Values>
void TrackerStore::Record(int statement, const Values&... values) {
  std::string& bytes = recorded_.bytes_;
  bytes += static_cast<char>(statement);
  (AddValue(bytes, values), ...);
}

void TrackerStore::PutQueue(const std::string& id, const v1::OpenRequest& open) { Record(kPutQueue, id, open); }
void TrackerStore::EraseQueue(const std::string& id) {
  for (int statement : {kEraseQueue, kEraseQueueRequests, kEraseQueueAttempts, kEraseQueueResults})
    Record(statement, id);
}
void TrackerStore::PutRequest(const std::string& queue, const v1::MeasureRequest& request, int64_t submitted) {
  Record(kPutRequest, queue, request.id(), request, submitted);
}
void TrackerStore::PutAttempts(const std::string& queue, uint64_t id, const v1::StoredAttempts& attempts) {
  Record(kPutAttempts, queue, id, attempts);
}
void TrackerStore::EraseRequest(const std::string& queue, uint64_t id) {
  Record(kEraseRequest, queue, id);
  Record(kEraseAttempts, queue, id);
}
void TrackerStore::PutResult(const std::string& queue, const v1::MeasureResult& result) {
  Record(kPutResult, queue, result.sequence(), result);
}
void TrackerStore::EraseResults(const std::string& queue, uint64_t sequence) { Record(kEraseResults, queue, sequence); }
void TrackerStore::PutSession(const std::string& id, const v1::StoredSession& session) {
  Record(kPutSession, id, session);
}
void TrackerStore::EraseSession(const std::string& id) { Record(kEraseSession, id); }
void TrackerStore::PutLease(const TrackerState::Lease& lease) {
  Record(kPutLease, lease.id, lease.session, lease.device, lease.batch, lease.queue, lease.request, lease.waited);
}
void TrackerStore::EraseLease(uint64_t id) { Record(kEraseLease, id); }

TrackerStore::Changes TrackerStore::Take() {
  // Without the lock, which Write holds while the disk works: only Rewrite changes it, which is not called meanwhile.
  recorded_.epoch_ = epoch_;
  return std::exchange(recorded_, {});
}

absl::Status TrackerStore::WriteAll(const Changes& changes) {
  std::string_view rest = changes.bytes_;
  while (!rest.empty()) {
    Statement& statement = file_->statements[static_cast<size_t>(rest.front())];
    rest.remove_prefix(1);
    for (int parameter = 1; parameter <= statement.parameters(); ++parameter) {
      const char kind = rest.front();
      const uint64_t number = TakeNumber(rest.substr(1));
      rest.remove_prefix(1 + sizeof number);
      if (kind == kInteger) {
        statement.BindInt(parameter, static_cast<int64_t>(number));
        continue;
      }
      statement.BindBorrowed(parameter, rest.substr(0, number), kind == kText);
      rest.remove_prefix(number);
    }
    RETURN_IF_ERROR(statement.Run());
  }
  return absl::OkStatus();
}

absl::Status TrackerStore::InTransaction(const std::function<absl::Status()>& write) {
  SqliteDatabase& db = *file_->db;
  absl::Status status = db.Exec("BEGIN");
  if (status.ok()) status = write();
  if (status.ok()) status = db.Exec("COMMIT");
  if (db.in_transaction()) db.Exec("ROLLBACK").IgnoreError();
  return status;
}

void TrackerStore::Write(const std::vector<Changes>& turns) {
  MutexLock lock(mutex_);
  if (!status().ok()) return;
  SetStatus(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    for (const Changes& turn : turns) {
      if (turn.epoch_ == epoch_) RETURN_IF_ERROR(WriteAll(turn));
    }
    return absl::OkStatus();
  }));
}

void TrackerStore::Tidy() {
  MutexLock lock(mutex_);
  file_->HandToDisk();
  if (!FreePages() && file_->log_pages < kLogPages) return;
  // A failure shows when the log cannot grow either.
  sqlite3_wal_checkpoint_v2(file_->db->handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  file_->log_pages = file_->handed_pages = 0;
}

// As after the end of a large tuner. False when there are few.
bool TrackerStore::FreePages() {
  const absl::StatusOr<int64_t> free = file_->db->QueryInt("PRAGMA freelist_count");
  if (!free.ok() || *free < kFreedPages) return false;
  file_->db->Exec("PRAGMA incremental_vacuum(" + std::to_string(*free) + ")").IgnoreError();
  return true;
}

// A file system that cannot do it makes Tidy slower, nothing else.
void TrackerStore::File::HandToDisk() {
  if (log_pages < handed_pages + kHandedPages) return;
  handed_pages = log_pages;
  if (log_fd < 0) log_fd = open((db->path() + "-wal").c_str(), O_RDONLY | O_CLOEXEC);
  if (log_fd >= 0) sync_file_range(log_fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

absl::Status TrackerStore::status() const {
  MutexLock lock(status_mutex_);
  return status_;
}

void TrackerStore::SetStatus(absl::Status status) {
  MutexLock lock(status_mutex_);
  status_ = std::move(status);
}

absl::Status TrackerStore::Rewrite(const TrackerState& state) {
  recorded_ = {};
  for (const auto& queue : state.queues) PutQueue(queue.id, queue.open);
  for (const auto& request : state.requests) {
    PutRequest(request.queue, request.message, request.submitted);
    if (request.attempts.attempts() > 0) PutAttempts(request.queue, request.message.id(), request.attempts);
  }
  for (const auto& result : state.results) PutResult(result.queue, result.message);
  for (const auto& session : state.sessions) PutSession(session.id, session.message);
  for (const auto& lease : state.leases) PutLease(lease);
  const Changes everything = std::exchange(recorded_, {});
  MutexLock lock(mutex_);
  ++epoch_;
  SetStatus(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    RETURN_IF_ERROR(
        file_->db->Exec("DELETE FROM queues; DELETE FROM requests; DELETE FROM attempts; DELETE FROM results;"
                        " DELETE FROM sessions; DELETE FROM leases"));
    return WriteAll(everything);
  }));
  return status();
}

absl::StatusOr<TrackerState> TrackerStore::Load() {
  MutexLock lock(mutex_);
  TrackerState state;
  absl::Status damaged = absl::DataLossError(std::string(kWhat) + " '" + file_->db->path() +
                                             "' is damaged (a message does not parse); move it away to start with a "
                                             "fresh one");
  // Reads all rows of a query; `row` takes one and says whether it parses.
  auto read = [&](const std::string& sql, auto&& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(Statement statement, file_->db->Prepare(sql));
    while (true) {
      ASSIGN_OR_RETURN(const bool more, statement.Step());
      if (!more) return absl::OkStatus();
      if (!row(statement)) return damaged;
    }
  };
  RETURN_IF_ERROR(read("SELECT id, open FROM queues ORDER BY id", [&](Statement& s) {
    auto& queue = state.queues.emplace_back();
    queue.id = s.Bytes(0);
    return queue.open.ParseFromString(s.Bytes(1));
  }));
  RETURN_IF_ERROR(
      read("SELECT queue, message, submitted, (SELECT message FROM attempts a WHERE a.queue=r.queue AND a.id=r.id)"
           " FROM requests r ORDER BY submitted, id",
           [&](Statement& s) {
             auto& request = state.requests.emplace_back();
             request.queue = s.Bytes(0);
             request.submitted = s.Int(2);
             return request.message.ParseFromString(s.Bytes(1)) && request.attempts.ParseFromString(s.Bytes(3));
           }));
  RETURN_IF_ERROR(read("SELECT queue, message FROM results ORDER BY queue, sequence", [&](Statement& s) {
    auto& result = state.results.emplace_back();
    result.queue = s.Bytes(0);
    return result.message.ParseFromString(s.Bytes(1));
  }));
  RETURN_IF_ERROR(read("SELECT id, message FROM sessions ORDER BY id", [&](Statement& s) {
    auto& session = state.sessions.emplace_back();
    session.id = s.Bytes(0);
    return session.message.ParseFromString(s.Bytes(1));
  }));
  RETURN_IF_ERROR(
      read("SELECT id, session, device, batch, queue, request, waited FROM leases ORDER BY id", [&](Statement& s) {
        state.leases.push_back({static_cast<uint64_t>(s.Int(0)), s.Bytes(1), s.Bytes(2),
                                static_cast<uint64_t>(s.Int(3)), s.Bytes(4), static_cast<uint64_t>(s.Int(5)),
                                s.Int(6)});
        return true;
      }));
  return state;
}

}  // namespace diapason
