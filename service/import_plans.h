// A model read for several sizes of its symbolic dimensions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/build_package.h"
#include "compiler/graph/dims.h"
#include "service/import_model.h"

namespace diapason {

// One plan of a package, or what is tuned for it.
struct ImportedPlan {
  DimCombination combination;
  ImportedModel model;
};

// Reads the model of the request once for each combination of the sizes, each time in a process and under limits of its
// own; without sizes it reads it once, as the request says. Equal constants are in memory once. Where sizes are given,
// whether inputs may be padded is found out if the request asks for it; `least` is set here. Errors are those of
// CheckDimChoices and ImportModel, with the sizes at which they occurred.
absl::StatusOr<std::vector<ImportedPlan>> ImportPlans(ImportRequest request, const DimChoices& dims);

// What the user should know of them, each sentence once.
std::vector<std::string> WarningsOf(const std::vector<ImportedPlan>& plans);

// What a package keeps of them; empty without sizes.
PlanSymbols SymbolsOf(const ImportedPlan& plan, const std::string& mask);

}  // namespace diapason
