// A made-up device for tests of the search: spaces whose candidates have scripted latencies, and a measurer that
// answers by them at once or misbehaves as told.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/serialize.h"
#include "scheduler/measurer.h"
#include "scheduler/random.h"
#include "scheduler/space.h"
#include "scheduler/tuner.h"

namespace diapason {

// Parameters hold powers of two; the product of the first two is limited, as threads of a block are. The time of a
// candidate grows with the squared distance of each parameter from a place of its own, more steeply for some than for
// others; the analytic estimate sees only the first half of the parameters. Two neighbouring parameters work together.
class FakeSpace : public Space {
 public:
  struct Options {
    std::string name = "direct/fake";
    int parameters = 8;
    int choices = 8;         // of each parameter: 1, 2, 4, ...
    int64_t limit = 1 << 7;  // of the product of the first two
    double scale = 1e-4;     // seconds of the best candidate
    uint64_t seed = 1;       // where the best candidate lies
    bool external = false;   // of a library: all its candidates that differ in the first parameter alone are required
  };
  explicit FakeSpace(Options options) : options_(std::move(options)) {
    Random random(options_.seed, 77);
    for (int i = 0; i < options_.parameters; ++i) {
      // The first two within their limit.
      best_.push_back(static_cast<int>(random.Below(i < 2 ? std::max(1, options_.choices / 2) : options_.choices)));
      steepness_.push_back(0.02 + 0.1 * random.Uniform());
      names_.push_back(absl::StrCat("parameter", i));
    }
  }

  const std::string& name() const override { return options_.name; }
  const DagRewrite& rewrite() const override { return rewrite_; }
  int size() const override { return options_.parameters; }
  const std::string& parameter_name(int parameter) const override { return names_[parameter]; }

  void Domain(int parameter, absl::Span<const int32_t> configuration, std::vector<int32_t>* values) const override {
    values->clear();
    for (int i = 0; i < options_.choices; ++i)
      if (parameter != 1 || (int64_t{1} << i) * configuration[0] <= options_.limit || i == 0) values->push_back(1 << i);
  }
  void Clamp(int first, absl::Span<int32_t> configuration) const override {
    if (first > 1 || size() < 2) return;
    while (configuration[1] > 1 && int64_t{configuration[0]} * configuration[1] > options_.limit) configuration[1] /= 2;
  }
  void Evaluate(absl::Span<const int32_t> configuration, Metrics* metrics) const override {
    std::memset(metrics->features, 0, sizeof metrics->features);
    metrics->legal = size() < 2 || int64_t{configuration[0]} * configuration[1] <= options_.limit;
    for (int i = 0; i < size(); ++i) metrics->features[i] = static_cast<float>(std::log2(configuration[i]));
    metrics->features[40] = static_cast<float>(options_.seed % 1000);
    metrics->seconds = options_.scale * Cost(configuration, (size() + 1) / 2);
    metrics->features[41] = static_cast<float>(std::log(metrics->seconds));
  }
  Schedule Instantiate(absl::Span<const int32_t> configuration) const override {
    return {rewrite_, options_.name, {}, {configuration.begin(), configuration.end()}};
  }
  std::vector<int32_t> Default() const override { return std::vector<int32_t>(options_.parameters, 1); }

  bool external() const override { return options_.external; }
  std::vector<std::vector<int32_t>> Priors() const override {
    std::vector<std::vector<int32_t>> priors;
    for (int i = 0; options_.external && i < options_.choices; ++i) {
      priors.push_back(Default());
      priors.back()[0] = 1 << i;
    }
    return priors;
  }

  double Seconds(absl::Span<const int32_t> configuration) const { return options_.scale * Cost(configuration, size()); }
  double BestSeconds() const { return options_.scale; }

 private:
  double Cost(absl::Span<const int32_t> configuration, int parameters) const {
    double cost = 1, before = 0;
    for (int i = 0; i < parameters; ++i) {
      const double distance = std::log2(configuration[i]) - best_[i];
      cost += steepness_[i] * distance * distance + 0.03 * std::abs(distance * before);
      before = distance;
    }
    return cost;
  }

  const Options options_;
  const DagRewrite rewrite_;
  std::vector<int> best_;
  std::vector<double> steepness_;
  std::vector<std::string> names_;
};

// A dag that is different for each `size`.
inline ComputeDag FakeDag(int64_t size) {
  DagBuilder builder;
  const int x = builder.Placeholder("x", {size, 4});
  const int sum = builder.Reduce("sum", {size}, {4}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return builder.At(x, {i[0], r[0]});
  });
  return builder.Build({sum}).value();
}

// The tasks of a test and their spaces: what SpaceFactory makes and what the measurer answers by.
class FakeNetwork {
 public:
  struct Task {
    std::string name;
    double weight = 1;
    std::vector<FakeSpace::Options> spaces;
    std::string network = "net";
  };
  explicit FakeNetwork(std::vector<Task> tasks) {
    for (Task& task : tasks) {
      const ComputeDag dag = FakeDag(static_cast<int64_t>(8 * (tasks_.size() + 1)));
      for (const FakeSpace::Options& options : task.spaces)
        spaces_[dag.workload_key()].push_back(std::make_unique<FakeSpace>(options));
      tasks_.push_back({task.name, dag, dag.workload_key(), {{task.network, task.weight}}});
      serialized_.push_back(SerializeDag(dag));
      specs_[dag.workload_key()] = std::move(task.spaces);
    }
  }
  std::vector<TuningTask> tasks() const { return tasks_; }
  SpaceFactory factory() const {
    return
        [this](const ComputeDag& dag, const Target&, const DeviceFacts&) -> absl::StatusOr<std::unique_ptr<TaskSpace>> {
          std::vector<std::unique_ptr<Space>> spaces;
          for (const FakeSpace::Options& options : specs_.at(dag.workload_key()))
            spaces.push_back(std::make_unique<FakeSpace>(options));
          return std::make_unique<TaskSpace>(dag, std::move(spaces));
        };
  }
  const FakeSpace& space(int task, int i) const { return *spaces_.at(tasks_[task].workload_key)[i]; }
  // Of a schedule that one of the task's spaces made.
  double Seconds(int task, const Schedule& schedule) const {
    for (const auto& space : spaces_.at(tasks_[task].workload_key))
      if (space->name() == schedule.sketch) return space->Seconds(schedule.configuration);
    return 0;
  }
  int TaskOf(const std::string& workload) const {
    for (int i = 0; i < static_cast<int>(tasks_.size()); ++i)
      if (serialized_[i] == workload) return i;
    return -1;
  }
  // The best possible value of the objective "sum".
  double Optimum() const {
    double sum = 0;
    for (const TuningTask& task : tasks_) {
      double best = 1e9;
      for (const auto& space : spaces_.at(task.workload_key)) best = std::min(best, space->BestSeconds());
      sum += best * task.weights[0].weight;
    }
    return sum;
  }

 private:
  std::vector<TuningTask> tasks_;
  std::map<std::string, std::vector<FakeSpace::Options>> specs_;
  std::map<std::string, std::vector<std::unique_ptr<FakeSpace>>> spaces_;
  std::vector<std::string> serialized_;  // of each task
};

// A clock that only the measurer moves.
class FakeClock {
 public:
  double Now() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }
  void Advance(double seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    now_ += seconds;
  }

 private:
  mutable std::mutex mutex_;
  double now_ = 1000;
};

class FakeMeasurer : public Measurer {
 public:
  // What a request (counted from 0) of a task gives; by default its scripted latency, verified as right. Returning
  // nothing: never answered.
  using Script = std::function<std::optional<MeasureOutcome>(int64_t number, int task, const MeasureRequest& request,
                                                             const Schedule& schedule)>;

  explicit FakeMeasurer(const FakeNetwork* network, int slots = 4) : network_(network), slots_(slots) {}
  void set_script(Script script) { script_ = std::move(script); }
  void set_clock(FakeClock* clock, double seconds_each) {
    clock_ = clock;
    seconds_each_ = seconds_each;
  }
  // From then on Submit and Next fail.
  void Break(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = std::move(status);
  }

  absl::Status Submit(std::vector<MeasureRequest> requests) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return broken_;
    for (MeasureRequest& request : requests) queue_.push_back(std::move(request));
    most_in_flight_ = std::max(most_in_flight_, queue_.size());
    arrived_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<MeasureOutcome>> Next(double timeout_s) override {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, std::chrono::duration<double>(std::min(timeout_s, 0.01)),
                      [this] { return !queue_.empty(); });
    if (!broken_.ok()) return broken_;
    std::vector<MeasureOutcome> outcomes;
    for (int i = 0; i < slots_ && !queue_.empty(); ++i) {
      const MeasureRequest request = std::move(queue_.front());
      queue_.pop_front();
      if (std::optional<MeasureOutcome> outcome = Answer(request)) {
        outcome->id = request.id;
        outcomes.push_back(*std::move(outcome));
      }
    }
    return outcomes;
  }
  void Cancel() override {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.clear();
  }
  int slots() const override { return slots_; }

  // Trials (not verifications) by task and schedule.
  std::map<std::pair<int, std::string>, int> measured() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return measured_;
  }
  std::vector<std::pair<int, std::vector<int32_t>>> order() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return order_;
  }
  int64_t verifications() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return verifications_;
  }
  std::vector<MeasureRequest> requests() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  size_t most_in_flight() const { return most_in_flight_; }

  static MeasureOutcome Time(double seconds, bool stopped_early = false) {
    Timing timing;
    timing.samples = {seconds, seconds * 1.01, seconds * 0.99};
    timing.stopped_early = stopped_early;
    timing.build_seconds = 0.1;
    timing.run_seconds = 0.05;
    MeasureOutcome outcome;
    outcome.outcome = timing;
    return outcome;
  }
  static MeasureOutcome Error(ErrorKind kind, const std::string& text) {
    MeasureOutcome outcome;
    outcome.outcome = MeasureError{kind, MeasureStage::kRun, text};
    return outcome;
  }
  static MeasureOutcome Judge(bool ok) {
    MeasureOutcome outcome;
    outcome.outcome = Timing{};
    outcome.verdict = ok ? Verdict{true, 1e-6, ""} : Verdict{false, 3.5, "element 7 is 4.5 and should be 1"};
    return outcome;
  }

 private:
  // REQUIRES: mutex_ is held.
  std::optional<MeasureOutcome> Answer(const MeasureRequest& request) {
    const int task = network_->TaskOf(*request.workload);
    const Schedule schedule = ParseSchedule(request.schedule).value();
    requests_.push_back(request);
    if (clock_ != nullptr) clock_->Advance(seconds_each_);
    if (request.verify) {
      ++verifications_;
    } else {
      ++measured_[{task, request.schedule}];
      order_.push_back({task, schedule.configuration});
    }
    const int64_t number = number_++;
    if (script_) return script_(number, task, request, schedule);
    if (request.verify) return Judge(true);
    return Time(network_->Seconds(task, schedule));
  }

  const FakeNetwork* const network_;
  const int slots_;
  Script script_;
  FakeClock* clock_ = nullptr;
  double seconds_each_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<MeasureRequest> queue_;
  std::map<std::pair<int, std::string>, int> measured_;
  std::vector<std::pair<int, std::vector<int32_t>>> order_;
  std::vector<MeasureRequest> requests_;
  int64_t verifications_ = 0, number_ = 0;
  size_t most_in_flight_ = 0;
  absl::Status broken_;
};

}  // namespace diapason
