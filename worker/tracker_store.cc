#include "worker/tracker_store.h"

#include <array>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

#include "compiler/tensor/check.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

constexpr int64_t kTrackerApplicationId = 0x44707472;  // "Dptr"
constexpr int64_t kTrackerVersion = 1;
constexpr char kWhat[] = "tracker state";
constexpr std::chrono::milliseconds kBusy{3000};

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
  request INTEGER NOT NULL) STRICT;
CREATE INDEX leases_of_session ON leases(session);
)";

enum StatementId : int {
  kPutQueue,
  kEraseQueue,
  kEraseQueueRequests,
  kEraseQueueAttempts,
  kEraseQueueResults,
  kEraseQueueLeases,
  kPutRequest,
  kPutAttempts,
  kEraseRequest,
  kEraseAttempts,
  kPutResult,
  kEraseResults,
  kPutSession,
  kEraseSession,
  kEraseSessionLeases,
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
    "DELETE FROM leases WHERE queue=?",
    "REPLACE INTO requests VALUES(?,?,?,?)",
    "REPLACE INTO attempts VALUES(?,?,?)",
    "DELETE FROM requests WHERE queue=? AND id=?",
    "DELETE FROM attempts WHERE queue=? AND id=?",
    "REPLACE INTO results VALUES(?,?,?)",
    "DELETE FROM results WHERE queue=? AND sequence<=?",
    "REPLACE INTO sessions VALUES(?,?)",
    "DELETE FROM sessions WHERE id=?",
    "DELETE FROM leases WHERE session=?",
    "REPLACE INTO leases VALUES(?,?,?,?,?,?)",
    "DELETE FROM leases WHERE id=?",
};

void Bind(Statement& statement, int parameter, const std::string& value) { statement.BindText(parameter, value); }
void Bind(Statement& statement, int parameter, uint64_t value) {
  statement.BindInt(parameter, static_cast<int64_t>(value));
}
void Bind(Statement& statement, int parameter, int64_t value) { statement.BindInt(parameter, value); }
void Bind(Statement& statement, int parameter, const google::protobuf::MessageLite& value) {
  statement.BindBlob(parameter, value.SerializeAsString());
}

}  // namespace

struct TrackerStore::Statements {
  std::unique_ptr<Database> db;
  std::vector<Statement> all;
};

TrackerStore::TrackerStore() : s_(std::make_unique<Statements>()) {}
TrackerStore::~TrackerStore() { Commit(); }

absl::StatusOr<std::unique_ptr<TrackerStore>> TrackerStore::Open(const std::string& path) {
  std::unique_ptr<TrackerStore> store(new TrackerStore);
  if (absl::Status status = store->Prepare(path); !status.ok()) return status;
  return store;
}

absl::Status TrackerStore::Prepare(const std::string& path) {
  ASSIGN_OR_RETURN(s_->db, Database::Open(path, Database::Access::kCreate, kBusy, kWhat));
  Database& db = *s_->db;
  // One tracker a file: the lock is held as long as it is open.
  RETURN_IF_ERROR(db.Exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"));
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t id, db.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    RETURN_IF_ERROR(db.Exec(std::string(kTables) + "PRAGMA application_id=" + std::to_string(kTrackerApplicationId) +
                            "; PRAGMA user_version=" + std::to_string(kTrackerVersion)));
  } else if (id != kTrackerApplicationId) {
    return absl::FailedPreconditionError("'" + path + "' is not a Diapason tracker state; name another file");
  } else if (version != kTrackerVersion) {
    return absl::FailedPreconditionError("tracker state '" + path + "' is of version " + std::to_string(version) +
                                         " and this program writes version " + std::to_string(kTrackerVersion) +
                                         "; name another file, or run the program that wrote it");
  }
  RETURN_IF_ERROR(transaction.Commit());
  for (const char* sql : kSql) {
    ASSIGN_OR_RETURN(Statement statement, db.Prepare(sql));
    s_->all.push_back(std::move(statement));
  }
  return absl::OkStatus();
}

template <typename... Values>
void TrackerStore::Write(int statement, const Values&... values) {
  if (!status_.ok()) return;
  if (!in_turn_) {
    status_ = s_->db->Exec("BEGIN");
    if (!status_.ok()) return;
    in_turn_ = true;
  }
  int parameter = 0;
  (Bind(s_->all[statement], ++parameter, values), ...);
  status_ = s_->all[statement].Run();
  if (!status_.ok()) Commit();
}

void TrackerStore::PutQueue(const std::string& id, const v1::OpenRequest& open) { Write(kPutQueue, id, open); }
void TrackerStore::EraseQueue(const std::string& id) {
  for (int statement : {kEraseQueue, kEraseQueueRequests, kEraseQueueAttempts, kEraseQueueResults, kEraseQueueLeases})
    Write(statement, id);
}
void TrackerStore::PutRequest(const TrackerState::Request& request) {
  Write(kPutRequest, request.queue, request.message.id(), request.message, request.submitted);
  if (request.attempts.attempts() > 0) PutAttempts(request.queue, request.message.id(), request.attempts);
}
void TrackerStore::PutAttempts(const std::string& queue, uint64_t id, const v1::StoredAttempts& attempts) {
  Write(kPutAttempts, queue, id, attempts);
}
void TrackerStore::EraseRequest(const std::string& queue, uint64_t id) {
  Write(kEraseRequest, queue, id);
  Write(kEraseAttempts, queue, id);
}
void TrackerStore::PutResult(const std::string& queue, const v1::MeasureResult& result) {
  Write(kPutResult, queue, result.sequence(), result);
}
void TrackerStore::EraseResults(const std::string& queue, uint64_t sequence) { Write(kEraseResults, queue, sequence); }
void TrackerStore::PutSession(const std::string& id, const v1::StoredSession& session) {
  Write(kPutSession, id, session);
}
void TrackerStore::EraseSession(const std::string& id) {
  Write(kEraseSession, id);
  Write(kEraseSessionLeases, id);
}
void TrackerStore::PutLease(const TrackerState::Lease& lease) {
  Write(kPutLease, lease.id, lease.session, lease.device, lease.batch, lease.queue, lease.request);
}
void TrackerStore::EraseLease(uint64_t id) { Write(kEraseLease, id); }

void TrackerStore::Commit() {
  if (!in_turn_) return;
  in_turn_ = false;
  absl::Status ended = s_->db->Exec(status_.ok() ? "COMMIT" : "ROLLBACK");
  status_.Update(ended);
  if (!ended.ok() && s_->db->in_transaction()) s_->db->Exec("ROLLBACK").IgnoreError();
}

absl::Status TrackerStore::Rewrite(const TrackerState& state) {
  Commit();
  status_ = s_->db->Exec(
      "BEGIN; DELETE FROM queues; DELETE FROM requests; DELETE FROM attempts; DELETE FROM results;"
      " DELETE FROM sessions; DELETE FROM leases");
  in_turn_ = s_->db->in_transaction();
  for (const auto& queue : state.queues) PutQueue(queue.id, queue.open);
  for (const auto& request : state.requests) PutRequest(request);
  for (const auto& result : state.results) PutResult(result.queue, result.message);
  for (const auto& session : state.sessions) PutSession(session.id, session.message);
  for (const auto& lease : state.leases) PutLease(lease);
  Commit();
  return status_;
}

absl::StatusOr<TrackerState> TrackerStore::Load() {
  TrackerState state;
  absl::Status damaged = absl::DataLossError(std::string(kWhat) + " '" + s_->db->path() +
                                             "' is damaged (a message does not parse); move it away to start with a "
                                             "fresh one");
  // Reads all rows of a query; `row` takes one and says whether it parses.
  auto read = [&](const std::string& sql, auto&& row) -> absl::Status {
    ASSIGN_OR_RETURN(Statement statement, s_->db->Prepare(sql));
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
  RETURN_IF_ERROR(read("SELECT id, session, device, batch, queue, request FROM leases ORDER BY id", [&](Statement& s) {
    state.leases.push_back({static_cast<uint64_t>(s.Int(0)), s.Bytes(1), s.Bytes(2), static_cast<uint64_t>(s.Int(3)),
                            s.Bytes(4), static_cast<uint64_t>(s.Int(5))});
    return true;
  }));
  return state;
}

}  // namespace diapason
