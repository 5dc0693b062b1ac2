// Built-in networks with seeded random weights: image classifiers for benchmarks, and single operators.
//
// Weights are drawn by He's rule and batch norms have statistics near (0, 1), so that activations stay near 1 through
// all layers. The same name, options and seed give the same network on every machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace diapason {

struct BuiltinOption {
  std::string name;
  std::string fallback;  // default value as text
  std::string help;
};

struct BuiltinInfo {
  std::string name;
  std::string help;
  std::vector<BuiltinOption> options;  // keys of ModelOptions::extra, besides batch, layout, dtype, input_shapes
};

// The table of `diapason networks`, in the order shown.
const std::vector<BuiltinInfo>& BuiltinNetworks();

// NotFound for an unknown name, with the nearest one and the list; InvalidArgument for an unknown option or a value out
// of range, with the known ones. Image networks take their input as `layout` says.
absl::StatusOr<Network> BuiltinNetwork(const std::string& name, const ModelOptions& options);

}  // namespace diapason
