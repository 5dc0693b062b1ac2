// Dags as bytes: the form in which they are stored in a history and sent to workers (proto/diapason/v1/program.proto).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Deterministic: equal dags give equal bytes.
std::string SerializeDag(const ComputeDag& dag);
// DataLoss or InvalidArgument for bytes that are no valid dag, or of a newer version. Never crashes on any input.
absl::StatusOr<ComputeDag> ParseDag(const std::string& bytes);

}  // namespace diapason
