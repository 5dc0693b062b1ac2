// What the cost model and the warm start are worth: tuning on a simulated device, with and without them.
//
//   search_curves HISTORY NETWORK TARGET [TRIALS] [SEEDS] [half]    default: 1000 trials, 3 seeds
//
// NETWORK may be "-": the tasks of all networks of the history.
//
// With "half", every other task is known already, with all its trials, and the others are tuned: as a new network would
// be that has near workloads in the history.
//
// The simulated device answers by a model that was trained on all trials of the history (more trees than a search has,
// and 3% of noise that is the same for the same candidate), so that thousands of trials take minutes of a processor.
// Prints the sum of the tuned tasks in microseconds, with their weights, after so many trials, means over the seeds.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/history_samples.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "scheduler/random.h"

namespace diapason {
namespace {

constexpr double kNoise = 0.03;
// As the race of the workers.
constexpr double kRaceFactor = 1.15;

// Latencies of candidates by what a history says of their like.
class SimulatedDevice {
 public:
  explicit SimulatedDevice(const std::vector<MeasuredTask>& tasks) : tasks_(tasks) {
    XgbOptions options;
    options.num_features = kNumFeatures;
    options.feature_version = kFeatureVersion;
    options.max_trees = 400;
    options.max_depth = 8;
    XgbCostModel model(options);
    for (size_t i = 0; i < tasks.size(); ++i) {
      task_of_[SerializeDag(tasks[i].task.dag)] = i;
      double best = 0;
      for (const Sample& sample : tasks[i].samples)
        if (sample.seconds > 0 && (best == 0 || sample.seconds < best)) best = sample.seconds;
      best_.push_back(best);
      model.AddSamples(tasks[i].samples);
    }
    model.Train();
    model.Wait();
    truth_ = model.Current();
  }

  // REQUIRES: a schedule of a task that the history has.
  double Seconds(const std::string& workload, const Schedule& schedule) const {
    const size_t i = task_of_.at(workload);
    const MeasuredTask& task = tasks_[i];
    const int space = task.space->Find(schedule.sketch);
    DIAPASON_CHECK(space >= 0);
    Metrics metrics;
    task.space->space(space).Evaluate(schedule.configuration, &metrics);
    double score = 0;
    truth_->Predict(task.samples[0].task, metrics.features, {&metrics.seconds, 1}, {&score, 1});
    Random random(CandidateHash(schedule.sketch, schedule.configuration), 17);
    return best_[i] * std::exp(-score) * (1 + kNoise * (2 * random.Uniform() - 1));
  }

 private:
  const std::vector<MeasuredTask>& tasks_;
  std::map<std::string, size_t> task_of_;  // by workload
  std::vector<double> best_;               // seconds, of each task
  std::shared_ptr<const Ranker> truth_;
};

// Answers at once; every result is right.
class SimulatedMeasurer : public Measurer {
 public:
  explicit SimulatedMeasurer(const SimulatedDevice* device) : device_(device) {}
  absl::Status Submit(std::vector<MeasureRequest> requests) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const MeasureRequest& request : requests) {
      ASSIGN_OR_RETURN(MeasureOutcome outcome, Answer(request));
      outcomes_.push_back(std::move(outcome));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(outcomes_, {});
  }
  void Cancel() override {}
  int slots() const override { return 4; }

 private:
  absl::StatusOr<MeasureOutcome> Answer(const MeasureRequest& request) const {
    ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(request.schedule));
    MeasureOutcome outcome;
    outcome.id = request.id;
    Timing timing;
    if (request.verify) {
      outcome.verdict = Verdict{true, 0, ""};
    } else {
      timing.samples = {device_->Seconds(*request.workload, schedule)};
      timing.stopped_early = request.best_seconds > 0 && timing.samples[0] > kRaceFactor * request.best_seconds;
    }
    outcome.outcome = timing;
    return outcome;
  }

  const SimulatedDevice* const device_;
  std::mutex mutex_;
  std::vector<MeasureOutcome> outcomes_;
};

// The sum of the tuned tasks after so many trials.
class Curve : public ProgressListener {
 public:
  explicit Curve(std::vector<int64_t> at) : at_(std::move(at)), values_(at_.size()) {}
  void OnRecord(int, const TuningRecord&, bool, const TuneReport& report) override {
    double sum = 0;
    for (const TaskReport& task : report.tasks) {
      if (!task.selected) continue;
      if (!task.best_us) return;
      sum += task.weight * *task.best_us;
    }
    for (size_t i = 0; i < at_.size(); ++i)
      if (report.measured <= at_[i]) values_[i] = sum;
  }
  const std::vector<double>& values() const { return values_; }  // 0: not all tasks had a time

 private:
  const std::vector<int64_t> at_;
  std::vector<double> values_;
};

struct Variant {
  const char* name;
  bool learn, warm_start;
};

// Copies what the history has of every other task, and has the rest tuned.
absl::Status KnowHalf(const std::string& from, const std::vector<MeasuredTask>& tasks, History& history,
                      TunerOptions* options) {
  ASSIGN_OR_RETURN(const auto known, History::Open(from, HistoryMode::kReadOnly));
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (i % 2 == 0) {
      options->only.push_back(static_cast<int>(i));
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<TuningRecord> records,
                     known->ForWorkload(tasks[i].task.workload_key, options->facts.model));
    for (TuningRecord& record : records) {
      record.run_id = 0;
      record.target = options->target.ToString();
    }
    RETURN_IF_ERROR(history.Append(records).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Tune(const std::vector<MeasuredTask>& tasks, const SimulatedDevice& device,
                                         TunerOptions options, const std::vector<int64_t>& at,
                                         const std::string& half_of) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / absl::StrCat("search_curves.", getpid(), ".", std::rand(), ".db");
  Curve curve(at);
  absl::Status status;
  {
    ASSIGN_OR_RETURN(const auto history, History::Open(file, HistoryMode::kCreate));
    if (!half_of.empty()) RETURN_IF_ERROR(KnowHalf(half_of, tasks, *history, &options));
    std::vector<TuningTask> tuning;
    for (const MeasuredTask& task : tasks) tuning.push_back(task.task);
    SimulatedMeasurer measurer(&device);
    ASSIGN_OR_RETURN(const auto tuner,
                     Tuner::Create(std::move(tuning), std::move(options), &measurer, history.get(), &curve));
    status = tuner->Run().status();
  }
  for (const char* ending : {"", "-wal", "-shm"}) std::filesystem::remove(file.string() + ending);
  RETURN_IF_ERROR(status);
  return curve.values();
}

struct Settings {
  std::string path, name, target;  // a history, one of its networks, and a target
  int64_t trials = 1000;
  int seeds = 3;
  bool half = false;
};

absl::Status Run(const Settings& settings) {
  const auto& [path, name, target_text, trials, seeds, half] = settings;
  ASSIGN_OR_RETURN(const Target target, Target::Parse(target_text));
  ASSIGN_OR_RETURN(const std::vector<MeasuredTask> tasks, LoadMeasuredTasks(path, name, target, 8));
  const SimulatedDevice device(tasks);
  std::vector<int64_t> at;
  for (int64_t n = trials; n >= 50; n /= 2) at.insert(at.begin(), n);
  std::printf("%zu tasks\n%-22s", tasks.size(), "trials");
  for (int64_t n : at) std::printf(" %8lld", static_cast<long long>(n));
  std::printf("\n");
  const Variant variants[] = {{"neither", false, false},
                              {"warm start", false, true},
                              {"model", true, false},
                              {"model, warm start", true, true}};
  for (const Variant& variant : variants) {
    std::vector<double> sums(at.size());
    for (int seed = 0; seed < seeds; ++seed) {
      TunerOptions options = OptionsOf(target);
      options.trials = trials;
      options.seed = static_cast<uint64_t>(seed);
      options.synchronous = true;
      options.learn = variant.learn;
      options.warm_start = variant.warm_start;
      ASSIGN_OR_RETURN(const std::vector<double> values, Tune(tasks, device, std::move(options), at, half ? path : ""));
      for (size_t i = 0; i < at.size(); ++i) sums[i] += values[i] / seeds;
    }
    std::printf("%-22s", variant.name);
    for (double sum : sums) std::printf(" %8.1f", sum);
    std::printf("\n");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool half = std::erase(words, "half") > 0;
  if (words.size() < 3 || words.size() > 5) {
    std::fprintf(stderr, "usage: search_curves HISTORY NETWORK TARGET [TRIALS] [SEEDS] [half]\n");
    return 2;
  }
  diapason::Settings settings{.path = words[0], .name = words[1], .target = words[2], .half = half};
  if (words.size() > 3) settings.trials = std::max(50, std::atoi(words[3].c_str()));
  if (words.size() > 4) settings.seeds = std::max(1, std::atoi(words[4].c_str()));
  const absl::Status status = diapason::Run(settings);
  if (!status.ok()) std::fprintf(stderr, "search_curves: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
