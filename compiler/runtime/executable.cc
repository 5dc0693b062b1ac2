#include "compiler/runtime/executable.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Programs arrive from other processes and from disk: nothing of them is taken on trust that would be read as an index.
absl::Status ValidateLibrary(const Program& program, const Kernel& kernel) {
  if (kernel.library == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(kernel.library->Check());
  const std::vector<LibraryCall::Operand> operands = kernel.library->Operands();
  bool fits = operands.size() == kernel.args.size();
  for (size_t i = 0; fits && i < operands.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[kernel.args[i]];
    fits = buffer.dtype == operands[i].dtype && buffer.elements >= operands[i].elements;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the buffers of '", kernel.name, "' do not fit its call: ", kernel.library->ToString()));
}

absl::Status ValidateTensorMaps(const Program& program, const Kernel& kernel) {
  if (kernel.tensor_maps.empty()) return absl::OkStatus();
  if (program.target.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError(absl::StrCat("kernel '", kernel.name, "' has tensor maps, and is not for cuda"));
  for (const Kernel::TensorMap& map : kernel.tensor_maps)
    if (!FitsTensorMap(program, kernel, map))
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor map of kernel '", kernel.name, "' does not fit its buffer"));
  return absl::OkStatus();
}

absl::Status Validate(const Program& program) {
  for (const ProgramBuffer& buffer : program.buffers)
    if (buffer.elements < 0 || BytesOf(buffer.dtype) <= 0)
      return absl::InvalidArgumentError(absl::StrCat("the program's buffer '", buffer.name, "' has no valid size"));
  for (const auto* kernels : {&program.prologue, &program.kernels}) {
    for (const Kernel& kernel : *kernels) {
      for (int arg : kernel.args)
        if (arg < 0 || arg >= static_cast<int>(program.buffers.size()))
          return absl::InvalidArgumentError(
              absl::StrCat("kernel '", kernel.name, "' names buffer ", arg, " of ", program.buffers.size()));
      RETURN_IF_ERROR(ValidateLibrary(program, kernel));
      RETURN_IF_ERROR(ValidateTensorMaps(program, kernel));
      for (int d = 0; d < 3; ++d)
        if (kernel.grid[d] < 1 || kernel.block[d] < 1)
          return absl::InvalidArgumentError(absl::StrCat("kernel '", kernel.name, "' has an empty grid or block"));
      if (program.target.is_gpu() && kernel.library == nullptr) RETURN_IF_ERROR(CheckLaunch(kernel));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Executable::Executable(Device& device, Program program, std::shared_ptr<const Module> module)
    : device_(device),
      program_(std::move(program)),
      module_(std::move(module)),
      buffers_(program_.buffers.size()),
      kept_(program_.buffers.size()) {}

absl::StatusOr<std::unique_ptr<Executable>> Executable::Create(Device& device, Program program,
                                                               std::shared_ptr<const Module> module) {
  RETURN_IF_ERROR(Validate(program));
  if (module == nullptr) {
    ASSIGN_OR_RETURN(module, device.Load(program));
  }
  return std::unique_ptr<Executable>(new Executable(device, std::move(program), std::move(module)));
}

void Executable::Bind(int index, DeviceBuffer* buffer) {
  DIAPASON_CHECK(index >= 0 && index < static_cast<int>(buffers_.size()) && buffer != nullptr);
  DIAPASON_CHECK_MSG(buffer->bytes() >= program_.buffers[index].bytes(), program_.buffers[index].name);
  buffers_[index] = buffer;
}

void Executable::Share(int index, std::shared_ptr<DeviceBuffer> buffer) {
  Bind(index, buffer.get());
  kept_[index] = std::move(buffer);
}

std::vector<std::shared_ptr<DeviceBuffer>> Executable::Prepared() const {
  std::vector<std::shared_ptr<DeviceBuffer>> prepared(buffers_.size());
  for (int buffer : BuffersOf(BufferRole::kPrepared)) prepared[buffer] = kept_[buffer];
  return prepared;
}

void Executable::SharePrepared(const std::vector<std::shared_ptr<DeviceBuffer>>& prepared) {
  for (size_t i = 0; i < prepared.size(); ++i)
    if (prepared[i] != nullptr) Share(static_cast<int>(i), prepared[i]);
}

std::vector<bool> Executable::Wanted(bool for_prologue) const {
  std::vector<bool> wanted(buffers_.size(), for_prologue);
  for (const Kernel& kernel : program_.kernels)
    for (int arg : kernel.args) wanted[arg] = true;
  return wanted;
}

absl::Status Executable::AllocateRest(bool for_prologue) {
  const std::vector<bool> wanted = Wanted(for_prologue);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i] != nullptr || !wanted[i]) continue;
    ASSIGN_OR_RETURN(kept_[i], device_.Allocate(program_.buffers[i].bytes()));
    buffers_[i] = kept_[i].get();
  }
  return absl::OkStatus();
}

std::vector<int> Executable::BuffersOf(BufferRole role) const {
  std::vector<int> found;
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].role == role) found.push_back(static_cast<int>(i));
  return found;
}

int Executable::BufferOfStage(int stage) const {
  if (stage < 0) return -1;
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].stage == stage) return static_cast<int>(i);
  return -1;
}

std::vector<Launch> Executable::Bound(const std::vector<Kernel>& kernels, bool prologue) const {
  std::vector<Launch> launches;
  launches.reserve(kernels.size());
  for (const Kernel& kernel : kernels) {
    Launch launch{module_.get(), kernel, {}, {}};
    for (int arg : kernel.args) {
      DIAPASON_CHECK_MSG(buffers_[arg] != nullptr, program_.buffers[arg].name);
      launch.args.push_back(buffers_[arg]);
      const BufferRole role = program_.buffers[arg].role;
      const bool read_only =
          role == BufferRole::kInput || role == BufferRole::kConstant || (role == BufferRole::kPrepared && !prologue);
      launch.writes.push_back(!read_only);
    }
    launches.push_back(std::move(launch));
  }
  return launches;
}

absl::Status Executable::RunPrologue() {
  if (program_.prologue.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, device_.MakePlan(Bound(program_.prologue, /*prologue=*/true)));
  return plan->Run();
}

std::vector<Launch> Executable::Launches() const { return Bound(program_.kernels, /*prologue=*/false); }

absl::StatusOr<std::unique_ptr<Plan>> Executable::MakePlan(int64_t copies, const std::vector<Launch>& before) {
  std::vector<Launch> once = Launches();
  once.insert(once.begin(), before.begin(), before.end());
  std::vector<Launch> all;
  all.reserve(once.size() * copies);
  for (int64_t i = 0; i < copies; ++i) all.insert(all.end(), once.begin(), once.end());
  return device_.MakePlan(std::move(all));
}

}  // namespace diapason
