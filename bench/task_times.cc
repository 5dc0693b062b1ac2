// How well the times of tasks measured alone tell what a network takes: each task of a package, warm (the same
// constants again and again) and as the workers measure it (cold constants; kernels that start early behind one that
// writes their inputs), against the package from end to end, all in turns.
//
//   task_times PACKAGE [ROUNDS] [--json]    default: 5 rounds; prints medians, with --json the samples of each round
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "compiler/build/package.h"
#include "compiler/codegen/compile.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/runtime/measure.h"
#include "worker/process/in_place.h"

namespace diapason {
namespace {

struct TaskTimes {
  std::unique_ptr<Executable> executable;
  std::vector<double> warm, cold;
};

absl::StatusOr<std::unique_ptr<Executable>> Prepare(Device& device, const Package& package, int task) {
  ASSIGN_OR_RETURN(Program program, package.ReadProgram(task));
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Executable::Create(device, std::move(program)));
  RETURN_IF_ERROR(executable->AllocateRest());
  RETURN_IF_ERROR(FillForMeasuring(*executable, 1));
  RETURN_IF_ERROR(executable->RunPrologue());
  return executable;
}

struct PackageTimes {
  std::vector<TaskTimes> tasks;
  std::vector<double> whole;
};

// Medians of each round.
absl::StatusOr<PackageTimes> Measure(PackageRunner& runner, int rounds) {
  PackageTimes times;
  LazyInPlace lazy(runner.device(), CompileSource);
  times.tasks.resize(runner.manifest().tasks.size());
  for (size_t t = 0; t < times.tasks.size(); ++t) {
    ASSIGN_OR_RETURN(times.tasks[t].executable, Prepare(runner.device(), runner.package(), static_cast<int>(t)));
  }
  TimingOptions options;
  options.repeat = 3;
  options.min_repeat_ms = 20;
  for (int round = 0; round < rounds; ++round) {
    TimingOptions longer = options;
    longer.min_repeat_ms = 100;
    ASSIGN_OR_RETURN(const Timing network, runner.Bench(longer));
    times.whole.push_back(MedianSeconds(network));
    for (TaskTimes& task : times.tasks) {
      for (bool cold : {false, true}) {
        options.cold = cold;
        options.before.clear();
        if (cold && StartsEarly(task.executable->program())) {
          ASSIGN_OR_RETURN(InPlace* const in_place, lazy.Get());
          ASSIGN_OR_RETURN(options.before, in_place->Rewrite(*task.executable));
        }
        ASSIGN_OR_RETURN(const Timing timing, MeasureExecutable(*task.executable, options));
        (cold ? task.cold : task.warm).push_back(MedianSeconds(timing));
      }
    }
  }
  return times;
}

void PrintText(const std::vector<PackageTask>& tasks, const PackageTimes& times) {
  double warm = 0, cold = 0;
  std::printf("%10s %10s  %-44s %s\n", "warm us", "cold us", "task", "schedule");
  for (size_t t = 0; t < tasks.size(); ++t) {
    const double w = Median(times.tasks[t].warm), c = Median(times.tasks[t].cold);
    warm += tasks[t].weight * w;
    cold += tasks[t].weight * c;
    std::printf("%10.2f %10.2f  %-44s %.40s\n", w * 1e6, c * 1e6, tasks[t].name.c_str(), tasks[t].schedule.c_str());
  }
  const double end = Median(times.whole);
  std::printf("end to end %.1f us; sum of tasks warm %.1f us (%+.1f%%), cold %.1f us (%+.1f%%)\n", end * 1e6,
              warm * 1e6, 100 * (warm / end - 1), cold * 1e6, 100 * (cold / end - 1));
}

nlohmann::ordered_json Microseconds(const std::vector<double>& seconds) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (double s : seconds) list.push_back(s * 1e6);
  return list;
}

void PrintJson(const std::vector<PackageTask>& tasks, const PackageTimes& times) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t t = 0; t < tasks.size(); ++t) {
    list.push_back({{"name", tasks[t].name},
                    {"weight", tasks[t].weight},
                    {"schedule", tasks[t].schedule},
                    {"warm_us", Microseconds(times.tasks[t].warm)},
                    {"cold_us", Microseconds(times.tasks[t].cold)}});
  }
  std::puts(nlohmann::ordered_json{{"end_to_end_us", Microseconds(times.whole)}, {"tasks", list}}.dump(2).c_str());
}

absl::Status Run(const std::string& folder, int rounds, bool json) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PackageRunner> runner, PackageRunner::Load(folder));
  ASSIGN_OR_RETURN(const PackageTimes times, Measure(*runner, rounds));
  json ? PrintJson(runner->manifest().tasks, times) : PrintText(runner->manifest().tasks, times);
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool json = std::erase(words, "--json") > 0;
  if (words.empty()) {
    std::fprintf(stderr, "error: no package is given; name a folder that `diapason build` made\n");
    return 2;
  }
  const absl::Status status =
      diapason::Run(words[0], words.size() > 1 ? std::max(1, std::atoi(words[1].c_str())) : 5, json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
