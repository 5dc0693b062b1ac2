#include "service/tune_spec.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/host_name.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "db/text.h"
#include "diapason/v1/tuning.pb.h"
#include "scheduler/objective.h"
#include "service/record_collection.h"
#include "service/target.h"

namespace diapason {
namespace {

constexpr int64_t kUnlimitedTrials = int64_t{1} << 40;
// TunerOptions::confirming_samples.
constexpr int kConfirmingSamples = 5;
// TunerOptions::contenders.
constexpr int kContendersInTurns = 3;

// "1,4" as positions from 0.
absl::StatusOr<std::vector<int>> ParseTasks(const std::string& text, size_t count) {
  std::vector<int> positions;
  if (text.empty()) return positions;
  for (const std::string& part : static_cast<std::vector<std::string>>(absl::StrSplit(text, ','))) {
    int id = 0;
    if (!absl::SimpleAtoi(part, &id) || id < 1 || id > static_cast<int>(count)) {
      return absl::InvalidArgumentError(absl::StrCat("--tasks ", text,
                                                     " does not name tasks of this network; give ids from 1 to ", count,
                                                     " as `diapason tasks` shows them, for example --tasks 1,4"));
    }
    if (std::find(positions.begin(), positions.end(), id - 1) == positions.end()) positions.push_back(id - 1);
  }
  return positions;
}

absl::Status CheckObjective(const std::string& text, const std::vector<TuningTask>& tasks,
                            const std::vector<NetworkChoice>& choices) {
  std::vector<std::vector<NetworkWeight>> weights;
  for (const TuningTask& task : tasks) weights.push_back(task.weights);
  return Objective::Parse(text, weights, choices).status();
}

// Puts the tasks of several partitions together.
class PlanMerger {
 public:
  PlanMerger(std::string network, bool libraries) : libraries_(libraries) { work_.network = std::move(network); }

  // Calls of libraries write no parts of larger tensors: with them, alternatives that run more may win too.
  void Add(ImportedPlan plan) {
    if (!libraries_) plan.model.fusion.partition.tasks.resize(plan.model.fusion.worthwhile_tasks);
    plans_.push_back(std::move(plan));
  }

  TuneWork Merge() && {
    // Those of the default fusion in front, as in a single partition.
    for (const bool usual : {true, false})
      for (const ImportedPlan& plan : plans_)
        for (const Task& task : plan.model.fusion.partition.tasks)
          if ((task.weight > 0) == usual) Find(task);
    for (ImportedPlan& plan : plans_) {
      const std::string name = NameWithSizes(work_.network, plan.combination.sizes);
      for (const Task& task : plan.model.fusion.partition.tasks) {
        const int merged = Find(task);
        work_.partition.tasks[merged].weight += task.weight;
        work_.tasks[merged].weights.push_back({name, task.weight * plan.combination.weight});
        work_.links[merged].weight += task.weight * plan.combination.weight;
      }
      AddChoices(name, plan);
    }
    if (plans_.size() == 1) work_.latency_key = LatencyKey(work_.network, work_.partition);
    return std::move(work_);
  }

 private:
  int Find(const Task& task) {
    const auto [known, fresh] = places_.emplace(task.workload_key, static_cast<int>(work_.partition.tasks.size()));
    if (!fresh) return known->second;
    const int times = ++names_[task.name];
    const std::string name = times == 1 ? task.name : absl::StrCat(task.name, "_v", times);
    work_.partition.tasks.push_back({name, task.dag, 0, task.workload_key, task.unbounded_key});
    work_.tasks.push_back({name, task.dag, task.workload_key, {}});
    work_.links.push_back({work_.network, task.workload_key, SerializeDag(task.dag), name, 0});
    return known->second;
  }

  // The choice points at which alternatives are tuned against each other.
  void AddChoices(const std::string& name, ImportedPlan& plan) {
    const std::vector<Task>& tasks = plan.model.fusion.partition.tasks;
    for (ChoicePoint& point : plan.model.fusion.choice_points) {
      std::vector<int> tried = AlternativesThatMayWin(point);
      if (libraries_) {
        tried.resize(point.alternatives.size());
        std::iota(tried.begin(), tried.end(), 0);
      }
      if (tried.size() < 2) continue;
      NetworkChoice choice{name, {}};
      for (FusionAlternative& alternative : point.alternatives)
        for (auto& [task, times] : alternative.tasks)
          if (task < static_cast<int>(tasks.size())) task = places_.at(tasks[task].workload_key);
      for (int w : tried) {
        auto& counted = choice.alternatives.emplace_back();
        for (const auto& [task, times] : point.alternatives[w].tasks)
          counted.emplace_back(task, times * plan.combination.weight);
      }
      if (plans_.size() > 1) absl::StrAppend(&point.name, " (", SizesText(plan.combination.sizes), ")");
      work_.choices.push_back(std::move(choice));
      work_.tried.push_back(std::move(tried));
      work_.choice_points.push_back(std::move(point));
    }
  }

  const bool libraries_;
  std::vector<ImportedPlan> plans_;
  TuneWork work_;
  std::map<std::string, int> places_, names_;  // of merged tasks by workload key; how often a name was taken
};

// One device measures faster than one core proposes, where many cores build; few cores are better left to builders.
int SearchThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4); }

// As the flags of `tune` check; who writes to the service without our program gets the same answer.
absl::Status CheckNumbers(const TuneSpec& spec) {
  struct Number {
    const char* name;
    double value, least, most;
  };
  const Number numbers[] = {{"trials", static_cast<double>(spec.trials), 0, 1e15},
                            {"seconds", spec.seconds, 0, 1e9},
                            {"trials_per_round", static_cast<double>(spec.trials_per_round), 1, 4096},
                            {"early_stop", spec.early_stop, 0, 1e15},
                            {"repeat", static_cast<double>(spec.measure.repeat), 1, 1000},
                            {"number", static_cast<double>(spec.measure.number), 1, 1e6},
                            {"min_repeat_ms", spec.measure.min_repeat_ms, 0, 1e6},
                            {"build_timeout_seconds", spec.measure.build_timeout_s, 1e-3, 1e5},
                            {"run_timeout_seconds", spec.measure.run_timeout_s, 1e-3, 1e5},
                            {"batch", static_cast<double>(spec.options.batch), 0, 1 << 20},
                            {"weight", spec.weight, 1e-6, 1e6},
                            {"priority", static_cast<double>(spec.priority), -1000, 1000}};
  for (const Number& n : numbers) {
    if (n.value >= n.least && n.value <= n.most) continue;  // false for NaN
    return absl::InvalidArgumentError(
        absl::StrCat("the job's ", n.name, " is ", n.value, ": give a number from ", n.least, " to ", n.most));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NetworkName(const std::string& model) {
  std::string name = model.substr(model.rfind('/') + 1);
  if (name.size() > 5 && name.ends_with(".onnx")) name.resize(name.size() - 5);
  return name;
}

std::string LatencyKey(const std::string& network, const Partition& partition) {
  std::vector<std::string> tasks;
  for (const Task& task : partition.tasks)
    if (task.weight > 0) tasks.push_back(absl::StrCat(task.workload_key, "*", task.weight));
  std::sort(tasks.begin(), tasks.end());
  return absl::StrCat(network, "@", absl::Hex(Fnv1a(absl::StrJoin(tasks, ",")), absl::kZeroPad16));
}

TuneWork MergePlans(const std::string& network, std::vector<ImportedPlan> plans, const std::string& target_text) {
  const absl::StatusOr<Target> target = Target::Parse(target_text);
  PlanMerger merger(network, target.ok() && !target->libs.empty());
  for (ImportedPlan& plan : plans) merger.Add(std::move(plan));
  return std::move(merger).Merge();
}

absl::StatusOr<TuneWork> PrepareWork(const TuneSpec& spec, const std::string& path, const PrepareOptions& options) {
  if (!spec.dims.weights.empty() && spec.objective != "sum")
    return absl::InvalidArgumentError(absl::StrCat("--weight of sizes goes with --objective sum, not with '",
                                                   spec.objective, "': leave one of them out"));
  ImportRequest request{path, spec.options, options.limits, /*with_network=*/false, options.stop};
  ASSIGN_OR_RETURN(const Target target, Target::Parse(spec.target));
  const FusionPreferences fusion = options.fusion.value_or(PreferredFusion(target));
  request.fusion = fusion;
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> plans, ImportPlans(std::move(request), spec.dims));
  std::vector<std::string> warnings = WarningsOf(plans);
  TuneWork work = MergePlans(NetworkName(spec.model), std::move(plans), spec.target);
  work.warnings = std::move(warnings);
  work.fusion = fusion;
  ASSIGN_OR_RETURN(work.only, ParseTasks(spec.tasks, work.tasks.size()));
  RETURN_IF_ERROR(CheckObjective(spec.objective, work.tasks, work.choices));
  return work;
}

std::vector<NonDefaultFusion> NonDefaultFusions(const TuneWork& work, const TuneReport& report) {
  std::vector<NonDefaultFusion> won;
  for (size_t b = 0; b < work.choice_points.size() && b < report.alternatives.size(); ++b) {
    const int alternative = work.tried[b][report.alternatives[b]];
    if (alternative != 0)
      won.push_back({work.choice_points[b].name, work.choice_points[b].alternatives[alternative].name});
  }
  return won;
}

TunerOptions TunerOptionsFor(const TuneSpec& spec, const TuneWork& work, const ResolvedTarget& target) {
  TunerOptions options;
  options.target = target.target;
  options.facts = target.facts;
  options.make_space = TaskSpace::Create;
  options.trials = spec.trial_limit().value_or(kUnlimitedTrials);
  options.seconds = spec.seconds;
  options.only = work.only;
  options.choices = work.choices;
  options.seed = spec.seed;
  options.evolution.threads = SearchThreads();
  options.trials_per_round = static_cast<int>(spec.trials_per_round);
  options.measure = spec.measure;
  options.objective = spec.objective;
  options.early_stop = spec.early_stop < 1 ? spec.early_stop : 0;
  options.patience = spec.early_stop < 1 ? 0 : static_cast<int64_t>(spec.early_stop);
  options.synchronous = spec.deterministic;
  options.warm_start = !spec.cold_start;
  options.confirming_samples = kConfirmingSamples;
  options.contenders = kContendersInTurns;
  options.latency_network = work.latency_key;
  options.host = HostName();
  return options;
}

absl::StatusOr<std::vector<TunedWorkload>> ShippedForSearch(const TuneSpec& spec, const ResolvedTarget& target,
                                                            const std::string& program) {
  if (spec.deterministic || spec.cold_start || spec.no_shipped_records) return std::vector<TunedWorkload>();
  ASSIGN_OR_RETURN(const RecordCollection shipped, RecordCollection::Shipped(ShippedRecordsFolder(program), target));
  return shipped.ForSearch(target);
}

absl::StatusOr<std::vector<int64_t>> ContinuedRuns(const TuneSpec& spec, History& history,
                                                   const std::string& command_line) {
  std::vector<int64_t> continued;
  if (!spec.deterministic) return continued;
  ASSIGN_OR_RETURN(const std::vector<TuningRun> runs, history.Runs());
  for (const TuningRun& run : runs) {
    if (run.command_line == command_line && run.seed == spec.seed) continued.push_back(run.id);
  }
  return continued;
}

void ToProto(const TuneSpec& spec, v1::TuneSpec& message) {
  message.set_model(spec.model_hash.empty() ? spec.model : spec.model.substr(spec.model.rfind('/') + 1));
  message.set_model_hash(spec.model_hash);
  message.set_batch(spec.options.batch);
  message.set_layout(NameOf(spec.options.layout));
  message.set_dtype(NameOf(spec.options.dtype));
  for (const auto& [name, shape] : spec.options.input_shapes) {
    *(*message.mutable_input_shapes())[name].mutable_extents() = {shape.begin(), shape.end()};
  }
  for (const auto& [symbol, sizes] : spec.dims.sizes)
    *(*message.mutable_dims())[symbol].mutable_sizes() = {sizes.begin(), sizes.end()};
  for (const auto& [symbol, weights] : spec.dims.weights) {
    for (const auto& [size, weight] : weights) {
      v1::DimWeight& out = *message.add_dim_weights();
      out.set_symbol(symbol);
      out.set_size(size);
      out.set_weight(weight);
    }
  }
  message.mutable_extra()->insert(spec.options.extra.begin(), spec.options.extra.end());
  message.set_target(spec.target);
  message.set_trials(spec.trials);
  message.set_seconds(spec.seconds);
  message.set_tasks(spec.tasks);
  message.set_seed(spec.seed);
  message.set_trials_per_round(spec.trials_per_round);
  message.set_early_stop(spec.early_stop);
  message.set_objective(spec.objective);
  message.set_repeat(static_cast<uint32_t>(spec.measure.repeat));
  message.set_number(static_cast<uint64_t>(spec.measure.number));
  message.set_min_repeat_ms(spec.measure.min_repeat_ms);
  message.set_build_timeout_seconds(spec.measure.build_timeout_s);
  message.set_run_timeout_seconds(spec.measure.run_timeout_s);
  message.set_no_race(!spec.measure.race);
  message.set_device(spec.device_model);
  message.mutable_labels()->insert(spec.labels.begin(), spec.labels.end());
  message.set_priority(spec.priority);
  message.set_weight(spec.weight);
  message.set_deterministic(spec.deterministic);
  message.set_cold_start(spec.cold_start);
  message.set_no_shipped_records(spec.no_shipped_records);
  message.set_no_check(spec.no_check);
  message.set_strict(spec.options.strict);
}

absl::StatusOr<TuneSpec> FromProto(const v1::TuneSpec& message) {
  TuneSpec spec;
  spec.model = message.model();
  spec.model_hash = message.model_hash();
  spec.options.batch = message.batch();
  if (message.layout() != "NHWC" && message.layout() != "NCHW")
    return absl::InvalidArgumentError(absl::StrCat("the job's layout is '", message.layout(), "': give NHWC or NCHW"));
  spec.options.layout = message.layout() == "NCHW" ? Layout::kNCHW : Layout::kNHWC;
  ASSIGN_OR_RETURN(spec.options.dtype, ModelTypeFromName("job's dtype", message.dtype()));
  for (const auto& [name, shape] : message.input_shapes())
    spec.options.input_shapes[name] = {shape.extents().begin(), shape.extents().end()};
  for (const auto& [symbol, sizes] : message.dims())
    spec.dims.sizes[symbol] = {sizes.sizes().begin(), sizes.sizes().end()};
  for (const v1::DimWeight& weight : message.dim_weights())
    spec.dims.weights[weight.symbol()][weight.size()] = weight.weight();
  RETURN_IF_ERROR(CheckDimChoices(spec.dims));
  spec.options.extra = {message.extra().begin(), message.extra().end()};
  spec.target = message.target();
  spec.trials = message.trials();
  spec.seconds = message.seconds();
  spec.tasks = message.tasks();
  spec.seed = message.seed();
  spec.trials_per_round = message.trials_per_round();
  spec.early_stop = message.early_stop();
  spec.objective = message.objective();
  spec.measure.repeat = static_cast<int>(std::min<uint32_t>(message.repeat(), 1 << 30));
  spec.measure.number = static_cast<int64_t>(std::min<uint64_t>(message.number(), 1 << 30));
  spec.measure.min_repeat_ms = message.min_repeat_ms();
  spec.measure.build_timeout_s = message.build_timeout_seconds();
  spec.measure.run_timeout_s = message.run_timeout_seconds();
  spec.measure.race = !message.no_race();
  spec.device_model = message.device();
  spec.labels = {message.labels().begin(), message.labels().end()};
  spec.priority = message.priority();
  spec.weight = message.weight();
  spec.deterministic = message.deterministic();
  spec.cold_start = message.cold_start();
  spec.no_shipped_records = message.no_shipped_records();
  spec.no_check = message.no_check();
  spec.options.strict = message.strict();
  if (spec.model.empty()) return absl::InvalidArgumentError("the job names no model");
  // A path would be read on the service's host.
  if (spec.model_hash.empty() && (spec.model.find('/') != std::string::npos || spec.model.ends_with(".onnx")))
    return absl::InvalidArgumentError(
        absl::StrCat("the job's model '", spec.model, "' is a file: send its content, or name a built-in network"));
  RETURN_IF_ERROR(CheckNumbers(spec));
  ASSIGN_OR_RETURN(Target target, Target::Parse(spec.target));
  if (message.flush_l2()) {
    target.caches = Caches::kFlushed;
    spec.target = target.ToString();
  }
  return spec;
}

}  // namespace diapason
