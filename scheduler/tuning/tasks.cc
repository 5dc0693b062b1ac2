#include "scheduler/tuning/tasks.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason::tuning {
namespace {

// The shortest rounds that a small budget is cut into: fewer candidates are not worth a search.
constexpr int kMinRound = 8;
constexpr int kRoundsPerTask = 4;
// Trials a second to plan with while a run is limited by time: what a host of two cores and a GPU at least manage.
constexpr double kPlannedRate = 3, kPlannedGpuRate = 12;

// `usual`: tasks that have a weight, whatever alternative is best. Those that only fusion alternatives have are tried
// within a share of the trials.
int RoundSize(const TunerOptions& options, int64_t usual) {
  double trials = static_cast<double>(options.trials);
  if (options.seconds > 0)
    trials =
        std::min(trials, options.seconds * (options.target.kind == TargetKind::kCuda ? kPlannedGpuRate : kPlannedRate));
  const auto fair =
      static_cast<int>(std::min(1e6, trials / (kRoundsPerTask * static_cast<double>(std::max<int64_t>(1, usual)))));
  return std::min(options.trials_per_round, std::max(kMinRound, fair));
}

absl::Status CheckOptions(const TunerOptions& options, int tasks) {
  if (options.trials < 1)
    return absl::InvalidArgumentError(absl::StrCat("the number of trials is ", options.trials, ": give at least 1"));
  if (options.trials_per_round < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("the number of trials per round is ", options.trials_per_round, ": give at least 1"));
  if (options.seconds < 0)
    return absl::InvalidArgumentError(absl::StrCat("the time limit is ", options.seconds, " seconds: give 0 for none"));
  if (tasks == 0) return absl::InvalidArgumentError("there is no task to tune: the network has no operator that runs");
  for (int id : std::set<int>(options.only.begin(), options.only.end()))
    if (id < 0 || id >= tasks)
      return absl::InvalidArgumentError(absl::StrCat("there is no task ", id, ": choose from 0 to ", tasks - 1));
  return absl::OkStatus();
}

// The choices that can be made, by tasks as the scheduler knows them.
std::vector<NetworkChoice> ScheduledChoices(const TunerOptions& options, Tasks& tasks) {
  std::vector<NetworkChoice> scheduled;
  for (size_t c = 0; c < options.choices.size(); ++c) {
    NetworkChoice choice = options.choices[c];
    bool tuned = true;
    for (auto& alternative : choice.alternatives)
      for (auto& [task, times] : alternative) {
        task = tasks.scheduled_as[task];
        tuned = tuned && task >= 0;
      }
    if (!tuned) continue;
    scheduled.push_back(std::move(choice));
    tasks.choices.push_back(static_cast<int>(c));
  }
  return scheduled;
}

std::unique_ptr<XgbCostModel> MakeModel(const TunerOptions& options) {
  XgbOptions model;
  model.num_features = kNumFeatures;
  model.feature_version = kFeatureVersion;
  model.target_kind = options.target.kind == TargetKind::kCpu      ? "cpu"
                      : options.target.kind == TargetKind::kOpenCl ? "opencl"
                                                                   : "cuda";
  model.label = options.label;
  model.seed = options.seed;
  if (!options.learn) model.min_samples = std::numeric_limits<int>::max();
  return std::make_unique<XgbCostModel>(std::move(model));
}

absl::Status MakeScheduler(const TunerOptions& options, Tasks& tasks) {
  std::vector<ScheduledTask> scheduled;
  std::vector<std::vector<NetworkWeight>> weights;
  for (int id : tasks.selected) {
    tasks.scheduled_as[id] = static_cast<int>(scheduled.size());
    scheduled.push_back({tasks.at(id).flops(), KindOf(tasks.at(id).task().dag)});
    weights.push_back(tasks.at(id).task().weights);
  }
  ASSIGN_OR_RETURN(Objective objective, Objective::Parse(options.objective, weights, ScheduledChoices(options, tasks)));
  TaskSchedulerOptions scheduling;
  scheduling.trials = options.trials;
  scheduling.round_size = tasks.round_size;
  scheduling.seed = options.seed;
  scheduling.early_stop = options.early_stop;
  tasks.scheduler = std::make_unique<TaskScheduler>(std::move(scheduled), std::move(objective), scheduling);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tasks> MakeTasks(std::vector<TuningTask> tasks, TunerOptions& options) {
  const int count = static_cast<int>(tasks.size());
  RETURN_IF_ERROR(CheckOptions(options, count));
  if (!options.clock) options.clock = MonotonicSeconds;
  if (options.synchronous) options.rounds = nullptr;
  Tasks made;
  made.scheduled_as.assign(tasks.size(), -1);
  const std::set<int> only(options.only.begin(), options.only.end());
  for (int id = 0; id < count; ++id)
    if (only.empty() || only.contains(id)) made.selected.push_back(id);
  const auto usual = std::count_if(made.selected.begin(), made.selected.end(), [&](int id) {
    const std::vector<NetworkWeight>& weights = tasks[id].weights;
    return std::any_of(weights.begin(), weights.end(), [](const NetworkWeight& weight) { return weight.weight > 0; });
  });
  made.round_size = RoundSize(options, usual);
  options.evolution.population = std::min(options.evolution.population, std::max(1024, 64 * made.round_size));
  for (int id = 0; id < count; ++id) {
    ASSIGN_OR_RETURN(auto state, TaskState::Create(id, std::move(tasks[id]), options));
    made.all.push_back(std::move(state));
  }
  RETURN_IF_ERROR(MakeScheduler(options, made));
  made.model = MakeModel(options);
  return made;
}

}  // namespace diapason::tuning
