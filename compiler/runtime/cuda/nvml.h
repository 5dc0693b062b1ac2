// Clocks of an NVIDIA GPU through libnvidia-ml, where the driver brings it. No header of NVIDIA's is needed.
#pragma once

#include <memory>
#include <string>

#include "compiler/runtime/device.h"
#include "compiler/runtime/dynamic_library.h"

namespace diapason {

class Nvml {
 public:
  // Null where the library is missing or does not know the GPU. uuid: "GPU-8-4-4-4-12" as nvidia-smi prints it.
  static std::unique_ptr<Nvml> Open(const std::string& uuid);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Current clocks; 0 for one that the driver does not tell.
  Device::Clocks clocks() const;

 private:
  Nvml() = default;
  std::unique_ptr<DynamicLibrary> library_;
  void* device_ = nullptr;
  int (*get_clock_)(void* device, int type, unsigned* mhz) = nullptr;
  int (*shutdown_)() = nullptr;
};

}  // namespace diapason
