// Judges networks in this process, with their own weights: what `build` makes is what is checked.
#pragma once

#include <memory>
#include <vector>

#include "compiler/build/check_network.h"
#include "compiler/runtime/device.h"
#include "service/network_assembly.h"
#include "service/network_check.h"

namespace diapason {

class LocalJudge : public NetworkJudge {
 public:
  // All outlive it. `device` is that of the target.
  LocalJudge(const Network& network, const ResolvedTarget& target, Device& device, AssemblyCompiler& compiler)
      : network_(network), target_(target), device_(device), compiler_(compiler) {}

  absl::Status Use(const Assembly& assembly) override;
  absl::StatusOr<Verdict> Judge(const std::vector<bool>& in_place) override;
  // Unimplemented: a build takes records that were verified.
  absl::StatusOr<Verdict> Verify(const TuningRecord& record) override;

 private:
  const Network& network_;
  const ResolvedTarget& target_;
  Device& device_;
  AssemblyCompiler& compiler_;
  const Assembly* assembly_ = nullptr;
  std::unique_ptr<Device> cpu_;                    // which the references of opencl are made on
  std::unique_ptr<NetworkReferences> references_;  // of the assembly; null: not made yet
};

}  // namespace diapason
