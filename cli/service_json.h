// Jobs and fleets as JSON: what `diapason jobs`, `diapason fleet status` and the page show.
#pragma once

#include "base/json.h"
#include "diapason/service.h"
#include "worker/fleet_status.h"

namespace diapason {

Json JobJson(const api::Job& job);

// Whether a device's reference-kernel time differs too much from that of other devices of its model.
bool Drifts(double drift);
Json FleetJson(const FleetStatus& status);

}  // namespace diapason
