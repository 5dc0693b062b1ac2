#include "diapason/profile.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/import.h"
#include "base/check.h"
#include "compiler/build/export_kernels.h"
#include "compiler/build/open_package.h"
#include "compiler/build/plans.h"
#include "compiler/build/profile_package.h"
#include "compiler/build/random_inputs.h"

namespace diapason::api {
namespace {

absl::StatusOr<std::vector<DimCombination>> SizesAsked(const std::vector<std::string>& dims) {
  Model sized;
  sized.dims = dims;
  ASSIGN_OR_RETURN(const DimChoices asked, DimsOf(sized));
  return CombinationsOf(asked);
}

// Those that the options name; else all.
absl::StatusOr<std::vector<int>> PlansToProfile(const ProfileOptions& options, const Package& package) {
  std::vector<int> plans;
  if (options.dims.empty()) {
    for (size_t p = 0; p < package.plans().size(); ++p) plans.push_back(static_cast<int>(p));
    return plans;
  }
  ASSIGN_OR_RETURN(const std::vector<DimCombination> combinations, SizesAsked(options.dims));
  for (const DimCombination& combination : combinations) {
    ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(package, combination.sizes));
    plans.push_back(choice.plan);
  }
  return plans;
}

std::optional<double> Rate(const ::diapason::ProfiledKernel& kernel, double KernelWork::*amount) {
  if (!kernel.work.has_value() || kernel.seconds <= 0) return std::nullopt;
  return *kernel.work.*amount / kernel.seconds * 1e-9;
}

ProfiledKernel Describe(const ::diapason::ProfiledKernel& kernel, const PackageManifest& manifest,
                        double latency_seconds) {
  const PackageTask& task = manifest.tasks[kernel.task];
  ProfiledKernel described;
  described.kernel = kernel.name;
  described.step = kernel.step;
  described.task = task.name;
  described.workload = task.workload;
  described.record_source = task.record_source;
  described.record = task.record_id();
  described.schedule = task.schedule;
  described.time_us = kernel.seconds * 1e6;
  described.share = kernel.seconds / latency_seconds;
  if (kernel.work.has_value()) {
    described.flops = kernel.work->flops;
    described.bytes = kernel.work->bytes;
  }
  described.gflops_per_s = Rate(kernel, &KernelWork::flops);
  described.gb_per_s = Rate(kernel, &KernelWork::bytes);
  if (kernel.roofline.has_value()) {
    described.roofline = KernelRoofline{kernel.roofline->seconds * 1e6, kernel.roofline->compute, std::nullopt};
    if (kernel.seconds > 0) described.roofline->fraction = kernel.roofline->seconds / kernel.seconds;
  }
  return described;
}

PlanProfile Describe(const ::diapason::PackageProfile& profile, const PackageManifest& manifest) {
  PlanProfile plan;
  plan.sizes = manifest.sizes;
  plan.latency_us = profile.latency_seconds * 1e6;
  plan.kernels_us = profile.kernels_seconds() * 1e6;
  plan.disturbed_us = profile.disturbed_seconds() * 1e6;
  plan.between_us = profile.between_seconds() * 1e6;
  plan.runs = profile.runs;
  plan.paths = profile.paths;
  plan.early_starts = profile.early_starts;
  for (const ::diapason::ProfiledKernel& kernel : profile.kernels)
    plan.kernels.push_back(Describe(kernel, manifest, profile.latency_seconds));
  return plan;
}

bool LacksWork(const PackageProfile& profile) {
  for (const PlanProfile& plan : profile.plans)
    for (const ProfiledKernel& kernel : plan.kernels)
      if (!kernel.flops.has_value()) return true;
  return false;
}

// The plan that the options name. Without sizes there must be one alone.
absl::StatusOr<int> PlanToExport(const KernelExport& options, const Package& package) {
  if (options.dims.empty() && package.plans().size() == 1) return 0;
  ASSIGN_OR_RETURN(const std::vector<DimCombination> combinations, SizesAsked(options.dims));
  std::vector<std::string> there;
  for (size_t p = 0; p < package.plans().size(); ++p) {
    const SymbolSizes& sizes = package.plans()[p].sizes;
    if (combinations.size() == 1 && combinations[0].sizes == sizes) return static_cast<int>(p);
    there.push_back(SizesText(sizes));
  }
  if (package.plans().front().sizes.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("package '", options.package, "' has no symbolic dimensions; leave --dim out"));
  return absl::InvalidArgumentError(absl::StrCat("one plan is exported, and package '", options.package, "' has ",
                                                 absl::StrJoin(there, "; "),
                                                 ": give the sizes of one of them with --dim"));
}

}  // namespace

absl::StatusOr<PackageProfile> Profile(const ProfileOptions& options) {
  ASSIGN_OR_RETURN(Package package, OpenPackage(options.package));
  ASSIGN_OR_RETURN(const std::vector<int> chosen, PlansToProfile(options, package));
  ASSIGN_OR_RETURN(const std::unique_ptr<PlanRunner> runners, PlanRunner::Load(std::move(package)));
  ::diapason::ProfileOptions timing;
  timing.seconds = options.seconds;
  timing.warm_up_seconds = options.warm_up_ms * 1e-3;
  if (options.peak_gflops > 0) timing.flops = options.peak_gflops * 1e9;
  if (options.peak_gbs > 0) timing.bandwidth = options.peak_gbs * 1e9;
  PackageProfile result;
  for (const int plan : chosen) {
    RETURN_IF_ERROR(CheckStop(options.hooks, "the package was profiled"));
    ASSIGN_OR_RETURN(PackageRunner* const runner, runners->Runner(plan));
    const PackageManifest& manifest = runner->manifest();
    RETURN_IF_ERROR(runner->SetInputs(RandomInputs(manifest, manifest.sizes, /*seed=*/0)));
    ASSIGN_OR_RETURN(const ::diapason::PackageProfile profile, ProfilePackage(*runner, timing));
    if (result.plans.empty()) {
      result.network = manifest.network;
      result.target = manifest.target.ToString();
      if (profile.flops.has_value()) result.peak_gflops = *profile.flops * 1e-9;
      if (profile.bandwidth.has_value()) result.peak_gbs = *profile.bandwidth * 1e-9;
    }
    result.device = runner->device().facts().model;
    result.plans.push_back(Describe(profile, manifest));
  }
  if (LacksWork(result))
    Warn(options.hooks, absl::StrCat("package '", options.package,
                                     "' does not say how many operations its kernels execute, so "
                                     "that rates are not known; build it again"));
  return result;
}

absl::StatusOr<ExportedKernels> ExportKernels(const KernelExport& options) {
  ASSIGN_OR_RETURN(const Package package, OpenPackage(options.package));
  ASSIGN_OR_RETURN(const int plan, PlanToExport(options, package));
  RETURN_IF_ERROR(::diapason::ExportKernels(package.WithPlan(plan), {options.out, options.name}));
  return ExportedKernels{package.manifest().network, package.manifest().target.ToString()};
}

}  // namespace diapason::api
