#include "service/target.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/compile.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/device_facts.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {
namespace {

// Where norms are known to cost less behind products: on sm_90 where products wait for memory more than they multiply.
constexpr int kArchOfDeferredNorms = 90;
constexpr int64_t kRowsOfDeferredNorms = 512;

// The facts of a processor of which so many cores are used.
DeviceFacts OfCores(DeviceFacts facts, int cores) {
  const double share = static_cast<double>(cores) / std::max(facts.num_cores, 1);
  facts.num_cores = cores;
  facts.flops *= share;
  facts.l2_bandwidth *= share;
  facts.bandwidth = std::min(facts.bandwidth, BandwidthOfCores(cores));
  return facts;
}

}  // namespace

ResolvedTarget ResolveWith(Target target, DeviceFacts facts) {
  ResolvedTarget resolved;
  resolved.device = std::exchange(target.device, 0);
  resolved.norms = std::exchange(target.norms, Norms::kEither);
  if (target.kind == TargetKind::kCuda && target.arch.empty()) target.arch = facts.arch;
  if (target.kind == TargetKind::kCpu) {
    if (target.num_cores == 0) target.num_cores = facts.num_cores;
    if (target.num_cores != facts.num_cores) facts = OfCores(std::move(facts), target.num_cores);
  }
  resolved.target = std::move(target);
  resolved.facts = std::move(facts);
  return resolved;
}

absl::StatusOr<ResolvedTarget> ResolveTarget(const std::string& text) {
  ASSIGN_OR_RETURN(Target target, Target::Parse(text));
  DeviceFacts facts = ResolveFacts(target);
  return ResolveWith(std::move(target), std::move(facts));
}

absl::StatusOr<ResolvedTarget> ResolveMeasurableTarget(const std::string& text) {
  ASSIGN_OR_RETURN(Target target, Target::Parse(text));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(target));
  RETURN_IF_ERROR(CheckTargetRunsHere(target));
  return ResolveWith(std::move(target), device->facts());
}

FusionPreferences PreferredFusion(const Target& target) {
  FusionPreferences preferences{.one_query_apart = target.is_gpu()};
  if (target.kind != TargetKind::kCuda) return preferences;
  const DeviceFacts facts = DefaultFacts(target);
  const bool half_products = CudaArchNumber(facts.arch) >= TensorIntrinsicOf(TensorMode::kHalf).first_arch;
  preferences.find_factor_bounds = half_products && !target.strict_fp32;
  if (half_products && target.norms == Norms::kDeferred)
    preferences.deferred_norm_rows = std::numeric_limits<int64_t>::max();
  // Of the GPU here, if the target leaves that open: what is resolved later has its architecture.
  const std::string arch = target.arch.empty() ? ResolveFacts(target).arch : facts.arch;
  if (CudaArchNumber(arch) == kArchOfDeferredNorms && target.norms == Norms::kEither)
    preferences.deferred_norm_rows = kRowsOfDeferredNorms;
  if (facts.max_cluster > 1) preferences.whole_recurrence_bytes = facts.max_cluster * facts.max_shared_bytes;
  return preferences;
}

FusionPreferences PreferredFusion(const ResolvedTarget& target) {
  Target with_norms = target.target;
  with_norms.norms = target.norms;
  return PreferredFusion(with_norms);
}

absl::Status CheckTargetRunsHere(const Target& target) { return CheckRunsHere(target); }

Target WithoutMissingLibraries(const Target& target, const std::function<absl::Status(Library)>& check,
                               std::vector<std::string>* warnings) {
  Target kept = target;
  kept.libs.clear();
  for (Library library : LibrariesOf(target)) {
    const absl::Status here = check(library);
    if (here.ok()) {
      kept.libs.push_back(NameOf(library));
      continue;
    }
    warnings->push_back(absl::StrCat("target '", target.ToString(), "' names a library that cannot compete: ",
                                     here.message(), "; tuning continues without it"));
  }
  std::sort(kept.libs.begin(), kept.libs.end());
  return kept;
}

std::string DeviceTitle(TargetKind kind, const DeviceFacts& facts) {
  if (kind != TargetKind::kCpu || facts.arch != "x86-64" || facts.model.empty()) return facts.model;
  const char* const vectors = facts.vector_bytes >= 64 ? ", AVX-512" : facts.vector_bytes >= 32 ? ", AVX2" : ", SSE";
  return facts.model + vectors;
}

}  // namespace diapason
