#include "compiler/build/output_growth.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace diapason {
namespace {

int64_t SizeIn(const PackageManifest& plan, const std::string& symbol) {
  const auto size = plan.sizes.find(symbol);
  return size == plan.sizes.end() ? 0 : size->second;
}

bool HoldsInAll(const std::vector<PackageManifest>& plans, size_t output, const PortGrowth& growth) {
  return std::all_of(plans.begin(), plans.end(), [&](const PackageManifest& plan) {
    return plan.outputs[output].shape[growth.axis] == growth.block * SizeIn(plan, growth.symbol);
  });
}

std::optional<PortGrowth> DeclaredGrowth(const std::vector<PackageManifest>& plans, size_t output, int axis) {
  for (const PackageManifest& plan : plans)
    for (const PortGrowth& growth : plan.outputs[output].grows)
      if (growth.axis == axis && HoldsInAll(plans, output, growth)) return growth;
  return std::nullopt;
}

std::optional<PortGrowth> ObservedGrowth(const std::vector<PackageManifest>& plans, size_t output, int axis) {
  std::optional<PortGrowth> found;
  for (const auto& [symbol, size] : plans.front().sizes) {
    const bool varies = std::any_of(plans.begin(), plans.end(), [&, &name = symbol, first = size](const auto& plan) {
      return SizeIn(plan, name) != first;
    });
    const PortGrowth growth{symbol, axis, plans.front().outputs[output].shape[axis] / size};
    if (!varies || growth.block < 1 || !HoldsInAll(plans, output, growth)) continue;
    if (found.has_value()) return std::nullopt;
    found = growth;
  }
  return found;
}

}  // namespace

std::vector<PortGrowth> GrowthOfOutput(const std::vector<PackageManifest>& plans, size_t output) {
  std::vector<PortGrowth> all;
  const int rank = static_cast<int>(plans.front().outputs[output].shape.size());
  for (int axis = 0; axis < rank; ++axis) {
    std::optional<PortGrowth> growth = DeclaredGrowth(plans, output, axis);
    if (!growth.has_value()) growth = ObservedGrowth(plans, output, axis);
    if (growth.has_value()) all.push_back(*std::move(growth));
  }
  return all;
}

}  // namespace diapason
