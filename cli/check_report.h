// The check of a whole network in the JSON of `tune` and `build`.
#pragma once

#include <nlohmann/json.hpp>

#include "service/network_check.h"

namespace diapason {

// {"ok", "max_rel_error", "seconds", "text", "wrong_records": [{"record", "task", "text", "replaced_by"}]}
nlohmann::ordered_json CheckJson(const NetworkCheckReport& report);

}  // namespace diapason
