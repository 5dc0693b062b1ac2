#include "compiler/build/loaded_parts.h"

#include <functional>
#include <string>

#include "base/check.h"
#include "compiler/build/package_files.h"

namespace diapason {

absl::StatusOr<std::shared_ptr<DeviceBuffer>> LoadedParts::Constant(Device& device, std::string_view weights,
                                                                    int64_t offset, int64_t bytes) {
  std::weak_ptr<DeviceBuffer>& known = constants_[{offset, bytes}];
  if (std::shared_ptr<DeviceBuffer> there = known.lock(); there != nullptr) return there;
  ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> made, device.Allocate(bytes));
  RETURN_IF_ERROR(device.CopyIn(*made, weights.data() + offset, bytes));
  known = made;
  return made;
}

int LoadedParts::Number(const Program& program) {
  const std::string bytes = SerializeProgram(program);
  return programs_
      .try_emplace({bytes.size(), ChecksumOfBytes(bytes), std::hash<std::string>()(bytes)},
                   static_cast<int>(programs_.size()))
      .first->second;
}

std::shared_ptr<const Module> LoadedParts::FindModule(int program) const {
  const auto found = modules_.find(program);
  return found == modules_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<DeviceBuffer>> LoadedParts::FindPrepared(const Source& source) const {
  const auto found = prepared_.find(source);
  if (found == prepared_.end()) return {};
  std::vector<std::shared_ptr<DeviceBuffer>> buffers;
  for (const auto& [index, known] : found->second) {
    buffers.resize(index + 1);
    buffers[index] = known.lock();
    if (buffers[index] == nullptr) return {};
  }
  return buffers;
}

void LoadedParts::KeepPrepared(const Source& source, const std::vector<std::shared_ptr<DeviceBuffer>>& buffers) {
  WeakBuffers& kept = prepared_[source];
  kept.clear();
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i] != nullptr) kept.emplace_back(i, buffers[i]);
}

}  // namespace diapason
