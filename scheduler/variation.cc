#include "scheduler/variation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace diapason {

void SampleConfiguration(const Space& space, Random* random, absl::Span<int32_t> configuration,
                         std::vector<int32_t>* values) {
  for (int hole = 0; hole < space.size(); ++hole) {
    space.Domain(hole, configuration, values);
    DIAPASON_CHECK(!values->empty());
    configuration[hole] = (*values)[random->Below(static_cast<uint32_t>(values->size()))];
  }
}

namespace {

// A value of the domain other than `old`. REQUIRES: there is one.
int32_t OtherValue(const std::vector<int32_t>& values, int32_t old, Random* random) {
  const auto size = static_cast<uint32_t>(values.size());
  const auto at = static_cast<uint32_t>(std::lower_bound(values.begin(), values.end(), old) - values.begin());
  const bool found = at < size && values[at] == old;
  if (!found) return values[random->Below(size)];
  if (random->Below(2) == 0) {
    const bool up = at == 0 || (at + 1 < size && random->Below(2) == 0);
    return values[up ? at + 1 : at - 1];
  }
  const uint32_t other = random->Below(size - 1);
  return values[other < at ? other : other + 1];
}

}  // namespace

bool Mutate(const Space& space, Random* random, absl::Span<int32_t> configuration, std::vector<int32_t>* values) {
  const int holes = space.size();
  if (holes == 0) return false;
  const int first = static_cast<int>(random->Below(static_cast<uint32_t>(holes)));
  for (int i = 0; i < holes; ++i) {
    const int hole = (first + i) % holes;
    space.Domain(hole, configuration, values);
    if (values->size() < 2) continue;
    configuration[hole] = OtherValue(*values, configuration[hole], random);
    if (hole + 1 < holes) space.Clamp(hole + 1, configuration);
    return true;
  }
  return false;
}

void Crossover(const Space& space, Random* random, absl::Span<const int32_t> other, absl::Span<int32_t> configuration) {
  const int holes = space.size();
  if (holes < 2) return;
  if (random->Below(2) == 0) {
    const int cut = 1 + static_cast<int>(random->Below(static_cast<uint32_t>(holes - 1)));
    for (int hole = cut; hole < holes; ++hole) configuration[hole] = other[hole];
    space.Clamp(cut, configuration);
    return;
  }
  const uint64_t mask = random->Next();
  for (int hole = 0; hole < holes; ++hole)
    if (mask >> (hole % 64) & 1) configuration[hole] = other[hole];
  space.Clamp(0, configuration);
}

bool Enumerate(const Space& space, int limit, std::vector<int32_t>* out) {
  out->clear();
  const int holes = space.size();
  std::vector<int32_t> configuration(holes);
  std::vector<std::vector<int32_t>> domains(holes);
  std::vector<size_t> at(holes);
  int hole = 0, found = 0;
  if (holes > 0) space.Domain(0, absl::MakeSpan(configuration), &domains[0]);
  while (hole >= 0) {
    if (hole == holes) {  // a whole vector
      if (++found > limit) return false;
      out->insert(out->end(), configuration.begin(), configuration.end());
      --hole;
      continue;
    }
    if (at[hole] == domains[hole].size()) {
      at[hole--] = 0;
      continue;
    }
    configuration[hole] = domains[hole][at[hole]++];
    if (++hole < holes) space.Domain(hole, absl::MakeSpan(configuration), &domains[hole]);
  }
  return true;
}

}  // namespace diapason
