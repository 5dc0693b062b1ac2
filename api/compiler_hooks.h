// Checks of a history's programs and schedules (CheckHooks), which `db` cannot do because it may not use the compiler.
#pragma once

#include "db/history.h"
#include "db/integrity.h"

namespace diapason::api {

CheckHooks CompilerHooks();

}  // namespace diapason::api
