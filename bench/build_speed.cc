// What it costs to build candidates: a sample of what a history holds is lowered, printed and compiled again, on one
// core.
//
//   build_speed HISTORY NETWORK TARGET [COUNT [FOLDER]]
//
// NETWORK -: all of the history's. COUNT records (200), evenly spaced in the order of measurement. No device is needed.
// Prints milliseconds of processor time of lowering, of printing with what compiles in this process (NVRTC), and of
// compiler processes: mean, median and the mean of each kind of sketch. FOLDER gets the sources, named by record.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
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

struct Seconds {
  double own = 0, children = 0;
};

struct Costs {
  std::vector<double> lower, print, compile;  // seconds
};

double SecondsOf(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; }

double UsedBy(int who) {
  rusage used{};
  getrusage(who, &used);
  return SecondsOf(used.ru_utime) + SecondsOf(used.ru_stime);
}

// Of processor time, of this process and of those that it has waited for: other work on the machine changes it little.
Seconds Now() { return {UsedBy(RUSAGE_SELF), UsedBy(RUSAGE_CHILDREN)}; }

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / values.size();
}

template <typename Of>
void PrintLine(const std::string& name, const Costs& costs, Of of) {
  std::printf("%-44s %6zu %14.1f %14.1f %14.1f\n", name.c_str(), costs.lower.size(), of(costs.lower) * 1e3,
              of(costs.print) * 1e3, of(costs.compile) * 1e3);
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
  std::map<std::string, Costs> of_sketch;
  Costs all;
  for (size_t i = 0; i < records.size(); i += every) {
    const auto& [task, record] = records[i];
    ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
    const Seconds start = Now();
    ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task->task.dag, schedule, target, DefaultFacts(target)));
    const Seconds between = Now();
    ASSIGN_OR_RETURN(const Program program, CompileProgram(lowered, target));
    const Seconds end = Now();
    if (!folder.empty()) std::ofstream(absl::StrCat(folder, "/", record.id, ".c")) << program.source;
    for (Costs* costs : {&all, &of_sketch[record.sketch]}) {
      costs->lower.push_back(between.own - start.own);
      costs->print.push_back(end.own - between.own);
      costs->compile.push_back(end.children - between.children);
    }
  }
  if (all.lower.empty()) return absl::NotFoundError(absl::StrCat(path, " holds no timed trial of ", network));
  std::printf("%-44s %6s %14s %14s %14s\n", "milliseconds, mean", "builds", "lower", "print", "compiler");
  PrintLine("all", all, Mean);
  for (const auto& [name, costs] : of_sketch) PrintLine(name, costs, Mean);
  PrintLine("all, median", all, Median);
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
