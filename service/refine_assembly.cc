#include "service/refine_assembly.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/median.h"

namespace diapason {
namespace {

// A version is taken for the faster one if the median of its ratios is this low, and all of them but one are below 1.
constexpr int kRounds = 5;
constexpr double kFasterRatio = 0.998;
// It is given up after one round of such a ratio.
constexpr double kHopelessRatio = 1.01;

class Refiner {
 public:
  Refiner(Assembly& assembly, const ContendersByWorkload& contenders, NetworkVersions& versions,
          const RefineOptions& options)
      : assembly_(assembly), contenders_(contenders), versions_(versions), options_(options) {}

  absl::StatusOr<Refinement> Run() {
    const std::vector<int> tasks = TasksByShare();
    if (tasks.empty()) return Refinement();
    const Assembly first = assembly_;
    RETURN_IF_ERROR(versions_.Announce(first));
    RETURN_IF_ERROR(versions_.Prepare(first));
    for (size_t place = 0; place < kContenders && !Ends(); ++place) RETURN_IF_ERROR(TryAll(tasks, place));
    if (refinement_.replaced.empty()) return std::move(refinement_);
    RETURN_IF_ERROR(Confirm(first));
    return std::move(refinement_);
  }

 private:
  const std::vector<TuningRecord>& ContendersFor(int task) const {
    static const std::vector<TuningRecord> kNone;
    const auto found = contenders_.find(assembly_.partition.tasks[task].workload_key);
    return found == contenders_.end() || !assembly_.records[task].has_value() ? kNone : found->second;
  }

  // Those that have contenders, by the time that the network spends in them.
  std::vector<int> TasksByShare() const {
    std::vector<int> tasks(assembly_.records.size());
    std::iota(tasks.begin(), tasks.end(), 0);
    std::erase_if(tasks, [&](int task) { return ContendersFor(task).empty(); });
    const auto share = [&](int task) {
      return assembly_.partition.tasks[task].weight * MedianSeconds(*assembly_.records[task]->timing());
    };
    std::stable_sort(tasks.begin(), tasks.end(), [&](int a, int b) { return share(a) > share(b); });
    return tasks;
  }

  bool Ends() const {
    return std::chrono::steady_clock::now() > until_ || (options_.stop != nullptr && *options_.stop);
  }

  // The contenders at one place of all tasks, which are compiled together.
  absl::Status TryAll(const std::vector<int>& tasks, size_t place) {
    Assembly all = assembly_;
    bool some = false;
    for (int task : tasks) {
      if (place >= ContendersFor(task).size()) continue;
      all.records[task] = ContendersFor(task)[place];
      some = true;
    }
    if (!some) return absl::OkStatus();
    RETURN_IF_ERROR(versions_.Announce(all));
    for (int task : tasks)
      if (place < ContendersFor(task).size() && !Ends()) RETURN_IF_ERROR(Try(task, *all.records[task]));
    return absl::OkStatus();
  }

  absl::Status Try(int task, const TuningRecord& contender) {
    Assembly other = assembly_;
    other.records[task] = contender;
    const absl::Status prepared = versions_.Prepare(other);
    if (absl::IsFailedPrecondition(prepared)) return absl::OkStatus();
    RETURN_IF_ERROR(prepared);
    ++refinement_.compared;
    ASSIGN_OR_RETURN(const std::vector<double> ratios, Ratios(/*to_the_end=*/false));
    if (!IsFaster(ratios)) return absl::OkStatus();
    versions_.Keep();
    assembly_ = std::move(other);
    auto& replaced = refinement_.replaced;
    if (std::find(replaced.begin(), replaced.end(), task) == replaced.end()) replaced.push_back(task);
    return absl::OkStatus();
  }

  // Of the other version's time over that of the one that is kept; fewer where it is slower.
  absl::StatusOr<std::vector<double>> Ratios(bool to_the_end) {
    std::vector<double> ratios;
    while (ratios.size() < kRounds) {
      ASSIGN_OR_RETURN(const NetworkVersions::Times times, versions_.Time());
      ratios.push_back(times.other / times.kept);
      if (to_the_end) continue;
      if (ratios.size() == 1 ? ratios[0] > kHopelessRatio : Median(ratios) >= 1) break;
    }
    return ratios;
  }

  static bool IsFaster(const std::vector<double>& ratios) {
    const auto below = std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio < 1; });
    return ratios.size() == kRounds && below >= kRounds - 1 && Median(ratios) <= kFasterRatio;
  }

  // Each step may have been luck; all of them together have to show.
  absl::Status Confirm(const Assembly& first) {
    RETURN_IF_ERROR(versions_.Prepare(first));
    ASSIGN_OR_RETURN(const std::vector<double> ratios, Ratios(/*to_the_end=*/true));
    refinement_.ratio = 1 / Median(ratios);
    if (refinement_.ratio < 1) return absl::OkStatus();
    assembly_ = first;
    refinement_.replaced.clear();
    refinement_.ratio = 1;
    return absl::OkStatus();
  }

  Assembly& assembly_;
  const ContendersByWorkload& contenders_;
  NetworkVersions& versions_;
  const RefineOptions& options_;
  const std::chrono::steady_clock::time_point until_ =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(options_.seconds));
  Refinement refinement_;
};

}  // namespace

absl::StatusOr<Refinement> RefineAssembly(Assembly& assembly, const ContendersByWorkload& contenders,
                                          NetworkVersions& versions, const RefineOptions& options) {
  return Refiner(assembly, contenders, versions, options).Run();
}

}  // namespace diapason
