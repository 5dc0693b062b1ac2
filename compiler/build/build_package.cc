#include "compiler/build/build_package.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/latency_model.h"
#include "compiler/build/memory_plan.h"
#include "compiler/build/package_archive.h"
#include "compiler/build/package_files.h"
#include "compiler/build/package_format.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

using Place = PackageTensor::Place;

// "07_conv2d_3x3_s1_1x56x56x64": safe as a file name, unique by its number, and short.
std::string FileName(size_t index, const std::string& task) {
  std::string name = absl::StrCat(index < 10 ? "0" : "", index, "_");
  for (char c : task.substr(0, 80)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    name += plain ? c : '_';
  }
  return name;
}

// Index of the program's buffer for a stage of the dag; -1 if it has none.
int BufferOfStage(const Program& program, int stage) {
  for (size_t i = 0; i < program.buffers.size(); ++i)
    if (program.buffers[i].stage == stage) return static_cast<int>(i);
  return -1;
}

// Fills the manifest of a request and adds its weights, with nothing written yet.
class Layout {
 public:
  Layout(const PackageRequest& request, PackageWeights& weights)
      : request_(request), network_(request.network), weights_(weights) {}

  absl::Status Make();
  const PackageManifest& manifest() const { return manifest_; }
  PackageManifest& manifest() { return manifest_; }

 private:
  struct Scratch {
    int step, depth, buffer;
    int64_t bytes;
  };

  absl::Status CheckPrograms() const;
  // The package's tensor for the owner of a network tensor; added at its first use.
  int TensorFor(int network_tensor);
  void AddSteps();
  void AddPorts();
  void AddSymbols();
  void NarrowToValid(PackagePort& port) const;
  void PlaceArena();

  const PackageRequest& request_;
  const Network& network_;
  PackageWeights& weights_;
  PackageManifest manifest_;
  std::map<int, int> tensors_;            // owner in the network -> position in the manifest
  std::vector<PlannedTensor> lifetimes_;  // by position in the manifest
  std::vector<int> made_at_;              // by position: the depth of the step that makes it; -1: none does
  std::vector<Scratch> scratch_;
};

absl::Status CheckProgram(const Task& task, const OutputPlace& place, const Program& program, const Target& target) {
  if (program.target.kind != target.kind)
    return absl::InvalidArgumentError(absl::StrCat("the program of task '", task.name, "' is for target '",
                                                   program.target.ToString(), "', the package for '", target.ToString(),
                                                   "'"));
  const auto check = [&](int stage, bool output) -> absl::Status {
    const int index = BufferOfStage(program, stage);
    if (index < 0 && !output) return absl::OkStatus();  // a placeholder that nothing reads
    const int64_t elements = output && !place.whole() ? place.elements : task.dag.stage(stage).elements();
    if (index < 0 || program.buffers[index].elements != elements ||
        program.buffers[index].dtype != task.dag.stage(stage).dtype)
      return absl::InvalidArgumentError(absl::StrCat(
          "the program of task '", task.name, "' has no buffer that fits stage '", task.dag.stage(stage).name, "'"));
    return absl::OkStatus();
  };
  for (int stage : task.dag.inputs()) RETURN_IF_ERROR(check(stage, false));
  for (int stage : task.dag.outputs()) RETURN_IF_ERROR(check(stage, true));
  return absl::OkStatus();
}

absl::Status Layout::CheckPrograms() const {
  const std::vector<PlacedTask>& placed = request_.partition.programs;
  DIAPASON_CHECK(request_.tasks.size() == placed.size());
  for (size_t i = 0; i < placed.size(); ++i)
    RETURN_IF_ERROR(CheckProgram(request_.partition.tasks[placed[i].task], placed[i].place, request_.tasks[i].program,
                                 request_.target));
  return absl::OkStatus();
}

int Layout::TensorFor(int network_tensor) {
  const int owner = request_.partition.Owner(network_tensor);
  if (auto found = tensors_.find(owner); found != tensors_.end()) return found->second;
  const Tensor& tensor = network_.tensor(owner);
  PackageTensor packed;
  packed.name = tensor.name;
  packed.dtype = tensor.type.dtype;
  packed.elements = tensor.type.elements();
  if (tensor.constant()) {
    packed.place = Place::kConstant;
    packed.offset = weights_.Add(tensor.data);
  } else if (std::find(network_.inputs.begin(), network_.inputs.end(), owner) != network_.inputs.end()) {
    packed.place = Place::kInput;
  }
  const int index = static_cast<int>(manifest_.tensors.size());
  tensors_[owner] = index;
  manifest_.tensors.push_back(packed);
  constexpr int kNever = std::numeric_limits<int>::max();
  lifetimes_.push_back({packed.bytes(), kNever, -1, kNever, -1});
  made_at_.push_back(-1);
  return index;
}

void Layout::AddSteps() {
  for (const Subgraph& subgraph : request_.partition.subgraphs) {
    const int now = static_cast<int>(manifest_.steps.size());
    PackageStep step;
    step.task = subgraph.program;
    int depth = 0;
    for (int tensor : subgraph.inputs) depth = std::max(depth, made_at_[TensorFor(tensor)] + 1);
    const auto use = [&](int network_tensor) {
      const int index = TensorFor(network_tensor);
      PlannedTensor& life = lifetimes_[index];
      life.first = std::min(life.first, now);
      life.last = std::max(life.last, now);
      life.shallowest = std::min(life.shallowest, depth);
      life.deepest = std::max(life.deepest, depth);
      return index;
    };
    for (int tensor : subgraph.inputs) step.inputs.push_back(use(tensor));
    for (int tensor : subgraph.outputs) {
      step.outputs.push_back(use(tensor));
      int& made_at = made_at_[step.outputs.back()];
      made_at = std::max(made_at, depth);  // parts are made by several steps
    }
    const std::vector<ProgramBuffer>& buffers = request_.tasks[subgraph.program].program.buffers;
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].role == BufferRole::kWorkspace)
        scratch_.push_back({now, depth, static_cast<int>(i), buffers[i].bytes()});
    manifest_.steps.push_back(std::move(step));
  }
}

// An integer input may be an index: what every reader of it allows.
void Layout::NarrowToValid(PackagePort& port) const {
  bool first = true;
  const std::vector<Subgraph>& subgraphs = request_.partition.subgraphs;
  for (size_t s = 0; s < subgraphs.size(); ++s) {
    const std::vector<int> placeholders = subgraphs[s].dag.inputs();
    for (size_t i = 0; i < placeholders.size(); ++i) {
      if (manifest_.steps[s].inputs[i] != port.tensor) continue;
      const Stage& stage = subgraphs[s].dag.stage(placeholders[i]);
      if (!stage.has_valid_range()) continue;  // any
      port.valid_min = first ? stage.valid_min : std::max(port.valid_min, stage.valid_min);
      port.valid_max = first ? stage.valid_max : std::min(port.valid_max, stage.valid_max);
      first = false;
    }
  }
}

void Layout::AddPorts() {
  const auto port_of = [&](int id) {
    const Tensor& tensor = network_.tensor(id);
    return PackagePort{tensor.name, tensor.type.dtype, tensor.type.shape, TensorFor(id), 0, 0, {}, {}};
  };
  for (int id : network_.inputs) {
    manifest_.inputs.push_back(port_of(id));
    NarrowToValid(manifest_.inputs.back());
  }
  for (int id : network_.outputs) {
    manifest_.outputs.push_back(port_of(id));
    PlannedTensor& life = lifetimes_[manifest_.outputs.back().tensor];
    life.last = life.deepest = static_cast<int>(manifest_.steps.size());
  }
}

void Layout::AddSymbols() {
  const PlanSymbols& symbols = request_.symbols;
  manifest_.sizes = symbols.sizes;
  if (symbols.sizes.empty()) return;
  manifest_.mask = symbols.mask;
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) manifest_.inputs[i].symbols = symbols.inputs[i];
  for (const auto& [symbol, padding] : symbols.padding) {
    manifest_.padding[symbol] = {padding.least, padding.why_not, padding.needs_first};
    if (!padding.why_not.empty()) continue;
    for (size_t i = 0; i < manifest_.outputs.size(); ++i)
      for (const GrowingAxis& axis : padding.outputs[i])
        manifest_.outputs[i].grows.push_back({symbol, axis.axis, axis.block});
  }
}

void Layout::PlaceArena() {
  std::vector<PlannedTensor> planned;
  std::vector<int64_t*> offsets;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (manifest_.tensors[i].place != Place::kArena) continue;
    DIAPASON_CHECK_MSG(lifetimes_[i].first <= lifetimes_[i].last, manifest_.tensors[i].name);
    planned.push_back(lifetimes_[i]);
    offsets.push_back(&manifest_.tensors[i].offset);
  }
  for (const Scratch& scratch : scratch_)
    manifest_.steps[scratch.step].workspaces.emplace_back(scratch.buffer, int64_t{0});
  std::vector<size_t> next(manifest_.steps.size(), 0);
  for (const Scratch& scratch : scratch_) {
    planned.push_back({scratch.bytes, scratch.step, scratch.step, scratch.depth, scratch.depth});
    offsets.push_back(&manifest_.steps[scratch.step].workspaces[next[scratch.step]++].second);
  }
  const MemoryPlan plan = PlanMemory(planned);
  for (size_t i = 0; i < offsets.size(); ++i) *offsets[i] = plan.offsets[i];
  manifest_.arena_bytes = plan.bytes;
}

absl::Status Layout::Make() {
  RETURN_IF_ERROR(CheckPrograms());
  manifest_.network = network_.name;
  manifest_.target = request_.target;
  manifest_.device = request_.device;
  AddSteps();
  AddPorts();
  AddSymbols();
  PlaceArena();
  for (Library library : AllLibraries())
    for (const TaskKernels& kernels : request_.tasks) {
      const std::vector<Library> called = kernels.program.Libraries();
      if (std::find(called.begin(), called.end(), library) == called.end()) continue;
      manifest_.libraries.push_back(library);
      break;
    }
  for (size_t i = 0; i < request_.tasks.size(); ++i) {
    const PlacedTask& placed = request_.partition.programs[i];
    const Task& task = request_.partition.tasks[placed.task];
    const TaskKernels& kernels = request_.tasks[i];
    manifest_.tasks.push_back({task.name, FileName(i, task.name), task.workload_key, placed.weight, kernels.record,
                               kernels.schedule, kernels.estimated_seconds, ChecksumOfBytes(kernels.program.binary),
                               placed.place, task.dag.inputs(), task.dag.outputs(), kernels.work, kernels.record_uuid,
                               kernels.record_source});
  }
  std::vector<const Program*> programs;
  for (const TaskKernels& kernels : request_.tasks) programs.push_back(&kernels.program);
  manifest_.latency_seconds = request_.correction.has_value() ? manifest_.estimated_seconds() * *request_.correction
                                                              : ModelledSeconds(manifest_, programs);
  return absl::OkStatus();
}

// Kernels with what they compute, each once.
class TaskFiles {
 public:
  explicit TaskFiles(PackageWriter& folder) : folder_(folder) {}

  // Gives the task the name of its files, which are written unless equal ones were.
  absl::Status Write(const ComputeDag& dag, Program program, PackageTask& task) {
    const std::string source = std::move(program.source), binary = std::move(program.binary);
    program.source.clear();
    program.binary.clear();
    const std::string bytes = SerializeProgram(program), computed = SerializeDag(dag);
    const auto [known, fresh] = files_.emplace(
        absl::StrCat(bytes.size(), " ", binary.size(), " ", computed.size(), "\n", bytes, binary, computed), "");
    if (fresh) {
      known->second = FileName(files_.size() - 1, task.name);
      const TargetKind kind = program.target.kind;
      const std::string base = absl::StrCat("kernels/", known->second), binary_ending = BinaryEnding(kind);
      RETURN_IF_ERROR(folder_.Write(base + SourceEnding(kind), binary_ending.empty() ? binary : source));
      if (!binary_ending.empty()) RETURN_IF_ERROR(folder_.Write(base + binary_ending, binary));
      RETURN_IF_ERROR(folder_.Write(base + ".program", bytes));
      RETURN_IF_ERROR(folder_.Write(absl::StrCat("tasks/", known->second, ".dag"), computed));
    }
    task.file = known->second;
    return absl::OkStatus();
  }

 private:
  PackageWriter& folder_;
  std::map<std::string, std::string> files_;  // names, by the contents
};

absl::StatusOr<std::unique_ptr<PackageWriter>> CreateWriter(const std::string& path) {
  if (IsArchiveName(path)) return CreatePackageArchive(path);
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Create(path));
  return std::make_unique<PackageFolder>(std::move(folder));
}

// What all plans have in common, but for the checksum of the weights.
void Share(std::vector<PackageManifest>& plans, const std::string& weights) {
  std::vector<Library> libraries;
  for (Library library : AllLibraries())
    for (const PackageManifest& plan : plans)
      if (std::find(plan.libraries.begin(), plan.libraries.end(), library) != plan.libraries.end()) {
        libraries.push_back(library);
        break;
      }
  for (PackageManifest& plan : plans) {
    plan.weights_bytes = static_cast<int64_t>(weights.size());
    plan.libraries = libraries;
  }
}

}  // namespace

int64_t PackageWeights::Add(const std::shared_ptr<const Array>& constant) {
  if (const auto known = offsets_.find(constant); known != offsets_.end()) return known->second;
  const std::string_view added(reinterpret_cast<const char*>(constant->data.data()), constant->data.size());
  const size_t hash = std::hash<std::string_view>()(added);
  const auto [first, last] = places_.equal_range(hash);
  for (auto place = first; place != last; ++place) {
    if (std::string_view(bytes_).substr(place->second.first, place->second.second) != added) continue;
    offsets_.emplace(constant, place->second.first);
    return place->second.first;
  }
  const auto offset = static_cast<int64_t>(bytes_.size());
  places_.emplace(hash, std::make_pair(offset, added.size()));
  offsets_.emplace(constant, offset);
  bytes_.append(added);
  bytes_.resize((bytes_.size() + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
  return offset;
}

absl::Status BuildPackage(const std::string& dir, const std::vector<PackageRequest>& requests) {
  DIAPASON_CHECK(!requests.empty());
  ASSIGN_OR_RETURN(const std::unique_ptr<PackageWriter> writer, CreateWriter(dir));
  PackageWeights weights;
  TaskFiles files(*writer);
  std::vector<PackageManifest> plans;
  for (const PackageRequest& request : requests) {
    Layout layout(request, weights);
    RETURN_IF_ERROR(layout.Make());
    for (size_t i = 0; i < request.tasks.size(); ++i)
      RETURN_IF_ERROR(files.Write(request.partition.tasks[request.partition.programs[i].task].dag,
                                  request.tasks[i].program, layout.manifest().tasks[i]));
    plans.push_back(std::move(layout.manifest()));
  }
  Share(plans, weights.bytes());
  const uint64_t checksum = ChecksumOfBytes(weights.bytes());
  for (PackageManifest& plan : plans) plan.weights_checksum = checksum;
  RETURN_IF_ERROR(writer->Write("weights.bin", weights.bytes()));
  RETURN_IF_ERROR(writer->Write(kManifestFile, PlansToJson(plans)));
  return writer->Commit();
}

absl::Status BuildPackage(const std::string& dir, const PackageRequest& request) {
  return BuildPackage(dir, std::vector<PackageRequest>{request});
}

absl::StatusOr<PackageContents> AssemblePackage(const PackageRequest& request,
                                                const std::shared_ptr<PackageWeights>& weights) {
  Layout layout(request, *weights);
  RETURN_IF_ERROR(layout.Make());
  std::vector<PackageManifest> plans = {std::move(layout.manifest())};
  Share(plans, weights->bytes());
  PackageContents contents;
  contents.manifest = std::move(plans.front());
  contents.weights = std::shared_ptr<const std::string>(weights, &weights->bytes());
  for (size_t i = 0; i < request.tasks.size(); ++i) {
    contents.programs.push_back(request.tasks[i].program);
    contents.dags.push_back(SerializeDag(request.partition.tasks[request.partition.programs[i].task].dag));
  }
  return contents;
}

absl::StatusOr<PackageContents> AssemblePackage(const PackageRequest& request) {
  return AssemblePackage(request, std::make_shared<PackageWeights>());
}

}  // namespace diapason
