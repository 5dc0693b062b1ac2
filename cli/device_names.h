// Devices as `worker --devices` names them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

// Targets of "cpu", "cpu:0", "opencl:0", "cuda:0,cuda:1", "cuda:*" and targets themselves ("cpu -num-cores=2"). "*"
// stands for all devices of that kind here, which a process apart looks for: a driver that hangs hangs there.
// InvalidArgument for a name that is not understood; NotFound when "*" matches none.
absl::StatusOr<std::vector<std::string>> DeviceTargets(const std::string& list);

// "rack=a,room=2". InvalidArgument names the flag and the piece.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(const std::string& flag,
                                                                            const std::string& text);

// The process apart: writes the targets of all devices to stdout, a line each.
int PrintDeviceTargets();

}  // namespace diapason
