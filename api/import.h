// Models of the public headers, read.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/model.h"
#include "service/import_plans.h"
#include "service/target.h"

namespace diapason::api {

// InvalidArgument names what is malformed.
absl::StatusOr<ModelOptions> ModelOptionsOf(const Model& model);
absl::StatusOr<DimChoices> DimsOf(const Model& model);
// With the program of SetProgram.
::diapason::ImportLimits LimitsOf(const Model& model);
// Reads and optimizes the model, and finds its fusion alternatives, in processes of their own: once for each
// combination of sizes. Whether inputs may be padded is found out as well. What the user should know goes to
// hooks.warn.
absl::StatusOr<std::vector<ImportedPlan>> LoadPlans(const Model& model, const ResolvedTarget& target, bool with_network,
                                                    const Hooks& hooks);

// The file that processes are started from.
const std::string& Program();

void Warn(const Hooks& hooks, const std::string& sentence);
// Cancelled once hooks.stop is true; `what` was under way.
absl::Status CheckStop(const Hooks& hooks, const std::string& what);

}  // namespace diapason::api
