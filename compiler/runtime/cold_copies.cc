#include "compiler/runtime/cold_copies.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

// What the weights are does not change how long a kernel takes, unless they make denormals: small numbers, without a
// prologue. 0x3c3c3c3c is 0.0115 as float32, 0x3c3c is 1.06 as float16.
constexpr uint8_t kSmallNumber = 0x3c;

bool HasFloats(const ProgramBuffer& buffer) { return buffer.dtype == DType::kFloat32 || IsNarrowFloat(buffer.dtype); }

bool IsConstant(const ProgramBuffer& buffer) {
  return buffer.role == BufferRole::kConstant || buffer.role == BufferRole::kPrepared;
}

bool IsFloatConstant(const ProgramBuffer& buffer) { return HasFloats(buffer) && IsConstant(buffer); }

// The instruction caches nearest to the multiprocessors hold 128 KiB; cubins hold tables beside code.
constexpr int64_t kCodeBytes = 512 << 10, kMaxCodeCopies = 32;
// Constants below this stay in the L2 cache beside a network's activations.
constexpr int64_t kLeastConstantBytes = 1 << 20;

int64_t CodeCopies(Executable& executable) {
  int64_t bytes = 0;
  for (const ProgramBuffer& buffer : executable.program().buffers)
    if (IsFloatConstant(buffer)) bytes += buffer.bytes();
  int64_t wanted = kCodeBytes / std::max<int64_t>(1, static_cast<int64_t>(executable.program().binary.size()));
  if (bytes >= kLeastConstantBytes)
    wanted = std::max(wanted, 3 * executable.device().facts().l2_bytes / (2 * bytes) + 1);
  return std::clamp<int64_t>(wanted, 1, kMaxCodeCopies);
}

// ResNet-18's weights are 45 MiB, and up to four times that in the Winograd form.
constexpr int64_t kNetworkBytes = 64 << 20;
// The steps of a network share memory for what is between them, of some megabytes: a kernel finds there what other
// kernels have left in the caches, which is its input at best.
constexpr int64_t kActivationBytes = 4 << 20;
// Smaller ones are read in a microsecond or two from wherever they are.
constexpr int64_t kLeastTurnBytes = 64 << 10;
constexpr int64_t kMaxTurns = 512;

bool IsArgument(const std::vector<Launch>& launches, const DeviceBuffer* buffer) {
  return std::any_of(launches.begin(), launches.end(), [&](const Launch& launch) {
    return std::find(launch.args.begin(), launch.args.end(), buffer) != launch.args.end();
  });
}

}  // namespace

SpareBuffers::SpareBuffers(Device& device, int64_t most_bytes)
    : small_numbers(device, most_bytes, kSmallNumber), others(device, most_bytes) {}

void SpareBuffers::Clear() {
  small_numbers.Clear();
  others.Clear();
}

TakenBuffers::~TakenBuffers() {
  if (spare_ == nullptr) return;
  for (std::unique_ptr<DeviceBuffer>& buffer : small_numbers_) spare_->small_numbers.Give(std::move(buffer));
  for (std::unique_ptr<DeviceBuffer>& buffer : others_) spare_->others.Give(std::move(buffer));
}

absl::StatusOr<DeviceBuffer*> TakenBuffers::Take(Device& device, int64_t bytes, bool small_numbers) {
  SpareBuffers own(device, 0);
  SpareBuffers& spare = spare_ != nullptr ? *spare_ : own;
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer,
                   (small_numbers ? spare.small_numbers : spare.others).Take(bytes));
  std::vector<std::unique_ptr<DeviceBuffer>>& taken = small_numbers ? small_numbers_ : others_;
  taken.push_back(std::move(buffer));
  return taken.back().get();
}

absl::StatusOr<ColdCopies> ColdCopies::Create(Executable& executable, SpareBuffers* spare) {
  ColdCopies copies(executable, spare);
  const int64_t wanted = CodeCopies(executable);
  for (int64_t i = 1; i < wanted; ++i) RETURN_IF_ERROR(copies.Add(executable.program()));
  return copies;
}

absl::Status ColdCopies::Add(const Program& program) {
  Device& device = first_->device();
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> copy, Executable::Create(device, program));
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    DeviceBuffer* buffer = first_->buffer(static_cast<int>(b));
    if (IsFloatConstant(program.buffers[b])) {
      ASSIGN_OR_RETURN(buffer, constants_.Take(device, program.buffers[b].bytes(), /*small_numbers=*/true));
    }
    copy->Bind(static_cast<int>(b), buffer);
  }
  others_.push_back(std::move(copy));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Plan>> ColdCopies::MakePlan(int64_t runs, const std::vector<Launch>& before) {
  std::vector<Launch> launches;
  for (int64_t i = 0; i < runs; ++i) {
    const size_t which = static_cast<size_t>(i) % (others_.size() + 1);
    launches.insert(launches.end(), before.begin(), before.end());
    const std::vector<Launch> one = which == 0 ? first_->Launches() : others_[which - 1]->Launches();
    launches.insert(launches.end(), one.begin(), one.end());
  }
  return first_->device().MakePlan(std::move(launches));
}

// Buffers of a program that change together, and what their copies hold.
struct BuffersInTurns::Group {
  enum class Contents : uint8_t { kSmallNumbers, kTheSame, kAny };
  std::map<DeviceBuffer*, Contents> buffers;
  int64_t bytes = 0;

  void Add(DeviceBuffer* buffer, Contents contents) {
    if (buffers.emplace(buffer, contents).second) bytes += buffer->bytes();
  }
};

absl::StatusOr<BuffersInTurns> BuffersInTurns::Create(Executable& executable, SpareBuffers* spare) {
  using Contents = Group::Contents;
  BuffersInTurns turns(spare);
  // Only what the kernels read counts: of a packed weight the prepared buffer, and not the constant it is made from.
  const std::vector<Launch> launches = executable.Launches();
  Group constants, activations;
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t b = 0; b < buffers.size(); ++b) {
    DeviceBuffer* const buffer = executable.buffer(static_cast<int>(b));
    if (!IsArgument(launches, buffer)) continue;
    if (IsConstant(buffers[b]))
      constants.Add(buffer, HasFloats(buffers[b]) ? Contents::kSmallNumbers : Contents::kTheSame);
    else
      activations.Add(buffer, buffers[b].role == BufferRole::kInput ? Contents::kTheSame : Contents::kAny);
  }
  const int64_t of_constants =
      constants.bytes < kLeastTurnBytes ? 0 : std::clamp<int64_t>(kNetworkBytes / constants.bytes, 1, kMaxTurns);
  const int64_t of_activations =
      activations.bytes < kLeastTurnBytes ? 0 : std::clamp<int64_t>(kActivationBytes / activations.bytes, 2, kMaxTurns);
  std::vector<std::vector<Launch>> plans(std::max(of_constants, of_activations), launches);
  Device& device = executable.device();
  RETURN_IF_ERROR(turns.Rotate(device, constants, of_constants, plans));
  RETURN_IF_ERROR(turns.Rotate(device, activations, of_activations, plans));
  for (std::vector<Launch>& own : plans) {
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, device.MakePlan(std::move(own)));
    turns.plans_.push_back(std::move(plan));
  }
  return turns;
}

// Each buffer by itself, as a package has its constants: one large one would have larger pages, and would be read
// faster.
absl::Status BuffersInTurns::Rotate(Device& device, const Group& group, int64_t copies,
                                    std::vector<std::vector<Launch>>& plans) {
  for (int64_t i = 0; i < copies; ++i) {
    std::map<DeviceBuffer*, DeviceBuffer*> copy_of;
    for (const auto& [buffer, contents] : group.buffers) {
      ASSIGN_OR_RETURN(DeviceBuffer* const copy,
                       copies_.Take(device, buffer->bytes(), contents == Group::Contents::kSmallNumbers));
      if (contents == Group::Contents::kTheSame) RETURN_IF_ERROR(device.Copy(*copy, *buffer, buffer->bytes()));
      copy_of[buffer] = copy;
    }
    for (size_t p = static_cast<size_t>(i); p < plans.size(); p += static_cast<size_t>(copies))
      for (Launch& launch : plans[p])
        for (DeviceBuffer*& arg : launch.args)
          if (const auto found = copy_of.find(arg); found != copy_of.end()) arg = found->second;
  }
  return absl::OkStatus();
}

}  // namespace diapason
