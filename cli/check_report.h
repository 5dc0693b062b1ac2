// The check of a whole network in the JSON of `tune` and `build`.
#pragma once

#include "base/json.h"
#include "diapason/compiler.h"

namespace diapason {

// {"ok", "max_rel_error", "seconds", "text", "wrong_records": [{"record", "task", "text", "replaced_by"}]}
Json CheckJson(const api::NetworkCheck& check);

}  // namespace diapason
