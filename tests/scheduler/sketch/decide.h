// The configuration of a space by the names of its parameters.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "scheduler/space.h"

namespace diapason::testing {

// -1 where the space has none of that name.
inline int ParameterOf(const Space& space, const std::string& name) {
  for (int h = 0; h < space.size(); ++h)
    if (space.parameter_name(h) == name) return h;
  return -1;
}

// From the first parameter to the last: said ones, others drawn, or with no `random` as small as can be.
inline std::vector<int32_t> Decide(const Space& space, const std::map<std::string, int32_t>& said,
                                   std::mt19937* random = nullptr) {
  std::vector<int32_t> configuration(space.size()), values;
  for (int h = 0; h < space.size(); ++h) {
    space.Domain(h, configuration, &values);
    const auto wanted = said.find(space.parameter_name(h));
    const bool legal = wanted != said.end() && std::find(values.begin(), values.end(), wanted->second) != values.end();
    EXPECT_EQ(legal, wanted != said.end()) << space.parameter_name(h);
    configuration[h] = legal ? wanted->second : values[random == nullptr ? 0 : (*random)() % values.size()];
  }
  return configuration;
}

}  // namespace diapason::testing
