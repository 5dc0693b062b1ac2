#include "compiler/runtime/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/runtime/cold_copies.h"

namespace diapason {
namespace {

// A plan of copies should be this long, so that starting it (5 to 10 us for a graph) is below 1% of what is measured...
constexpr double kPlanSeconds = 1e-3, kGraphStart = 10e-6;
// To tell clear losers, this is long enough.
constexpr double kShortPlanSeconds = 0.25e-3;
// ... and no longer than that: a capture costs some 5 us a launch.
constexpr int64_t kMaxCopies = 256;
constexpr int64_t kMaxNumber = 1 << 20;
// Early stopping: this many samples of this length, then the median against the best known.
constexpr int kRaceSamples = 3;
constexpr double kRaceSampleSeconds = 1e-3;
constexpr double kRaceFactor = 1.15;
// Then one longer sample: a candidate that is not as fast as the best, noise allowed for, is stopped.
constexpr double kSecondRaceSecondsCuda = 5e-3, kSecondRaceSecondsHost = 20e-3;
constexpr double kSecondRaceFactorCuda = 1.015, kSecondRaceFactorHost = 1.04;
// The first full sample decides whether the others are taken: not of what is slower than the best, noise allowed for,
// nor, on cuda, whose noise of 20 ms is below this, of what is faster by as much.
constexpr double kFullSampleFactorCuda = 1.005, kFullSampleFactorHost = kSecondRaceFactorHost;
// What other work does to a sample on a host makes it longer, so the least of the first ones tells more than their
// median.
constexpr double kLeastFactorHost = 1.06;
// A single first run this much slower is enough, confirmed by one sample.
constexpr double kHopelessFactorCuda = 10, kHopelessFactorHost = 2;

// On cuda, a run of this length tells the kernel's time within some 5%, its start included.
constexpr double kTellingRun = 150e-6;
// One such run against the best, and the least of three. The device may have been asleep before the first.
constexpr double kOneRunFactor = 2, kOneRunSlack = 50e-6, kFewRunsFactor = 1.3;
// The same of runs of milliseconds.
constexpr double kLongRunFactor = 1.1;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Times runs of plans that each hold `copies` runs of what is measured. Several plans take turns.
// Of a sample whose runs each begin with a flush, which may take a thousand times as long as they.
constexpr int64_t kLeastFlushedRuns = 16;

class Measurer {
 public:
  // Each run of the plans takes `extra` seconds more than what is measured.
  Measurer(Device& device, std::vector<Plan*> plans, int64_t copies, const TimingOptions& options, double extra = 0,
           double flush_seconds = 0)
      : device_(device),
        plans_(std::move(plans)),
        copies_(copies),
        options_(options),
        extra_(extra),
        flush_seconds_(flush_seconds) {}
  // Estimates are of so many runs that the first samples of a race are spared, unless they would end it.
  Measurer& KnowsEstimate() {
    knows_estimate_ = true;
    return *this;
  }

  // estimate: seconds of one run.
  absl::StatusOr<Timing> Measure(double estimate, const Stopwatch& watch);
  // The first samples; sets timing to them with stopped_early when they are clearly slower, and updates the estimate.
  absl::Status Race(Timing& timing, double& estimate);

 private:
  // One sample: seconds of a run, the mean over `plans` plans.
  absl::StatusOr<double> Sample(int64_t plans);
  // Seconds of a run with what is not measured.
  double Whole(double estimate) const { return estimate + extra_ + flush_seconds_; }
  // Plans to run for a sample of at least `seconds` and `runs`.
  int64_t PlansFor(double estimate, double seconds, int64_t runs) const;

  Device& device_;
  const std::vector<Plan*> plans_;
  const int64_t copies_;
  const TimingOptions& options_;
  const double extra_;
  const double flush_seconds_;  // before each run
  bool knows_estimate_ = false;
  size_t turn_ = 2;  // of several plans, the first two have run already, for the estimate
};

absl::StatusOr<double> Measurer::Sample(int64_t plans) {
  if (!options_.flush_cache && plans_.size() == 1) {
    ASSIGN_OR_RETURN(const double seconds, plans_[0]->Time(plans));
    return seconds / static_cast<double>(plans * copies_) - extra_;
  }
  double total = 0;
  for (int64_t i = 0; i < plans; ++i) {
    if (options_.flush_cache) RETURN_IF_ERROR(device_.FlushCache());
    ASSIGN_OR_RETURN(const double seconds, plans_[turn_++ % plans_.size()]->Time(1));
    total += seconds;
  }
  return total / static_cast<double>(plans * copies_) - extra_;
}

int64_t Measurer::PlansFor(double estimate, double seconds, int64_t runs) const {
  const double wanted = std::max({1.0, static_cast<double>(runs), seconds / std::max(Whole(estimate), 1e-9)});
  const double plans = std::ceil(std::min<double>(wanted, kMaxNumber) / static_cast<double>(copies_));
  return std::max<int64_t>(1, static_cast<int64_t>(plans));
}

absl::Status Measurer::Race(Timing& timing, double& estimate) {
  const int64_t plans = PlansFor(estimate, kRaceSampleSeconds, 1);
  Timing race;
  race.number = plans * copies_;
  // The runs of a kernel of milliseconds differ by less than a percent.
  const bool cuda = device_.kind() == TargetKind::kCuda;
  const bool long_run = estimate > kRaceSampleSeconds && cuda;
  const double hopeless = (cuda ? kHopelessFactorCuda : kHopelessFactorHost) * options_.race_seconds;
  const bool spared = knows_estimate_ && estimate <= kRaceFactor * options_.race_seconds;
  if (spared) race.samples.push_back(estimate);
  const int samples = spared ? 0 : long_run || estimate > hopeless ? 1 : kRaceSamples;
  for (int i = 0; i < samples; ++i) {
    ASSIGN_OR_RETURN(const double sample, Sample(plans));
    race.samples.push_back(sample);
  }
  estimate = MedianSeconds(race);
  const double least = *std::min_element(race.samples.begin(), race.samples.end());
  race.stopped_early =
      estimate > kRaceFactor * options_.race_seconds || (!cuda && least > kLeastFactorHost * options_.race_seconds);
  const double longer_seconds = cuda ? kSecondRaceSecondsCuda : kSecondRaceSecondsHost;
  if (!race.stopped_early && options_.min_repeat_ms * 1e-3 > longer_seconds) {
    const double factor = cuda ? kSecondRaceFactorCuda : kSecondRaceFactorHost;
    Timing second;
    const int64_t longer = PlansFor(estimate, longer_seconds, 1);
    second.number = longer * copies_;
    ASSIGN_OR_RETURN(estimate, Sample(longer));
    second.samples.push_back(estimate);
    second.stopped_early = estimate > factor * options_.race_seconds;
    if (second.stopped_early) race = std::move(second);
  }
  if (race.stopped_early) timing = std::move(race);
  return absl::OkStatus();
}

absl::StatusOr<Timing> Measurer::Measure(double estimate, const Stopwatch& watch) {
  Timing timing;
  if (options_.race_seconds > 0) RETURN_IF_ERROR(Race(timing, estimate));
  if (!timing.stopped_early) {
    const int repeat = std::max(1, options_.repeat);
    const int64_t least = options_.flush_cache ? std::max(options_.number, kLeastFlushedRuns) : options_.number;
    int64_t plans = PlansFor(estimate, options_.min_repeat_ms * 1e-3, least);
    // No sample may take the whole of max_seconds.
    const double share = options_.max_seconds / repeat;
    plans = std::clamp<int64_t>(static_cast<int64_t>(share / std::max(Whole(estimate) * copies_, 1e-9)), 1, plans);
    timing.number = plans * copies_;
    for (int i = 0; i < repeat && (i == 0 || watch.seconds() < options_.max_seconds); ++i) {
      ASSIGN_OR_RETURN(const double sample, Sample(plans));
      timing.samples.push_back(sample);
      if (i > 0 || repeat == 1 || options_.race_seconds <= 0) continue;
      const bool cuda = device_.kind() == TargetKind::kCuda;
      timing.stopped_early = sample > (cuda ? kFullSampleFactorCuda : kFullSampleFactorHost) * options_.race_seconds;
      if (timing.stopped_early || (cuda && sample < options_.race_seconds / kFullSampleFactorCuda)) break;
    }
  }
  timing.run_seconds = watch.seconds();
  return timing;
}

// Seconds of one warm run of a plan, the least of up to so many: the first runs of a kernel also load its code. A
// warm-up that takes half of max_seconds stands for them all.
absl::StatusOr<double> Estimate(Plan& plan, double max_seconds, bool has_run = false, int runs = 3) {
  const Stopwatch watch;
  if (!has_run) RETURN_IF_ERROR(plan.Run());
  if (watch.seconds() > max_seconds / 2) return watch.seconds();
  ASSIGN_OR_RETURN(double best, plan.Time(1));
  for (int i = 1; i < runs && best < kRaceSampleSeconds; ++i) {
    ASSIGN_OR_RETURN(const double seconds, plan.Time(1));
    best = std::min(best, seconds);
  }
  return best;
}

// Of a plan of launches in front of runs.
double OfOneLaunch(double seconds) { return std::max(0.0, seconds - kGraphStart) / static_cast<double>(kMaxCopies); }

// Plans of many runs, so that what is timed is the device and not the host that feeds it.
struct PlanMaker {
  std::function<absl::StatusOr<std::unique_ptr<Plan>>(int64_t runs)> make;
  double extra = 0;  // seconds that each run takes more than what is measured
};

constexpr int64_t kFirstRuns = 16;

struct GraphOfRuns {
  std::unique_ptr<Plan> plan;
  int64_t runs = kFirstRuns;
  double estimate = 0;  // seconds of one run, without what is in front of it
};

// Timed runs of a graph, the least of which is its estimate: where that alone may stop a candidate, so that one
// disturbed run does not; and where samples follow.
constexpr int kDecidingRuns = 3, kSampledRuns = 2;

// Runs that take `seconds` together, by an estimate; that of the graph is the least of so many.
absl::StatusOr<GraphOfRuns> MakeGraphOfRuns(const PlanMaker& make_plan, double seconds, double estimate,
                                            double max_seconds, int timed_runs) {
  GraphOfRuns graph;
  graph.runs =
      std::clamp<int64_t>(static_cast<int64_t>(seconds / std::max(estimate + make_plan.extra, 1e-7)), 1, kMaxCopies);
  ASSIGN_OR_RETURN(graph.plan, make_plan.make(graph.runs));
  ASSIGN_OR_RETURN(graph.estimate, Estimate(*graph.plan, max_seconds, /*has_run=*/false, timed_runs));
  graph.estimate = graph.estimate / static_cast<double>(graph.runs) - make_plan.extra;
  return graph;
}

// Without an estimate: that of a single run still holds the start of a graph, a first, short plan tells the kernel's
// own time.
absl::StatusOr<GraphOfRuns> MakeGraphOfRuns(const PlanMaker& make_plan, double seconds, double max_seconds) {
  GraphOfRuns graph;
  ASSIGN_OR_RETURN(graph.plan, make_plan.make(graph.runs));
  ASSIGN_OR_RETURN(graph.estimate, Estimate(*graph.plan, max_seconds));
  graph.estimate = graph.estimate / static_cast<double>(graph.runs) - make_plan.extra;
  if (seconds <= 2 * (graph.estimate + make_plan.extra) * static_cast<double>(graph.runs)) return graph;
  return MakeGraphOfRuns(make_plan, seconds, graph.estimate, max_seconds, kSampledRuns);
}

Timing Lost(double sample, int64_t number, const Stopwatch& watch) {
  Timing timing;
  timing.samples = {sample};
  timing.number = number;
  timing.stopped_early = true;
  timing.run_seconds = watch.seconds();
  return timing;
}

// cuda. A candidate that loses with warm caches, to what the best takes with these; nothing where it may yet win.
// single: seconds of one run, the start of a graph included. `graph` gets the last one that was made.
absl::StatusOr<std::optional<Timing>> LostWarm(const PlanMaker& maker, double single, const TimingOptions& options,
                                               const Stopwatch& watch, std::optional<GraphOfRuns>& graph) {
  const auto make = [&](double estimate) -> absl::Status {
    ASSIGN_OR_RETURN(graph, MakeGraphOfRuns(maker, kShortPlanSeconds, estimate, options.max_seconds, kDecidingRuns));
    return absl::OkStatus();
  };
  const auto start = [&] { return kGraphStart / static_cast<double>(graph->runs); };
  const auto is_lost = [&](double factor) {
    return graph->estimate > factor * options.warm_share * options.race_seconds + start();
  };
  RETURN_IF_ERROR(make(std::max(single - kGraphStart, kShortPlanSeconds / kFirstRuns)));
  bool lost = is_lost(kFewRunsFactor);
  // Of few short runs the start of the graph is a large part.
  if (!lost && graph->estimate * static_cast<double>(graph->runs) < kShortPlanSeconds / 2)
    RETURN_IF_ERROR(make(graph->estimate));
  lost = lost || is_lost(kRaceFactor);
  if (lost) return Lost((graph->estimate - start()) / options.warm_share, graph->runs, watch);
  if (options.warm_seconds != nullptr) *options.warm_seconds = std::max(0.0, graph->estimate - start());
  return std::nullopt;
}

// cuda. What loses with warm caches is spared the copies and the long capture.
// single: as above.
absl::StatusOr<Timing> MeasureInGraphs(Executable& executable, double single, const TimingOptions& options,
                                       const Stopwatch& watch) {
  PlanMaker maker{[&](int64_t runs) { return executable.MakePlan(runs); }};
  Device& device = executable.device();
  std::optional<ColdCopies> cold;  // outlives the graph
  std::optional<GraphOfRuns> graph;
  if (options.race_seconds > 0) {
    ASSIGN_OR_RETURN(std::optional<Timing> lost, LostWarm(maker, single, options, watch, graph));
    if (lost) return *std::move(lost);
  }
  std::optional<TimedLaunches> own;
  TimedLaunches* before = nullptr;
  if (options.timed_before != nullptr) {
    ASSIGN_OR_RETURN(before, options.timed_before());
  }
  if (before != nullptr) {
    RETURN_IF_ERROR(before->TimeAgain());
  } else {
    ASSIGN_OR_RETURN(own, TimedLaunches::Create(device, options.before, options.max_seconds));
    before = &*own;
  }
  maker.extra = before->seconds();
  maker.make = [&](int64_t runs) { return executable.MakePlan(runs, options.before); };
  if (options.cold) {
    ASSIGN_OR_RETURN(ColdCopies copies, ColdCopies::Create(executable, options.spare_buffers));
    cold.emplace(std::move(copies));
    maker.make = [&](int64_t runs) { return cold->MakePlan(runs, options.before); };
  }
  if (graph) {
    ASSIGN_OR_RETURN(graph, MakeGraphOfRuns(maker, kPlanSeconds, graph->estimate, options.max_seconds, kSampledRuns));
  } else {
    ASSIGN_OR_RETURN(graph, MakeGraphOfRuns(maker, kPlanSeconds, options.max_seconds));
  }
  Measurer measurer(device, {graph->plan.get()}, graph->runs, options, maker.extra);
  ASSIGN_OR_RETURN(Timing timing, measurer.KnowsEstimate().Measure(graph->estimate, watch));
  RETURN_IF_ERROR(before->Correct(timing));
  return timing;
}

// cpu: plans with buffers of their own. What is too slow with the same buffers again and again cannot win with cold
// ones, and is spared the copies.
absl::StatusOr<Timing> MeasureInTurns(Executable& executable, Plan& warm, double estimate, const TimingOptions& options,
                                      const Stopwatch& watch) {
  Device& device = executable.device();
  if (options.race_seconds > 0 && estimate > kRaceFactor * options.race_seconds) {
    Timing timing;
    RETURN_IF_ERROR(Measurer(device, {&warm}, 1, options).Race(timing, estimate));
    timing.run_seconds = watch.seconds();
    if (timing.stopped_early) return timing;
  }
  ASSIGN_OR_RETURN(const BuffersInTurns turns, BuffersInTurns::Create(executable, options.spare_buffers));
  std::vector<Plan*> plans = {&warm};
  for (const std::unique_ptr<Plan>& other : turns.plans()) plans.push_back(other.get());
  if (plans.size() > 1) {
    ASSIGN_OR_RETURN(estimate, plans[1]->Time(1));
  }
  return Measurer(device, std::move(plans), 1, options).Measure(estimate, watch);
}

}  // namespace

absl::StatusOr<TimedLaunches> TimedLaunches::Create(Device& device, const std::vector<Launch>& launches,
                                                    double max_seconds) {
  TimedLaunches timed;
  if (launches.empty()) return timed;
  std::vector<Launch> all;
  for (int64_t i = 0; i < kMaxCopies; ++i) all.insert(all.end(), launches.begin(), launches.end());
  ASSIGN_OR_RETURN(timed.plan_, device.MakePlan(std::move(all)));
  ASSIGN_OR_RETURN(const double seconds, Estimate(*timed.plan_, max_seconds));
  timed.seconds_ = OfOneLaunch(seconds);
  return timed;
}

absl::StatusOr<double> TimedLaunches::Now() {
  ASSIGN_OR_RETURN(const double seconds, plan_->Time(1));
  return OfOneLaunch(seconds);
}

absl::Status TimedLaunches::TimeAgain() {
  if (plan_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double first, Now());
  ASSIGN_OR_RETURN(const double second, Now());
  seconds_ = std::min(first, second);
  return absl::OkStatus();
}

absl::Status TimedLaunches::Correct(Timing& timing) {
  if (plan_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double now, Now());
  const double too_much = std::max(0.0, seconds_ - now);
  for (double& sample : timing.samples) sample += too_much;
  seconds_ -= too_much;
  return absl::OkStatus();
}

absl::StatusOr<Timing> MeasurePlan(Device& device, Plan& plan, const TimingOptions& options) {
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const double estimate, Estimate(plan, options.max_seconds));
  return Measurer(device, {&plan}, 1, options).Measure(estimate, watch);
}

absl::StatusOr<Timing> MeasureExecutable(Executable& executable, const TimingOptions& options) {
  const Stopwatch watch;
  Device& device = executable.device();
  const bool cuda = device.kind() == TargetKind::kCuda;
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable.MakePlan(1));
  const bool few_runs_tell = cuda && options.race_seconds > 0 && !options.flush_cache;
  if (few_runs_tell && options.has_run) {
    ASSIGN_OR_RETURN(const double first, plan->Time(1));
    if (first > std::max(kTellingRun, kOneRunFactor * options.race_seconds + kOneRunSlack))
      return Lost(first, 1, watch);
  }
  ASSIGN_OR_RETURN(double estimate, Estimate(*plan, options.max_seconds, options.has_run));
  const double factor = estimate > kRaceSampleSeconds ? kLongRunFactor : kFewRunsFactor;
  if (few_runs_tell && estimate > std::max(kTellingRun, factor * options.race_seconds + kGraphStart))
    return Lost(estimate, 1, watch);
  if (cuda && !options.flush_cache && estimate < kPlanSeconds / 2)
    return MeasureInGraphs(executable, estimate, options, watch);
  if (device.kind() == TargetKind::kCpu && options.cold && !options.flush_cache)
    return MeasureInTurns(executable, *plan, estimate, options, watch);
  double flush_seconds = 0;
  if (options.flush_cache) {
    RETURN_IF_ERROR(device.FlushCache());  // the first one takes memory
    const Stopwatch flush;
    RETURN_IF_ERROR(device.FlushCache());
    flush_seconds = flush.seconds();
  }
  return Measurer(device, {plan.get()}, 1, options, 0, flush_seconds).Measure(estimate, watch);
}

}  // namespace diapason
