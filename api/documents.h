// What commands print with --json and the page shows too, without the schema.
#pragma once

#include "base/document.h"
#include "diapason/explain.h"
#include "diapason/fleet.h"
#include "diapason/service.h"

namespace diapason::api {

Json ExplanationFields(const Explanation& explanation);
Json JobFields(const Job& job);
Json FleetFields(const FleetStatus& status);

}  // namespace diapason::api
