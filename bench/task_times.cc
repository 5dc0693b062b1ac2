// How well the times of tasks measured alone tell what a network takes: each task of a package, warm (the same constants
// again and again) and as the workers measure it, against the package from end to end, all in turns.
//
//   task_times PACKAGE [ROUNDS]      default: 5; medians over the rounds
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/build/package.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

absl::Status Run(const std::string& folder, int rounds) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PackageRunner> runner, PackageRunner::Load(folder));
  const std::vector<PackageTask>& tasks = runner->manifest().tasks;
  std::vector<TaskTimes> times(tasks.size());
  for (size_t t = 0; t < tasks.size(); ++t) {
    ASSIGN_OR_RETURN(times[t].executable, Prepare(runner->device(), runner->package(), static_cast<int>(t)));
  }
  TimingOptions options;
  options.repeat = 3;
  options.min_repeat_ms = 20;
  std::vector<double> whole;
  for (int round = 0; round < rounds; ++round) {
    TimingOptions longer = options;
    longer.min_repeat_ms = 100;
    ASSIGN_OR_RETURN(const Timing network, runner->Bench(longer));
    whole.push_back(MedianSeconds(network));
    for (TaskTimes& task : times) {
      for (bool cold : {false, true}) {
        options.cold = cold;
        ASSIGN_OR_RETURN(const Timing timing, MeasureExecutable(*task.executable, options));
        (cold ? task.cold : task.warm).push_back(MedianSeconds(timing));
      }
    }
  }
  double warm = 0, cold = 0;
  std::printf("%10s %10s  %-44s %s\n", "warm us", "cold us", "task", "schedule");
  for (size_t t = 0; t < tasks.size(); ++t) {
    const double w = Median(times[t].warm), c = Median(times[t].cold);
    warm += tasks[t].weight * w;
    cold += tasks[t].weight * c;
    std::printf("%10.1f %10.1f  %-44s %.40s\n", w * 1e6, c * 1e6, tasks[t].name.c_str(), tasks[t].schedule.c_str());
  }
  const double end = Median(whole);
  std::printf("end to end %.1f us; sum of tasks warm %.1f us (%+.1f%%), cold %.1f us (%+.1f%%)\n", end * 1e6, warm * 1e6,
              100 * (warm / end - 1), cold * 1e6, 100 * (cold / end - 1));
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "error: no package is given; name a folder that `diapason build` made\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 5);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
