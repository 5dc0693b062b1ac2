#include "cli/target.h"

#include "compiler/runtime/device.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

ResolvedTarget Resolved(Target target, DeviceFacts facts) {
  ResolvedTarget resolved;
  resolved.device = target.device;
  target.device = 0;
  if (target.kind == TargetKind::kCuda && target.arch.empty()) target.arch = facts.arch;
  if (target.kind == TargetKind::kCpu && target.num_cores == 0) target.num_cores = facts.num_cores;
  resolved.target = std::move(target);
  resolved.facts = std::move(facts);
  return resolved;
}

}  // namespace

absl::StatusOr<ResolvedTarget> ResolveTarget(const std::string& text) {
  ASSIGN_OR_RETURN(Target target, Target::Parse(text));
  DeviceFacts facts = ResolveFacts(target);
  return Resolved(std::move(target), std::move(facts));
}

absl::StatusOr<ResolvedTarget> ResolveMeasurableTarget(const std::string& text) {
  ASSIGN_OR_RETURN(Target target, Target::Parse(text));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(target));
  return Resolved(std::move(target), device->facts());
}

}  // namespace diapason
