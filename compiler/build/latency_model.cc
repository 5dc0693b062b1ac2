#include "compiler/build/latency_model.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"

namespace diapason {
namespace {

constexpr double kLeastShare = 1e-3;

// The launches of a plan while time goes on.
class Simulation {
 public:
  Simulation(const std::vector<ModelledLaunch>& launches, const LaunchPaths& paths)
      : launches_(launches), paths_(paths), left_(launches.size()), ended_(launches.size(), false), next_(paths.count) {
    for (size_t i = 0; i < launches.size(); ++i) left_[i] = launches[i].seconds;
    for (size_t i = 0; i < launches.size(); ++i) queues_[paths.steps[i].path].push_back(static_cast<int>(i));
  }

  double Run() {
    double now = 0;
    for (std::vector<int> running = Running(); !running.empty(); running = Running()) {
      double asked = 0, least = std::numeric_limits<double>::infinity();
      for (int launch : running) {
        asked += launches_[launch].share;
        least = std::min(least, left_[launch]);
      }
      now += least * std::max(1.0, asked);
      for (int launch : running) {
        left_[launch] -= least;
        if (left_[launch] <= 0) End(launch);
      }
    }
    return now;
  }

 private:
  void End(int launch) {
    ended_[launch] = true;
    ++next_[paths_.steps[launch].path];
  }
  bool MayRun(int launch) const {
    const std::vector<int>& waits = paths_.steps[launch].waits;
    return std::all_of(waits.begin(), waits.end(), [this](int earlier) { return ended_[earlier]; });
  }
  // The first of each path that has not ended, if it waits for nothing.
  std::vector<int> Running() const {
    std::vector<int> running;
    for (int path = 0; path < paths_.count; ++path) {
      const auto queue = queues_.find(path);
      if (queue == queues_.end() || next_[path] == queue->second.size()) continue;
      const int launch = queue->second[next_[path]];
      if (MayRun(launch)) running.push_back(launch);
    }
    return running;
  }

  const std::vector<ModelledLaunch>& launches_;
  const LaunchPaths& paths_;
  std::vector<double> left_;  // seconds alone
  std::vector<bool> ended_;
  std::map<int, std::vector<int>> queues_;  // by path: its launches
  std::vector<size_t> next_;                // by path: of its queue
};

}  // namespace

double SecondsInOrder(const std::vector<ModelledLaunch>& launches) {
  double sum = 0;
  for (const ModelledLaunch& launch : launches) sum += launch.seconds;
  return sum;
}

double SecondsOnPaths(const std::vector<ModelledLaunch>& launches, const LaunchPaths& paths) {
  DIAPASON_CHECK(paths.steps.size() == launches.size());
  return Simulation(launches, paths).Run();
}

double ShareOf(const Program& program, int num_cores) {
  double sum = 0;
  for (const Kernel& kernel : program.kernels) {
    const double blocks = static_cast<double>(kernel.grid[0] * kernel.grid[1] * kernel.grid[2]);
    sum += kernel.library != nullptr ? 1 : std::min(1.0, blocks / std::max(1, num_cores));
  }
  return program.kernels.empty() ? 1 : std::clamp(sum / static_cast<double>(program.kernels.size()), kLeastShare, 1.0);
}

std::vector<std::vector<MemoryRange>> MemoryOfSteps(const PackageManifest& manifest,
                                                    const std::vector<const Program*>& programs) {
  std::vector<std::vector<MemoryRange>> memory;
  for (const PackageStep& step : manifest.steps) {
    std::vector<MemoryRange>& ranges = memory.emplace_back();
    const auto use = [&](int64_t offset, int64_t bytes, bool written, WrittenPart part) {
      ranges.push_back({static_cast<uint64_t>(offset), static_cast<uint64_t>(offset + bytes), written, part});
    };
    const OutputPlace& place = manifest.tasks[step.task].place;
    for (const auto* list : {&step.inputs, &step.outputs}) {
      const bool written = list == &step.outputs;
      for (int id : *list) {
        const PackageTensor& tensor = manifest.tensors[id];
        if (tensor.place != PackageTensor::Place::kArena) continue;  // nobody writes inputs and constants
        use(tensor.offset, tensor.bytes(), written,
            written && !place.whole() ? WrittenPart{id + 1, place.offset} : WrittenPart{});
      }
    }
    for (const auto& [buffer, offset] : step.workspaces)
      use(offset, programs[step.task]->buffers[buffer].bytes(), true, {});
  }
  return memory;
}

double ModelledSeconds(const PackageManifest& manifest, const std::vector<const Program*>& programs) {
  std::vector<ModelledLaunch> launches;
  for (const PackageStep& step : manifest.steps) {
    const double seconds = manifest.tasks[step.task].estimated_seconds;
    if (seconds <= 0) return 0;
    launches.push_back({seconds, ShareOf(*programs[step.task], manifest.device.num_cores)});
  }
  const double in_order = SecondsInOrder(launches);
  // Calls of libraries share a workspace: such plans run in order.
  if (manifest.target.kind != TargetKind::kCuda || !manifest.libraries.empty()) return in_order;
  return std::min(in_order,
                  SecondsOnPaths(launches, PlacePaths(DependenciesOf(MemoryOfSteps(manifest, programs)), kMostPaths)));
}

}  // namespace diapason
