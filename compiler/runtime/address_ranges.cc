#include "compiler/runtime/address_ranges.h"

#include <algorithm>

namespace diapason {

std::vector<AddressRange> Merged(std::vector<AddressRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  std::vector<AddressRange> merged;
  for (const AddressRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!merged.empty() && range.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, range.end);
    else
      merged.push_back(range);
  }
  return merged;
}

bool Overlaps(const AddressRange& range, absl::Span<const AddressRange> merged) {
  if (range.begin == range.end) return false;
  const auto behind = std::upper_bound(merged.begin(), merged.end(), range.begin,
                                       [](uint64_t begin, const AddressRange& other) { return begin < other.end; });
  return behind != merged.end() && behind->begin < range.end;
}

}  // namespace diapason
