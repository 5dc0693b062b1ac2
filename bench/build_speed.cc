// What it costs to build candidates: a sample of what a history holds is lowered, printed and compiled again, on one
// core.
//
//   build_speed HISTORY NETWORK TARGET [COUNT [FOLDER]]
//
// NETWORK -: all of the history's. COUNT records (200), evenly spaced in the order of measurement. No device is needed.
// Prints milliseconds of processor time, that of compiler processes included, of lowering, and of printing and
// compiling: mean, median and the mean of each kind of sketch. FOLDER gets the sources, named by record.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/median.h"
#include "bench/history_samples.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "db/history.h"

namespace diapason {
namespace {

struct Cost {
  double lower = 0, compile = 0;  // seconds
  int builds = 0;
};

double SecondsOf(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; }

// Of processor time, of this process and of those that it has waited for: other work on the machine changes it little.
double Seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    sum += SecondsOf(used.ru_utime) + SecondsOf(used.ru_stime);
  }
  return sum;
}

absl::Status Run(const std::string& path, const std::string& network, const std::string& text, size_t count,
                 const std::string& folder) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(text));
  ASSIGN_OR_RETURN(const auto history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const HistoryInfo info, history->Info());
  ASSIGN_OR_RETURN(const std::vector<MeasuredTask> tasks, LoadMeasuredTasks(path, network, target, 1));
  std::vector<std::pair<const MeasuredTask*, TuningRecord>> records;
  for (const MeasuredTask& task : tasks) {
    for (const auto& device : info.devices) {
      ASSIGN_OR_RETURN(const auto some, history->ForWorkload(task.task.workload_key, device.model));
      for (const TuningRecord& record : some)
        if (record.timing() != nullptr) records.emplace_back(&task, record);
    }
  }
  const size_t every = std::max<size_t>(1, records.size() / count);
  std::map<std::string, Cost> costs;
  Cost all;
  std::vector<double> lower, compile;
  for (size_t i = 0; i < records.size(); i += every) {
    const auto& [task, record] = records[i];
    ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
    const double start = Seconds();
    ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task->task.dag, schedule, target, DefaultFacts(target)));
    const double between = Seconds();
    ASSIGN_OR_RETURN(const Program program, CompileProgram(lowered, target));
    const double end = Seconds();
    if (!folder.empty()) std::ofstream(absl::StrCat(folder, "/", record.id, ".c")) << program.source;
    lower.push_back(between - start);
    compile.push_back(end - between);
    for (Cost* cost : {&all, &costs[record.sketch]}) {
      cost->lower += between - start;
      cost->compile += end - between;
      ++cost->builds;
    }
  }
  if (lower.empty()) return absl::NotFoundError(absl::StrCat(path, " holds no timed trial of ", network));
  std::printf("%-44s %6s %14s %14s\n", "milliseconds, mean", "builds", "lower", "compile");
  costs["all"] = all;
  for (const auto& [name, cost] : costs)
    std::printf("%-44s %6d %14.1f %14.1f\n", name.c_str(), cost.builds, cost.lower * 1e3 / cost.builds,
                cost.compile * 1e3 / cost.builds);
  std::printf("%-44s %6d %14.1f %14.1f\n", "all, median", all.builds, Median(lower) * 1e3, Median(compile) * 1e3);
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    std::fprintf(stderr, "usage: build_speed HISTORY NETWORK TARGET [COUNT [FOLDER]]\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argv[2], argv[3], argc > 4 ? std::max(1, std::atoi(argv[4])) : 200,
                                            argc > 5 ? argv[5] : "");
  if (!status.ok()) std::fprintf(stderr, "build_speed: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
