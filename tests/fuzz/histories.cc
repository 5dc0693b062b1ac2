#include "tests/fuzz/histories.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "db/json_lines.h"
#include "tests/db/records.h"
#include "tests/fuzz/fuzz.h"

namespace diapason {
namespace {

TuningRecord Record(const std::string& workload_key, int trial) {
  TuningRecord record = TimedRecord(workload_key);
  record.configuration = {1, 2, trial};
  record.configuration_hash = static_cast<uint64_t>(trial);
  record.trial = trial;
  record.outcome = Timing{{1e-5 + trial, 0.1, 2.2250738585072014e-308}, 3, trial % 2 == 0, 0.1 + 0.2, 1e300};
  return record;
}

}  // namespace

FuzzHistory::FuzzHistory() {
  const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
  const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
  folder_ = (parent / "diapason-fuzz-XXXXXX").string();
  FUZZ_EXPECT(mkdtemp(folder_.data()) != nullptr);
  path_ = folder_ + "/h.db";
  auto history = History::Open(path_, HistoryMode::kCreate);
  FUZZ_EXPECT(history.ok());
  history_ = *std::move(history);
}

FuzzHistory::~FuzzHistory() {
  history_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string FuzzHistory::Export() {
  std::ostringstream out;
  FUZZ_EXPECT(ExportJson(*history_, out).ok());
  return out.str();
}

absl::StatusOr<ImportReport> FuzzHistory::Import(const std::string& lines, bool skip_damaged) {
  std::istringstream in(lines);
  return ImportJson(*history_, in, "in.jsonl", {.skip_damaged = skip_damaged});
}

std::string GoodLines() {
  FuzzHistory history;
  TuningRecord first = Record("a", 1), failed = Record("a", 3);
  first.run_id = history->StartRun({.command_line = "tune --seed 1", .seed = ~uint64_t{0}, .host = "h"}).value();
  FUZZ_EXPECT(history->EndRun(first.run_id).ok());
  failed.outcome = MeasureError{ErrorKind::kCompile, MeasureStage::kCompile, "line 1: \"\\ \n\t\x01 \xc3\xa9 \xff"};
  FUZZ_EXPECT(history->Append({first, Record("b", 2), failed}).ok());
  FUZZ_EXPECT(history->SetVerified(1, true, 1.0 / 3, "close").ok());
  FUZZ_EXPECT(history->SetVerified(2, false, NAN, "NaN").ok());
  FUZZ_EXPECT(history->LinkNetwork({{"n1", "a", "x", "conv", 2.5}, {"n1", "unmeasured", "dag", "dense", 1}}).ok());
  return history.Export();
}

}  // namespace diapason
