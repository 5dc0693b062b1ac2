#include "compiler/runtime/cold_copies.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

// What the weights are does not change how long a kernel takes, unless they make denormals: small numbers, without a
// prologue. 0x3c3c3c3c is 0.0115 as float32, 0x3c3c is 1.06 as float16.
constexpr uint8_t kSmallNumber = 0x3c;

bool IsConstant(const ProgramBuffer& buffer) {
  const bool floats = buffer.dtype == DType::kFloat32 || IsNarrowFloat(buffer.dtype);
  return floats && (buffer.role == BufferRole::kConstant || buffer.role == BufferRole::kPrepared);
}

// The instruction caches nearest to the multiprocessors hold 128 KiB; cubins hold tables beside code.
constexpr int64_t kCodeBytes = 512 << 10, kMaxCodeCopies = 32;
// Constants below this stay in the L2 cache beside a network's activations.
constexpr int64_t kLeastConstantBytes = 1 << 20;

int64_t CodeCopies(Executable& executable) {
  int64_t bytes = 0;
  for (const ProgramBuffer& buffer : executable.program().buffers)
    if (IsConstant(buffer)) bytes += buffer.bytes();
  int64_t wanted = kCodeBytes / std::max<int64_t>(1, static_cast<int64_t>(executable.program().binary.size()));
  if (bytes >= kLeastConstantBytes)
    wanted = std::max(wanted, 3 * executable.device().facts().l2_bytes / (2 * bytes) + 1);
  return std::clamp<int64_t>(wanted, 1, kMaxCodeCopies);
}

// ResNet-18's weights are 45 MiB, and up to four times that in the Winograd form.
constexpr int64_t kNetworkBytes = 64 << 20;
// Smaller ones are read in a microsecond or two from wherever they are.
constexpr int64_t kLeastTurnBytes = 64 << 10;
constexpr int64_t kMaxTurns = 512;

}  // namespace

absl::StatusOr<ColdCopies> ColdCopies::Create(Executable& executable) {
  ColdCopies copies(executable);
  const int64_t wanted = CodeCopies(executable);
  for (int64_t i = 1; i < wanted; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Executable> copy, Executable::Create(executable.device(), executable.program()));
    const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
    for (size_t b = 0; b < buffers.size(); ++b)
      if (!IsConstant(buffers[b])) copy->Bind(static_cast<int>(b), executable.buffer(static_cast<int>(b)));
    RETURN_IF_ERROR(copy->AllocateRest());
    for (size_t b = 0; b < buffers.size(); ++b)
      if (IsConstant(buffers[b]))
        RETURN_IF_ERROR(copy->device().Fill(*copy->buffer(static_cast<int>(b)), kSmallNumber));
    copies.others_.push_back(std::move(copy));
  }
  return copies;
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

SmallNumbers::SmallNumbers(Device& device, int64_t most_bytes) : BufferPool(device, most_bytes, kSmallNumber) {}

ConstantsInTurns::~ConstantsInTurns() {
  plans_.clear();
  if (kept_ == nullptr) return;
  for (std::unique_ptr<DeviceBuffer>& buffer : buffers_) kept_->Give(std::move(buffer));
}

absl::StatusOr<ConstantsInTurns> ConstantsInTurns::Create(Executable& executable, SmallNumbers* kept) {
  ConstantsInTurns turns(kept);
  // Only what the kernels read counts: of a packed weight the prepared buffer, and not the constant it is made from.
  const std::vector<Launch> launches = executable.Launches();
  std::set<DeviceBuffer*> constants;
  int64_t bytes = 0;
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t b = 0; b < buffers.size(); ++b) {
    DeviceBuffer* const buffer = executable.buffer(static_cast<int>(b));
    const bool read = std::any_of(launches.begin(), launches.end(), [&](const Launch& launch) {
      return std::find(launch.args.begin(), launch.args.end(), buffer) != launch.args.end();
    });
    if (read && IsConstant(buffers[b]) && constants.insert(buffer).second) bytes += buffers[b].bytes();
  }
  if (bytes < kLeastTurnBytes) return turns;
  const int64_t copies = std::clamp<int64_t>(kNetworkBytes / bytes, 1, kMaxTurns);
  for (int64_t i = 0; i < copies; ++i) RETURN_IF_ERROR(turns.AddCopy(executable.device(), launches, constants));
  return turns;
}

// Each buffer by itself, as a package has them: one large one would have larger pages, and would be read faster.
absl::Status ConstantsInTurns::AddCopy(Device& device, std::vector<Launch> launches,
                                       const std::set<DeviceBuffer*>& constants) {
  std::map<DeviceBuffer*, DeviceBuffer*> copy_of;
  for (DeviceBuffer* const buffer : constants) {
    SmallNumbers own(device, 0);
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> copy, (kept_ != nullptr ? *kept_ : own).Take(buffer->bytes()));
    copy_of[buffer] = copy.get();
    buffers_.push_back(std::move(copy));
  }
  for (Launch& launch : launches)
    for (DeviceBuffer*& arg : launch.args)
      if (const auto found = copy_of.find(arg); found != copy_of.end()) arg = found->second;
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, device.MakePlan(std::move(launches)));
  plans_.push_back(std::move(plan));
  return absl::OkStatus();
}

}  // namespace diapason
