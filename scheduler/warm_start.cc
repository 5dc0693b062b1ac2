#include "scheduler/warm_start.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

const Stage* HeaviestStage(const ComputeDag& dag) {
  const Stage* heaviest = nullptr;
  double most = -1;
  for (int id = 0; id < dag.size(); ++id) {
    const Stage& stage = dag.stage(id);
    if (stage.placeholder || dag.is_prologue(id)) continue;
    double work = static_cast<double>(stage.elements());
    for (const Axis& axis : stage.reduce_axes) work *= static_cast<double>(axis.extent);
    if (work <= most) continue;
    most = work;
    heaviest = &stage;
  }
  return heaviest;
}

std::optional<Suggestion> Fit(const TaskSpace& spaces, const Tuned& tuned) {
  const int found = spaces.Find(tuned.sketch);
  if (found < 0) return std::nullopt;
  const Space& space = spaces.space(found);
  if (static_cast<int>(tuned.configuration.size()) != space.size()) return std::nullopt;
  Suggestion suggestion{found, tuned.configuration};
  space.Clamp(0, absl::MakeSpan(suggestion.configuration));
  Metrics metrics;
  space.Evaluate(suggestion.configuration, &metrics);
  if (!metrics.legal) return std::nullopt;
  return suggestion;
}

}  // namespace

std::string KindOf(const ComputeDag& dag) {
  const Stage* heaviest = HeaviestStage(dag);
  if (heaviest == nullptr) return "";
  const auto longer_than_1 = [](const std::vector<Axis>& axes) {
    return std::count_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.extent > 1; });
  };
  return absl::StrCat(static_cast<int>(heaviest->combiner), ".", static_cast<int>(heaviest->dtype), ".",
                      longer_than_1(heaviest->axes), ".", longer_than_1(heaviest->reduce_axes));
}

TaskShape ShapeOf(const ComputeDag& dag) {
  TaskShape shape{KindOf(dag), {}};
  const Stage* heaviest = HeaviestStage(dag);
  if (heaviest == nullptr) return shape;
  for (const auto* axes : {&heaviest->axes, &heaviest->reduce_axes})
    for (const Axis& axis : *axes)
      if (axis.extent > 1) shape.log2_extents.push_back(std::log2(static_cast<double>(axis.extent)));
  return shape;
}

double Distance(const TaskShape& a, const TaskShape& b) {
  if (a.kind != b.kind || a.log2_extents.size() != b.log2_extents.size())
    return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (size_t i = 0; i < a.log2_extents.size(); ++i) sum += std::abs(a.log2_extents[i] - b.log2_extents[i]);
  return sum;
}

std::vector<Suggestion> Suggest(const TaskSpace& space, const TaskShape& shape, const std::vector<TunedWorkload>& tuned,
                                const std::string& workload_key) {
  std::vector<std::pair<double, const TunedWorkload*>> nearest;
  for (const TunedWorkload& workload : tuned) {
    if (workload.best.empty()) continue;
    const bool own = workload.workload_key == workload_key;
    if (const double distance = own ? -1 : Distance(shape, workload.shape); distance <= kFarthestWorkload)
      nearest.push_back({distance, &workload});
  }
  std::stable_sort(nearest.begin(), nearest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (nearest.size() > kNearestWorkloads) nearest.resize(kNearestWorkloads);
  std::vector<Suggestion> suggestions;
  std::set<std::pair<int, std::vector<int32_t>>> seen;
  for (size_t rank = 0; rank < kTunedOfWorkload; ++rank) {
    for (const auto& [distance, workload] : nearest) {
      if (rank >= workload->best.size()) continue;
      std::optional<Suggestion> suggestion = Fit(space, workload->best[rank]);
      if (suggestion && seen.insert({suggestion->space, suggestion->configuration}).second)
        suggestions.push_back(*std::move(suggestion));
    }
  }
  return suggestions;
}

}  // namespace diapason
