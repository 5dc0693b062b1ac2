// Records, for the public headers.
#pragma once

#include "db/history.h"
#include "diapason/history.h"

namespace diapason::api {

// REQUIRES: it is a measurement that succeeded.
Record RecordOf(const TuningRecord& record);
// InvalidArgument when the target does not parse.
absl::StatusOr<RecordFilter> FilterOf(const RecordQuery& query);

}  // namespace diapason::api
