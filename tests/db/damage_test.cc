// Files that were changed, cut or half written: refused or reported, never a crash, never a wrong record.
#include <sqlite3.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "db/integrity.h"
#include "db/json_lines.h"
#include "gmock/gmock.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

class DamageTest : public HistoryTest {
 protected:
  void SetUp() override {
    auto history = Open(Path("good.db"));
    std::vector<TuningRecord> records;
    for (int i = 0; i < 40; ++i) {
      records.push_back(i % 5 == 4 ? FailedRecord(ErrorKind::kCompile, "w") : TimedRecord("w", 1e-6 * (i + 1)));
      records.back().schedule = std::string(static_cast<size_t>(100 + 150 * (i % 7)), static_cast<char>('a' + i % 26));
      records.back().run_id = i == 0 ? history->StartRun({.command_line = "tune"}).value() : 1;
    }
    ASSERT_TRUE(history->Append(records).ok());
    ASSERT_TRUE(history->LinkNetwork({{"net", "w", "dag", "t", 1}}).ok());
    const std::vector<TuningRecord> stored = history->ForWorkload("w", "NVIDIA H200").value();
    for (const TuningRecord& record : stored) originals_[record.uuid] = record;
    history.reset();
    bytes_ = ReadFile(Path("good.db"));
  }

  // Whatever is given out is what was stored, apart from the verification and the links, which no checksum covers.
  void ExpectStored(const TuningRecord& record) {
    const auto original = originals_.find(record.uuid);
    ASSERT_NE(original, originals_.end());
    TuningRecord read = record;
    read.verified = original->second.verified;
    read.max_error = original->second.max_error;
    read.verify_text = original->second.verify_text;
    ExpectSameContent(read, original->second);
    EXPECT_EQ(read.workload, original->second.workload);
  }

  // Reads the file in every way; true when any of them found damage.
  bool ReadEverything(const std::string& path) {
    bool found = false;
    absl::StatusOr<CheckReport> check = CheckHistory(path);
    found |= !check.ok() || !check->ok();
    for (bool allow_damage : {false, true}) {
      HistoryOptions options = Options();
      options.allow_damage = allow_damage;
      options.busy_timeout = std::chrono::milliseconds(100);
      absl::StatusOr<std::unique_ptr<History>> history = History::Open(path, HistoryMode::kReadOnly, options);
      found |= !history.ok();
      if (!history.ok()) {
        EXPECT_NE(history.status().message().find(path), absl::string_view::npos) << history.status();
        continue;
      }
      absl::StatusOr<std::vector<TuningRecord>> all = (*history)->ForWorkload("w", "NVIDIA H200");
      found |= !all.ok() || all->size() != originals_.size();
      if (all.ok())
        for (const TuningRecord& record : *all) ExpectStored(record);
      absl::StatusOr<std::optional<TuningRecord>> best = (*history)->BestForBuild("w", "NVIDIA H200");
      if (best.ok() && best->has_value()) ExpectStored(**best);
      (void)(*history)->Info();
      (void)(*history)->TopK({}, 3);
      (void)(*history)->NetworkTasks();
      std::ostringstream lines;
      absl::StatusOr<ExportReport> saved = ExportJson(**history, lines, {.filter = {}, .skip_damaged = true});
      if (saved.ok()) {
        std::istringstream in(lines.str());
        auto copy = Open(Path("saved.db"));
        EXPECT_TRUE(ImportJson(*copy, in, "lines").ok());
        copy.reset();
        std::filesystem::remove(Path("saved.db"));
      }
    }
    return found;
  }

  std::map<std::string, TuningRecord> originals_;
  std::string bytes_;
};

TEST_F(DamageTest, AnUndamagedFileHasNoProblems) {
  const CheckReport report = CheckHistory(Path("good.db")).value();
  EXPECT_TRUE(report.ok()) << report.problems[0];
  EXPECT_EQ(report.records, 40);
  EXPECT_FALSE(ReadEverything(Path("good.db")));
}

TEST_F(DamageTest, FlippedBytesNeverGiveAWrongRecord) {
  int found = 0, tried = 0;
  for (size_t at = 0; at < bytes_.size(); at += at < 300 ? 7 : 691) {
    std::string bad = bytes_;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    WriteFile(Path("bad.db"), bad);
    SCOPED_TRACE(absl::StrCat("byte ", at));
    found += ReadEverything(Path("bad.db"));
    ++tried;
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(Path("bad.db") + suffix);
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(found, tried / 4);  // the rest is room that nothing uses, and fields that are no part of a record
}

TEST_F(DamageTest, AFlippedByteOfARecordIsAlwaysFound) {
  for (const std::string part : {"NVIDIA H200", "aaaaaaaaaa", "[4,-1,2147483647", "550.54", "dag of w"}) {
    size_t at = bytes_.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    for (size_t i = 0; i < part.size(); ++i, ++at) {
      std::string bad = bytes_;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      WriteFile(Path("bad.db"), bad);
      const CheckReport report = CheckHistory(Path("bad.db")).value();
      EXPECT_FALSE(report.ok()) << part << " at " << i;
    }
  }
}

TEST_F(DamageTest, WipedPagesLoseOnlyTheirRecords) {
  int64_t saved_least = 40;
  for (size_t page = 1; page < bytes_.size() / 4096; ++page) {
    std::string bad = bytes_;
    bad.replace(page * 4096, 4096, std::string(4096, '\0'));
    WriteFile(Path("bad.db"), bad);
    SCOPED_TRACE(absl::StrCat("page ", page));
    ReadEverything(Path("bad.db"));
    HistoryOptions options = Options();
    options.allow_damage = true;
    absl::StatusOr<std::unique_ptr<History>> history = History::Open(Path("bad.db"), HistoryMode::kReadOnly, options);
    if (!history.ok()) continue;
    std::ostringstream lines;
    absl::StatusOr<ExportReport> saved = ExportJson(**history, lines, {.filter = {}, .skip_damaged = true});
    if (!saved.ok()) continue;
    if (saved->records < 40) {
      EXPECT_FALSE(saved->damaged.empty());
    }
    if (saved->records > 0) saved_least = std::min(saved_least, saved->records);
  }
  EXPECT_GT(saved_least, 25);  // a page of four kilobytes holds a handful
  EXPECT_LT(saved_least, 40);
}

TEST_F(DamageTest, CutAtManyPlacesItIsRefusedAndLeft) {
  for (size_t size = 0; size < bytes_.size(); size += size < 1024 ? 31 : 1021) {
    const std::string bad = bytes_.substr(0, size);
    WriteFile(Path("bad.db"), bad);
    SCOPED_TRACE(absl::StrCat(size, " bytes"));
    EXPECT_TRUE(ReadEverything(Path("bad.db")));
    for (HistoryMode mode : {HistoryMode::kReadWrite, HistoryMode::kCreate}) {
      const absl::Status status = History::Open(Path("bad.db"), mode, Options()).status();
      EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) << status;
    }
    EXPECT_EQ(ReadFile(Path("bad.db")), bad);
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(Path("bad.db") + suffix);
  }
}

TEST_F(DamageTest, WhatIsInFrontOfACutIsSaved) {
  HistoryOptions options = Options();
  options.allow_damage = true;
  int64_t most = 0;
  int refused = 0;
  const std::string nothing =
      "history '" + Path("bad.db") + "' is damaged (none of its records can be read); restore a copy of it";
  for (size_t size = 4096; size < bytes_.size(); size += 4096) {
    WriteFile(Path("bad.db"), bytes_.substr(0, size));
    SCOPED_TRACE(absl::StrCat(size, " bytes"));
    absl::StatusOr<std::unique_ptr<History>> history = History::Open(Path("bad.db"), HistoryMode::kReadOnly, options);
    ASSERT_TRUE(history.ok()) << history.status();
    std::ostringstream lines;
    const absl::StatusOr<ExportReport> saved = ExportJson(**history, lines, {.filter = {}, .skip_damaged = true});
    (void)(*history)->Scan({.filter = {}, .skip_damaged = true}, [&](const TuningRecord& record) {
      ExpectStored(record);
      return absl::OkStatus();
    });
    history->reset();
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(Path("bad.db") + suffix);
    if (!saved.ok()) {
      EXPECT_EQ(saved.status(), absl::DataLossError(nothing));
      ++refused;
      continue;
    }
    EXPECT_FALSE(saved->damaged.empty());
    EXPECT_GE(saved->records, most);
    most = saved->records;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(most, 30);
}

TEST_F(DamageTest, WhatSavesARestDoesNotAdviseToSaveIt) {
  WriteFile(Path("bad.db"), bytes_.substr(0, 1000));  // the first page holds the tables' names
  HistoryOptions options = Options();
  EXPECT_THAT(std::string(History::Open(Path("bad.db"), HistoryMode::kReadOnly, options).status().message()),
              ::testing::HasSubstr("save what can still be read"));
  options.allow_damage = true;
  EXPECT_EQ(History::Open(Path("bad.db"), HistoryMode::kReadOnly, options).status(),
            absl::DataLossError("history '" + Path("bad.db") +
                                "' is damaged (no such table: workloads); restore a copy of it"));
}

// A power cut can leave any part of the log that was not reported yet.
TEST_F(DamageTest, ACutLogGivesBackWholeBatches) {
  {
    auto history = Open(Path("live.db"));
    for (int batch = 0; batch < 6; ++batch)
      ASSERT_TRUE(history->Append({TimedRecord("w", 1e-6), TimedRecord("w", 2e-6)}).ok());
    std::filesystem::copy_file(Path("live.db"), Path("snap.db"));
    std::filesystem::copy_file(Path("live.db-wal"), Path("snap.db-wal"));
  }
  const std::string file = ReadFile(Path("snap.db")), log = ReadFile(Path("snap.db-wal"));
  int64_t most = 0;
  for (size_t size = 0; size <= log.size(); size += 515) {
    WriteFile(Path("bad.db"), file);
    WriteFile(Path("bad.db-wal"), log.substr(0, size));
    auto history = Open(Path("bad.db"), HistoryMode::kReadWrite);
    ASSERT_NE(history, nullptr) << size;
    const int64_t records = history->Info().value().records;
    EXPECT_EQ(records % 2, 0) << size;
    EXPECT_GE(records, most) << size;
    most = records;
    EXPECT_TRUE(history->Append({TimedRecord()}).ok());
    history.reset();
    EXPECT_TRUE(CheckHistory(Path("bad.db")).value().ok()) << size;
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(Path("bad.db") + suffix);
  }
  EXPECT_GE(most, 10);
}

TEST_F(DamageTest, CheckNamesEachProblem) {
  const std::string path = Path("good.db");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const char* sql =
      "PRAGMA foreign_keys=OFF;"
      "UPDATE records SET trial = 99 WHERE id = 1;"
      "UPDATE records SET samples = '[1e-6, null]' WHERE id = 2;"
      "UPDATE records SET median = 5 WHERE id = 3;"
      "UPDATE records SET decisions = '[4294967296]' WHERE id = 4;"
      "UPDATE records SET error_kind = 'sunspots' WHERE id = 5;"
      "UPDATE records SET workload_key = 'gone' WHERE id = 6;"
      "UPDATE records SET run_id = 77 WHERE id = 7;"
      "INSERT INTO workloads VALUES('v', x'00', 0);"
      "INSERT INTO networks VALUES('net', 'nowhere', 't', 1.0);";
  ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  const CheckReport report = CheckHistory(path).value();
  EXPECT_EQ(report.records, 40);
  EXPECT_THAT(report.problems, ::testing::UnorderedElementsAreArray(std::vector<std::string>{
                                   "row 2 of networks names one of workloads that is not there",
                                   "row 6 of records names one of workloads that is not there",
                                   "row 7 of records names one of runs that is not there",
                                   "workload v: its checksum does not match",
                                   "record 1: its checksum does not match",
                                   "record 2: its samples are no list of numbers",
                                   "record 3: its median is not that of its samples",
                                   "record 4: its decisions are no list of 32-bit integers",
                                   "record 5: its error kind 'sunspots' is not known",
                                   "record 6: its workload is missing",
                               }));
  auto history = Open(path, HistoryMode::kReadOnly);
  EXPECT_EQ(history->Get(1).status(),
            absl::DataLossError("history '" + path +
                                "' is damaged (record 1: its checksum does not match); restore a copy "
                                "of it, or save what can still be read with 'diapason history export --skip-damaged " +
                                path + "' and import that into a new file"));
  std::ostringstream out;
  EXPECT_TRUE(absl::IsDataLoss(ExportJson(*history, out).status()));
  EXPECT_EQ(ExportJson(*history, out, {.filter = {}, .skip_damaged = true}).value().records, 34);
}

TEST_F(DamageTest, CheckAsksTheHooks) {
  CheckHooks hooks;
  hooks.workload_key = [](const std::string&) -> absl::StatusOr<std::string> { return std::string("other"); };
  hooks.configuration_hash = [](const TuningRecord& r) { return r.id == 3 ? 1 : r.configuration_hash; };
  hooks.schedule = [](const TuningRecord& r) {
    return r.id == 4 ? absl::InvalidArgumentError("its step 2 splits a loop that is not there") : absl::OkStatus();
  };
  EXPECT_EQ(CheckHistory(Path("good.db"), hooks).value().problems,
            (std::vector<std::string>{
                "workload w: its program has the key other",
                "record 3: the hash of its configuration is 0000000000000001, not fedcba9876543210",
                "record 4: its step 2 splits a loop that is not there",
            }));
  hooks = {};
  hooks.workload_key = [](const std::string&) { return absl::InvalidArgumentError("the bytes are no program"); };
  EXPECT_EQ(CheckHistory(Path("good.db"), hooks).value().problems,
            std::vector<std::string>{"workload w: the bytes are no program"});
}

TEST_F(DamageTest, CheckOfWhatIsNoHistoryIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(CheckHistory(Path("none.db")).status()));
  WriteFile(Path("text"), "hello");
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckHistory(Path("text")).status()));
}

}  // namespace
}  // namespace diapason
