// What is PostgreSQL's own: names without passwords, refusals, writers on many connections, connections that are lost.
#include "db/postgres.h"

#include <sys/wait.h>

#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "db/copy.h"
#include "db/history_name.h"
#include "db/integrity.h"
#include "db/json_lines.h"
#include "db/prune.h"
#include "db/service_tables.h"
#include "db/trials.h"
#include "tests/db/postgres_server.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

class PostgresTest : public ::testing::Test {
 protected:
  PostgresTest() : uri_(PostgresServer::Get().Uri(absl::StrCat("p", getpid(), "_", ++tests_))) {}
  // Of the folder with the socket, which names the server.
  std::string Uri(const std::string& user, const std::string& database) {
    return absl::StrCat("postgresql://", user, "@/", database, "?host=", PostgresServer::Get().folder());
  }
  static absl::Status Opened(const std::string& uri, HistoryMode mode = HistoryMode::kReadOnly) {
    return History::Open(uri, mode).status();
  }
  static void KillConnections() {
    PostgresServer::Get().Execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'diapason'");
  }

  const std::string uri_;
  static inline int tests_ = 0;
};

TEST_F(PostgresTest, NamesHaveNoPassword) {
  EXPECT_EQ(PostgresName("postgresql://me:secret@db.example:5433/diapason?sslmode=require"),
            "postgresql://me@db.example:5433/diapason?sslmode=require");
  EXPECT_EQ(PostgresName("postgres:///diapason?host=/run/pg&password=secret&user=me"),
            "postgresql://me@/diapason?host=/run/pg");
  EXPECT_EQ(PostgresName("postgresql://h/d"), "postgresql://h/d");
  // Characters that a password has to escape: no piece of it is shown.
  for (const char* uri : {"postgresql://me:sec/ret@h/d", "postgresql://me:sec?ret@h/d", "postgresql://me:sec%ret@h/d",
                          "postgresql://me:sec@ret@h/d"}) {
    EXPECT_FALSE(absl::StrContains(PostgresName(uri), "sec")) << PostgresName(uri);
    const std::string message(Opened(uri).message());
    EXPECT_FALSE(absl::StrContains(message, "sec")) << message;
  }
}

TEST_F(PostgresTest, EachRefusalIsOneSentence) {
  EXPECT_EQ(Opened("postgresql://h:5432/d?no=1"),
            absl::InvalidArgumentError("the URI of history 'postgresql://...' cannot be read; write "
                                       "postgresql://USER@HOST:PORT/DATABASE, with special characters as %XX"));
  EXPECT_EQ(Opened("postgresql://me@/d?host=/nowhere"),
            absl::UnavailableError("history 'postgresql://me@/d?host=/nowhere' cannot be reached (connection to server "
                                   "on socket \"/nowhere/.s.PGSQL.5432\" failed: No such file or directory Is the "
                                   "server running locally and accepting connections on that socket?); start the "
                                   "server, or correct the URI"));
  const absl::Status no_database = Opened(Uri("diapason", "none"));
  EXPECT_TRUE(absl::IsNotFound(no_database)) << no_database;
  EXPECT_TRUE(absl::StrContains(no_database.message(), "database \"none\" does not exist); make the database"));
  const absl::Status wrong = Opened(Uri("guarded:wrong", "postgres"));
  EXPECT_TRUE(absl::IsPermissionDenied(wrong)) << wrong;
  EXPECT_TRUE(absl::StrContains(wrong.message(), "password authentication failed for user \"guarded\"")) << wrong;
  EXPECT_FALSE(absl::StrContains(wrong.message(), "wrong")) << wrong;
  EXPECT_EQ(Opened(uri_),
            absl::NotFoundError(absl::StrCat("history '", uri_,
                                             "' does not exist (the database has no tables yet); name one that "
                                             "'diapason tune --history' has written")));
  const std::string foreign = PostgresServer::Get().Uri("foreign_tables");
  PostgresServer::Get().Execute("CREATE TABLE foreign_tables.theirs(x INT)");
  for (HistoryMode mode : {HistoryMode::kReadOnly, HistoryMode::kCreate}) {
    EXPECT_EQ(Opened(foreign, mode),
              absl::FailedPreconditionError(absl::StrCat("'", foreign,
                                                         "' is not a Diapason history (schema 'foreign_tables' has "
                                                         "tables of another program); name another database")));
  }
}

TEST_F(PostgresTest, ARoleThatMayOnlyReadReads) {
  const std::string schema = "read_only", uri = PostgresServer::Get().Uri(schema);
  auto history = History::Open(uri, HistoryMode::kCreate).value();
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  PostgresServer::Get().Execute("GRANT SELECT ON ALL TABLES IN SCHEMA read_only TO reader");
  const std::string reader = PostgresServer::Get().Uri(schema, "reader");
  EXPECT_EQ(History::Open(reader, HistoryMode::kReadOnly).value()->Info().value().records, 1);
  EXPECT_EQ(Opened(reader, HistoryMode::kReadWrite),
            absl::PermissionDeniedError(absl::StrCat("history '", reader,
                                                     "' cannot be written; grant its role INSERT, UPDATE and DELETE "
                                                     "on its tables, or name another history")));
  // As of a file, a history that was opened for reading is not written.
  const absl::Status written = History::Open(uri, HistoryMode::kReadOnly).value()->Append({TimedRecord()}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(written)) << written;
}

TEST_F(PostgresTest, ANewerVersionIsRefused) {
  const std::string uri = PostgresServer::Get().Uri("newer");
  ASSERT_TRUE(Opened(uri, HistoryMode::kCreate).ok());
  PostgresServer::Get().Execute("UPDATE newer.diapason_history SET version = 6");
  EXPECT_EQ(Opened(uri), absl::FailedPreconditionError(
                             absl::StrCat("history '", uri,
                                          "' has schema version 6, newer than this program's 5; use a newer diapason, "
                                          "or name another file")));
}

// Exit status of a process.
int WriteBatches(const std::string& uri, int writer) {
  absl::StatusOr<std::unique_ptr<History>> history = History::Open(uri, HistoryMode::kCreate);
  if (!history.ok()) return std::fprintf(stderr, "%s\n", history.status().ToString().c_str()), 1;
  for (int i = 0; i < 4; ++i) {
    TuningRecord record = TimedRecord(absl::StrCat("w", writer));
    record.trial = i;
    const absl::Status stored = (*history)->Append({record, record}).status();
    if (!stored.ok()) return std::fprintf(stderr, "%s\n", stored.ToString().c_str()), 1;
  }
  return 0;
}

TEST_F(PostgresTest, FiftyProcessesMakeAndFillOneHistoryWhileAReaderFollows) {
  constexpr int kProcesses = 50;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kProcesses; ++writer) {
    const pid_t child = fork();
    if (child == 0) _exit(WriteBatches(uri_, writer));
    children.push_back(child);
  }
  auto history = History::Open(uri_, HistoryMode::kCreate).value();
  // One that asks for what is above the last it saw misses none.
  std::set<int64_t> followed;
  const auto follow = [&] {
    const std::vector<TrialRow> trials =
        TrialLog(*history).Trials(followed.empty() ? 0 : *followed.rbegin(), 1000).value();
    for (const TrialRow& trial : trials) EXPECT_TRUE(followed.insert(trial.id).second);
  };
  size_t ended = 0;
  while (ended < children.size()) {
    follow();
    int status = 0;
    for (pid_t& child : children) {
      if (child == 0 || waitpid(child, &status, WNOHANG) == 0) continue;
      EXPECT_EQ(status, 0);
      child = 0;
      ++ended;
    }
  }
  follow();
  EXPECT_EQ(followed.size(), kProcesses * 4u * 2u);
  EXPECT_EQ(history->Info().value().records, kProcesses * 4 * 2);
  std::set<std::string> uuids;
  for (int writer = 0; writer < kProcesses; ++writer) {
    const std::vector<TuningRecord> records = history->ForWorkload(absl::StrCat("w", writer), "NVIDIA H200").value();
    for (const TuningRecord& record : records) uuids.insert(record.uuid);
  }
  EXPECT_EQ(uuids.size(), kProcesses * 4u * 2u);
  EXPECT_TRUE(CheckHistory(uri_).value().ok());
}

TEST_F(PostgresTest, ConnectionsThatAreKilledLoseAndDoubleNothing) {
  constexpr int kBatches = 60;
  auto history = History::Open(uri_, HistoryMode::kCreate).value();
  std::atomic<bool> done{false};
  std::thread killer([&] {
    while (!done) {
      KillConnections();
      usleep(7000);
    }
  });
  std::vector<int64_t> ids;
  for (int i = 0; i < kBatches; ++i) {
    absl::StatusOr<std::vector<int64_t>> stored = history->Append({TimedRecord(), TimedRecord(), TimedRecord()});
    // Unlucky more often than it tries again: the caller learns of it, and nothing more than the batch is open.
    if (stored.ok()) {
      ids.insert(ids.end(), stored->begin(), stored->end());
    } else {
      EXPECT_TRUE(absl::IsUnavailable(stored.status())) << stored.status();
    }
  }
  done = true;
  killer.join();
  EXPECT_GT(ids.size(), 0u);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), ids.size());
  std::set<std::string> uuids;
  const std::vector<TuningRecord> records = history->ForWorkload(TimedRecord().workload_key, "NVIDIA H200").value();
  for (const TuningRecord& record : records) EXPECT_TRUE(uuids.insert(record.uuid).second);
  for (int64_t id : ids) EXPECT_TRUE(history->Get(id).ok()) << id;
  EXPECT_EQ(uuids.size() % 3, 0u);  // whole batches
}

TEST_F(PostgresTest, AConnectionThatIsGoneIsMadeAgain) {
  auto history = History::Open(uri_, HistoryMode::kCreate).value();
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  KillConnections();
  EXPECT_EQ(history->Info().value().records, 1);
  KillConnections();
  EXPECT_TRUE(TrialLog(*history).ChangeCounter().ok());
}

TEST_F(PostgresTest, PruningInPlaceKeepsTheBest) {
  auto history = History::Open(uri_, HistoryMode::kCreate).value();
  ASSERT_TRUE(history->Append({TimedRecord("w", 2), TimedRecord("w", 1), TimedRecord("v", 1), FailedRecord()}).ok());
  const PruneReport report = PruneHistory(*history, 1).value();
  EXPECT_EQ(report.kept, 2);
  EXPECT_EQ(report.dropped, 2);
  EXPECT_GT(report.bytes_after, 0);
  EXPECT_EQ(history->Append({TimedRecord()}).value()[0], 5);  // ids are not used again
  EXPECT_TRUE(absl::IsFailedPrecondition(PruneHistory(*history, 1, "/tmp/never").status()));
}

// Models of a service may be many times as large.
TEST_F(PostgresTest, TheSizeIsThatOfTheHistoryAlone) {
  auto history = History::Open(uri_, HistoryMode::kCreate).value();
  const int64_t bytes = history->Info().value().bytes;
  const auto service = OpenServiceTables(uri_, PostgresOptions()).value();
  ASSERT_TRUE(
      service->Exec("INSERT INTO service_chunks VALUES('c', 0, convert_to(repeat('x', 1000000), 'UTF8'))").ok());
  EXPECT_EQ(history->Info().value().bytes, bytes);
}

std::string Exported(History& history) {
  std::ostringstream out;
  EXPECT_TRUE(ExportJson(history, out).ok());
  return out.str();
}

TEST_F(PostgresTest, CopiesInBothDirectionsLoseNothing) {
  const std::string path = absl::StrCat(PostgresServer::Get().folder(), "/copy", getpid(), ".db");
  auto file = History::Open(path, HistoryMode::kCreate).value();
  TuningRecord first = TimedRecord("a", 1.0 / 3), second = FailedRecord();
  first.run_id = file->StartRun({.command_line = "tune \xc3\xa9", .seed = ~uint64_t{0}}).value();
  second.outcome = MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "\"\\ \n\t\x01 \xff"};
  std::vector<TuningRecord> records(1500, TimedRecord("b"));  // more than are read at once
  records.push_back(first);
  records.push_back(second);
  const std::vector<int64_t> ids = file->Append(records).value();
  ASSERT_TRUE(file->SetVerified(ids[0], false, NAN, "NaN").ok());
  ASSERT_TRUE(file->LinkNetwork({{"n", "a", "x", "conv", 2.5}, {"n", "unmeasured", "dag", "dense", 1}}).ok());
  ASSERT_TRUE(file->SetLatency({"n", "cpu", "Xeon", 0.1, 1.0 / 3, 7}).ok());

  auto server = History::Open(uri_, HistoryMode::kCreate).value();
  CopyReport report = CopyHistory(*file, *server).value();
  EXPECT_EQ(report.records.added, 1502);
  EXPECT_EQ(report.latencies, 1);
  auto back = History::Open(path + "2", HistoryMode::kCreate).value();
  EXPECT_EQ(CopyHistory(*server, *back).value().records.added, 1502);
  const std::string lines = Exported(*file);
  EXPECT_TRUE(Exported(*server) == lines);
  EXPECT_TRUE(Exported(*back) == lines);
  EXPECT_EQ(TrialLog(*back).Latencies().value(), TrialLog(*file).Latencies().value());
  report = CopyHistory(*back, *server).value();  // again: nothing is doubled
  EXPECT_EQ(report.records.added, 0);
  EXPECT_EQ(report.records.known, 1502);
  EXPECT_EQ(report.latencies, 0);
  EXPECT_EQ(server->Info().value().records, 1502);
}

TEST_F(PostgresTest, FilesThatGoWithItLieInTheStateFolderByANameWithoutThePassword) {
  setenv("XDG_STATE_HOME", absl::StrCat(PostgresServer::Get().folder(), "/state").c_str(), 1);
  const std::string rounds = StatePath("postgresql://me:secret@h/d", ".rounds");
  EXPECT_EQ(rounds.rfind(PostgresServer::Get().folder() + "/state/diapason/", 0), 0u) << rounds;
  EXPECT_TRUE(rounds.ends_with("/history.rounds"));
  EXPECT_EQ(StatePath("postgresql://me:other@h/d", ".rounds"), rounds);
  EXPECT_NE(StatePath("postgresql://me@h/d2", ".rounds"), rounds);
  EXPECT_EQ(StatePath("h.db", ".rounds"), "h.db.rounds");
  unsetenv("XDG_STATE_HOME");
}

}  // namespace
}  // namespace diapason
