// The file of a cost model; docs/cost-model.md describes it byte for byte.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "costmodel/labels.h"

namespace diapason {

struct ModelFile {
  int feature_version = 0;
  int num_features = 0;
  std::string target_kind;
  Label label = Label::kResidual;
  std::vector<Sample> samples;
  AnalyticPrior prior;
  std::string booster;  // Booster::Serialize; empty: not trained yet
};

// Replaces the file whole or not at all.
absl::Status WriteModelFile(const std::string& path, const ModelFile& file);
// NotFound, PermissionDenied, DataLoss (damaged), FailedPrecondition (another format, other features than
// `feature_version` and `num_features`, or another kind of target). The file is only read.
absl::StatusOr<ModelFile> ReadModelFile(const std::string& path, int feature_version, int num_features,
                                        const std::string& target_kind);

}  // namespace diapason
