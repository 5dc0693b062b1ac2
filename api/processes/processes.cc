#include "api/processes/processes.h"

#include <iostream>

#include "absl/strings/numbers.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/target.h"
#include "service/import_model.h"
#include "worker/process/processes.h"

namespace diapason::api {
namespace {

constexpr int kBadArguments = 2;

// The targets of all devices, one per line.
int PrintDeviceTargets() {
  for (const DeviceListing& listing : ListDevices()) std::cout << listing.target << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace

std::optional<int> RunInternal(const std::vector<std::string>& args) {
  if (args.size() == 1 && args[0] == "internal-devices") return PrintDeviceTargets();
  const bool importer = !args.empty() && args[0] == "internal-importer";
  const bool builder = !args.empty() && args[0] == "internal-builder";
  const bool runner = !args.empty() && args[0] == "internal-runner";
  if (!builder && !runner && !importer) return std::nullopt;
  int fd = 0;
  if (args.size() != (runner ? 5u : 3u) || args[1] != "--fd" || !absl::SimpleAtoi(args[2], &fd)) return kBadArguments;
  if (importer) return ImporterMain(fd);
  if (builder) return BuilderMain(fd);
  const absl::StatusOr<Target> target = Target::Parse(args[4]);
  return target.ok() ? RunnerMain(fd, *target) : kBadArguments;
}

}  // namespace diapason::api
