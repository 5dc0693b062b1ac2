// Which symbols give the extents of a package's outputs.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/build/package_format.h"

namespace diapason {

// The axes of an output, in order, whose extent is proportional to the size of a symbol in all plans: those of which a
// plan says so (PackagePort::grows, which plans of size 1 and those without a proof of padding lack), and those whose
// extents follow the sizes of one symbol, and of no other, from plan to plan.
// REQUIRES: the plans of one package; `output` < plans.front().outputs.size().
std::vector<PortGrowth> GrowthOfOutput(const std::vector<PackageManifest>& plans, size_t output);

}  // namespace diapason
