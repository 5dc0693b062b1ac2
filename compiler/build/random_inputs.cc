#include "compiler/build/random_inputs.h"

#include "compiler/runtime/fill.h"
#include "compiler/tensor/compare.h"

namespace diapason {

std::map<std::string, Array> RandomInputs(const PackageManifest& manifest, uint64_t seed) {
  std::map<std::string, Array> inputs;
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    const PackagePort& port = manifest.inputs[i];
    Array& array = inputs[port.name] = Array(port.dtype, port.shape);
    const IntegerRange range = DrawnIntegers(port.dtype, port.valid_min, port.valid_max);
    FillRandom(array, seed + i * 0x9e3779b97f4a7c15ull, range.low, range.high);
  }
  return inputs;
}

std::map<std::string, Array> RandomInputs(const PackageManifest& plan, const SymbolSizes& given, uint64_t seed) {
  PackageManifest of_sizes;
  of_sizes.inputs = plan.inputs;
  for (PackagePort& port : of_sizes.inputs)
    for (size_t d = 0; d < port.symbols.size(); ++d)
      if (!port.symbols[d].empty()) port.shape[d] = given.at(port.symbols[d]);
  std::map<std::string, Array> inputs = RandomInputs(of_sizes, seed);
  const auto mask = inputs.find(plan.mask);
  if (plan.mask.empty() || mask == inputs.end()) return inputs;
  for (int64_t i = 0, n = mask->second.elements(); i < n; ++i)
    IsFloat(mask->second.dtype) ? mask->second.set(i, 1) : mask->second.set_int(i, 1);
  return inputs;
}

}  // namespace diapason
