#include "service/contenders.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "base/check.h"
#include "compiler/schedule/step.h"
#include "service/records.h"

namespace diapason {
namespace {

double SecondsOf(const TuningRecord& record) { return MedianSeconds(*record.timing()); }

// The value of `overlap` of a record's schedule; 0 without one.
int64_t OverlapOf(const TuningRecord& record) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(record.schedule);
  if (!schedule.ok()) return 0;
  for (const Step& step : schedule->steps)
    if (step.kind == StepKind::kOverlap && !step.factors.empty()) return step.factors[0].value;
  return 0;
}

// What contends with a record, as it is collected.
class Contenders {
 public:
  explicit Contenders(const TuningRecord& best) : known_{best.schedule}, overlaps_{OverlapOf(best)} {}

  // REQUIRES: records come the fastest first. Adds one whose value of `overlap` is new.
  void AddOtherOverlap(const TuningRecord& record) {
    if (overlaps_.insert(OverlapOf(record)).second && known_.insert(record.schedule).second) all_.push_back(record);
  }
  void Add(const TuningRecord& record) {
    if (all_.size() == kContenders || known_.contains(record.schedule)) return;
    if (++of_sketch_[record.sketch] > kContendersOfSketch) return;
    known_.insert(record.schedule);
    all_.push_back(record);
  }
  std::vector<TuningRecord> Take() { return std::move(all_); }

 private:
  std::set<std::string> known_;
  std::set<int64_t> overlaps_;
  std::map<std::string, int> of_sketch_;
  std::vector<TuningRecord> all_;
};

}  // namespace

std::vector<TuningRecord> ContendersOf(const TuningRecord& best, std::vector<TuningRecord> records) {
  const double seconds = SecondsOf(best);
  std::erase_if(records, [&](const TuningRecord& record) {
    return record.timing() == nullptr || IsRefuted(record.verified) ||
           SecondsOf(record) > kOtherOverlapMargin * seconds;
  });
  std::stable_sort(records.begin(), records.end(),
                   [](const TuningRecord& a, const TuningRecord& b) { return SecondsOf(a) < SecondsOf(b); });
  Contenders contenders(best);
  for (const TuningRecord& record : records) contenders.AddOtherOverlap(record);
  for (const TuningRecord& record : records)
    if (SecondsOf(record) <= kContenderMargin * seconds) contenders.Add(record);
  return contenders.Take();
}

absl::StatusOr<std::vector<TuningRecord>> FastRecords(History& history, const std::string& workload_key,
                                                      const std::string& device_model, const std::string& target) {
  ASSIGN_OR_RETURN(std::vector<TuningRecord> records,
                   history.TopK({target, workload_key, device_model, ""}, kFastRecords));
  KeepTarget(target, records);
  return records;
}

}  // namespace diapason
