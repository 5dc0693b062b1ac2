#include "worker/process/device_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/process/verify.h"

namespace diapason {

int64_t References::Entry::input_bytes() const {
  int64_t total = 0;
  for (const auto& [stage, buffer] : inputs) total += buffer != nullptr ? buffer->bytes() : 0;
  return total;
}

int64_t References::Entry::output_bytes() const {
  int64_t total = 0;
  for (const Array& array : outputs) total += static_cast<int64_t>(array.data.size());
  return total;
}

void References::Use(const std::string& workload, const ComputeDag& dag, uint64_t seed) {
  dag_ = &dag;
  seed_ = seed;
  std::string key = std::to_string(seed) + ":" + workload;
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.emplace_front().key = std::move(key);
  }
}

absl::Status References::Fill(int stage, DeviceBuffer& to) {
  std::unique_ptr<DeviceBuffer>& kept = entries_.front().inputs[stage];
  if (kept == nullptr) {
    const Array input = RandomInput(*dag_, stage, seed_);
    const auto bytes = static_cast<int64_t>(input.data.size());
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> made = device_.Allocate(bytes);
    // Where there is no room for a second one, each candidate's is made anew.
    if (!made.ok()) return device_.CopyIn(to, input.data.data(), bytes);
    RETURN_IF_ERROR(device_.CopyIn(**made, input.data.data(), bytes));
    kept = *std::move(made);
  }
  return device_.Copy(to, *kept, kept->bytes());
}

bool References::Intact() {
  for (const auto& [stage, kept] : entries_.front().inputs) {
    if (kept == nullptr) continue;
    const Array made = RandomInput(*dag_, stage, seed_);
    std::vector<uint8_t> found(made.data.size());
    if (!device_.CopyOut(found.data(), *kept, static_cast<int64_t>(found.size())).ok() || found != made.data)
      return false;
  }
  return true;
}

void References::ForgetCurrent() {
  entries_.front().inputs.clear();
  entries_.front().outputs.clear();
}

void References::ForgetOthers() {
  if (entries_.size() > 1) entries_.erase(std::next(entries_.begin()), entries_.end());
}

void References::Shrink() {
  int64_t inputs = 0, outputs = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    inputs += it->input_bytes();
    outputs += it->output_bytes();
    if (it == entries_.begin() || (inputs <= most_input_bytes_ && outputs <= most_output_bytes_)) continue;
    entries_.erase(it, entries_.end());
    break;
  }
}

}  // namespace diapason
