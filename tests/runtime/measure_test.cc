#include "compiler/runtime/measure.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// A device whose kernels take as long as they are told to, by a clock of its own: nothing runs.
struct FakeState {
  TargetKind kind = TargetKind::kCpu;
  double kernel_seconds = 1e-3;
  double start_seconds = 0;      // what starting a plan costs
  double before_seconds = 0;     // what a kernel named "before" takes
  double cold_seconds = 0;       // what a kernel behind it takes more
  int64_t disturbed = 0;         // as many next runs of plans of it alone take ten times as long
  int64_t disturbed_graphs = 0;  // as many next runs of plans of many kernels take twice as long
  int64_t lone_runs = 0;         // runs that are behind no such kernel, in plans of many
  double clock = 0;              // seconds of kernels so far
  int64_t kernels = 0, plans_run = 0, plans_made = 0, flushes = 0;
  std::chrono::milliseconds flush_time{0};
  int64_t fail_at = -1;  // number of the plan run that faults
  bool flushed = false;
  int64_t warm_runs = 0;  // timed runs without a flush before
};

class FakePlan : public Plan {
 public:
  FakePlan(FakeState& state, const std::vector<Launch>& launches)
      : state_(state), launches_(static_cast<int64_t>(launches.size())) {
    for (size_t i = 0; i < launches.size(); ++i) {
      const bool before = launches[i].kernel.name == "before";
      before_ += before ? 1 : 0;
      if (!before && launches.size() > 1 && (i == 0 || launches[i - 1].kernel.name != "before")) ++state.lone_runs;
    }
  }
  absl::Status Run() override { return Time(1).status(); }
  absl::StatusOr<double> Time(int64_t times) override {
    if (!state_.flushed) ++state_.warm_runs;
    state_.flushed = false;
    if (state_.plans_run == state_.fail_at) return absl::AbortedError("running kernels: CUDA_ERROR_ILLEGAL_ADDRESS");
    state_.plans_run += times;
    state_.kernels += times * launches_;
    const int64_t own = launches_ - before_;
    const double behind = own > 0 ? state_.cold_seconds : 0;
    const double once = static_cast<double>(before_) * (state_.before_seconds + behind) +
                        static_cast<double>(own) * state_.kernel_seconds;
    const double longer = own == 0 && Takes(state_.disturbed) ? 10 : own > 1 && Takes(state_.disturbed_graphs) ? 2 : 1;
    const double seconds = static_cast<double>(times) * (state_.start_seconds + longer * once);
    state_.clock += seconds;
    return seconds;
  }

 private:
  static bool Takes(int64_t& left) { return left > 0 && left-- > 0; }

  FakeState& state_;
  const int64_t launches_;
  int64_t before_ = 0;
};

class FakeModule : public Module {};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(FakeState& state) : state_(state) {}
  const DeviceFacts& facts() const override { return facts_; }
  TargetKind kind() const override { return state_.kind; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t) override { return absl::UnimplementedError(""); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> View(DeviceBuffer&, int64_t, int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status CopyIn(DeviceBuffer&, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status CopyOut(void*, const DeviceBuffer&, int64_t) override { return absl::OkStatus(); }
  absl::Status Fill(DeviceBuffer&, uint8_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Program&) override { return std::make_unique<FakeModule>(); }
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(std::vector<Launch> launches) override {
    ++state_.plans_made;
    return std::make_unique<FakePlan>(state_, launches);
  }
  absl::Status FlushCache() override {
    ++state_.flushes;
    std::this_thread::sleep_for(state_.flush_time);
    state_.flushed = true;
    return absl::OkStatus();
  }
  Clocks clocks() const override { return {}; }

 private:
  FakeState& state_;
  DeviceFacts facts_;
};

absl::StatusOr<Timing> Measure(FakeState& state, const TimingOptions& options) {
  FakeDevice device(state);
  Program program;
  program.kernels.resize(1);
  program.kernels[0].name = "k";
  auto executable = Executable::Create(device, program).value();
  return MeasureExecutable(*executable, options);
}

TimingOptions Options(int64_t number, int repeat, double min_repeat_ms, double race_seconds = 0) {
  TimingOptions options;
  options.number = number;
  options.repeat = repeat;
  options.min_repeat_ms = min_repeat_ms;
  options.race_seconds = race_seconds;
  return options;
}

TEST(Measure, NumberGrowsUntilASampleIsLongEnough) {
  FakeState state;  // 1 ms
  const Timing timing = Measure(state, Options(1, 5, 20)).value();
  EXPECT_THAT(timing.samples, SizeIs(5));
  EXPECT_THAT(timing.samples, Each(DoubleNear(1e-3, 1e-9)));
  EXPECT_NEAR(timing.number, 20, 1);
  EXPECT_FALSE(timing.stopped_early);
}

TEST(Measure, NumberIsALeast) {
  FakeState state;
  EXPECT_EQ(Measure(state, Options(50, 2, 20)).value().number, 50);
}

TEST(Measure, LongKernelsRunOnceASample) {
  FakeState state;
  state.kernel_seconds = 0.4;
  const Timing timing = Measure(state, Options(1, 3, 20)).value();
  EXPECT_EQ(timing.number, 1);
  EXPECT_THAT(timing.samples, SizeIs(3));
}

TEST(Measure, NoSampleTakesAllTheTime) {
  FakeState state;
  state.kernel_seconds = 0.1;
  TimingOptions options = Options(1000, 4, 20);
  options.max_seconds = 2;
  const Timing timing = Measure(state, options).value();
  EXPECT_EQ(timing.number, 5);  // a quarter of 2 seconds each
  EXPECT_LT(state.clock, 3);
}

TEST(Measure, OnHostsTheLeastOfTheFirstSamplesTells) {
  FakeState state;  // 1 ms
  const Timing lost = Measure(state, Options(1, 3, 20, /*race_seconds=*/0.93e-3)).value();
  EXPECT_TRUE(lost.stopped_early);
  EXPECT_THAT(lost.samples, SizeIs(3));
  EXPECT_LT(state.kernels, 10);
  // Within the noise: a whole sample is taken.
  state = {};
  const Timing near = Measure(state, Options(1, 3, 20, /*race_seconds=*/0.95e-3)).value();
  EXPECT_TRUE(near.stopped_early);
  EXPECT_THAT(near.samples, SizeIs(1));
  EXPECT_GE(state.kernels, 20);
  state = {};
  EXPECT_FALSE(Measure(state, Options(1, 3, 20, /*race_seconds=*/0.97e-3)).value().stopped_early);
}

TEST(Measure, OnHostsOneSampleTellsWhatTakesTwiceAsLong) {
  FakeState state;  // 1 ms
  const Timing lost = Measure(state, Options(1, 3, 20, /*race_seconds=*/0.49e-3)).value();
  EXPECT_TRUE(lost.stopped_early);
  EXPECT_THAT(lost.samples, SizeIs(1));
}

TEST(Measure, ClearlySlowerCandidatesAreStoppedEarly) {
  FakeState state;  // 1 ms
  const Timing timing = Measure(state, Options(1, 10, 300, /*race_seconds=*/0.7e-3)).value();
  EXPECT_TRUE(timing.stopped_early);
  EXPECT_FALSE(timing.samples.empty());
  EXPECT_THAT(timing.samples, Each(DoubleNear(1e-3, 1e-9)));
  EXPECT_LT(state.clock, 10e-3);
}

TEST(Measure, ContendersAreMeasuredInFull) {
  for (double best : {0.98e-3, 1e-3, 5e-3}) {
    FakeState state;
    const Timing timing = Measure(state, Options(1, 10, 300, best)).value();
    EXPECT_FALSE(timing.stopped_early) << best;
    EXPECT_THAT(timing.samples, SizeIs(10));
    EXPECT_NEAR(timing.number, 300, 2);
  }
}

TEST(Measure, CandidatesThatCannotWinGetOneLongerLook) {
  FakeState state;
  const Timing timing = Measure(state, Options(1, 10, 300, 0.95e-3)).value();
  EXPECT_TRUE(timing.stopped_early);
  EXPECT_THAT(timing.samples, SizeIs(1));
  EXPECT_NEAR(timing.number, 20, 2);
}

TEST(Measure, HopelessCandidatesRunOnlyAFewTimes) {
  FakeState state;
  state.kernel_seconds = 0.5;
  const Timing timing = Measure(state, Options(1, 10, 300, 1e-3)).value();
  EXPECT_TRUE(timing.stopped_early);
  EXPECT_THAT(timing.samples, SizeIs(1));
  EXPECT_LE(state.kernels, 4);
}

// Kernels of a large batch: what is clearly slower costs a run or three.
TEST(Measure, LongCudaKernelsAreToldApartByFewRuns) {
  struct Case {
    double seconds, best;
    int64_t runs;
  };
  for (const Case& c : {Case{0.8e-3, 0.3e-3, 1}, Case{0.45e-3, 0.3e-3, 4}, Case{12e-3, 3e-3, 1}, Case{4.5e-3, 3e-3, 2},
                        Case{3.4e-3, 3e-3, 2}}) {
    FakeState state;
    state.kind = TargetKind::kCuda;
    state.kernel_seconds = c.seconds;
    state.start_seconds = 5e-6;
    TimingOptions options = Options(1, 3, 20, c.best);
    options.has_run = true;
    const Timing timing = Measure(state, options).value();
    EXPECT_TRUE(timing.stopped_early);
    EXPECT_THAT(timing.samples, ElementsAre(DoubleNear(c.seconds, 0.05 * c.seconds)));
    EXPECT_LE(state.kernels, c.runs) << c.seconds;
  }
}

TEST(Measure, LongCudaContendersAreMeasuredInFull) {
  for (double kernel : {0.3e-3, 3e-3}) {
    FakeState state;
    state.kind = TargetKind::kCuda;
    state.kernel_seconds = kernel;
    TimingOptions options = Options(1, 3, 20, kernel);
    options.has_run = true;
    const Timing timing = Measure(state, options).value();
    EXPECT_FALSE(timing.stopped_early);
    EXPECT_THAT(timing.samples, SizeIs(3));
    EXPECT_GE(static_cast<double>(timing.number) * kernel, 18e-3);
    EXPECT_LT(state.clock, 90e-3);
  }
}

// Of those that come near, most are told by one sample: 445 of 1,637 candidates of ResNet-50 at batch 16 took two
// thirds of the time.
TEST(Measure, CudaCandidatesBehindTheBestGetOneFullSample) {
  for (double kernel : {40e-6, 0.3e-3, 3e-3}) {
    FakeState state;
    state.kind = TargetKind::kCuda;
    state.kernel_seconds = kernel;
    TimingOptions options = Options(1, 3, 20, kernel / 1.01);
    options.has_run = true;
    const Timing timing = Measure(state, options).value();
    EXPECT_TRUE(timing.stopped_early);
    EXPECT_THAT(timing.samples, ElementsAre(DoubleNear(kernel, 1e-3 * kernel)));
    EXPECT_GE(static_cast<double>(timing.number) * kernel, 18e-3);
  }
}

// Short ones are not told by runs that hold the start of a graph.
TEST(Measure, ShortCudaKernelsLoseTheRaceWithTheirOwnTime) {
  FakeState state;
  state.kind = TargetKind::kCuda;
  state.kernel_seconds = 30e-6;
  state.start_seconds = 8e-6;
  TimingOptions options = Options(1, 3, 20, 10e-6);
  options.has_run = true;
  const Timing timing = Measure(state, options).value();
  EXPECT_TRUE(timing.stopped_early);
  EXPECT_THAT(timing.samples, Each(DoubleNear(30e-6, 1.5e-6)));
  EXPECT_LT(state.clock, 2e-3);
}

TEST(Measure, FlushesBeforeEachRun) {
  FakeState state;
  TimingOptions options = Options(1, 3, 10);
  options.flush_cache = true;
  const Timing timing = Measure(state, options).value();
  EXPECT_EQ(state.flushes, 2 + 3 * timing.number);  // two tell how long one takes
  EXPECT_LE(state.warm_runs, 4);                    // warm-up and estimate alone
}

// A flush of a large cache takes a thousand times as long as a small kernel: 20 ms of such a kernel would take 20 s.
TEST(Measure, SamplesAreAsLongAsTheyTakeWithTheirFlushes) {
  FakeState state;
  state.kernel_seconds = 5e-6;
  state.flush_time = std::chrono::milliseconds(4);
  TimingOptions options = Options(1, 3, 20);
  options.flush_cache = true;
  const Timing timing = Measure(state, options).value();
  EXPECT_EQ(timing.samples.size(), 3u);
  EXPECT_EQ(timing.number, 16);  // the least, to average over
}

TEST(Measure, ShortCudaKernelsAreTimedWithoutTheirLaunch) {
  FakeState state;
  state.kind = TargetKind::kCuda;
  state.kernel_seconds = 2e-6;
  state.start_seconds = 8e-6;
  const Timing timing = Measure(state, Options(1, 3, 20)).value();
  EXPECT_THAT(timing.samples, Each(DoubleNear(2e-6, 0.1e-6)));
  EXPECT_GE(timing.number * 2.1e-6, 20e-3);
  EXPECT_LE(state.plans_made, 3);
}

// Each run of a kernel that starts early comes behind one that writes its inputs, whose time is not the kernel's.
TEST(Measure, WhatComesBeforeARunIsNotMeasured) {
  for (double kernel_seconds : {3e-6, 40e-6, 200e-6}) {
    FakeState state{
        .kind = TargetKind::kCuda, .kernel_seconds = kernel_seconds, .start_seconds = 10e-6, .before_seconds = 7e-6};
    TimingOptions options = Options(1, 3, 20);
    options.cold = false;
    options.before.resize(1);
    options.before[0].kernel.name = "before";
    const Timing timing = Measure(state, options).value();
    EXPECT_THAT(timing.samples, SizeIs(3));
    EXPECT_THAT(timing.samples, Each(DoubleNear(kernel_seconds, 0.02 * (kernel_seconds + 7e-6)))) << kernel_seconds;
    EXPECT_GE(timing.number * (kernel_seconds + 7e-6), 19.5e-3) << "samples are as long as they are to be";
    EXPECT_LE(timing.number * (kernel_seconds + 7e-6), 25e-3);
    EXPECT_EQ(state.lone_runs, 0);
    state.lone_runs = 0;
    options.race_seconds = kernel_seconds;
    EXPECT_THAT(Measure(state, options).value().samples,
                Each(DoubleNear(kernel_seconds, 0.02 * (kernel_seconds + 7e-6))));
    options.race_seconds = kernel_seconds / 1.4;
    EXPECT_TRUE(Measure(state, options).value().stopped_early);
  }
}

TEST(Measure, ADisturbanceOfWhatComesBeforeMakesNoCandidateFast) {
  FakeState state{.kind = TargetKind::kCuda,
                  .kernel_seconds = 3e-6,
                  .start_seconds = 10e-6,
                  .before_seconds = 7e-6,
                  .disturbed = 2};  // a first run and a timed one
  TimingOptions options = Options(1, 3, 20);
  options.cold = false;
  options.before.resize(1);
  options.before[0].kernel.name = "before";
  EXPECT_THAT(Measure(state, options).value().samples, Each(DoubleNear(3e-6, 0.2e-6)));
  EXPECT_EQ(state.disturbed, 0);
}

// The time of what comes before is kept from program to program, and follows the device.
TEST(Measure, WhatComesBeforeIsTimedOnceForManyPrograms) {
  FakeState state{.kind = TargetKind::kCuda, .kernel_seconds = 3e-6, .start_seconds = 10e-6, .before_seconds = 7e-6};
  FakeDevice device(state);
  TimingOptions options = Options(1, 3, 20);
  options.cold = false;
  options.before.resize(1);
  options.before[0].kernel.name = "before";
  TimedLaunches timed = TimedLaunches::Create(device, options.before, 1).value();
  EXPECT_NEAR(timed.seconds(), 7e-6, 0.1e-6);
  const auto plans_with = [&](TimedLaunches* kept) {
    options.timed_before = [kept] { return kept; };
    const int64_t made = state.plans_made;
    EXPECT_THAT(Measure(state, options).value().samples, Each(DoubleNear(3e-6, 0.2e-6)));
    return state.plans_made - made;
  };
  const int64_t plans = plans_with(nullptr);
  EXPECT_EQ(plans_with(&timed), plans - 1);
  state.disturbed = 1;
  ASSERT_TRUE(timed.TimeAgain().ok());
  EXPECT_NEAR(timed.seconds(), 7e-6, 0.1e-6) << "the least of two times counts";
  for (const double seconds : {9e-6, 6e-6}) {
    state.before_seconds = seconds;
    EXPECT_EQ(plans_with(&timed), plans - 1);
    EXPECT_NEAR(timed.seconds(), seconds, 0.1e-6);
  }
  EXPECT_EQ(TimedLaunches::Create(device, {}, 1).value().seconds(), 0);
}

// The graph whose estimate decides alone is run several times: what disturbs some of these ends nobody.
TEST(Measure, ADisturbedRunOfAGraphEndsNoCandidate) {
  FakeState state{.kind = TargetKind::kCuda, .kernel_seconds = 3e-6, .start_seconds = 10e-6};
  TimingOptions options = Options(1, 3, 20, /*race_seconds=*/3.2e-6);
  options.cold = false;
  state.disturbed_graphs = 3;  // one that is not timed, and two
  EXPECT_FALSE(Measure(state, options).value().stopped_early);
  EXPECT_EQ(state.disturbed_graphs, 0);
  state.disturbed_graphs = 4;
  EXPECT_TRUE(Measure(state, options).value().stopped_early);
}

// Between what takes 2 us with warm caches and 3 us behind another kernel, and a candidate that takes more with warm
// ones, the caches alone decide.
TEST(Measure, LosersWithWarmCachesAreComparedWithTheBestInThese) {
  FakeState state{.kind = TargetKind::kCuda, .start_seconds = 10e-6, .before_seconds = 7e-6};
  double warm = 0;
  TimingOptions options = Options(1, 3, 20, /*race_seconds=*/3.1e-6);
  options.cold = false;
  options.before.resize(1);
  options.before[0].kernel.name = "before";
  options.warm_seconds = &warm;
  const auto measure = [&](double kernel, double behind) {
    state.kernel_seconds = kernel;
    state.cold_seconds = behind - kernel;
    state.plans_made = 0;
    return Measure(state, options).value();
  };
  EXPECT_FALSE(measure(2e-6, 3e-6).stopped_early);
  EXPECT_NEAR(warm, 2e-6, 0.1e-6);
  const auto plans_of_loser = [&] {
    warm = 0;
    const Timing timing = measure(2.6e-6, 3.9e-6);
    EXPECT_TRUE(timing.stopped_early);
    EXPECT_THAT(timing.samples, Each(DoubleNear(3.9e-6, 0.2e-6)));
    return state.plans_made;
  };
  const int64_t in_both = plans_of_loser();
  EXPECT_NEAR(warm, 2.6e-6, 0.1e-6);
  options.warm_share = 2.0 / 3;
  EXPECT_LT(plans_of_loser(), in_both);
  EXPECT_EQ(warm, 0) << "only of those that went on";
  EXPECT_FALSE(measure(2.1e-6, 2.9e-6).stopped_early) << "which makes up for it";
  EXPECT_FALSE(measure(2e-6, 3e-6).stopped_early);
}

TEST(Measure, AFaultIsPassedOn) {
  for (int64_t at : {0, 1, 6}) {
    FakeState state;
    state.fail_at = at;
    const absl::Status status = Measure(state, Options(1, 5, 1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << at;
    EXPECT_EQ(status.message(), "running kernels: CUDA_ERROR_ILLEGAL_ADDRESS");
  }
}

TEST(Measure, PlansAreTimedAsTheyAre) {
  FakeState state;
  state.kind = TargetKind::kCuda;
  FakeDevice device(state);
  FakePlan plan(state, std::vector<Launch>(10));
  const Timing timing = MeasurePlan(device, plan, Options(1, 4, 100)).value();
  EXPECT_THAT(timing.samples, SizeIs(4));
  EXPECT_THAT(timing.samples, Each(DoubleNear(10e-3, 1e-9)));
  EXPECT_NEAR(timing.number, 10, 1);
}

}  // namespace
}  // namespace diapason
