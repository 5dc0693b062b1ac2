#include "compiler/build/package.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "compiler/build/memory_plan.h"
#include "compiler/build/package_files.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/executable.h"

namespace diapason {
namespace {

using Place = PackageTensor::Place;

absl::Status Damaged(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", why, "; build the package again"));
}

// That what was built there runs here.
absl::Status CheckDevice(const Package& package, const Device& device) {
  const PackageManifest& manifest = package.manifest();
  const DeviceFacts& here = device.facts();
  const std::string built = absl::StrCat("package '", package.dir(), "' was built for target '",
                                         manifest.target.ToString(), "' (", manifest.device.model, ")");
  if (manifest.target.kind != device.kind())
    return absl::FailedPreconditionError(absl::StrCat(built, ", which is not the kind of the device given"));
  if (manifest.target.kind == TargetKind::kCuda && manifest.device.arch != here.arch)
    return absl::FailedPreconditionError(absl::StrCat(built, " with architecture ", manifest.device.arch,
                                                      "; the GPU here (", here.model, ") is ", here.arch,
                                                      ": build the package for that"));
  if (manifest.target.kind == TargetKind::kCpu && manifest.device.vector_bytes > here.vector_bytes)
    return absl::FailedPreconditionError(absl::StrCat(built, " with vectors of ", manifest.device.vector_bytes,
                                                      " bytes; the processor here (", here.model, ") has ",
                                                      here.vector_bytes, ": build the package here"));
  return absl::OkStatus();
}

std::string NamesOf(const std::vector<PackagePort>& ports) {
  std::vector<std::string> names;
  for (const PackagePort& port : ports) names.push_back(absl::StrCat("'", port.name, "'"));
  return absl::StrJoin(names, ", ");
}

}  // namespace

Package::Package(std::string dir, std::vector<PackageManifest> plans)
    : dir_(std::move(dir)), plans_(std::make_shared<const std::vector<PackageManifest>>(std::move(plans))) {}

absl::StatusOr<Package> Package::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored)) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PackageArchive> archive, PackageArchive::Open(path));
    return FromArchive(std::move(archive));
  }
  const std::string manifest = absl::StrCat(path, "/", kManifestFile);
  absl::StatusOr<std::string> text = ReadPackageFile(manifest);
  if (absl::IsNotFound(text.status())) {
    const std::string what = std::filesystem::exists(path, ignored)
                                 ? absl::StrCat("'", path, "' is no package: it has no ", kManifestFile)
                                 : absl::StrCat("there is no file or folder '", path, "'");
    return absl::NotFoundError(absl::StrCat(what, "; name a folder or a .dpk file made by 'diapason build'"));
  }
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(std::vector<PackageManifest> plans, PlansFromJson(*text, manifest));
  return Package(path, std::move(plans));
}

absl::StatusOr<Package> Package::FromMemory(std::string_view bytes, const std::string& name) {
  ASSIGN_OR_RETURN(std::shared_ptr<const PackageArchive> archive, PackageArchive::FromMemory(bytes, name));
  return FromArchive(std::move(archive));
}

absl::StatusOr<Package> Package::FromArchive(std::shared_ptr<const PackageArchive> archive) {
  const absl::StatusOr<std::string_view> text = archive->Read(kManifestFile);
  if (absl::IsNotFound(text.status()))
    return absl::DataLossError(absl::StrCat("'", archive->path(), "' is no package: it has no ", kManifestFile,
                                            "; name a folder or a .dpk file made by 'diapason build'"));
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(std::vector<PackageManifest> plans,
                   PlansFromJson(std::string(*text), absl::StrCat(archive->path(), ":", kManifestFile)));
  Package package(archive->path(), std::move(plans));
  package.archive_ = std::move(archive);
  return package;
}

std::string Package::PathOf(const std::string& file) const {
  return absl::StrCat(dir_, archive_ != nullptr ? ":" : "/", file);
}

absl::StatusOr<std::string> Package::ReadText(const std::string& file) const {
  if (archive_ == nullptr) return ReadPackageFile(PathOf(file));
  ASSIGN_OR_RETURN(const std::string_view bytes, archive_->Read(file));
  return std::string(bytes);
}

Package Package::WithPlan(int plan) const {
  DIAPASON_CHECK(plan >= 0 && plan < static_cast<int>(plans_->size()));
  Package other = *this;
  other.plan_ = plan;
  return other;
}

Package Package::WithPlans(std::vector<PackageManifest> plans) const {
  DIAPASON_CHECK(plans.size() == plans_->size());
  Package other = *this;
  other.plans_ = std::make_shared<const std::vector<PackageManifest>>(std::move(plans));
  return other;
}

Package Package::InMemory(std::string name, std::shared_ptr<const PackageContents> contents) {
  Package package(std::move(name), std::vector<PackageManifest>{contents->manifest});
  package.contents_ = std::move(contents);
  return package;
}

absl::StatusOr<PackageBytes> Package::ReadWeights() const {
  if (contents_ != nullptr) return PackageBytes{*contents_->weights, contents_->weights};
  PackageBytes weights;
  if (archive_ != nullptr) {
    ASSIGN_OR_RETURN(weights.bytes, archive_->Read("weights.bin"));
    weights.owner = archive_;
  } else {
    absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(PathOf("weights.bin"));
    if (!file.ok())
      return absl::Status(file.status().code(),
                          absl::StrCat("cannot read ", PathOf("weights.bin"), ": ", file.status().message()));
    weights = {(*file)->bytes(), *file};
  }
  const std::string_view bytes = weights.bytes;
  if (static_cast<int64_t>(bytes.size()) != manifest().weights_bytes)
    return Damaged(PathOf("weights.bin"),
                   absl::StrCat("it has ", bytes.size(), " bytes instead of ", manifest().weights_bytes));
  // What comes from an archive was compared with the archive's own checksum.
  if (archive_ == nullptr && ChecksumOfBytes(bytes) != manifest().weights_checksum)
    return Damaged(PathOf("weights.bin"), "its checksum does not match");
  return weights;
}

absl::StatusOr<Program> Package::ReadProgram(int task) const {
  if (contents_ != nullptr) return contents_->programs[task];
  const TargetKind kind = manifest().target.kind;
  const std::string base = absl::StrCat("kernels/", manifest().tasks[task].file), ending = BinaryEnding(kind);
  const std::string program_file = base + ".program";
  ASSIGN_OR_RETURN(const std::string bytes, ReadText(program_file));
  absl::StatusOr<Program> program = ParseProgram(bytes);
  if (!program.ok()) return Damaged(PathOf(program_file), std::string(program.status().message()));
  if (program->target.kind != kind) return Damaged(PathOf(program_file), "it is for another target");
  const std::string binary_file = base + (ending.empty() ? SourceEnding(kind) : ending);
  ASSIGN_OR_RETURN(program->binary, ReadText(binary_file));
  if (ChecksumOfBytes(program->binary) != manifest().tasks[task].checksum)
    return Damaged(PathOf(binary_file), "its checksum does not match");
  return program;
}

absl::StatusOr<std::string> Package::ReadSource(int task) const {
  if (contents_ != nullptr) return contents_->programs[task].source;
  return ReadText(absl::StrCat("kernels/", manifest().tasks[task].file, SourceEnding(manifest().target.kind)));
}

absl::StatusOr<std::string> Package::ReadDag(int task) const {
  if (contents_ != nullptr) return contents_->dags[task];
  return ReadText(absl::StrCat("tasks/", manifest().tasks[task].file, ".dag"));
}

absl::Status CheckPackageLibraries(const Package& package, const std::function<absl::Status(Library)>& check) {
  for (Library library : package.manifest().libraries) {
    const absl::Status here = check(library);
    if (here.ok()) continue;
    return absl::Status(here.code(),
                        absl::StrCat("package '", package.dir(), "' calls a library: ", here.message(),
                                     ", or build the package for a target without -libs=", NameOf(library)));
  }
  return absl::OkStatus();
}

// A cuda target is opened without its architecture, so that CheckDevice can speak of the package.
absl::StatusOr<std::unique_ptr<Device>> OpenDeviceOf(const Package& package) {
  Target target = package.manifest().target;
  if (target.kind == TargetKind::kCuda) target.arch.clear();
  return OpenDevice(target);
}

// What a plan was made with, as far as it came to anything.
PlanOptions OptionsOf(const Plan& plan) {
  return {.parallel = plan.paths() > 1, .prefetch = plan.prefetched_bytes() > 0};
}

// Builds up a runner: memory, weights, then a step after the other.
class PackageRunner::Loader {
 public:
  // `loaded`: what is shared with other runners; null: nothing is.
  Loader(PackageRunner& runner, bool keep_other_plan, LoadedParts* loaded)
      : runner_(runner),
        device_(*runner.device_),
        manifest_(runner.manifest()),
        keep_other_plan_(keep_other_plan),
        loaded_(loaded != nullptr ? *loaded : own_),
        shares_(loaded != nullptr) {}
  absl::Status Load();
  absl::Status LoadFrom(const PlanParts& parts);

 private:
  // With the programs and constants of `parts`, or, where it is null, of the package.
  absl::Status AllocateArena(const PlanParts* parts);
  absl::Status AllocateTensors(const PlanParts* parts);
  absl::Status LoadPrograms();
  absl::Status AddStep(const PackageStep& step);
  absl::Status AddStepFrom(const PackageStep& step, const PlanParts::Step& parts);
  absl::Status CheckStep(const PackageStep& step) const;
  // REQUIRES: CheckStep is ok. Binds tensors and workspaces. Constants are brought to the device if `for_prologue` or
  // kernels of a run read them.
  absl::Status BindStep(Executable& executable, const PackageStep& step, bool for_prologue);
  // Binds a tensor to the program's buffer for a stage, where it has one, and it is one of `needed`.
  absl::Status BindStage(Executable& executable, int stage, int tensor, const std::vector<bool>& needed);
  absl::Status BringConstant(int tensor);
  // What the step's prologue makes its buffers of.
  LoadedParts::Source SourceOf(const Program& program, const PackageStep& step) const;
  // Frees constants that no kernel of a run reads.
  void DropUnread();
  void TellPart(const PackageStep& step, Launch& launch) const;
  std::vector<Launch> AllLaunches() const;
  // Whether a plan of the package's launches takes less time than the one that was chosen so far.
  absl::StatusOr<bool> IsFaster(Plan& plan) const;
  // Takes the plan with parallel paths if that is faster; then one with prefetches, on those paths.
  absl::Status TryPaths();
  absl::Status TryPrefetches();

  PackageRunner& runner_;
  Device& device_;
  const PackageManifest& manifest_;
  const bool keep_other_plan_;
  LoadedParts own_;
  LoadedParts& loaded_;
  const bool shares_;
  PackageBytes weights_;  // empty when loading from the parts of a plan
  size_t arena_parts_bound_ = 0;
  std::vector<Program> programs_;  // by task
  std::vector<int> numbers_;       // by task: LoadedParts::Number
};

absl::Status PackageRunner::Loader::AllocateArena(const PlanParts* plan) {
  std::vector<ArenaPart> parts;
  for (const PackageTensor& tensor : manifest_.tensors)
    if (tensor.place == Place::kArena) parts.push_back({tensor.offset, tensor.bytes()});
  for (size_t s = 0; s < manifest_.steps.size(); ++s) {
    const PackageStep& step = manifest_.steps[s];
    const Program& program = plan != nullptr ? plan->steps[s].program : programs_[step.task];
    for (const auto& [buffer, offset] : step.workspaces) {
      if (buffer < 0 || buffer >= static_cast<int>(program.buffers.size()) || offset < 0 ||
          offset % kArenaAlignment != 0 || offset > manifest_.arena_bytes - program.buffers[buffer].bytes())
        return Damaged(runner_.package_.PathOf(kManifestFile), "a workspace lies outside its memory");
      parts.push_back({offset, program.buffers[buffer].bytes()});
    }
  }
  ASSIGN_OR_RETURN(runner_.arena_, Arena::Allocate(device_, manifest_.arena_bytes, parts));
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::AllocateTensors(const PlanParts* parts) {
  RETURN_IF_ERROR(AllocateArena(parts));
  if (parts == nullptr) {
    ASSIGN_OR_RETURN(weights_, runner_.package_.ReadWeights());
  }
  for (const PackageTensor& tensor : manifest_.tensors) {
    std::shared_ptr<DeviceBuffer> buffer;
    switch (tensor.place) {
      case Place::kArena: {
        buffer = runner_.arena_.part(arena_parts_bound_++);
        break;
      }
      case Place::kConstant: {
        if (parts != nullptr) buffer = parts->constants[runner_.tensors_.size()];
        break;
      }
      case Place::kInput: {
        ASSIGN_OR_RETURN(buffer, device_.AllocateZeros(tensor.bytes()));
        break;
      }
    }
    runner_.tensors_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::LoadPrograms() {
  for (size_t i = 0; i < manifest_.tasks.size(); ++i) {
    if (manifest_.tasks[i].output_stages.empty())
      return absl::FailedPreconditionError(
          absl::StrCat("package '", runner_.package_.dir(),
                       "' was built by an older diapason, which did not write what its steps bind; run it with "
                       "'diapason run', or build it again"));
    ASSIGN_OR_RETURN(Program program, runner_.package_.ReadProgram(static_cast<int>(i)));
    numbers_.push_back(shares_ ? loaded_.Number(program) : static_cast<int>(i));
    programs_.push_back(std::move(program));
  }
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::BringConstant(int tensor) {
  const PackageTensor& given = manifest_.tensors[tensor];
  if (given.place != Place::kConstant || runner_.tensors_[tensor] != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(runner_.tensors_[tensor], loaded_.Constant(device_, weights_.bytes, given.offset, given.bytes()));
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::BindStage(Executable& executable, int stage, int tensor,
                                              const std::vector<bool>& needed) {
  const int index = executable.BufferOfStage(stage);
  if (index < 0) return absl::OkStatus();
  const ProgramBuffer& wanted = executable.program().buffers[index];
  const PackageTensor& given = manifest_.tensors[tensor];
  if (wanted.elements != given.elements || wanted.dtype != given.dtype)
    return Damaged(runner_.package_.PathOf(kManifestFile),
                   absl::StrCat("tensor '", given.name, "' does not fit buffer '", wanted.name, "'"));
  // Kernels may read constants while others still run.
  if (wanted.role == BufferRole::kConstant && given.place != Place::kConstant)
    return Damaged(runner_.package_.PathOf(kManifestFile),
                   absl::StrCat("tensor '", given.name, "' changes, and buffer '", wanted.name, "' is a constant"));
  if (!needed[index]) return absl::OkStatus();
  RETURN_IF_ERROR(BringConstant(tensor));
  executable.Bind(index, runner_.tensors_[tensor].get());
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::CheckStep(const PackageStep& step) const {
  const PackageTask& task = manifest_.tasks[step.task];
  if (task.input_stages.size() == step.inputs.size() && task.output_stages.size() == step.outputs.size())
    return absl::OkStatus();
  return Damaged(runner_.package_.PathOf(kManifestFile),
                 absl::StrCat("a step does not fit its task '", task.name, "'"));
}

absl::Status PackageRunner::Loader::BindStep(Executable& executable, const PackageStep& step, bool for_prologue) {
  const PackageTask& task = manifest_.tasks[step.task];
  const std::vector<int>&inputs = task.input_stages, &outputs = task.output_stages;
  const std::vector<bool> needed = executable.Wanted(for_prologue);
  for (size_t i = 0; i < inputs.size(); ++i) RETURN_IF_ERROR(BindStage(executable, inputs[i], step.inputs[i], needed));
  for (size_t i = 0; i < outputs.size(); ++i)
    RETURN_IF_ERROR(BindStage(executable, outputs[i], step.outputs[i], needed));
  for (const auto& [buffer, offset] : step.workspaces)
    executable.Bind(buffer, runner_.arena_.part(arena_parts_bound_++).get());
  return absl::OkStatus();
}

LoadedParts::Source PackageRunner::Loader::SourceOf(const Program& program, const PackageStep& step) const {
  LoadedParts::Source source{numbers_[step.task], {}};
  const std::vector<int>& stages = manifest_.tasks[step.task].input_stages;
  for (const ProgramBuffer& buffer : program.buffers) {
    if (buffer.role != BufferRole::kConstant) continue;
    const auto stage = std::find(stages.begin(), stages.end(), buffer.stage);
    if (stage == stages.end()) continue;
    const PackageTensor& constant = manifest_.tensors[step.inputs[static_cast<size_t>(stage - stages.begin())]];
    source.constants.emplace_back(constant.offset, constant.bytes());
  }
  return source;
}

absl::Status PackageRunner::Loader::AddStep(const PackageStep& step) {
  absl::StatusOr<std::unique_ptr<Executable>> made =
      Executable::Create(device_, programs_[step.task], loaded_.FindModule(numbers_[step.task]));
  if (!made.ok())
    return absl::Status(
        made.status().code(),
        absl::StrCat("loading the kernels of task '", manifest_.tasks[step.task].name, "': ", made.status().message()));
  Executable& executable = **made;
  loaded_.KeepModule(numbers_[step.task], executable.module());
  RETURN_IF_ERROR(CheckStep(step));
  const LoadedParts::Source source = SourceOf(executable.program(), step);
  const std::vector<std::shared_ptr<DeviceBuffer>> prepared = loaded_.FindPrepared(source);
  const bool known = !prepared.empty();
  executable.SharePrepared(prepared);
  RETURN_IF_ERROR(BindStep(executable, step, /*for_prologue=*/!known));
  RETURN_IF_ERROR(executable.AllocateRest(/*for_prologue=*/!known));
  if (!known) {
    RETURN_IF_ERROR(executable.RunPrologue());
    loaded_.KeepPrepared(source, executable.Prepared());
  }
  runner_.steps_.push_back(*std::move(made));
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::AddStepFrom(const PackageStep& step, const PlanParts::Step& parts) {
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> made, Executable::Create(device_, parts.program, parts.module));
  RETURN_IF_ERROR(CheckStep(step));
  RETURN_IF_ERROR(BindStep(*made, step, /*for_prologue=*/false));
  made->SharePrepared(parts.prepared);
  RETURN_IF_ERROR(made->AllocateRest(/*for_prologue=*/false));
  runner_.steps_.push_back(std::move(made));
  return absl::OkStatus();
}

void PackageRunner::Loader::DropUnread() {
  std::set<const DeviceBuffer*> read;
  for (const auto& step : runner_.steps_)
    for (const Launch& launch : step->Launches()) read.insert(launch.args.begin(), launch.args.end());
  for (const PackagePort& port : manifest_.outputs) read.insert(runner_.tensors_[port.tensor].get());
  for (size_t i = 0; i < manifest_.tensors.size(); ++i)
    if (manifest_.tensors[i].place == Place::kConstant && !read.count(runner_.tensors_[i].get()))
      runner_.tensors_[i].reset();
}

// Which part of its tensor a launch writes, so that the makers of its parts may run side by side.
void PackageRunner::Loader::TellPart(const PackageStep& step, Launch& launch) const {
  const OutputPlace& place = manifest_.tasks[step.task].place;
  if (place.whole()) return;
  launch.parts.resize(launch.args.size());
  for (size_t i = 0; i < launch.args.size(); ++i)
    if (launch.args[i] == runner_.tensors_[step.outputs[0]].get())
      launch.parts[i] = {step.outputs[0] + 1, place.offset};
}

std::vector<Launch> PackageRunner::Loader::AllLaunches() const {
  std::vector<Launch> launches;
  for (size_t s = 0; s < runner_.steps_.size(); ++s) {
    for (Launch& launch : runner_.steps_[s]->Launches()) {
      TellPart(manifest_.steps[s], launch);
      launches.push_back(std::move(launch));
    }
  }
  return launches;
}

absl::Status PackageRunner::Loader::Load() {
  RETURN_IF_ERROR(LoadPrograms());
  RETURN_IF_ERROR(AllocateTensors(nullptr));
  for (const PackageStep& step : manifest_.steps) RETURN_IF_ERROR(AddStep(step));
  for (const PackagePort& port : manifest_.outputs) RETURN_IF_ERROR(BringConstant(port.tensor));
  DropUnread();
  ASSIGN_OR_RETURN(runner_.plan_, device_.MakePlan(AllLaunches()));
  RETURN_IF_ERROR(TryPaths());
  return TryPrefetches();
}

absl::Status PackageRunner::Loader::LoadFrom(const PlanParts& parts) {
  RETURN_IF_ERROR(AllocateTensors(&parts));
  for (size_t i = 0; i < manifest_.steps.size(); ++i) RETURN_IF_ERROR(AddStepFrom(manifest_.steps[i], parts.steps[i]));
  ASSIGN_OR_RETURN(runner_.plan_, device_.MakePlanWith(AllLaunches(), parts.options));
  return absl::OkStatus();
}

// Some rounds of both plans in turns, each long enough to be told apart.
absl::StatusOr<bool> PackageRunner::Loader::IsFaster(Plan& plan) const {
  constexpr int kRounds = 5;
  constexpr double kRoundSeconds = 1e-3, kWorthwhile = 0.995;
  Timing now, other;
  int64_t times = 1;
  for (int round = -1; round < kRounds; ++round) {
    ASSIGN_OR_RETURN(const double one, runner_.plan_->Time(times));
    ASSIGN_OR_RETURN(const double two, plan.Time(times));
    if (round < 0) {
      times = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / std::max(one, 1e-6)), 1, 1000);
      continue;
    }
    now.samples.push_back(one);
    other.samples.push_back(two);
  }
  return MedianSeconds(other) < kWorthwhile * MedianSeconds(now);
}

absl::Status PackageRunner::Loader::TryPaths() {
  absl::StatusOr<std::unique_ptr<Plan>> parallel = device_.MakePlanWith(AllLaunches(), {.parallel = true});
  if (!parallel.ok() || (*parallel)->paths() == 1) return absl::OkStatus();  // the plan in order is there
  ASSIGN_OR_RETURN(const bool faster, IsFaster(**parallel));
  if (faster) std::swap(runner_.plan_, *parallel);
  if (keep_other_plan_) runner_.other_plan_ = *std::move(parallel);
  return absl::OkStatus();
}

absl::Status PackageRunner::Loader::TryPrefetches() {
  PlanOptions options = OptionsOf(*runner_.plan_);
  options.prefetch = true;
  absl::StatusOr<std::unique_ptr<Plan>> fetching = device_.MakePlanWith(AllLaunches(), options);
  if (!fetching.ok() || (*fetching)->prefetched_bytes() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool faster, IsFaster(**fetching));
  if (faster) runner_.plan_ = *std::move(fetching);
  return absl::OkStatus();
}

PackageRunner::PackageRunner(Package package, std::unique_ptr<Device> owned, Device* device)
    : package_(std::move(package)), owned_device_(std::move(owned)), device_(device) {}

PackageRunner::~PackageRunner() = default;

absl::StatusOr<std::unique_ptr<PackageRunner>> PackageRunner::Load(const std::string& dir, Device* device) {
  ASSIGN_OR_RETURN(Package package, Package::Open(dir));
  return Load(std::move(package), device);
}

absl::StatusOr<std::unique_ptr<PackageRunner>> PackageRunner::Load(Package package, Device* device,
                                                                   bool keep_other_plan, LoadedParts* parts) {
  std::unique_ptr<Device> owned;
  if (device == nullptr) {
    ASSIGN_OR_RETURN(owned, OpenDeviceOf(package));
    device = owned.get();
  }
  RETURN_IF_ERROR(CheckDevice(package, *device));
  if (device->kind() == TargetKind::kCuda) RETURN_IF_ERROR(CheckPackageLibraries(package, CheckLibrary));
  std::unique_ptr<PackageRunner> runner(new PackageRunner(std::move(package), std::move(owned), device));
  RETURN_IF_ERROR(Loader(*runner, keep_other_plan, parts).Load());
  return runner;
}

absl::StatusOr<std::unique_ptr<PackageRunner>> PackageRunner::FromParts(Package package, Device* device,
                                                                        const PlanParts& parts) {
  std::unique_ptr<PackageRunner> runner(new PackageRunner(std::move(package), nullptr, device));
  RETURN_IF_ERROR(Loader(*runner, /*keep_other_plan=*/false, nullptr).LoadFrom(parts));
  return runner;
}

PlanParts PackageRunner::Parts() const {
  PlanParts parts;
  for (size_t i = 0; i < tensors_.size(); ++i)
    parts.constants.push_back(manifest().tensors[i].place == Place::kConstant ? tensors_[i] : nullptr);
  for (const auto& step : steps_) {
    PlanParts::Step& part = parts.steps.emplace_back();
    part.program = step->program();
    part.program.binary.clear();
    part.module = step->module();
    part.prepared = step->Prepared();
  }
  parts.options = OptionsOf(*plan_);
  return parts;
}

absl::Status PackageRunner::SetInput(const std::string& name, const Array& value) {
  const std::vector<PackagePort>& inputs = manifest().inputs;
  const auto port = std::find_if(inputs.begin(), inputs.end(), [&](const PackagePort& p) { return p.name == name; });
  if (port == inputs.end())
    return absl::InvalidArgumentError(
        absl::StrCat("the package has no input '", name, "'; its inputs are: ", NamesOf(inputs)));
  if (value.dtype != port->dtype || value.shape != port->shape) {
    const PackagePort given{name, value.dtype, value.shape, -1, 0, 0};
    return absl::InvalidArgumentError(
        absl::StrCat("input '", name, "' is ", given.TypeText(), "; the package wants ", port->TypeText()));
  }
  RETURN_IF_ERROR(port->CheckValues(value.data.data(), value.elements()));
  return device_->CopyIn(*tensors_[port->tensor], value.data.data(), static_cast<int64_t>(value.data.size()));
}

absl::Status PackageRunner::SetInputs(const std::map<std::string, Array>& values) {
  for (const auto& [name, value] : values) RETURN_IF_ERROR(SetInput(name, value));
  for (const PackagePort& port : manifest().inputs)
    if (!values.count(port.name))
      return absl::InvalidArgumentError(
          absl::StrCat("input '", port.name, "' (", port.TypeText(), ") is missing; give it a value"));
  return absl::OkStatus();
}

absl::Status PackageRunner::Poison() { return arena_.Fill(*device_, 0xff); }

absl::Status PackageRunner::UseOwnMemory() { return ports_ != nullptr ? ports_->Use({}, {}) : absl::OkStatus(); }

absl::Status PackageRunner::Run() {
  RETURN_IF_ERROR(UseOwnMemory());
  return plan_->Run();
}

std::vector<Launch> PackageRunner::Launches() const {
  std::vector<Launch> launches;
  for (const auto& step : steps_)
    for (Launch& launch : step->Launches()) launches.push_back(std::move(launch));
  return launches;
}

absl::Status PackageRunner::Enqueue(void* stream, absl::Span<void* const> inputs, absl::Span<void* const> outputs) {
  if (ports_ == nullptr && inputs.empty() && outputs.empty()) return plan_->Enqueue(stream);
  DIAPASON_CHECK(device_->kind() != TargetKind::kOpenCl);
  if (ports_ == nullptr) ports_ = std::make_unique<PortMemory>(manifest(), *device_, *plan_, tensors_, Launches());
  RETURN_IF_ERROR(ports_->Use(inputs, outputs));
  RETURN_IF_ERROR(ports_->CopyIn(stream));
  RETURN_IF_ERROR(plan_->Enqueue(stream));
  return ports_->CopyOut(stream);
}

std::vector<bool> PackageRunner::UsedInPlace() const {
  return ports_ != nullptr ? ports_->in_place()
                           : std::vector<bool>(manifest().inputs.size() + manifest().outputs.size(), false);
}

bool PackageRunner::UseOtherPlan() {
  if (other_plan_ == nullptr || !UseOwnMemory().ok()) return false;
  ports_.reset();
  std::swap(plan_, other_plan_);
  return true;
}

absl::Status PackageRunner::RunTimes(int64_t times) {
  RETURN_IF_ERROR(UseOwnMemory());
  return plan_->Time(times).status();
}

absl::StatusOr<std::vector<Array>> PackageRunner::Outputs() {
  std::vector<Array> outputs;
  for (const PackagePort& port : manifest().outputs) {
    Array array(port.dtype, port.shape);
    RETURN_IF_ERROR(
        device_->CopyOut(array.data.data(), *tensors_[port.tensor], static_cast<int64_t>(array.data.size())));
    outputs.push_back(std::move(array));
  }
  return outputs;
}

absl::StatusOr<Timing> PackageRunner::Bench(const TimingOptions& options) {
  RETURN_IF_ERROR(UseOwnMemory());
  return MeasurePlan(*device_, *plan_, options);
}

}  // namespace diapason
