// Names of devices, as in `worker --devices`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason::api {

// The targets of a list such as "cpu", "cpu:0", "opencl:0", "cuda:0,cuda:1", "cuda:*" or "cpu -num-cores=2". "*" means
// all devices of that kind on this host, which a separate process lists, because a driver may hang. InvalidArgument: an
// invalid name; NotFound: "*" matches no device.
absl::StatusOr<std::vector<std::string>> DeviceTargets(const std::string& list);

}  // namespace diapason::api
