// Ranges of addresses of a device's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace diapason {

// Addresses [begin, end).
struct AddressRange {
  uint64_t begin = 0, end = 0;
  bool operator==(const AddressRange&) const = default;
};

// In order, those that touch or overlap as one; empty ones are left out.
std::vector<AddressRange> Merged(std::vector<AddressRange> ranges);

// Whether a range has an address in common with ranges that Merged gave; an empty one has none.
bool Overlaps(const AddressRange& range, absl::Span<const AddressRange> merged);

}  // namespace diapason
