#include "runtime/loaded_package.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compiler/build/output_growth.h"

namespace diapason {
namespace {

// The symbol's name where it is kept for good.
const char* Kept(const std::vector<std::string>& symbols, const std::string& name) {
  const auto found = std::find(symbols.begin(), symbols.end(), name);
  return found != symbols.end() ? found->c_str() : nullptr;
}

using Ports = std::vector<PackagePort> PackageManifest::*;

std::vector<PortFacts> FactsOf(const std::vector<PackageManifest>& plans, Ports list,
                               const std::vector<std::string>& symbols) {
  std::vector<PortFacts> facts;
  for (size_t i = 0; i < (plans.front().*list).size(); ++i) {
    const PackagePort& port = (plans.front().*list)[i];
    PortFacts& fact = facts.emplace_back(PortFacts{port.name, port.dtype, port.shape, {}});
    fact.symbols.resize(port.shape.size(), nullptr);
    for (size_t d = 0; d < port.symbols.size(); ++d) fact.symbols[d] = Kept(symbols, port.symbols[d]);
    if (list == &PackageManifest::outputs)
      for (const PortGrowth& growth : GrowthOfOutput(plans, i))
        fact.symbols[growth.axis] = Kept(symbols, growth.symbol);
    for (size_t d = 0; d < fact.shape.size(); ++d) {
      const bool same = std::all_of(plans.begin(), plans.end(), [&](const PackageManifest& plan) {
        return (plan.*list)[i].shape[d] == port.shape[d];
      });
      if (!same || fact.symbols[d] != nullptr) fact.shape[d] = -1;
    }
  }
  return facts;
}

}  // namespace

LoadedPackage::LoadedPackage(Package package, Target target, std::unique_ptr<Device> device)
    : package_(std::move(package)),
      target_(std::move(target)),
      target_text_(package_.manifest().target.ToString()),
      device_(std::move(device)),
      parts_(package_.plans().size()) {
  for (const auto& [symbol, size] : package_.manifest().sizes) symbols_.push_back(symbol);
  inputs_ = FactsOf(package_.plans(), &PackageManifest::inputs, symbols_);
  outputs_ = FactsOf(package_.plans(), &PackageManifest::outputs, symbols_);
}

absl::StatusOr<std::shared_ptr<LoadedPackage>> LoadedPackage::Load(Package package, int gpu) {
  Target target = package.manifest().target;
  if (target.kind == TargetKind::kCuda) {
    target.arch.clear();  // PackageRunner says what does not fit
    if (gpu >= 0) target.device = gpu;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(target));
  std::shared_ptr<LoadedPackage> loaded(new LoadedPackage(std::move(package), std::move(target), std::move(device)));
  RETURN_IF_ERROR(loaded->Parts(0).status());
  return loaded;
}

absl::StatusOr<std::unique_ptr<Device>> LoadedPackage::OpenForContext(int threads) const {
  if (kind() == TargetKind::kOpenCl) return nullptr;
  Target target = target_;
  if (target.kind == TargetKind::kCpu && threads > 0) target.num_cores = threads;
  return OpenDevice(target);
}

absl::StatusOr<const PlanParts*> LoadedPackage::Parts(int plan) {
  const MutexLock lock(device_mutex_);
  std::optional<PlanParts>& parts = parts_[plan];
  if (!parts.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<PackageRunner> runner,
                     PackageRunner::Load(package_.WithPlan(plan), device_.get(), /*keep_other_plan=*/false, &loaded_));
    parts = runner->Parts();
  }
  return &*parts;
}

}  // namespace diapason
