// The costs of the analytic estimate for processors, fitted to what a history holds.
//
//   fit_estimate HISTORY TARGET [ROUNDS]
//
// Prints how well the estimate of this build fits, and that of the costs found (scheduler/sketch/cpu_costs.h): the
// spread of measured over estimated time within tasks and over all (as a factor: 1.2 is 20%), the share of pairs of a
// task's candidates, more than 10% apart, that are in the right order, and how near the candidate that is estimated
// best comes to the best of its task (1: the same). Tasks in every fourth place are left out of the fit and judged
// apart.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "bench/history_samples.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/sketch/cpu_costs.h"
#include "scheduler/space.h"

namespace diapason {
namespace {

struct TimedCandidate {
  int space;
  std::vector<int32_t> configuration;
  double seconds;
};

struct FitTask {
  std::unique_ptr<TaskSpace> space;
  std::vector<TimedCandidate> candidates;
};

absl::StatusOr<std::vector<FitTask>> Load(const std::string& path, const Target& target) {
  ASSIGN_OR_RETURN(auto history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const HistoryInfo info, history->Info());
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> linked, history->NetworkTasks(""));
  std::vector<FitTask> tasks;
  std::vector<std::string> seen;
  for (const NetworkTask& one : linked) {
    if (std::find(seen.begin(), seen.end(), one.workload_key) != seen.end()) continue;
    seen.push_back(one.workload_key);
    FitTask task;
    ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(one.workload));
    ASSIGN_OR_RETURN(task.space, TaskSpace::Create(dag, target, DefaultFacts(target)));
    for (const auto& device : info.devices) {
      ASSIGN_OR_RETURN(const auto records, history->ForWorkload(one.workload_key, device.model));
      for (const TuningRecord& record : records) {
        const Timing* timing = record.timing();
        const int space = task.space->Find(record.sketch);
        if (timing == nullptr || timing->samples.empty() || space < 0 || task.space->space(space).external()) continue;
        if (task.space->space(space).size() != static_cast<int>(record.configuration.size())) continue;
        task.candidates.push_back({space, record.configuration, MedianSeconds(*timing)});
      }
    }
    if (task.candidates.size() >= 5) tasks.push_back(std::move(task));
  }
  return tasks;
}

struct Fit {
  double within = 0, over_all = 0, pairs_right = 0, best = 0;
  double loss() const { return within + 0.15 * over_all + 0.3 * (1 - pairs_right) + 0.5 * (1 - best); }
};

// Of the tasks whose place divided by four leaves `left_out`, or of all others.
Fit Judge(const std::vector<FitTask>& tasks, bool left_out) {
  double within = 0, over_all = 0, right = 0, pairs = 0, best = 0, count = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    if ((t % 4 == 3) != left_out) continue;
    const FitTask& task = tasks[t];
    double fastest = 1e30;
    for (const TimedCandidate& c : task.candidates) fastest = std::min(fastest, c.seconds);
    std::vector<double> estimates, residuals, weight;
    double mean = 0, sum = 0;
    for (const TimedCandidate& c : task.candidates) {
      Metrics metrics;
      task.space->space(c.space).Evaluate(c.configuration, &metrics);
      estimates.push_back(metrics.seconds);
      residuals.push_back(std::log(c.seconds / metrics.seconds));
      weight.push_back(fastest / c.seconds);
      mean += residuals.back() * weight.back();
      sum += weight.back();
    }
    mean /= sum;
    double squares = 0;
    for (size_t i = 0; i < residuals.size(); ++i) squares += weight[i] * (residuals[i] - mean) * (residuals[i] - mean);
    within += squares / sum;
    over_all += mean * mean;
    size_t chosen = 0;
    for (size_t i = 0; i < estimates.size(); ++i) {
      if (estimates[i] < estimates[chosen]) chosen = i;
      for (size_t j = 0; j < estimates.size(); ++j) {
        if (task.candidates[i].seconds * 1.1 > task.candidates[j].seconds) continue;
        pairs += 1;
        right += estimates[i] < estimates[j] ? 1 : 0;
      }
    }
    best += fastest / task.candidates[chosen].seconds;
    count += 1;
  }
  return {std::sqrt(within / count), std::sqrt(over_all / count), right / std::max(1.0, pairs), best / count};
}

struct Cost {
  const char* name;
  double CpuCosts::*value;
  double least, most;
};
constexpr Cost kCosts[] = {
    {"core_overlap", &CpuCosts::core_overlap, 0, 1},
    {"memory_overlap", &CpuCosts::memory_overlap, 0, 1},
    {"l1_bytes", &CpuCosts::l1_bytes, 4, 128},
    {"l2_bytes", &CpuCosts::l2_bytes, 1, 64},
    {"pass_cycles", &CpuCosts::pass_cycles, 0, 30},
    {"spill_loads", &CpuCosts::spill_loads, 0, 20},
    {"scalar_cycles", &CpuCosts::scalar_cycles, 0.1, 20},
    {"latency", &CpuCosts::latency, 1, 12},
    {"guard", &CpuCosts::guard, 0, 60},
    {"kernel_seconds", &CpuCosts::kernel_seconds, 1e-6, 2e-5},
};

void Print(const char* what, const std::vector<FitTask>& tasks) {
  for (bool left_out : {false, true}) {
    const Fit fit = Judge(tasks, left_out);
    std::printf("%-10s %-12s spread within %.3f, over all %.3f, pairs in order %.3f, best %.3f\n", what,
                left_out ? "left out" : "fitted", std::exp(fit.within), std::exp(fit.over_all), fit.pairs_right,
                fit.best);
  }
}

absl::Status Run(const std::string& path, const std::string& target_text, int rounds) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(target_text));
  ASSIGN_OR_RETURN(const std::vector<FitTask> tasks, Load(path, target));
  size_t candidates = 0;
  for (const FitTask& task : tasks) candidates += task.candidates.size();
  std::printf("%zu candidates of %zu tasks\n", candidates, tasks.size());
  Print("this build", tasks);
  CpuCosts& costs = MutableCpuCosts();
  std::mt19937 random(1);
  double best = Judge(tasks, false).loss();
  for (int round = 0; round < rounds; ++round) {
    const CpuCosts before = costs;
    const int changes = 1 + static_cast<int>(random() % 3);
    const double size = round < rounds / 2 ? 1.0 : 0.25;
    for (int i = 0; i < changes; ++i) {
      const Cost& cost = kCosts[random() % std::size(kCosts)];
      double value = std::min(costs.*cost.value, cost.most);
      if (cost.least == 0)
        value += std::normal_distribution<double>(0, cost.most * 0.15 * size)(random);
      else
        value *= std::exp(std::normal_distribution<double>(0, 0.7 * size)(random));
      costs.*cost.value = std::clamp(value, cost.least, cost.most);
    }
    const double loss = Judge(tasks, false).loss();
    if (loss < best)
      best = loss;
    else
      costs = before;
  }
  Print("fitted", tasks);
  for (const Cost& cost : kCosts) std::printf("  double %s = %.3g;\n", cost.name, costs.*cost.value);
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  int rounds = 400;
  if (argc < 3 || argc > 4 || (argc == 4 && !absl::SimpleAtoi(argv[3], &rounds))) {
    std::fprintf(stderr, "usage: fit_estimate HISTORY TARGET [ROUNDS]\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argv[2], rounds);
  if (!status.ok()) std::fprintf(stderr, "fit_estimate: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
