// The builders behind the table of built-in networks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace diapason {

// Values of a built-in's options: those given, the table's defaults for the rest.
struct BuiltinArgs {
  const ModelOptions* options = nullptr;
  std::map<std::string, int64_t> values;
  int64_t at(const std::string& name) const { return values.at(name); }
};

absl::StatusOr<Network> BuildResnet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildMobilenet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildSqueezenet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildConv2d(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildDepthwise(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildGemm(const std::string& name, const BuiltinArgs& args);

}  // namespace diapason
