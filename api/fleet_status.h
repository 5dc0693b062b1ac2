// What trackers say of their fleets, for the public headers.
#pragma once

#include "diapason/fleet.h"
#include "worker/fleet_status.h"

namespace diapason::api {

FleetStatus FleetStatusOf(::diapason::FleetStatus status);

}  // namespace diapason::api
