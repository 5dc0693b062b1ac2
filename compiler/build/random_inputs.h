// Random inputs for packages: to check, to time and to try them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/build/package_format.h"
#include "compiler/tensor/array.h"

namespace diapason {

// Values for every input, by name: floats uniform in [-1, 1), integers from DrawnIntegers (compiler/tensor/compare.h).
std::map<std::string, Array> RandomInputs(const PackageManifest& manifest, uint64_t seed);
// The same for inputs of the given sizes instead of the plan's. A mask is 1 everywhere.
std::map<std::string, Array> RandomInputs(const PackageManifest& plan, const SymbolSizes& given, uint64_t seed);

}  // namespace diapason
