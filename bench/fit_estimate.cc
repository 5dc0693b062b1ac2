// The costs of the analytic estimate for processors, fitted to what a history holds.
//
//   fit_estimate HISTORY TARGET [ROUNDS [CLOCK]]
//
// CLOCK: of this machine, in GHz, where it runs faster than it says.
// Prints how well the estimate of this build fits, and that of the costs found (scheduler/sketch/cpu_costs.h): the
// spread of measured over estimated time within tasks and over all (as a factor: 1.2 is 20%), the share of pairs of a
// task's candidates, more than 10% apart, that are in the right order, the rank correlation (Spearman's, mean of
// tasks), and how near the candidate that is estimated best comes to the best of its task (1: the same). Tasks in every
// fourth place are left out of the fit and judged apart. With ROUNDS 0, what this build estimates of each task.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
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
  std::string name;
  std::unique_ptr<TaskSpace> space;
  std::vector<TimedCandidate> candidates;
};

absl::StatusOr<std::vector<FitTask>> Load(const std::string& path, const Target& target, double clock) {
  DeviceFacts facts = DefaultFacts(target);
  if (clock > 0) {
    facts.flops *= clock * 1e9 / facts.clock_hz;
    facts.clock_hz = clock * 1e9;
  }
  ASSIGN_OR_RETURN(auto history, History::Open(path, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const HistoryInfo info, history->Info());
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> linked, history->NetworkTasks(""));
  std::vector<FitTask> tasks;
  std::vector<std::string> seen;
  for (const NetworkTask& one : linked) {
    if (std::find(seen.begin(), seen.end(), one.workload_key) != seen.end()) continue;
    seen.push_back(one.workload_key);
    FitTask task;
    task.name = one.task_name;
    ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(one.workload));
    ASSIGN_OR_RETURN(task.space, TaskSpace::Create(dag, target, facts));
    for (const auto& device : info.devices) {
      ASSIGN_OR_RETURN(const auto records, history->ForWorkload(one.workload_key, device.model));
      for (const TuningRecord& record : records) {
        const Timing* timing = record.timing();
        const int space = task.space->Find(record.sketch);
        if (Target::Parse(record.target).value_or(Target()).caches != target.caches) continue;
        if (timing == nullptr || timing->samples.empty() || space < 0 || task.space->space(space).external()) continue;
        if (task.space->space(space).size() != static_cast<int>(record.configuration.size())) continue;
        task.candidates.push_back({space, record.configuration, MedianSeconds(*timing)});
      }
    }
    if (task.candidates.size() >= 5) tasks.push_back(std::move(task));
  }
  return tasks;
}

// Places of values in their order, from 0.
std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return 1 - 6 * squares / (n * (n * n - 1));
}

// By candidate of a task.
struct Times {
  std::vector<double> measured, estimated;
  size_t chosen = 0;  // the least estimate
};

Times TimesOf(const FitTask& task) {
  Times times;
  for (const TimedCandidate& c : task.candidates) {
    Metrics metrics;
    task.space->space(c.space).Evaluate(c.configuration, &metrics);
    times.measured.push_back(c.seconds);
    times.estimated.push_back(metrics.seconds);
  }
  times.chosen = std::min_element(times.estimated.begin(), times.estimated.end()) - times.estimated.begin();
  return times;
}

struct Fit {
  double within = 0, over_all = 0, pairs_right = 0, best = 0, ranks = 0;
  double loss() const { return within + 0.15 * over_all + 0.3 * (1 - pairs_right) + 0.5 * (1 - best); }
};

// Adds what a task says of the estimate; the counts are of pairs and of tasks.
void AddTask(const FitTask& task, Fit* fit, double* pairs, double* count) {
  const Times times = TimesOf(task);
  const double fastest = *std::min_element(times.measured.begin(), times.measured.end());
  double mean = 0, sum = 0, squares = 0;
  const auto residual = [&](size_t i) { return std::log(times.measured[i] / times.estimated[i]); };
  for (size_t i = 0; i < times.measured.size(); ++i) {
    mean += residual(i) * fastest / times.measured[i];
    sum += fastest / times.measured[i];
  }
  mean /= sum;
  for (size_t i = 0; i < times.measured.size(); ++i) {
    squares += fastest / times.measured[i] * (residual(i) - mean) * (residual(i) - mean);
    for (size_t j = 0; j < times.measured.size(); ++j) {
      if (times.measured[i] * 1.1 > times.measured[j]) continue;
      *pairs += 1;
      fit->pairs_right += times.estimated[i] < times.estimated[j] ? 1 : 0;
    }
  }
  fit->within += squares / sum;
  fit->over_all += mean * mean;
  fit->best += fastest / times.measured[times.chosen];
  fit->ranks += RankCorrelation(times.measured, times.estimated);
  *count += 1;
}

// Of the tasks whose place divided by four leaves `left_out`, or of all others.
Fit Judge(const std::vector<FitTask>& tasks, bool left_out) {
  Fit fit;
  double pairs = 0, count = 0;
  for (size_t t = 0; t < tasks.size(); ++t)
    if ((t % 4 == 3) == left_out) AddTask(tasks[t], &fit, &pairs, &count);
  return {std::sqrt(fit.within / count), std::sqrt(fit.over_all / count), fit.pairs_right / std::max(1.0, pairs),
          fit.best / count, fit.ranks / count};
}

void PrintTasks(const std::vector<FitTask>& tasks) {
  for (const FitTask& task : tasks) {
    const Times times = TimesOf(task);
    const size_t best = std::min_element(times.measured.begin(), times.measured.end()) - times.measured.begin();
    std::printf(
        "%-46s %3zu candidates, rank correlation %5.2f, estimated best takes %7.1f us (estimate %7.1f, %s)"
        " of %7.1f (estimate %7.1f, %s)\n",
        task.name.c_str(), times.measured.size(), RankCorrelation(times.measured, times.estimated),
        times.measured[times.chosen] * 1e6, times.estimated[times.chosen] * 1e6,
        task.space->space(task.candidates[times.chosen].space).name().c_str(), times.measured[best] * 1e6,
        times.estimated[best] * 1e6, task.space->space(task.candidates[best].space).name().c_str());
  }
}

struct Cost {
  const char* name;
  double CpuCosts::*value;
  double least, most;
};
constexpr Cost kCosts[] = {
    {"core_overlap", &CpuCosts::core_overlap, 0, 0.5},
    {"memory_overlap", &CpuCosts::memory_overlap, 0, 1},
    {"l1_bytes", &CpuCosts::l1_bytes, 12, 64},
    {"l2_bytes", &CpuCosts::l2_bytes, 3, 40},
    {"pass_cycles", &CpuCosts::pass_cycles, 0, 10},
    {"spill_loads", &CpuCosts::spill_loads, 0, 10},
    {"unrolled_registers", &CpuCosts::unrolled_registers, 1, 1.5},
    {"long_code_cycles", &CpuCosts::long_code_cycles, 0, 1},
    {"scalar_cycles", &CpuCosts::scalar_cycles, 0.1, 20},
    {"latency", &CpuCosts::latency, 3, 6},
    {"window", &CpuCosts::window, 50, 600},
    {"guard", &CpuCosts::guard, 0, 20},
    {"place", &CpuCosts::place, 0, 5},
    {"branch", &CpuCosts::branch, 0, 10},
    {"tail", &CpuCosts::tail, 0, 0.3},
    {"weights_rate", &CpuCosts::weights_rate, 0.3, 1.5},
    {"weights_overlap", &CpuCosts::weights_overlap, 0, 1},
    {"kernel_seconds", &CpuCosts::kernel_seconds, 5e-7, 4e-6},
};

void Print(const char* what, const std::vector<FitTask>& tasks) {
  for (bool left_out : {false, true}) {
    const Fit fit = Judge(tasks, left_out);
    std::printf("%-10s %-12s spread within %.3f, over all %.3f, pairs in order %.3f, ranks %.3f, best %.3f\n", what,
                left_out ? "left out" : "fitted", std::exp(fit.within), std::exp(fit.over_all), fit.pairs_right,
                fit.ranks, fit.best);
  }
}

absl::Status Run(const std::string& path, const std::string& target_text, int rounds, double clock) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(target_text));
  ASSIGN_OR_RETURN(const std::vector<FitTask> tasks, Load(path, target, clock));
  size_t candidates = 0;
  for (const FitTask& task : tasks) candidates += task.candidates.size();
  std::printf("%zu candidates of %zu tasks\n", candidates, tasks.size());
  Print("this build", tasks);
  if (rounds == 0) {
    PrintTasks(tasks);
    return absl::OkStatus();
  }
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
  double clock = 0;
  if (argc < 3 || argc > 5 || (argc >= 4 && !absl::SimpleAtoi(argv[3], &rounds)) ||
      (argc == 5 && !absl::SimpleAtod(argv[4], &clock))) {
    std::fprintf(stderr, "usage: fit_estimate HISTORY TARGET [ROUNDS [CLOCK]]\n");
    return 2;
  }
  const absl::Status status = diapason::Run(argv[1], argv[2], rounds, clock);
  if (!status.ok()) std::fprintf(stderr, "fit_estimate: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
