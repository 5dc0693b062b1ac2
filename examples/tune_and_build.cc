// Tunes a model and builds a package of it with libdiapason (docs/library.md).
//
//   tune_and_build MODEL TARGET TRIALS HISTORY PACKAGE
#include <diapason/compiler.h>
#include <diapason/history.h>
#include <diapason/tuner.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::atomic<bool> stop{false};  // Ctrl-C ends the run; what was measured is in the history

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tune_and_build: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: tune_and_build MODEL TARGET TRIALS HISTORY PACKAGE\n");
    return 2;
  }
  std::signal(SIGINT, [](int) { stop = true; });

  diapason::api::TuneOptions tuning;
  tuning.model.source = argv[1];
  tuning.target = argv[2];
  tuning.trials = std::atoll(argv[3]);
  tuning.history = argv[4];
  tuning.hooks.stop = &stop;
  tuning.hooks.warn = [](const std::string& sentence) { std::fprintf(stderr, "warning: %s\n", sentence.c_str()); };
  int64_t reported = 0;
  tuning.progress = [&](const diapason::api::Progress& progress) {
    if (progress.trials < reported + 10) return;
    reported = progress.trials;
    std::printf("%.0f s, %lld trials, estimate %.3f ms\n", progress.elapsed_s, static_cast<long long>(progress.trials),
                progress.estimated_us.value_or(0) / 1e3);
  };
  const absl::StatusOr<diapason::api::TuneResult> tuned = diapason::api::Tune(tuning);
  if (!tuned.ok()) return Fail(tuned.status());
  if (!tuned->check_status.ok()) return Fail(tuned->check_status);

  diapason::api::BuildOptions building;
  building.model = tuning.model;
  building.target = tuning.target;
  building.histories = {tuning.history};
  building.out = argv[5];
  building.hooks = tuning.hooks;
  const absl::StatusOr<diapason::api::BuildReport> built = diapason::api::Build(building);
  if (!built.ok()) return Fail(built.status());

  const auto history = diapason::api::History::Open(tuning.history);
  if (!history.ok()) return Fail(history.status());
  diapason::api::RecordQuery query;
  query.target = built->target;
  const auto records = (*history)->Query(query);
  if (!records.ok()) return Fail(records.status());
  for (const diapason::api::Record& record : *records)
    std::printf("%s: %s, %.2f us\n", record.task.c_str(), record.sketch.c_str(), record.median_us);
  std::printf("built %s\n", built->out.c_str());
}
