#include "db/prune.h"

#include "absl/strings/str_cat.h"
#include "db/integrity.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

class PruneTest : public HistoryTest {
 protected:
  // 200 records of workload w, each slower than the one before, and a few others.
  std::unique_ptr<History> Fill(const std::string& path) {
    auto history = Open(path);
    std::vector<TuningRecord> records;
    for (int i = 0; i < 200; ++i) {
      records.push_back(TimedRecord("w", 1e-6 * (i + 1)));
      records.back().schedule = std::string(2000, 's');
    }
    records.push_back(TimedRecord("v"));
    records.push_back(FailedRecord(ErrorKind::kCompile, "w"));
    records.push_back(FailedRecord(ErrorKind::kCompile, "only-failed"));
    const int64_t ended = history->StartRun({.command_line = "ended"}).value();
    const int64_t going = history->StartRun({.command_line = "going"}).value();
    EXPECT_TRUE(history->EndRun(ended).ok());
    records[150].run_id = ended;
    records[151].run_id = going;
    EXPECT_TRUE(history->Append(records).ok());
    EXPECT_TRUE(history->LinkNetwork({{"net", "w", "dag", "t", 1}, {"net", "later", "dag", "t", 1}}).ok());
    EXPECT_TRUE(history->SetVerified(1, false, 1, "wrong").ok());
    EXPECT_TRUE(history->SetVerified(100, true, 0, "").ok());
    return history;
  }

  static void ExpectBestTwo(History& history) {
    const HistoryInfo info = history.Info().value();
    EXPECT_EQ(info.records, 3);
    EXPECT_TRUE(history.Get(100).ok());  // verified goes before faster
    EXPECT_TRUE(history.Get(2).ok());
    EXPECT_TRUE(history.Get(201).ok());
    EXPECT_EQ(history.NetworkTasks("net").value().size(), 2u);
    const std::vector<TuningRun> runs = history.Runs().value();
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].command_line, "going");
  }
};

TEST_F(PruneTest, InPlaceKeepsTheBestAndGivesTheRoomBack) {
  auto history = Fill(Path("h.db"));
  const int64_t before = history->Info().value().bytes;
  const PruneReport report = PruneHistory(*history, 2).value();
  EXPECT_EQ(report.kept, 3);
  EXPECT_EQ(report.dropped, 200);
  EXPECT_LT(report.bytes_after, report.bytes_before / 4);
  ExpectBestTwo(*history);
  EXPECT_LT(history->Info().value().bytes, before / 4);
  EXPECT_EQ(history->Append({TimedRecord()}).value()[0], 204);  // ids are not used again
  EXPECT_TRUE(CheckHistory(Path("h.db")).value().ok());
}

TEST_F(PruneTest, IntoANewFileLeavesThisOne) {
  Fill(Path("h.db"));
  auto history = Open(Path("h.db"), HistoryMode::kReadOnly);
  const PruneReport report = PruneHistory(*history, 2, Path("best.db")).value();
  EXPECT_EQ(report.kept, 3);
  EXPECT_EQ(history->Info().value().records, 203);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(Path("best.db"))), report.bytes_after);
  EXPECT_TRUE(CheckHistory(Path("best.db")).value().ok());
  auto best = Open(Path("best.db"), HistoryMode::kReadWrite);
  ExpectBestTwo(*best);
  history.reset(), best.reset();
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) files += entry.path().extension() == ".db";
  EXPECT_EQ(files, 2u);
}

TEST_F(PruneTest, NeverReplacesAFile) {
  auto history = Fill(Path("h.db"));
  WriteFile(Path("taken"), "precious");
  EXPECT_EQ(PruneHistory(*history, 1, Path("taken")).status(),
            absl::AlreadyExistsError("'" + Path("taken") + "' exists already; name a file that does not"));
  EXPECT_EQ(PruneHistory(*history, 1, Path("h.db")).status(),
            absl::AlreadyExistsError("'" + Path("h.db") + "' exists already; name a file that does not"));
  EXPECT_EQ(ReadFile(Path("taken")), "precious");
  EXPECT_EQ(history->Info().value().records, 203);
}

TEST_F(PruneTest, NamesTheFileThatCannotBeMade) {
  auto history = Fill(Path("h.db"));
  const absl::Status status = PruneHistory(*history, 1, Path("no/best.db")).status();
  EXPECT_EQ(status,
            absl::PermissionDeniedError("history '" + Path("no/best.db") +
                                        "' cannot be opened (No such file or directory); give yourself permission "
                                        "for the file and its folder, or name another file"));
}

}  // namespace
}  // namespace diapason
