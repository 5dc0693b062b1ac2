// What a history cannot check by itself, since it reads no programs.
#pragma once

#include "db/history.h"
#include "db/integrity.h"

namespace diapason {

CheckHooks CompilerHooks();

}  // namespace diapason
