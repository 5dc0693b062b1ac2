// Opening packages together with what their tasks compute. Apart from package.h, which libdiapason_runtime is made of:
// parsing dags takes protobuf.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// What a task of the package computes. DataLoss names a damaged file; NotFound a missing one.
absl::StatusOr<ComputeDag> ReadDag(const Package& package, int task);

// As Package::Open, also for packages of older builds, whose manifests leave to the tasks' dags what steps bind
// (PackageTask::output_stages). Errors as ReadDag, too.
absl::StatusOr<Package> OpenPackage(const std::string& dir);

}  // namespace diapason
