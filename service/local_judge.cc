#include "service/local_judge.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/build_package.h"
#include "compiler/build/package.h"

namespace diapason {
namespace {

// A fault of the programs is what the judge is asked for; one of the device is not.
absl::StatusOr<NetworkJudge::Verdict> VerdictOf(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsDataLoss(status)) return status;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return NetworkJudge::Verdict{false, false, kInfinity, kInfinity, std::string(status.message())};
}

}  // namespace

absl::Status LocalJudge::Use(const Assembly& assembly) {
  assembly_ = &assembly;
  references_.reset();
  return absl::OkStatus();
}

absl::StatusOr<NetworkJudge::Verdict> LocalJudge::Judge(const std::vector<bool>& in_place) {
  PackageRequest request{network_, assembly_->partition, target_.target, target_.facts, {}};
  ASSIGN_OR_RETURN(request.tasks, compiler_.Compile(*assembly_, in_place));
  ASSIGN_OR_RETURN(PackageContents contents, AssemblePackage(request));
  const Package package =
      Package::InMemory(network_.name, std::make_shared<const PackageContents>(std::move(contents)));
  if (references_ == nullptr) {
    if (device_.kind() == TargetKind::kOpenCl && cpu_ == nullptr) {
      ASSIGN_OR_RETURN(cpu_, OpenDevice(Target{}));
    }
    ASSIGN_OR_RETURN(NetworkReferences references, MakeReferences(package, cpu_ != nullptr ? *cpu_ : device_, {}));
    references_ = std::make_unique<NetworkReferences>(std::move(references));
  }
  absl::StatusOr<std::unique_ptr<PackageRunner>> runner =
      PackageRunner::Load(package, &device_, /*keep_other_plan=*/true);
  if (!runner.ok()) return VerdictOf(runner.status());
  const absl::StatusOr<NetworkVerdict> verdict = CheckRepeatedly(**runner, *references_);
  if (!verdict.ok()) return VerdictOf(verdict.status());
  return Verdict{verdict->ok, true, verdict->max_abs_error, verdict->max_rel_error, verdict->text};
}

absl::StatusOr<NetworkJudge::Verdict> LocalJudge::Verify(const TuningRecord&) {
  return absl::UnimplementedError("a build verifies no records");
}

}  // namespace diapason
