// What a run through libdiapason_runtime costs beside its kernels, and what loading a package costs.
//
//   runtime_overhead PACKAGE [ROUNDS]
//
// A package for cpu is loaded twice in this process: through the C functions, and by PackageRunner, whose plan times
// its kernels back to back with nothing between them. Rounds of some milliseconds of each alternate. Printed are the
// fastest rounds, which other processes disturbed least, and medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/build/package.h"
#include "diapason/runtime.hpp"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double Fastest(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

// Seconds of each of `times` calls, on average.
template <typename Call>
double SecondsOf(int64_t times, Call call) {
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < times; ++i) call();
  return SecondsSince(start) / static_cast<double>(times);
}

void PrintLoading(const std::string& folder) {
  std::vector<double> loading, contexts;
  for (int i = 0; i < 7; ++i) {
    const Clock::time_point start = Clock::now();
    const runtime::Package package(folder);
    loading.push_back(SecondsSince(start));
    const Clock::time_point loaded = Clock::now();
    const runtime::Context context(package);
    contexts.push_back(SecondsSince(loaded));
  }
  std::printf("load                 %10.3f ms, median %.3f, the first %.3f\n", 1e3 * Fastest(loading),
              1e3 * Median(loading), 1e3 * loading.front());
  std::printf("a context            %10.3f ms, median %.3f\n", 1e3 * Fastest(contexts), 1e3 * Median(contexts));
}

absl::Status PrintRuns(const std::string& folder, int rounds) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PackageRunner> runner, PackageRunner::Load(folder));
  const runtime::Package package(folder);
  runtime::Context context(package);
  std::vector<std::vector<uint8_t>> memory;
  std::vector<runtime::Buffer> inputs, outputs;
  memory.reserve(package.inputs().size() + package.outputs().size());
  size_t copied = 0;
  const auto add = [&](std::vector<runtime::Buffer>& buffers, size_t bytes) {
    buffers.emplace_back(memory.emplace_back(bytes));
    copied += bytes;
  };
  for (size_t i = 0; i < package.inputs().size(); ++i) add(inputs, context.Input(static_cast<int32_t>(i)).bytes);
  for (size_t i = 0; i < package.outputs().size(); ++i) add(outputs, context.Output(static_cast<int32_t>(i)).bytes);

  RETURN_IF_ERROR(runner->RunTimes(3));
  const double once = SecondsOf(3, [&] { context.Run(); });
  const int64_t times = std::max<int64_t>(static_cast<int64_t>(5e-3 / once), 1);
  std::vector<double> kernels, in_place, with_copies;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(runner->RunTimes(times));
    kernels.push_back(SecondsSince(start) / static_cast<double>(times));
    in_place.push_back(SecondsOf(times, [&] { context.Run(); }));
    with_copies.push_back(SecondsOf(times, [&] { context.Run(inputs, outputs); }));
  }
  const auto print = [&](const char* what, const std::vector<double>& seconds) {
    std::printf("%-20s %10.3f us, median %.3f, %+.3f over the kernels\n", what, 1e6 * Fastest(seconds),
                1e6 * Median(seconds), 1e6 * (Fastest(seconds) - Fastest(kernels)));
  };
  print("kernels", kernels);
  print("run in place", in_place);
  print("run with copies", with_copies);
  std::printf("copied               %zu bytes\n", copied);
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: runtime_overhead PACKAGE [ROUNDS]\n");
    return 2;
  }
  try {
    diapason::PrintLoading(argv[1]);
    const absl::Status status = diapason::PrintRuns(argv[1], argc > 2 ? std::max(std::atoi(argv[2]), 1) : 200);
    if (status.ok()) return 0;
    std::fprintf(stderr, "runtime_overhead: %s\n", std::string(status.message()).c_str());
  } catch (const diapason::runtime::Error& error) {
    std::fprintf(stderr, "runtime_overhead: %s\n", error.what());
  }
  return 1;
}
