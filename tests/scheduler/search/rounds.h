// Spaces and populations for tests of the parts of a search.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/population.h"
#include "scheduler/space.h"
#include "tests/scheduler/fakes.h"

namespace diapason::search_tests {

struct SmallSpace {
  std::string name;
  int parameters = 8, choices = 8;
  double scale = 1e-4;
};

inline std::unique_ptr<TaskSpace> SpacesOf(const std::vector<SmallSpace>& all) {
  std::vector<std::unique_ptr<Space>> spaces;
  for (const SmallSpace& one : all) {
    FakeSpace::Options options;
    options.name = one.name;
    options.parameters = one.parameters;
    options.choices = one.choices;
    options.scale = one.scale;
    spaces.push_back(std::make_unique<FakeSpace>(options));
  }
  return std::make_unique<TaskSpace>(FakeDag(8), std::move(spaces));
}

}  // namespace diapason::search_tests
