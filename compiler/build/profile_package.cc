#include "compiler/build/profile_package.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "base/median.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

// The GPU's events tell half a microsecond: a sample is the mean over several runs there.
constexpr int kRunsOfCudaSample = 10;
constexpr int kLatencySamples = 5;
constexpr size_t kMostSamples = 20'000;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One sample of each kernel: the mean over `runs`.
absl::StatusOr<std::vector<double>> Sample(LaunchTimer& timer, int runs) {
  std::vector<double> sum;
  for (int r = 0; r < runs; ++r) {
    ASSIGN_OR_RETURN(const std::vector<double> seconds, timer.Run());
    sum.resize(seconds.size(), 0);
    for (size_t i = 0; i < seconds.size(); ++i) sum[i] += seconds[i] / runs;
  }
  return sum;
}

// Samples of the latency in the way of `diapason run --bench`.
absl::Status AddLatencies(PackageRunner& runner, double seconds, std::vector<double>& samples) {
  TimingOptions options;
  options.repeat = kLatencySamples;
  options.max_seconds = std::max(seconds, 1e-3);
  ASSIGN_OR_RETURN(const Timing timing, runner.Bench(options));
  samples.insert(samples.end(), timing.samples.begin(), timing.samples.end());
  return absl::OkStatus();
}

// By kernel, the medians of its samples. Sets the profile's number of runs and the median of their sums.
absl::StatusOr<std::vector<double>> TimeKernels(PackageRunner& runner, LaunchTimer& timer,
                                                const ProfileOptions& options, PackageProfile& profile) {
  const int runs_of_sample = runner.device().kind() == TargetKind::kCuda ? kRunsOfCudaSample : 1;
  std::vector<std::vector<double>> samples;
  const Clock::time_point start = Clock::now();
  while (samples.size() < kMostSamples && (static_cast<int>(samples.size()) * runs_of_sample < options.least_runs ||
                                           SecondsSince(start) < options.seconds)) {
    ASSIGN_OR_RETURN(samples.emplace_back(), Sample(timer, runs_of_sample));
  }
  profile.runs = static_cast<int>(samples.size()) * runs_of_sample;
  std::vector<double> sums;
  for (const std::vector<double>& sample : samples) sums.push_back(std::accumulate(sample.begin(), sample.end(), 0.0));
  profile.run_seconds = Median(std::move(sums));
  std::vector<double> medians(samples.front().size());
  for (size_t k = 0; k < medians.size(); ++k) {
    std::vector<double> of_kernel;
    for (const std::vector<double>& sample : samples) of_kernel.push_back(sample[k]);
    medians[k] = Median(std::move(of_kernel));
  }
  return medians;
}

std::optional<Roofline> RooflineOf(const KernelWork& work, const PackageProfile& profile) {
  if (!profile.flops.has_value() || !profile.bandwidth.has_value()) return std::nullopt;
  const TensorIntrinsic* tensor = FindTensorIntrinsic(static_cast<int>(work.tensor));
  const double arithmetic = work.flops / *profile.flops * (tensor != nullptr ? tensor->fma : 1);
  const double memory = work.bytes / *profile.bandwidth;
  return Roofline{std::max(arithmetic, memory), arithmetic > memory};
}

void SetPeaks(const Device& device, const ProfileOptions& options, PackageProfile& profile) {
  profile.flops = options.flops;
  profile.bandwidth = options.bandwidth;
  if (device.kind() == TargetKind::kOpenCl) return;
  if (!profile.flops.has_value()) profile.flops = device.facts().flops;
  if (!profile.bandwidth.has_value()) profile.bandwidth = device.facts().bandwidth;
}

void SetKernels(const PackageRunner& runner, const std::vector<Launch>& launches, const std::vector<double>& seconds,
                PackageProfile& profile) {
  const PackageManifest& manifest = runner.manifest();
  size_t next = 0;
  for (size_t s = 0; s < manifest.steps.size(); ++s) {
    const int task = manifest.steps[s].task, count = runner.KernelsOf(static_cast<int>(s));
    const std::vector<KernelWork>& work = manifest.tasks[task].work;
    for (int k = 0; k < count; ++k, ++next) {
      const Kernel& kernel = launches[next].kernel;
      ProfiledKernel one{static_cast<int>(s), task, kernel.name, seconds[next], std::nullopt, std::nullopt};
      if (static_cast<int>(work.size()) == count) {
        one.work = work[k];
        one.roofline = RooflineOf(work[k], profile);
      }
      profile.early_starts = profile.early_starts || kernel.overlap;
      profile.kernels.push_back(std::move(one));
    }
  }
}

}  // namespace

double PackageProfile::kernels_seconds() const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += kernel.seconds;
  return sum;
}

absl::StatusOr<PackageProfile> ProfilePackage(PackageRunner& runner, const ProfileOptions& options) {
  PackageProfile profile;
  profile.paths = runner.paths();
  SetPeaks(runner.device(), options, profile);
  const std::vector<Launch> launches = runner.Launches();
  ASSIGN_OR_RETURN(const std::unique_ptr<LaunchTimer> timer, runner.device().MakeLaunchTimer(launches));
  const Clock::time_point start = Clock::now();
  do {
    RETURN_IF_ERROR(runner.Run());
    RETURN_IF_ERROR(timer->Run().status());
  } while (SecondsSince(start) < options.warm_up_seconds);
  // The latency before and behind, so that a machine that slows down shows in both.
  std::vector<double> latencies;
  RETURN_IF_ERROR(AddLatencies(runner, options.seconds / 4, latencies));
  ASSIGN_OR_RETURN(const std::vector<double> seconds, TimeKernels(runner, *timer, options, profile));
  RETURN_IF_ERROR(AddLatencies(runner, options.seconds / 4, latencies));
  profile.latency_seconds = Median(std::move(latencies));
  DIAPASON_CHECK(seconds.size() == launches.size());
  SetKernels(runner, launches, seconds, profile);
  return profile;
}

}  // namespace diapason
