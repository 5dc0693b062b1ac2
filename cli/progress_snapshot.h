// The progress of the library's runs and jobs, for the view.
#pragma once

#include "cli/progress.h"
#include "diapason/tuner.h"

namespace diapason {

ProgressSnapshot SnapshotOf(const api::Progress& progress);

}  // namespace diapason
