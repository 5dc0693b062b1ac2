#include "worker/process/network_runner.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/build_package.h"
#include "compiler/build/measure_latency.h"
#include "compiler/tensor/program.h"
#include "diapason/v1/process.pb.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

constexpr int kSeeds = 3, kNetworkReplays = 20;  // where the request names none
// Constants that are made here may let a deep network's tensors grow beyond all numbers, where those of the real one,
// which were trained, do not: then smaller ones are tried.
constexpr double kGains[] = {1, 0.5, 0.25, 0.0625, 0.00390625};

}  // namespace

// One job. Each step returns an error that says what went wrong, at the stage that was begun last.
class NetworkRunner::Job {
 public:
  Job(NetworkRunner& runner, const v1::RunJob& job, const CandidateRunner::StageBegins& stage_begins)
      : runner_(runner), job_(job), check_(job.network().check()), stage_begins_(stage_begins) {}

  v1::RunReply Run() {
    const auto began = std::chrono::steady_clock::now();
    Begin(MeasureStage::kLoad);
    std::vector<Program> programs;
    if (!Parse(&programs) || !Refer(programs) || !Compare(std::move(programs))) return std::move(reply_);
    reply_.mutable_timing()->set_run_seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    return std::move(reply_);
  }

 private:
  void Begin(MeasureStage stage) {
    stage_ = stage;
    stage_begins_(stage, /*quiet=*/false);
  }
  bool Fail(ErrorKind kind, const std::string& text) {
    SetError(kind, stage_, text, *reply_.mutable_error());
    return false;
  }
  bool Fail(const absl::Status& status) {
    reply_.set_device_lost(DeviceIsLost(status));
    return Fail(ErrorKindOfDevice(status), std::string(status.message()));
  }
  // Of the reference: nothing that the programs are to blame for.
  bool FailReference(const absl::Status& status) {
    reply_.set_device_lost(DeviceIsLost(status));
    return Fail(absl::IsInvalidArgument(status) ? ErrorKind::kInstantiation : ErrorKind::kInfrastructure,
                absl::StrCat("the reference implementation of the network failed: ", std::string(status.message())));
  }

  bool Parse(std::vector<Program>* programs) {
    for (const std::string& bytes : job_.network().programs()) {
      absl::StatusOr<Program> program = ParseProgram(bytes);
      if (!program.ok()) return Fail(ErrorKind::kInfrastructure, std::string(program.status().message()));
      programs->push_back(*std::move(program));
    }
    return true;
  }

  absl::StatusOr<std::vector<Program>> ReferencePrograms(const PlannedNetwork& network) const {
    std::vector<Program> programs;
    for (const PlacedTask& placed : network.partition.programs) {
      ASSIGN_OR_RETURN(Program program, ParseProgram(job_.network().reference_programs(placed.task)));
      programs.push_back(std::move(program));
    }
    return programs;
  }

  absl::StatusOr<std::shared_ptr<const PackageContents>> Assemble(const PlannedNetwork& network,
                                                                  const std::vector<Program>& programs) const {
    PackageRequest request{network.network, network.partition, programs[0].target, runner_.device_.facts(), {}};
    for (const Program& program : programs) request.tasks.push_back({program, "", -1, 0});
    ASSIGN_OR_RETURN(PackageContents contents, AssemblePackage(request));
    return std::make_shared<const PackageContents>(std::move(contents));
  }

  // Inputs, constants and reference outputs, unless they are known from the request before.
  bool Refer(const std::vector<Program>& programs) {
    Begin(MeasureStage::kVerify);
    v1::NetworkCheck key = check_;
    key.clear_replays();
    std::string bytes = key.SerializeAsString();
    if (runner_.known_ != nullptr && runner_.known_->key == bytes) return true;
    runner_.known_.reset();
    absl::StatusOr<std::unique_ptr<Known>> known = MakeKnown(programs);
    if (!known.ok()) return FailReference(known.status());
    runner_.known_ = *std::move(known);
    runner_.known_->key = std::move(bytes);
    return true;
  }

  absl::StatusOr<std::unique_ptr<Known>> MakeKnown(const std::vector<Program>& programs) const {
    const int64_t most = job_.network().tensor_bytes();
    NetworkCheckOptions options;
    options.seed = check_.seed();
    for (const double gain : kGains) {
      auto known = std::make_unique<Known>();
      ASSIGN_OR_RETURN(known->network, ParseNetworkPlan(check_.plan(), check_.seed(), gain, most));
      ASSIGN_OR_RETURN(const auto contents, Assemble(known->network, programs));
      ASSIGN_OR_RETURN(std::vector<Program> programs, ReferencePrograms(known->network));
      options.seeds = check_.seeds() > 0 ? static_cast<int>(check_.seeds()) : kSeeds;
      ASSIGN_OR_RETURN(known->references, MakeReferences(Package::InMemory(Name(), contents), runner_.device_, options,
                                                         std::move(programs)));
      bool finite = true;
      for (const ExpectedOutputs& outputs : known->references.outputs) finite = finite && AllFinite(outputs.values);
      if (finite) return known;
    }
    return absl::InvalidArgumentError("its outputs are no finite numbers, so that nothing can be compared");
  }

  bool Compare(std::vector<Program> programs) {
    Begin(MeasureStage::kRun);
    const absl::StatusOr<std::shared_ptr<const PackageContents>> contents = Assemble(runner_.known_->network, programs);
    if (!contents.ok()) return Fail(ErrorKind::kInstantiation, std::string(contents.status().message()));
    absl::StatusOr<std::unique_ptr<PackageRunner>> package =
        PackageRunner::Load(Package::InMemory(Name(), *contents), &runner_.device_, /*keep_other_plan=*/true);
    if (!package.ok()) return Fail(package.status());
    const int replays = check_.replays() > 0 ? static_cast<int>(check_.replays()) : kNetworkReplays;
    const absl::StatusOr<NetworkVerdict> verdict =
        CheckRepeatedly(**package, runner_.known_->references, {.replays = replays});
    if (!verdict.ok()) return Fail(verdict.status());
    v1::Verification& verification = *reply_.mutable_verification();
    verification.set_ok(verdict->ok);
    verification.set_max_abs_error(verdict->max_abs_error);
    verification.set_max_rel_error(verdict->max_rel_error);
    verification.set_tolerance(verdict->tolerance);
    verification.set_text(verdict->text);
    return verdict->ok ? Measure(**package) : Fail(ErrorKind::kWrongResult, verdict->text);
  }

  bool Measure(PackageRunner& package) {
    stage_begins_(MeasureStage::kRun, job_.quiet());
    const absl::StatusOr<double> seconds = MeasureLatency(package);
    if (!seconds.ok()) return Fail(seconds.status());
    reply_.mutable_verification()->set_run_seconds(*seconds);
    return true;
  }

  std::string Name() const { return check_.plan().name(); }

  NetworkRunner& runner_;
  const v1::RunJob& job_;
  const v1::NetworkCheck& check_;
  const CandidateRunner::StageBegins& stage_begins_;
  MeasureStage stage_ = MeasureStage::kLoad;
  v1::RunReply reply_;
};

v1::RunReply NetworkRunner::Run(const v1::RunJob& job, const CandidateRunner::StageBegins& stage_begins) {
  return Job(*this, job, stage_begins).Run();
}

}  // namespace diapason
