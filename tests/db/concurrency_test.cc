// Several processes and threads in one file, and a writer that is killed.
#include <signal.h>
#include <sys/wait.h>

#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "db/integrity.h"
#include "db/prune.h"
#include "tests/db/backends.h"

namespace diapason {
namespace {

using ConcurrencyTest = BackendTest;
using FileConcurrencyTest = HistoryTest;
DIAPASON_ON_EVERY_BACKEND(ConcurrencyTest);

// Uuids of the system's source, since processes would count up the same ones.
absl::StatusOr<std::unique_ptr<History>> OpenShared(const std::string& path) {
  return History::Open(path, HistoryMode::kCreate);
}

// Appends `batches` batches of two and counts those that were reported; exit status of a process.
int AppendBatches(const std::string& path, int writer, int batches) {
  absl::StatusOr<std::unique_ptr<History>> history = OpenShared(path);
  if (!history.ok()) return std::fprintf(stderr, "%s\n", history.status().ToString().c_str()), 1;
  for (int i = 0; i < batches; ++i) {
    TuningRecord record = TimedRecord(absl::StrCat("w", writer));
    record.trial = i;
    absl::StatusOr<std::vector<int64_t>> ids = (*history)->Append({record, record});
    if (!ids.ok()) return std::fprintf(stderr, "%s\n", ids.status().ToString().c_str()), 1;
    if (!(*history)->SetVerified((*ids)[0], true, 0, "").ok()) return 1;
    if ((*history)->ForWorkload(record.workload_key, record.device_model).value().size() != 2u * (i + 1)) return 1;
  }
  return 0;
}

void ExpectAllThere(const std::string& path, int writers, int batches) {
  auto history = OpenShared(path).value();
  std::set<std::string> uuids;
  for (int writer = 0; writer < writers; ++writer) {
    const std::vector<TuningRecord> records = history->ForWorkload(absl::StrCat("w", writer), "NVIDIA H200").value();
    EXPECT_EQ(records.size(), 2u * batches);
    for (const TuningRecord& record : records) uuids.insert(record.uuid);
  }
  EXPECT_EQ(uuids.size(), 2u * writers * batches);
  EXPECT_TRUE(CheckHistory(path).value().ok());
}

TEST_P(ConcurrencyTest, FourProcessesCreateAndFillOneFile) {
  constexpr int kProcesses = 4, kBatches = 25;
  const std::string path = Path("h.db");  // here, since a child would start a server of its own
  std::vector<pid_t> children;
  for (int writer = 0; writer < kProcesses; ++writer) {
    const pid_t child = fork();
    if (child == 0) _exit(AppendBatches(path, writer, kBatches));
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ExpectAllThere(path, kProcesses, kBatches);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find(".new-"), std::string::npos) << entry.path();
}

TEST_P(ConcurrencyTest, FourThreadsWithAHistoryEach) {
  constexpr int kThreads = 4, kBatches = 15;
  const std::string path = Path("h.db");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int writer = 0; writer < kThreads; ++writer)
    threads.emplace_back([&, writer] { failures += AppendBatches(path, writer, kBatches); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  ExpectAllThere(path, kThreads, kBatches);
}

TEST_P(ConcurrencyTest, ThreadsShareOneHistory) {
  auto history = Open(Path("h.db"));
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 4; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(history->Append({TimedRecord(absl::StrCat("w", writer))}).ok());
        EXPECT_TRUE(history->Best(absl::StrCat("w", writer), "NVIDIA H200").value().has_value());
        EXPECT_TRUE(history->Info().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history->Info().value().records, 80);
}

TEST_F(FileConcurrencyTest, AReaderAndAPrunerDoNotDisturbAWriter) {
  const std::string path = Path("h.db");
  { ASSERT_TRUE(OpenShared(path).ok()); }
  const pid_t child = fork();
  if (child == 0) _exit(AppendBatches(path, 0, 40));
  int status = 0;
  int reads = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    auto reader = History::Open(path, HistoryMode::kReadOnly).value();
    const absl::StatusOr<HistoryInfo> info = reader->Info();
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->records % 2, 0);  // whole batches only
    const absl::StatusOr<PruneReport> best = PruneHistory(*reader, 1, Path(absl::StrCat("best", reads++, ".db")));
    ASSERT_TRUE(best.ok()) << best.status();
  }
  EXPECT_EQ(status, 0);
  EXPECT_GT(reads, 0);
  ExpectAllThere(path, 1, 40);
}

TEST_P(ConcurrencyTest, AKilledWriterLosesNothingThatItReported) {
  for (int round = 0; round < 6; ++round) {
    const std::string path = Path(absl::StrCat("h", round, ".db"));
    int reports[2];
    ASSERT_EQ(pipe(reports), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto history = OpenShared(path).value();
      while (true) {
        const std::vector<int64_t> ids = history->Append({TimedRecord(), TimedRecord()}).value();
        if (write(reports[1], &ids.back(), sizeof ids.back()) < 0) _exit(1);
      }
    }
    close(reports[1]);
    int64_t reported = 0;
    for (int i = 0; i <= round * 5; ++i)
      ASSERT_EQ(read(reports[0], &reported, sizeof reported), ssize_t{sizeof reported});
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (int64_t id; read(reports[0], &id, sizeof id) == ssize_t{sizeof id};) reported = id;
    close(reports[0]);

    auto history = Open(path, HistoryMode::kReadWrite);
    ASSERT_NE(history, nullptr);
    for (int64_t id = 1; id <= reported; ++id) EXPECT_TRUE(history->Get(id).ok()) << id;
    EXPECT_EQ(history->Info().value().records % 2, 0);
    EXPECT_TRUE(CheckHistory(path).value().ok());
    EXPECT_TRUE(history->Append({TimedRecord()}).ok());
  }
}

}  // namespace
}  // namespace diapason
