#include "service/refine_assembly.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
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
// Replacements that are compiled at once, at least.
constexpr unsigned kAnnounced = 8;

// Choice points with the same alternatives, such as those of a transformer's layers, that take the same one.
struct AlikePoints {
  std::vector<int> points;
  double seconds = 0;       // of their tasks, by the times of these alone
  std::vector<int> others;  // alternatives that may be faster in the network
};

const std::vector<TuningRecord>& ContendersFor(const Replacements& replacements, const Task& task) {
  static const std::vector<TuningRecord> kNone;
  const auto found = replacements.contenders.find(task.workload_key);
  return found == replacements.contenders.end() ? kNone : found->second;
}

class FusionSearch {
 public:
  explicit FusionSearch(const Replacements& replacements) : replacements_(replacements) {}

  // Those that have other alternatives, the largest share first.
  std::vector<AlikePoints> PointsOf(const Assembly& assembly) const {
    using Tasks = std::vector<std::pair<int, int>>;
    std::map<std::pair<int, std::vector<Tasks>>, std::vector<int>> alike;
    for (size_t p = 0; p < assembly.alternatives.size(); ++p) {
      std::vector<Tasks> tasks;
      for (const FusionAlternative& one : point(p).alternatives) tasks.push_back(one.tasks);
      alike[{assembly.alternatives[p], std::move(tasks)}].push_back(static_cast<int>(p));
    }
    std::vector<AlikePoints> found;
    for (auto& [key, points] : alike) {
      const ChoicePoint& first = point(points[0]);
      const double seconds = SecondsOf(first.alternatives[key.first]);
      AlikePoints one{std::move(points), 0, {}};
      one.seconds = seconds * static_cast<double>(one.points.size());
      for (const int w : AlternativesThatMayWin(first)) {
        const double other = SecondsOf(first.alternatives[w]);
        if (w != key.first && other > 0 && other <= kFusionMargin * seconds) one.others.push_back(w);
      }
      if (!one.others.empty()) found.push_back(std::move(one));
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return found;
  }

  // `assembly`, but with another alternative at some choice points.
  absl::StatusOr<Assembly> With(const Assembly& assembly, const std::vector<int>& points, int alternative) const {
    RecordsByWorkload records = replacements_.records;
    for (const std::optional<TuningRecord>& record : assembly.records)
      if (record.has_value()) records.insert_or_assign(record->workload_key, *record);
    std::vector<int> alternatives = assembly.alternatives;
    for (const int point : points) alternatives[point] = alternative;
    return AssembleAs(replacements_.network, replacements_.fusion, records, std::move(alternatives));
  }

 private:
  const ChoicePoint& point(size_t index) const { return replacements_.fusion.choice_points[index]; }

  // 0 where a task has no record, or one that cannot be used there.
  double SecondsOf(const FusionAlternative& alternative) const {
    double sum = 0;
    for (const auto& [task, count] : alternative.tasks) {
      const TuningRecord* record = UsableRecord(replacements_.records, replacements_.fusion.partition.tasks[task]);
      if (record == nullptr || (alternative.writes_in_place && IsByLibrary(*record))) return 0;
      sum += count * MedianSeconds(*record->timing());
    }
    return sum;
  }

  const Replacements& replacements_;
};

class Refiner {
 public:
  Refiner(Assembly& assembly, const Replacements& replacements, NetworkVersions& versions, const RefineOptions& options)
      : assembly_(assembly), replacements_(replacements), versions_(versions), options_(options) {}

  absl::StatusOr<Refinement> Run() {
    if (!HasReplacements(assembly_, replacements_)) return Refinement();
    const Assembly first = assembly_;
    const absl::Status prepared = versions_.Prepare(first);
    if (absl::IsResourceExhausted(prepared)) return std::move(refinement_);
    RETURN_IF_ERROR(prepared);
    RETURN_IF_ERROR(TryAlternatives());
    RETURN_IF_ERROR(TryRecords());
    for (size_t p = 0; p < first.alternatives.size(); ++p)
      refinement_.regrouped += first.alternatives[p] != assembly_.alternatives[p];
    NoteReplaced(first);
    if (refinement_.replaced.empty() && refinement_.regrouped == 0) return std::move(refinement_);
    RETURN_IF_ERROR(Confirm(first));
    return std::move(refinement_);
  }

 private:
  const std::vector<TuningRecord>& ContendersFor(int task) const {
    static const std::vector<TuningRecord> kNone;
    return assembly_.records[task].has_value() ? diapason::ContendersFor(replacements_, assembly_.partition.tasks[task])
                                               : kNone;
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

  bool Ends() {
    const bool ends = std::chrono::steady_clock::now() > until_ || (options_.stop != nullptr && *options_.stop);
    refinement_.ended_early = refinement_.ended_early || ends;
    return ends;
  }

  absl::Status TryAlternatives() {
    const FusionSearch search(replacements_);
    for (const AlikePoints& alike : search.PointsOf(assembly_)) {
      for (const int alternative : alike.others) {
        if (Ends()) return absl::OkStatus();
        ASSIGN_OR_RETURN(Assembly other, search.With(assembly_, alike.points, alternative));
        RETURN_IF_ERROR(Try(std::move(other)).status());
      }
    }
    return absl::OkStatus();
  }

  // What may take a record's place, in the order in which it is tried: the first contenders of all tasks come before
  // the second ones. The records that are there are among them, for when others around them have changed.
  std::vector<TaskRecord> AllReplacements() const {
    const std::vector<int> tasks = TasksByShare();
    std::vector<TaskRecord> all;
    for (size_t place = 0; place < kContenders; ++place)
      for (const int task : tasks)
        if (place < ContendersFor(task).size()) all.push_back({task, ContendersFor(task)[place]});
    for (const int task : tasks) all.push_back({task, *assembly_.records[task]});
    return all;
  }

  // Until a round has changed nothing. A task's record can be tried again once that of another one has changed.
  absl::Status TryRecords() {
    const std::vector<TaskRecord> all = AllReplacements();
    std::vector<int> tried_at(all.size(), -1);  // how many had been kept by then
    std::vector<bool> possible(all.size(), true);
    int kept = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < all.size(); ++i) {
        const bool in_place = assembly_.records[all[i].task]->uuid == all[i].record.uuid;
        if (in_place || tried_at[i] == kept || !possible[i]) continue;
        if (tried_at[i] < 0) RETURN_IF_ERROR(AnnounceFrom(all, i));
        if (Ends()) return absl::OkStatus();
        tried_at[i] = kept;
        Assembly other = assembly_;
        const std::string replaced = std::exchange(other.records[all[i].task], all[i].record)->uuid;
        ASSIGN_OR_RETURN(const Trial trial, Try(std::move(other)));
        possible[i] = trial != Trial::kImpossible;
        if (trial != Trial::kKept) continue;
        changed = true;
        ++kept;
        for (size_t j = 0; j < all.size(); ++j)
          if (all[j].record.uuid == replaced) tried_at[j] = kept;  // it was compared with this one
      }
    }
    return absl::OkStatus();
  }

  // Those from `first` on are compiled side by side, some at a time: there may be no time for all.
  absl::Status AnnounceFrom(const std::vector<TaskRecord>& all, size_t first) {
    if (first < announced_ || Ends()) return absl::OkStatus();
    const size_t count = std::max(kAnnounced, std::thread::hardware_concurrency());
    announced_ = std::min(all.size(), first + count);
    const auto at = [&](size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
    return versions_.Announce(assembly_, std::vector<TaskRecord>(at(first), at(announced_)));
  }

  void NoteReplaced(const Assembly& first) {
    std::map<std::string, std::string> before;  // uuids by workload
    for (const auto& [key, record] : replacements_.records) before[key] = record.uuid;
    for (const std::optional<TuningRecord>& record : first.records)
      if (record.has_value()) before[record->workload_key] = record->uuid;
    for (const std::optional<TuningRecord>& record : assembly_.records)
      if (record.has_value() && before[record->workload_key] != record->uuid)
        refinement_.replaced.push_back(record->workload_key);
  }

  enum class Trial { kImpossible, kNoFaster, kKept };

  absl::StatusOr<Trial> Try(Assembly other) {
    const absl::Status prepared = versions_.Prepare(other);
    if (absl::IsFailedPrecondition(prepared) || absl::IsResourceExhausted(prepared)) return Trial::kImpossible;
    RETURN_IF_ERROR(prepared);
    ++refinement_.compared;
    ASSIGN_OR_RETURN(const std::vector<double> ratios, Ratios(/*to_the_end=*/false));
    if (!IsFaster(ratios)) return Trial::kNoFaster;
    versions_.Keep();
    assembly_ = std::move(other);
    return Trial::kKept;
  }

  // Of the other version's time over that of the one that is kept; fewer where it is slower.
  absl::StatusOr<std::vector<double>> Ratios(bool to_the_end) {
    std::vector<double> ratios;
    kept_seconds_.clear();
    while (ratios.size() < kRounds) {
      ASSIGN_OR_RETURN(const NetworkVersions::Times times, versions_.Time());
      ratios.push_back(times.other / times.kept);
      kept_seconds_.push_back(times.kept);
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
    refinement_.seconds = Median(kept_seconds_);
    if (refinement_.ratio < 1) return absl::OkStatus();
    assembly_ = first;
    refinement_.seconds = 0;
    refinement_.replaced.clear();
    refinement_.regrouped = 0;
    refinement_.ratio = 1;
    return absl::OkStatus();
  }

  Assembly& assembly_;
  const Replacements& replacements_;
  NetworkVersions& versions_;
  const RefineOptions& options_;
  const std::chrono::steady_clock::time_point until_ =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(options_.seconds));
  size_t announced_ = 0;              // of the replacements
  std::vector<double> kept_seconds_;  // of the last comparison: what the version that is kept took
  Refinement refinement_;
};

}  // namespace

bool HasReplacements(const Assembly& assembly, const Replacements& replacements) {
  const std::vector<Task>& tasks = assembly.partition.tasks;
  return std::any_of(tasks.begin(), tasks.end(),
                     [&](const Task& task) { return !ContendersFor(replacements, task).empty(); }) ||
         !FusionSearch(replacements).PointsOf(assembly).empty();
}

absl::StatusOr<Refinement> RefineAssembly(Assembly& assembly, const Replacements& replacements,
                                          NetworkVersions& versions, const RefineOptions& options) {
  return Refiner(assembly, replacements, versions, options).Run();
}

}  // namespace diapason
