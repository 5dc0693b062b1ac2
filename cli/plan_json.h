// What several commands say of a plan, as JSON.
#pragma once

#include "base/json.h"
#include "diapason/compiler.h"

namespace diapason {

// {"ok", "max_rel_error", "elapsed_s", "text", "latency_us",
//  "wrong_records": [{"record", "task", "text", "replacement"}]}
Json CheckJson(const api::NetworkCheck& check);

// Of one symbolic dimension: {"safe", "min_size", "reason"}; min_size is null where inputs are not padded.
Json PaddingJson(const api::Padding& padding);

}  // namespace diapason
