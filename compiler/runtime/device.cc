#include "compiler/runtime/device.h"

#include <utility>

#include "base/check.h"
#include "compiler/runtime/cpu/device.h"
#include "compiler/runtime/cuda/device.h"
#include "compiler/runtime/opencl/device.h"

namespace diapason {
namespace {

absl::StatusOr<DeviceFacts> FactsHere(const Target& target) {
  switch (target.kind) {
    case TargetKind::kCpu: return CpuFacts(target);
    case TargetKind::kOpenCl: return OpenClFacts(target);
    case TargetKind::kCuda: return CudaFacts(target);
  }
  return absl::InvalidArgumentError("a target of unknown kind");
}

void ListKind(TargetKind kind, int count, std::vector<DeviceListing>& listings) {
  for (int i = 0; i < count; ++i) {
    Target target;
    target.kind = kind;
    target.device = i;
    absl::StatusOr<DeviceFacts> facts = FactsHere(target);
    if (!facts.ok()) continue;
    if (kind == TargetKind::kCuda) target.arch = facts->arch;
    listings.push_back({target.ToString(), *std::move(facts)});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> Device::AllocateZeros(int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, Allocate(bytes));
  RETURN_IF_ERROR(Fill(*buffer, 0));
  return buffer;
}

absl::Status Device::Copy(DeviceBuffer& to, const DeviceBuffer& from, int64_t bytes) {
  std::vector<uint8_t> between(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(CopyOut(between.data(), from, bytes));
  return CopyIn(to, between.data(), bytes);
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const Target& target) {
  switch (target.kind) {
    case TargetKind::kCpu: return OpenCpuDevice(target);
    case TargetKind::kOpenCl: return OpenOpenClDevice(target);
    case TargetKind::kCuda: return OpenCudaDevice(target);
  }
  return absl::InvalidArgumentError("a target of unknown kind has no device");
}

std::vector<DeviceListing> ListDevices() {
  std::vector<DeviceListing> listings;
  ListKind(TargetKind::kCpu, 1, listings);
  ListKind(TargetKind::kOpenCl, CountOpenClDevices(), listings);
  ListKind(TargetKind::kCuda, CountCudaDevices(), listings);
  return listings;
}

DeviceFacts ResolveFacts(const Target& target) {
  absl::StatusOr<DeviceFacts> facts = FactsHere(target);
  return facts.ok() ? *std::move(facts) : DefaultFacts(target);
}

}  // namespace diapason
