// Which files Open takes, which it refuses, and that it leaves those as they are.
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "db/integrity.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

using OpenTest = HistoryTest;

constexpr HistoryMode kAllModes[] = {HistoryMode::kReadOnly, HistoryMode::kReadWrite, HistoryMode::kCreate};

void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error != nullptr ? error : "");
  sqlite3_free(error);
  sqlite3_close(db);
}

std::string AskSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  std::string answer;
  const auto add = [](void* out, int columns, char** values, char**) {
    for (int i = 0; i < columns; ++i)
      *static_cast<std::string*>(out) += std::string(values[i] ? values[i] : "NULL") + "|";
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), add, &answer, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  return answer;
}

// Runs `body` in a process of its own as a user who is not root, who may write anything; true when it gave true.
bool AsOrdinaryUser(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The tables as version 1 wrote them, with a run, a network, a timed and a failed record. The checksums were computed
// apart from the program, from their description in docs/history.md.
constexpr const char* kVersion1 = R"(
PRAGMA journal_mode=WAL;
PRAGMA application_id=1148220270;
CREATE TABLE workloads(workload_key TEXT PRIMARY KEY NOT NULL, dag BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT;
CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, command_line TEXT NOT NULL,
  seed INTEGER NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL, started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL) STRICT;
CREATE TABLE networks(network TEXT NOT NULL, workload_key TEXT NOT NULL REFERENCES workloads(workload_key),
  task_name TEXT NOT NULL, weight REAL NOT NULL, PRIMARY KEY(network, workload_key)) STRICT;
CREATE TABLE records(id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, run_id INTEGER REFERENCES runs(id),
  workload_key TEXT NOT NULL REFERENCES workloads(workload_key), task_name TEXT NOT NULL, target TEXT NOT NULL,
  device_model TEXT NOT NULL, device_uuid TEXT NOT NULL, view TEXT NOT NULL, sketch TEXT NOT NULL,
  schedule BLOB NOT NULL, decisions TEXT NOT NULL, decision_hash INTEGER NOT NULL, median REAL, samples TEXT,
  number INTEGER, raced_out INTEGER, build_seconds REAL, run_seconds REAL, error_kind TEXT, error_stage TEXT,
  error_text TEXT, predicted REAL, seed INTEGER NOT NULL, trial INTEGER NOT NULL, sm_mhz INTEGER NOT NULL,
  memory_mhz INTEGER NOT NULL, cpu_mhz INTEGER NOT NULL, driver TEXT NOT NULL, compiler TEXT NOT NULL,
  created_at INTEGER NOT NULL, checksum INTEGER NOT NULL,
  CHECK((samples IS NULL) = (median IS NULL) AND (samples IS NULL) <> (error_kind IS NULL))) STRICT;
CREATE INDEX records_by_time ON records(workload_key, device_model, raced_out, median);
CREATE INDEX records_by_run ON records(run_id);
INSERT INTO workloads VALUES('w', x'0102', 589729691727335466);
INSERT INTO runs VALUES(3, '0000000000000000000000000000000a', 'diapason tune', 9, 'box', '0.0.9', 100, 200);
INSERT INTO networks VALUES('net', 'w', 'conv', 2.0);
INSERT INTO records VALUES(7, '00000000000000000000000000000001', 3, 'w', 'conv', 'cpu', 'EPYC', 'uuid', 'direct',
  'tile', x'aabb', '[1,2,3]', -1, 2e-05, '[3e-05,2e-05,1e-05]', 10, 0, 0.5, 0.25, NULL, NULL, NULL, 0.125, 9, 4, 0, 0,
  3000, 'linux', 'gcc 12', 150, -8089059298943513123);
INSERT INTO records VALUES(8, '00000000000000000000000000000002', NULL, 'w', 'conv', 'cpu', 'EPYC', 'uuid', 'direct',
  'tile', x'aabb', '[]', 5, NULL, NULL, NULL, NULL, NULL, NULL, 'compile', 'compile', 'no', NULL, 9, 5, 0, 0, 0,
  'linux', 'gcc 12', 151, -5429878833674523780);
PRAGMA user_version=1;
)";

void ExpectVersion1Content(History& history) {
  const absl::StatusOr<TuningRecord> timed = history.Get(7), failed = history.Get(8);
  ASSERT_TRUE(timed.ok()) << timed.status();
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_TRUE(*timed->timing() == (Timing{{3e-5, 2e-5, 1e-5}, 10, false, 0.5, 0.25}));
  EXPECT_EQ(timed->run_id, 3);
  EXPECT_EQ(timed->workload, "\x01\x02");
  EXPECT_EQ(timed->configuration_hash, ~uint64_t{0});
  EXPECT_EQ(timed->configuration, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(timed->predicted, 0.125);
  EXPECT_EQ(timed->verified, Verified::kUnknown);
  EXPECT_FALSE(timed->max_error.has_value());
  EXPECT_TRUE(*failed->error() == (MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "no"}));
  EXPECT_EQ(history.NetworkTasks("net").value().size(), 1u);
}

TEST_F(OpenTest, MigratesAVersion1FileAndKeepsAllOfIt) {
  RunSql(Path("h.db"), kVersion1);
  {
    auto history = Open(Path("h.db"), HistoryMode::kReadWrite);
    ASSERT_NE(history, nullptr);
    ExpectVersion1Content(*history);
    ASSERT_TRUE(history->SetVerified(7, true, 1e-6, "").ok());
  }
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA user_version"), "5|");
  auto history = Open(Path("h.db"), HistoryMode::kReadOnly);
  EXPECT_EQ(history->Get(7).value().verified, Verified::kOk);
  EXPECT_TRUE(CheckHistory(Path("h.db")).value().ok());
}

// As version 2 wrote them: what its migration made of version 1.
constexpr const char* kVersion2 = R"(
ALTER TABLE records ADD COLUMN verified TEXT NOT NULL DEFAULT 'unknown' CHECK(verified IN ('unknown', 'ok', 'failed'));
ALTER TABLE records ADD COLUMN max_error REAL;
ALTER TABLE records ADD COLUMN verify_text TEXT NOT NULL DEFAULT '';
UPDATE records SET verified = 'ok', max_error = 1e-6 WHERE id = 7;
PRAGMA user_version=2;
)";

TEST_F(OpenTest, MigratesAVersion2FileAndGivesItTheStateOfWrongInNetwork) {
  RunSql(Path("h.db"), std::string(kVersion1) + kVersion2);
  {
    auto history = Open(Path("h.db"), HistoryMode::kReadWrite);
    ASSERT_NE(history, nullptr);
    EXPECT_EQ(history->Get(7).value().verified, Verified::kOk);
    EXPECT_EQ(history->Get(7).value().max_error, 1e-6);
    EXPECT_EQ(history->Get(8).value().verified, Verified::kUnknown);
    ASSERT_TRUE(history->MarkWrongInNetwork(7, 0.5, "output 'y' of net").ok());
    const TuningRecord marked = history->Get(7).value();
    EXPECT_EQ(marked.verified, Verified::kWrongInNetwork);
    EXPECT_EQ(marked.max_error, 0.5);
    EXPECT_EQ(marked.verify_text, "output 'y' of net");
    EXPECT_FALSE(history->BestForBuild("w", "EPYC").value().has_value());
  }
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA user_version"), "5|");
  EXPECT_TRUE(CheckHistory(Path("h.db")).value().ok());
}

// As version 4 wrote them.
constexpr const char* kVersion4 = R"(
CREATE TABLE latencies(
  network TEXT NOT NULL, target TEXT NOT NULL, device_model TEXT NOT NULL, measured REAL NOT NULL, tasks REAL NOT NULL,
  modelled REAL NOT NULL, measured_at INTEGER NOT NULL, PRIMARY KEY(network, target, device_model)) STRICT;
INSERT INTO latencies VALUES('net@1', 'cuda', 'H200', 3e-6, 2e-6, 1e-6, 77);
ALTER TABLE records RENAME COLUMN verified TO verified_of_version_3;
ALTER TABLE records ADD COLUMN verified TEXT NOT NULL DEFAULT 'unknown'
  CHECK(verified IN ('unknown', 'ok', 'failed', 'wrong_in_network'));
UPDATE records SET verified = verified_of_version_3 WHERE verified_of_version_3 <> 'unknown';
ALTER TABLE records DROP COLUMN verified_of_version_3;
PRAGMA user_version=4;
)";

TEST_F(OpenTest, MigratesAVersion4FileAndKeepsItsLatencies) {
  RunSql(Path("h.db"), absl::StrCat(kVersion1, kVersion2, kVersion4));
  {
    auto history = Open(Path("h.db"), HistoryMode::kReadWrite);
    ASSERT_NE(history, nullptr);
    EXPECT_EQ(history->Latency("net@1", "cuda", "H200").value(),
              (NetworkLatency{"net@1", "cuda", "H200", 3e-6, 2e-6, 77}));
    EXPECT_EQ(history->Get(7).value().verified, Verified::kOk);
  }
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA user_version"), "5|");
  EXPECT_TRUE(CheckHistory(Path("h.db")).value().ok());
}

TEST_F(OpenTest, AMigratedFileHasTheTablesOfANewOne) {
  RunSql(Path("old.db"), kVersion1);
  RunSql(Path("second.db"), std::string(kVersion1) + kVersion2);
  Open(Path("old.db"));
  RunSql(Path("fourth.db"), absl::StrCat(kVersion1, kVersion2, kVersion4));
  Open(Path("second.db"));
  Open(Path("fourth.db"));
  Open(Path("new.db"));
  const std::string columns =
      "SELECT m.name, c.name, c.type, c.\"notnull\", c.dflt_value FROM sqlite_schema m, "
      "pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid";
  EXPECT_EQ(AskSql(Path("old.db"), columns), AskSql(Path("new.db"), columns));
  EXPECT_EQ(AskSql(Path("second.db"), columns), AskSql(Path("new.db"), columns));
  EXPECT_EQ(AskSql(Path("fourth.db"), columns), AskSql(Path("new.db"), columns));
}

TEST_F(OpenTest, ReadingAVersion1FileLeavesItAsItIs) {
  RunSql(Path("h.db"), kVersion1);
  const std::string before = ReadFile(Path("h.db"));
  {
    auto history = Open(Path("h.db"), HistoryMode::kReadOnly);
    ASSERT_NE(history, nullptr);
    ExpectVersion1Content(*history);
    EXPECT_EQ(history->Append({TimedRecord()}).status().code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(ReadFile(Path("h.db")), before);
}

TEST_F(OpenTest, AMigrationThatFailsLeavesVersion1) {
  RunSql(Path("h.db"), std::string(kVersion1) +
                           "ALTER TABLE records ADD COLUMN verify_text TEXT;");  // the migration will stumble on it
  absl::Status status = History::Open(Path("h.db"), HistoryMode::kReadWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA user_version"), "1|");
  EXPECT_EQ(AskSql(Path("h.db"), "SELECT COUNT(*) FROM pragma_table_info('records') WHERE name = 'verified'"), "0|");
}

TEST_F(OpenTest, ANewFileIsDurableAndOurs) {
  auto history = Open(Path("h.db"));
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA application_id"), "1148220270|");
  EXPECT_EQ(AskSql(Path("h.db"), "PRAGMA journal_mode"), "wal|");
  history.reset();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
  EXPECT_EQ(names, std::vector<std::string>{"h.db"});
}

TEST_F(OpenTest, TakesAnyNameAsAFile) {
  for (const std::string name : {"a b?c#d%20.db", ":memory:", "file:x.db", "\xc3\xa9\xff.db"}) {
    { ASSERT_TRUE(Open(Path(name))->Append({TimedRecord()}).ok()); }
    EXPECT_TRUE(std::filesystem::exists(Path(name))) << name;
    EXPECT_EQ(Open(Path(name), HistoryMode::kReadWrite)->Info().value().records, 1) << name;
  }
}

TEST_F(OpenTest, RefusesAPathWithoutAFile) {
  const std::string path = Path("missing.db");
  for (HistoryMode mode : {HistoryMode::kReadOnly, HistoryMode::kReadWrite}) {
    EXPECT_EQ(History::Open(path, mode).status(),
              absl::NotFoundError("history '" + path +
                                  "' does not exist; name a file that 'diapason tune --history' has written"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(History::Open(Path("no/h.db"), HistoryMode::kCreate).status(),
            absl::NotFoundError("the folder of history '" + Path("no/h.db") +
                                "' does not exist; create it or name another file"));
  EXPECT_EQ(History::Open("", HistoryMode::kCreate).status(),
            absl::InvalidArgumentError("the path of the history is empty; name a file"));
  EXPECT_EQ(History::Open(folder_, HistoryMode::kCreate).status(),
            absl::FailedPreconditionError("'" + folder_ + "' is a folder and no history; name a file in it"));
  EXPECT_EQ(History::Open("/dev/null", HistoryMode::kCreate).status(),
            absl::FailedPreconditionError("'/dev/null' is no regular file; name another file"));
}

TEST_F(OpenTest, RefusesWhatIsNoHistoryAndLeavesIt) {
  const std::string not_ours =
      "' is not a Diapason history (it is an SQLite database of another program); name another file";
  struct Case {
    std::string name, sql, bytes, message;
  };
  const std::vector<Case> cases = {
      {"empty", "", "", "' is an empty file and no Diapason history; remove it or name another file"},
      {"text", "", std::string(5000, 'x'), "' is not a Diapason history (it is no SQLite database); name another file"},
      {"short", "", "tiny", "' is not a Diapason history (it is no SQLite database); name another file"},
      {"other", "CREATE TABLE t(x);", "", not_ours},
      {"other-wal", "PRAGMA journal_mode=WAL; CREATE TABLE records(x);", "", not_ours},
      {"other-id", "PRAGMA application_id=7; CREATE TABLE t(x);", "", not_ours},
  };
  for (const Case& c : cases) {
    const std::string path = Path(c.name);
    if (c.sql.empty()) WriteFile(path, c.bytes);
    if (!c.sql.empty()) RunSql(path, c.sql);
    const std::string before = ReadFile(path);
    for (HistoryMode mode : kAllModes)
      EXPECT_EQ(History::Open(path, mode).status(), absl::FailedPreconditionError("'" + path + c.message));
    EXPECT_EQ(CheckHistory(path).status(), absl::FailedPreconditionError("'" + path + c.message));
    EXPECT_EQ(ReadFile(path), before) << c.name;
    EXPECT_FALSE(std::filesystem::exists(path + "-wal")) << c.name;
  }
}

TEST_F(OpenTest, RefusesANewerVersionAndLeavesIt) {
  const std::string path = Path("h.db");
  { ASSERT_TRUE(Open(path)->Append({TimedRecord()}).ok()); }
  RunSql(path, "PRAGMA user_version=6");
  const std::string before = ReadFile(path);
  for (HistoryMode mode : kAllModes) {
    EXPECT_EQ(History::Open(path, mode).status(),
              absl::FailedPreconditionError("history '" + path +
                                            "' has schema version 6, newer than this program's 5; use "
                                            "a newer diapason, or name another file"));
  }
  EXPECT_EQ(ReadFile(path), before);
}

TEST_F(OpenTest, RefusesAHistoryWithoutItsTables) {
  const std::string path = Path("h.db");
  { Open(path); }
  RunSql(path, "DROP TABLE records");
  EXPECT_EQ(History::Open(path, HistoryMode::kReadWrite).status(),
            absl::DataLossError("history '" + path +
                                "' is damaged (no such table: records); restore a copy of it, or save "
                                "what can still be read with 'diapason history export --skip-damaged " +
                                path + "' and import that into a new file"));
}

TEST_F(OpenTest, RefusesALogThatLostItsHistory) {
  const std::string path = Path("h.db");
  WriteFile(path + "-wal", "frames");
  EXPECT_EQ(History::Open(path, HistoryMode::kCreate).status(),
            absl::FailedPreconditionError("history '" + path + "' is gone but its log '" + path +
                                          "-wal' is there; put the history back or remove the log"));
}

TEST_F(OpenTest, RefusesToWriteAFileThatMayNotBeWritten) {
  const std::string path = Path("h.db");
  { ASSERT_TRUE(Open(path)->Append({TimedRecord()}).ok()); }
  chmod(path.c_str(), 0444);
  const std::string expected = "history '" + path +
                               "' cannot be written; give yourself write permission for the file and "
                               "its folder, or name another file";
  EXPECT_TRUE(AsOrdinaryUser([&] {
    const absl::Status status = History::Open(path, HistoryMode::kReadWrite).status();
    if (status != absl::PermissionDeniedError(expected))
      return std::fprintf(stderr, "%s\n", status.ToString().c_str()), false;
    auto reader = History::Open(path, HistoryMode::kReadOnly);
    return reader.ok() && (*reader)->Info().value().records == 1;
  }));
}

TEST_F(OpenTest, ReadsButDoesNotWriteInAFolderThatMayNotBeWritten) {
  const std::string path = Path("h.db");
  { ASSERT_TRUE(Open(path)->Append({TimedRecord()}).ok()); }
  chmod(path.c_str(), 0666);
  chmod(folder_.c_str(), 0555);
  EXPECT_TRUE(AsOrdinaryUser([&] {
    auto reader = History::Open(path, HistoryMode::kReadOnly);
    if (!reader.ok()) return std::fprintf(stderr, "%s\n", reader.status().ToString().c_str()), false;
    if ((*reader)->Best("conv2d-1a2b", "NVIDIA H200").value()->id != 1) return false;
    const absl::Status status = History::Open(path, HistoryMode::kReadWrite).status();
    const absl::Status fresh = History::Open(path + "2", HistoryMode::kCreate).status();
    return absl::IsPermissionDenied(status) &&
           std::string(status.message()).find(path + "' cannot be written") != std::string::npos &&
           fresh == absl::PermissionDeniedError("history '" + path +
                                                "2' cannot be created (Permission denied); give "
                                                "yourself write permission for its folder, or name another file");
  }));
}

TEST_F(OpenTest, GivesUpOnALockAfterItsTime) {
  const std::string path = Path("h.db");
  HistoryOptions options = Options();
  options.busy_timeout = std::chrono::milliseconds(200);
  auto history = History::Open(path, HistoryMode::kCreate, options).value();
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(history->Append({TimedRecord()}).status(),
            absl::UnavailableError("history '" + path +
                                   "' was locked by another process for 0.2 s; wait for that process "
                                   "or stop it, then try again"));
  EXPECT_EQ(history->Info().value().records, 0);  // reading goes on meanwhile
  ASSERT_EQ(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_TRUE(history->Append({TimedRecord()}).ok());
  sqlite3_close(other);
}

// In a child, since the limit holds for the whole process.
TEST_F(OpenTest, AFullDiskLosesNothingThatWasReported) {
  const std::string path = Path("h.db");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto history = History::Open(path, HistoryMode::kCreate, Options()).value();
    const rlimit limit{400 << 10, 400 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    int64_t reported = 0;
    absl::StatusOr<std::vector<int64_t>> ids;
    while (reported < 100000 && (ids = history->Append({TimedRecord(), TimedRecord()})).ok()) reported = ids->back();
    const bool refused =
        ids.status() ==
        absl::ResourceExhaustedError("there is no room to write history '" + path +
                                     "'; free space on its disk and try again: everything reported before is kept");
    if (!refused) std::fprintf(stderr, "%s\n", ids.status().ToString().c_str());
    // Full also for a second try and for a new file.
    const bool again = absl::IsResourceExhausted(history->Append({TimedRecord()}).status());
    const rlimit tiny{4 << 10, 4 << 10};
    setrlimit(RLIMIT_FSIZE, &tiny);
    const absl::Status fresh = History::Open(path + "2", HistoryMode::kCreate, Options()).status();
    WriteFile(path + ".count", std::to_string(reported));
    _exit(refused && again && absl::IsResourceExhausted(fresh) && reported > 10 && history->Get(reported).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(std::filesystem::exists(path + "2"));
  auto history = Open(path, HistoryMode::kReadWrite);
  ASSERT_NE(history, nullptr);
  EXPECT_EQ(history->Info().value().records, std::stoll(ReadFile(path + ".count")));
  EXPECT_TRUE(CheckHistory(path).value().ok());
  EXPECT_TRUE(history->Append({TimedRecord()}).ok());
}

}  // namespace
}  // namespace diapason
