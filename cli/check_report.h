// The check of a whole network in the JSON of `tune` and `build`.
#pragma once

#include <nlohmann/json.hpp>

#include "diapason/compiler.h"

namespace diapason {

// {"ok", "max_rel_error", "seconds", "text", "wrong_records": [{"record", "task", "text", "replaced_by"}]}
nlohmann::ordered_json CheckJson(const api::NetworkCheck& check);

}  // namespace diapason
