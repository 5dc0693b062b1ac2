// What the process that reads a model sends back (diapason/v1/import.proto).
#pragma once

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/describe_model.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"
#include "service/import_model.h"

namespace diapason {

namespace v1 {
class ImportedFusionChoices;
class ImportedDescription;
class ImportedNetwork;
class ImportJob;
class ImportReply;
}  // namespace v1

void ToProto(const ModelOptions& options, v1::ImportJob& job);
// InvalidArgument for an unknown layout or type.
absl::StatusOr<ModelOptions> FromProto(const v1::ImportJob& job);

void ToProto(const FusionChoices& fusion, v1::ImportedFusionChoices& message);
// Workload keys are computed anew. DataLoss when it is no such message: numbers of tasks out of range, counts that do
// not fit.
absl::StatusOr<FusionChoices> FromProto(const v1::ImportedFusionChoices& message);

// Constants go to `constants`, one after the other.
absl::Status ToProto(const Network& network, v1::ImportedNetwork& message, std::ostream& constants);
// Reads at most `bytes` of constants. DataLoss when they are not there, or the network is not valid.
absl::StatusOr<Network> FromProto(const v1::ImportedNetwork& message, std::istream& constants, int64_t bytes);

// The reply's inputs, with what was found out about padding.
void AddInputs(const std::vector<ImportedInput>& inputs, const std::map<std::string, SymbolPadding>& padding,
               v1::ImportReply& reply);
// DataLoss when they make no sense.
absl::Status TakeInputs(const v1::ImportReply& reply, ImportedModel& model);

void ToProto(const ModelDescription& described, v1::ImportedDescription& message);
// DataLoss when it makes no sense.
absl::StatusOr<ModelDescription> FromProto(const v1::ImportedDescription& message);

}  // namespace diapason
