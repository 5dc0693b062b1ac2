#include "diapason/devices.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/target.h"
#include "service/target.h"

namespace diapason::api {
namespace {

LocalDevice LocalDeviceOf(const Target& target, const DeviceFacts& facts) {
  LocalDevice device;
  device.target = target.ToString();
  device.title = DeviceTitle(target.kind, facts);
  device.model = facts.model;
  device.uuid = facts.uuid;
  device.arch = facts.arch;
  device.driver = facts.driver;
  device.cores = facts.num_cores;
  device.max_threads_per_block = facts.max_threads_per_block;
  device.max_threads_per_core = facts.max_threads_per_core;
  device.max_shared_bytes = facts.max_shared_bytes;
  device.shared_bytes_per_core = facts.shared_bytes_per_core;
  device.registers_per_core = facts.registers_per_core;
  device.max_registers_per_thread = facts.max_registers_per_thread;
  device.warp_size = facts.warp_size;
  device.max_blocks_per_cluster = facts.max_cluster;
  device.vector_bytes = facts.vector_bytes;
  device.vector_registers = facts.num_vector_registers;
  device.l1_bytes = facts.l1_bytes;
  device.l2_bytes = facts.l2_bytes;
  device.l3_bytes = facts.l3_bytes;
  device.clock_hz = facts.clock_hz;
  device.flops_per_s = facts.flops;
  device.bytes_per_s = facts.bandwidth;
  device.l2_bytes_per_s = facts.l2_bandwidth;
  device.launch_us = facts.launch_seconds * 1e6;
  return device;
}

}  // namespace

std::vector<LocalDevice> Devices() {
  std::vector<LocalDevice> devices;
  for (const DeviceListing& listing : ListDevices()) {
    const absl::StatusOr<Target> target = Target::Parse(listing.target);
    DIAPASON_CHECK_MSG(target.ok(), listing.target);
    devices.push_back(LocalDeviceOf(*target, listing.facts));
    devices.back().target = listing.target;
  }
  return devices;
}

absl::StatusOr<LocalDevice> FindDevice(const std::string& target) {
  ASSIGN_OR_RETURN(const ResolvedTarget here, ResolveMeasurableTarget(target));
  return LocalDeviceOf(here.target, here.facts);
}

absl::StatusOr<std::string> NormalizeTarget(const std::string& target) {
  ASSIGN_OR_RETURN(const Target parsed, Target::Parse(target));
  return parsed.ToString();
}

absl::Status MoveTypeToTarget(Model& model, std::string& target) {
  constexpr double kDefaultTolerance = 1e-3;
  const bool mixed = model.dtype == "mixed";
  if (model.tolerance != 0 && !mixed)
    return absl::InvalidArgumentError(absl::StrCat("the tolerance is ", model.tolerance, " and the type '", model.dtype,
                                                   "'; only \"mixed\" has a tolerance"));
  if (!mixed && model.dtype != "tf32") return absl::OkStatus();
  ASSIGN_OR_RETURN(const Target parsed, Target::Parse(target));
  if (parsed.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError(absl::StrCat("the type is '", model.dtype, "' and the target \"", target,
                                                   "\", which has no TensorFloat-32; give float32, or a cuda target"));
  if (parsed.tf32 > 0)
    return absl::InvalidArgumentError(absl::StrCat("the type is '", model.dtype, "' and the target \"", target,
                                                   "\" has -tf32 already; give one of the two"));
  absl::StrAppend(&target, " -tf32");
  if (mixed) absl::StrAppend(&target, "=", model.tolerance != 0 ? model.tolerance : kDefaultTolerance);
  RETURN_IF_ERROR(Target::Parse(target).status());
  model.dtype = "float32";
  model.tolerance = 0;
  return absl::OkStatus();
}

}  // namespace diapason::api
