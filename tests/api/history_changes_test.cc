// Checks, exports, imports, copies, pruning and explanations of a history, and files of records, by the public headers.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "diapason/compiler.h"
#include "diapason/explain.h"
#include "diapason/history.h"
#include "diapason/records.h"
#include "diapason/tuner.h"
#include "tests/paths.h"

namespace diapason::api {
namespace {

constexpr char kOneCore[] = "cpu -num-cores=1";
constexpr int64_t kTrials = 5;

// One history, which the tests read.
class HistoryChanges : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));
    std::string name = testing::TempDir() + "/diapason_changes_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = new std::filesystem::path(name);
    TuneOptions options;
    options.model.source = "gemm";
    options.model.options = {{"m", "32"}, {"n", "48"}, {"k", "64"}};
    options.target = kOneCore;
    options.history = Path("h.db");
    options.trials = kTrials;
    options.min_repeat_ms = 1;
    const absl::StatusOr<TuneResult> tuned = Tune(options);
    ASSERT_TRUE(tuned.ok()) << tuned.status();
    best = tuned->progress.tasks.at(0).record.value_or(0);
    ASSERT_GT(best, 0);
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(*folder);
    delete folder;
  }
  static std::string Path(const std::string& name) { return *folder / name; }
  static HistorySummary SummaryOf(const std::string& name) {
    const auto history = History::Open(Path(name));
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? (*history)->Summary().value() : HistorySummary();
  }

  static std::filesystem::path* folder;
  static int64_t best;
};
std::filesystem::path* HistoryChanges::folder = nullptr;
int64_t HistoryChanges::best = 0;

TEST_F(HistoryChanges, TheSummaryCountsByWorkloadDeviceAndNetwork) {
  const HistorySummary summary = SummaryOf("h.db");
  EXPECT_EQ(summary.record_count, kTrials);
  EXPECT_EQ(summary.runs, 1);
  EXPECT_GT(summary.first_at, 0);
  EXPECT_LE(summary.first_at, summary.last_at);
  ASSERT_EQ(summary.workloads.size(), 1u);
  EXPECT_EQ(summary.workloads[0].target, kOneCore);
  EXPECT_EQ(summary.workloads[0].record_count, kTrials);
  EXPECT_GT(summary.workloads[0].best_us.value_or(0), 0);
  ASSERT_EQ(summary.networks.size(), 1u);
  EXPECT_EQ(summary.networks[0].network, "gemm");
  EXPECT_EQ(summary.networks[0].task_count, 1);
  ASSERT_EQ(summary.devices.size(), 1u);
  EXPECT_EQ(summary.devices[0].device, summary.workloads[0].device);
}

TEST_F(HistoryChanges, ACheckFindsWhatIsDamaged) {
  const absl::StatusOr<HistoryProblems> whole = CheckHistory(Path("h.db"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->ok());
  EXPECT_EQ(whole->record_count, kTrials);
  std::ofstream(Path("text.db")) << "no history\n";
  EXPECT_FALSE(CheckHistory(Path("text.db")).ok());
}

TEST_F(HistoryChanges, WhatIsExportedCanBeImportedElsewhereOnce) {
  std::stringstream lines;
  const absl::StatusOr<ExportedRecords> exported = ExportHistory(Path("h.db"), {}, lines);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->record_count, kTrials);
  const std::string text = lines.str();
  absl::StatusOr<ImportedRecords> imported = ImportHistory(Path("imported.db"), lines, "lines");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->added, kTrials);
  EXPECT_EQ(SummaryOf("imported.db").record_count, kTrials);
  std::istringstream again(text);
  imported = ImportHistory(Path("imported.db"), again, "lines");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->added, 0);
  EXPECT_EQ(imported->known, kTrials);
  std::istringstream damaged("{\n");
  EXPECT_EQ(ImportHistory(Path("imported.db"), damaged, "my lines").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(HistoryChanges, ExportsOfT4AreOneDocumentAndUnknownFormatsAreRefused) {
  std::stringstream document;
  HistoryExport options;
  options.format = "t4";
  ASSERT_TRUE(ExportHistory(Path("h.db"), options, document).ok());
  EXPECT_NE(document.str().find("\"results\""), std::string::npos);
  options.format = "csv";
  EXPECT_EQ(ExportHistory(Path("h.db"), options, document).status(),
            absl::InvalidArgumentError("the format 'csv' is unknown; give jsonl or t4"));
}

TEST_F(HistoryChanges, ACopyHasAllAndAPrunedOneTheBest) {
  const absl::StatusOr<CopiedRecords> copied = CopyHistory(Path("h.db"), Path("copy.db"));
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->added, kTrials);
  const absl::StatusOr<PrunedRecords> pruned = PruneHistory(Path("copy.db"), 1, Path("best.db"));
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->kept, 1);
  EXPECT_EQ(SummaryOf("best.db").record_count, 1);
  EXPECT_EQ(SummaryOf("copy.db").record_count, kTrials) << "it went into a new file";
  EXPECT_EQ(SummaryOf("best.db").workloads.at(0).best_us, SummaryOf("h.db").workloads.at(0).best_us);
  EXPECT_EQ(PruneHistory(Path("copy.db"), 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HistoryChanges, ARecordIsExplainedWithItsLoopsAndShare) {
  const absl::StatusOr<Explanation> explained = ExplainRecord(Path("h.db"), best);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->record, best);
  ASSERT_TRUE(explained->measured.has_value());
  EXPECT_EQ(explained->measured->median_us, SummaryOf("h.db").workloads.at(0).best_us);
  EXPECT_DOUBLE_EQ(explained->measured->gflops_per_s, 2.0 * 32 * 48 * 64 / explained->measured->median_us * 1e-3);
  EXPECT_EQ(explained->verification, "ok");
  EXPECT_FALSE(explained->configuration.empty());
  EXPECT_NE(explained->loops.find("for"), std::string::npos);
  EXPECT_FALSE(explained->source.empty());
  ASSERT_EQ(explained->shares.size(), 1u);
  EXPECT_EQ(explained->shares[0].network, "gemm");
  EXPECT_DOUBLE_EQ(explained->shares[0].share, 1);
  EXPECT_EQ(ExplainRecord(Path("h.db"), 999).status().code(), absl::StatusCode::kNotFound);
}

// What was timed with other caches has its own records; programs and packages do not depend on it.
TEST_F(HistoryChanges, OtherCachesHaveRecordsOfTheirOwnAndTheSamePackages) {
  ASSERT_TRUE(CopyHistory(Path("h.db"), Path("both.db")).ok());
  const std::string warm = std::string(kOneCore) + " -caches=warm";
  TuneOptions options;
  options.model.source = "gemm";
  options.model.options = {{"m", "32"}, {"n", "48"}, {"k", "64"}};
  options.target = warm;
  options.history = Path("both.db");
  options.trials = 3;
  options.min_repeat_ms = 1;
  const absl::StatusOr<TuneResult> tuned = Tune(options);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->progress.measured, 3) << "trials of other caches do not count";
  const HistorySummary summary = SummaryOf("both.db");
  ASSERT_EQ(summary.workloads.size(), 2u);
  EXPECT_EQ(summary.workloads[0].target, kOneCore);
  EXPECT_EQ(summary.workloads[1].target, warm);
  const absl::StatusOr<Explanation> explained = ExplainRecord(Path("both.db"), best);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->shares.size(), 1u);

  BuildOptions build;
  build.model = options.model;
  build.target = warm;
  build.histories = {Path("both.db")};
  build.out = Path("package");
  const absl::StatusOr<BuildReport> built = Build(build);
  ASSERT_TRUE(built.ok()) << built.status();
  std::ifstream manifest(Path("package") + "/manifest.json");
  const std::string text{std::istreambuf_iterator<char>(manifest), {}};
  EXPECT_NE(text.find(kOneCore), std::string::npos);
  EXPECT_EQ(text.find("-caches"), std::string::npos);
}

TEST_F(HistoryChanges, ACandidateIsExplainedWithTheParametersThatAreChosen) {
  Model model;
  model.source = "gemm";
  CandidateChoice choice{"cpu", "1", "", {}};
  const absl::StatusOr<Explanation> fallback = ExplainCandidate(model, choice);
  ASSERT_TRUE(fallback.ok()) << fallback.status();
  EXPECT_EQ(fallback->record, 0);
  EXPECT_FALSE(fallback->measured.has_value());
  ASSERT_FALSE(fallback->sketch_times.empty());
  ASSERT_FALSE(fallback->configuration.empty());
  const auto& [name, value] = fallback->configuration.front();
  choice.sketch = fallback->sketch;
  choice.parameters = {{name, value}};
  const absl::StatusOr<Explanation> chosen = ExplainCandidate(model, choice);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->source, fallback->source);
  choice.parameters = {{"magic", 1}};
  EXPECT_EQ(ExplainCandidate(model, choice).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HistoryChanges, FilesOfRecordsAreMadeListedAndChecked) {
  RecordsToAdd adding;
  adding.history = Path("h.db");
  adding.out = Path("records.jsonl");
  adding.keep = 1;
  absl::StatusOr<AddedRecords> added = AddRecords(adding);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->record_count, 1);
  EXPECT_EQ(added->added, 1);
  added = AddRecords(adding);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->added, 0);
  const absl::StatusOr<std::vector<RecordGroup>> groups = ListRecords({adding.out}, "cpu");
  ASSERT_TRUE(groups.ok()) << groups.status();
  ASSERT_EQ(groups->size(), 1u);
  EXPECT_EQ((*groups)[0].target, kOneCore);
  EXPECT_EQ((*groups)[0].networks, std::vector<std::string>{"gemm"});
  EXPECT_TRUE(ListRecords({adding.out}, "cuda").value().empty());
  const absl::StatusOr<RecordProblems> checked = CheckRecords({adding.out});
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_TRUE(checked->ok()) << checked->problems[0];
  EXPECT_EQ(checked->record_count, 1);
  adding.networks = {"resnet-18"};
  EXPECT_EQ(AddRecords(adding).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace diapason::api
