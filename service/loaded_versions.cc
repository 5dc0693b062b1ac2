#include "service/loaded_versions.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/build_package.h"
#include "compiler/build/random_inputs.h"
#include "compiler/runtime/measure.h"

namespace diapason {
namespace {

// Short, since both versions are timed several times in turn.
constexpr int kSamples = 3;
constexpr double kSampleMs = 5, kMostSeconds = 1;

absl::StatusOr<double> SecondsOfRun(PackageRunner& runner) {
  TimingOptions options;
  options.repeat = kSamples;
  options.min_repeat_ms = kSampleMs;
  options.max_seconds = kMostSeconds;
  ASSIGN_OR_RETURN(const Timing timing, runner.Bench(options));
  return MedianSeconds(timing);
}

std::vector<bool> All(const Assembly& assembly) { return std::vector<bool>(assembly.records.size(), true); }

}  // namespace

absl::Status LoadedVersions::Announce(const Assembly& assembly) {
  return compiler_.Compile(assembly, All(assembly)).status();
}

absl::Status LoadedVersions::Prepare(const Assembly& assembly) {
  PackageRequest request{network_, assembly.partition, target_.target, target_.facts, {}};
  ASSIGN_OR_RETURN(request.tasks, compiler_.Compile(assembly, All(assembly)));
  for (const std::optional<TuningRecord>& record : assembly.records)
    if (record.has_value() && compiler_.unusable().contains(record->uuid))
      return absl::FailedPreconditionError(
          absl::StrCat("record ", record->id, " cannot be built here: ", compiler_.unusable().at(record->uuid)));
  ASSIGN_OR_RETURN(PackageContents contents, AssemblePackage(request));
  other_.reset();
  const Package package =
      Package::InMemory(network_.name, std::make_shared<const PackageContents>(std::move(contents)));
  ASSIGN_OR_RETURN(other_, PackageRunner::Load(package, &device_));
  RETURN_IF_ERROR(other_->SetInputs(RandomInputs(other_->manifest(), 0)));
  RETURN_IF_ERROR(other_->Run());
  if (kept_ == nullptr) Keep();
  return absl::OkStatus();
}

absl::StatusOr<NetworkVersions::Times> LoadedVersions::Time() {
  DIAPASON_CHECK(kept_ != nullptr && other_ != nullptr);
  Times times;
  ASSIGN_OR_RETURN(times.kept, SecondsOfRun(*kept_));
  ASSIGN_OR_RETURN(times.other, SecondsOfRun(*other_));
  return times;
}

}  // namespace diapason
