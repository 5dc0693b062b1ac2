#include "compiler/runtime/launch_paths.h"

#include <algorithm>

#include "base/check.h"

namespace diapason {
namespace {

bool Conflict(const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
  for (const MemoryRange& x : a)
    for (const MemoryRange& y : b)
      if ((x.written || y.written) && x.begin < y.end && y.begin < x.end && !x.part.IsApartFrom(y.part)) return true;
  return false;
}

// By launch: those that have ended when it begins.
class Ended {
 public:
  explicit Ended(size_t launches) : before_(launches, std::vector<bool>(launches, false)) {}
  bool Has(size_t launch, size_t earlier) const { return before_[launch][earlier]; }
  // It waits for an earlier one, and so for all that this one waits for.
  void Add(size_t launch, size_t earlier) {
    before_[launch][earlier] = true;
    for (size_t k = 0; k < earlier; ++k)
      if (before_[earlier][k]) before_[launch][k] = true;
  }

 private:
  std::vector<std::vector<bool>> before_;
};

}  // namespace

std::vector<std::vector<int>> DependenciesOf(const std::vector<std::vector<MemoryRange>>& launches) {
  const size_t count = launches.size();
  std::vector<std::vector<int>> dependencies(count);
  Ended ended(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i; j-- > 0;) {
      if (ended.Has(i, j) || !Conflict(launches[i], launches[j])) continue;
      dependencies[i].push_back(static_cast<int>(j));
      ended.Add(i, j);
    }
  }
  return dependencies;
}

LaunchPaths InOrder(size_t launches) {
  LaunchPaths paths;
  paths.steps.resize(launches);
  if (launches == 0) return paths;
  paths.count = 1;
  paths.last = {static_cast<int>(launches) - 1};
  return paths;
}

LaunchPaths PlacePaths(const std::vector<std::vector<int>>& dependencies, int most) {
  DIAPASON_CHECK(most > 0);
  const size_t count = dependencies.size();
  LaunchPaths paths;
  paths.steps.resize(count);
  Ended ended(count);  // on account of its path as well
  for (size_t i = 0; i < count; ++i) {
    PathStep& step = paths.steps[i];
    for (int j : dependencies[i]) ended.Add(i, j);
    step.path = -1;
    for (int p = 0; p < paths.count; ++p) {
      const auto& waits = dependencies[i];
      const bool follows = std::find(waits.begin(), waits.end(), paths.last[p]) != waits.end();
      if (follows && (step.path < 0 || paths.last[p] > paths.last[step.path])) step.path = p;
    }
    for (int p = 0; p < paths.count && step.path < 0; ++p)
      if (ended.Has(i, paths.last[p])) step.path = p;
    if (step.path < 0 && paths.count < most) {
      step.path = paths.count++;
      paths.last.push_back(-1);
    }
    if (step.path < 0)  // of too many paths that which has been idle for longest
      step.path = static_cast<int>(std::min_element(paths.last.begin(), paths.last.end()) - paths.last.begin());
    const int previous = paths.last[step.path];
    if (previous >= 0) ended.Add(i, previous);
    for (int j : dependencies[i]) {
      const bool by_path = previous >= 0 && (j == previous || ended.Has(previous, j));
      if (!by_path) step.waits.push_back(j);
    }
    step.alone = dependencies[i].size() == 1 && dependencies[i][0] == previous;
    paths.last[step.path] = static_cast<int>(i);
  }
  return paths;
}

}  // namespace diapason
