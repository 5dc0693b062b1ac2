#include "service/loaded_versions.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/measure_latency.h"
#include "compiler/build/random_inputs.h"

namespace diapason {
namespace {

// Short, since both versions are timed several times in turn.
constexpr LatencySamples kSamples = {.count = 3, .least_ms = 5, .most_seconds = 1};

std::vector<bool> All(const Assembly& assembly) { return std::vector<bool>(assembly.records.size(), true); }

}  // namespace

absl::Status LoadedVersions::CheckUsable(const Assembly& assembly) const {
  for (const std::optional<TuningRecord>& record : assembly.records)
    if (record.has_value() && compiler_.unusable().contains(record->uuid))
      return absl::FailedPreconditionError(
          absl::StrCat("record ", record->id, " cannot be built here: ", compiler_.unusable().at(record->uuid)));
  return absl::OkStatus();
}

absl::Status LoadedVersions::Prepare(const Assembly& assembly) {
  RETURN_IF_ERROR(CheckUsable(assembly));
  PackageRequest request{network_, assembly.partition, target_.target, target_.facts, {}};
  ASSIGN_OR_RETURN(request.tasks, compiler_.Compile(assembly, All(assembly)));
  RETURN_IF_ERROR(CheckUsable(assembly));  // compiled for the first time, perhaps
  ASSIGN_OR_RETURN(PackageContents contents, AssemblePackage(request, weights_));
  other_.reset();
  const Package package =
      Package::InMemory(network_.name, std::make_shared<const PackageContents>(std::move(contents)));
  ASSIGN_OR_RETURN(other_, PackageRunner::Load(package, &device_, /*keep_other_plan=*/false, &parts_));
  RETURN_IF_ERROR(other_->SetInputs(RandomInputs(other_->manifest(), 0)));
  if (kept_ == nullptr) Keep();
  return absl::OkStatus();
}

absl::StatusOr<NetworkVersions::Times> LoadedVersions::Time() {
  DIAPASON_CHECK(kept_ != nullptr && other_ != nullptr);
  Times times;
  ASSIGN_OR_RETURN(times.kept, MeasureLatency(*kept_, kSamples));
  ASSIGN_OR_RETURN(times.other, MeasureLatency(*other_, kSamples));
  return times;
}

}  // namespace diapason
