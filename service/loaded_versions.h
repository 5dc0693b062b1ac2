// Versions of a network loaded in this process, with its own weights: what `build` compares.
#pragma once

#include <memory>
#include <vector>

#include "compiler/build/build_package.h"
#include "compiler/build/loaded_parts.h"
#include "compiler/build/package.h"
#include "compiler/runtime/device.h"
#include "service/network_assembly.h"
#include "service/refine_assembly.h"

namespace diapason {

class LoadedVersions : public NetworkVersions {
 public:
  // All outlive it. `device` is that of the target.
  LoadedVersions(const Network& network, const ResolvedTarget& target, Device& device, AssemblyCompiler& compiler)
      : network_(network), target_(target), device_(device), compiler_(compiler) {}

  absl::Status Announce(const Assembly& assembly, const std::vector<TaskRecord>& replacements) override {
    return compiler_.CompileEach(assembly, replacements);
  }
  absl::Status Prepare(const Assembly& assembly) override;
  absl::StatusOr<Times> Time() override;
  void Keep() override { kept_ = std::move(other_); }

 private:
  absl::Status CheckUsable(const Assembly& assembly) const;

  const Network& network_;
  const ResolvedTarget& target_;
  Device& device_;
  AssemblyCompiler& compiler_;
  // What versions have in common is made and brought to the device once.
  const std::shared_ptr<PackageWeights> weights_ = std::make_shared<PackageWeights>();
  LoadedParts parts_;
  std::unique_ptr<PackageRunner> kept_, other_;  // null: not there
};

}  // namespace diapason
