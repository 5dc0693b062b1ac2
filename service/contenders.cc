#include "service/contenders.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

double SecondsOf(const TuningRecord& record) { return MedianSeconds(*record.timing()); }

}  // namespace

std::vector<TuningRecord> ContendersOf(const TuningRecord& best, std::vector<TuningRecord> records) {
  const double limit = kContenderMargin * SecondsOf(best);
  std::erase_if(records, [&](const TuningRecord& record) {
    return record.timing() == nullptr || IsRefuted(record.verified) || SecondsOf(record) > limit;
  });
  std::stable_sort(records.begin(), records.end(),
                   [](const TuningRecord& a, const TuningRecord& b) { return SecondsOf(a) < SecondsOf(b); });
  std::set<std::string> known = {best.schedule};
  std::map<std::string, int> of_sketch;
  std::vector<TuningRecord> contenders;
  for (TuningRecord& record : records) {
    if (contenders.size() == kContenders) break;
    if (!known.insert(record.schedule).second || ++of_sketch[record.sketch] > kContendersOfSketch) continue;
    contenders.push_back(std::move(record));
  }
  return contenders;
}

absl::StatusOr<std::vector<TuningRecord>> FastRecords(History& history, const std::string& workload_key,
                                                      const std::string& device_model, const std::string& target) {
  ASSIGN_OR_RETURN(std::vector<TuningRecord> records,
                   history.TopK({target, workload_key, device_model, ""}, kFastRecords));
  // A filter's target matches longer ones as well.
  std::erase_if(records, [&](const TuningRecord& record) { return record.target != target; });
  return records;
}

}  // namespace diapason
