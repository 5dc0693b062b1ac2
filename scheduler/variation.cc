#include "scheduler/variation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace diapason {

void SampleConfiguration(const Space& space, Random* random, absl::Span<int32_t> configuration,
                         std::vector<int32_t>* values) {
  for (int parameter = 0; parameter < space.size(); ++parameter) {
    space.Domain(parameter, configuration, values);
    DIAPASON_CHECK(!values->empty());
    configuration[parameter] = (*values)[random->Below(static_cast<uint32_t>(values->size()))];
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
  const int parameters = space.size();
  if (parameters == 0) return false;
  const int first = static_cast<int>(random->Below(static_cast<uint32_t>(parameters)));
  for (int i = 0; i < parameters; ++i) {
    const int parameter = (first + i) % parameters;
    space.Domain(parameter, configuration, values);
    if (values->size() < 2) continue;
    configuration[parameter] = OtherValue(*values, configuration[parameter], random);
    if (parameter + 1 < parameters) space.Clamp(parameter + 1, configuration);
    return true;
  }
  return false;
}

void Crossover(const Space& space, Random* random, absl::Span<const int32_t> other, absl::Span<int32_t> configuration) {
  const int parameters = space.size();
  if (parameters < 2) return;
  if (random->Below(2) == 0) {
    const int cut = 1 + static_cast<int>(random->Below(static_cast<uint32_t>(parameters - 1)));
    for (int parameter = cut; parameter < parameters; ++parameter) configuration[parameter] = other[parameter];
    space.Clamp(cut, configuration);
    return;
  }
  const uint64_t mask = random->Next();
  for (int parameter = 0; parameter < parameters; ++parameter)
    if (mask >> (parameter % 64) & 1) configuration[parameter] = other[parameter];
  space.Clamp(0, configuration);
}

bool Enumerate(const Space& space, int limit, std::vector<int32_t>* out) {
  out->clear();
  const int parameters = space.size();
  std::vector<int32_t> configuration(parameters);
  std::vector<std::vector<int32_t>> domains(parameters);
  std::vector<size_t> at(parameters);
  int parameter = 0, found = 0;
  if (parameters > 0) space.Domain(0, absl::MakeSpan(configuration), &domains[0]);
  while (parameter >= 0) {
    if (parameter == parameters) {  // a whole vector
      if (++found > limit) return false;
      out->insert(out->end(), configuration.begin(), configuration.end());
      --parameter;
      continue;
    }
    if (at[parameter] == domains[parameter].size()) {
      at[parameter--] = 0;
      continue;
    }
    configuration[parameter] = domains[parameter][at[parameter]++];
    if (++parameter < parameters) space.Domain(parameter, absl::MakeSpan(configuration), &domains[parameter]);
  }
  return true;
}

}  // namespace diapason
