#include "compiler/runtime/cuda/nvml.h"

namespace diapason {
namespace {

// nvmlClockType_t
constexpr int kClockSm = 1, kClockMemory = 2;

}  // namespace

std::unique_ptr<Nvml> Nvml::Open(const std::string& uuid) {
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = DynamicLibrary::Open({"libnvidia-ml.so.1"});
  if (nvml->library_ == nullptr) return nullptr;
  int (*init)() = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  if (!nvml->library_->Find("nvmlInit_v2", init) || !nvml->library_->Find("nvmlDeviceGetHandleByUUID", by_uuid) ||
      !nvml->library_->Find("nvmlDeviceGetClockInfo", nvml->get_clock_))
    return nullptr;
  if (init() != 0) return nullptr;
  nvml->library_->Find("nvmlShutdown", nvml->shutdown_);
  if (by_uuid(uuid.c_str(), &nvml->device_) != 0) return nullptr;
  return nvml;
}

Nvml::~Nvml() {
  if (shutdown_ != nullptr) shutdown_();
}

Device::Clocks Nvml::clocks() const {
  Device::Clocks clocks;
  unsigned mhz = 0;
  if (get_clock_(device_, kClockSm, &mhz) == 0) clocks.core_mhz = mhz;
  if (get_clock_(device_, kClockMemory, &mhz) == 0) clocks.memory_mhz = mhz;
  return clocks;
}

}  // namespace diapason
