// Explanations as JSON: what `diapason explain --json` and the page show.
#pragma once

#include "base/json.h"
#include "diapason/explain.h"

namespace diapason {

Json ExplanationJson(const api::Explanation& explanation);

}  // namespace diapason
