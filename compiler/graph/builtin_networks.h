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
absl::StatusOr<Network> BuildMobilenetV2(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildMobilenetV3(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildEfficientnet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildVgg(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildDensenet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildInception(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildConvnext(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildUnet(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildYolo(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildResnet3d(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildSwin(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildVit(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildBert(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildGpt2(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildLlama(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildT5Encoder(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildWhisperEncoder(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildLstmTagger(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildConv2d(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildDepthwise(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildGemm(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildAttention(const std::string& name, const BuiltinArgs& args);
absl::StatusOr<Network> BuildLayerNorm(const std::string& name, const BuiltinArgs& args);

}  // namespace diapason
