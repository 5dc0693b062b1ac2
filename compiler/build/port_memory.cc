#include "compiler/build/port_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

// Outputs that share memory with another port: a sweep over all of them in order of their starts.
std::vector<bool> OutputsThatOverlap(absl::Span<const CallerPort> ports) {
  std::vector<size_t> order;
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].memory.begin < ports[i].memory.end) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return ports[a].memory.begin < ports[b].memory.begin; });
  std::vector<bool> overlap(ports.size(), false);
  std::vector<size_t> open;  // outputs that reach beyond the start of the next
  uint64_t end = 0;          // of all before it
  for (const size_t i : order) {
    const AddressRange& memory = ports[i].memory;
    std::erase_if(open, [&](size_t output) { return ports[output].memory.end <= memory.begin; });
    for (const size_t output : open) overlap[output] = true;
    if (ports[i].written) {
      overlap[i] = end > memory.begin;
      open.push_back(i);
    }
    end = std::max(end, memory.end);
  }
  return overlap;
}

}  // namespace

std::vector<bool> TensorsOfOnePort(const PackageManifest& manifest) {
  std::vector<int> ports(manifest.tensors.size(), 0);
  for (const auto* list : {&manifest.inputs, &manifest.outputs})
    for (const PackagePort& port : *list) ++ports[port.tensor];
  std::vector<bool> alone(manifest.tensors.size(), false);
  for (const PackagePort& port : manifest.inputs)
    alone[port.tensor] = ports[port.tensor] == 1 && manifest.tensors[port.tensor].place == PackageTensor::Place::kInput;
  for (const PackagePort& port : manifest.outputs)
    alone[port.tensor] = ports[port.tensor] == 1 && manifest.tensors[port.tensor].place == PackageTensor::Place::kArena;
  return alone;
}

std::vector<bool> UsableInPlace(absl::Span<const CallerPort> ports, absl::Span<const AddressRange> own) {
  const std::vector<bool> overlap = OutputsThatOverlap(ports);
  std::vector<bool> usable(ports.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    const AddressRange& memory = ports[i].memory;
    usable[i] = memory.begin < memory.end && ports[i].movable && memory.begin % kParameterAlignment == 0 &&
                !overlap[i] && !Overlaps(memory, own);
  }
  return usable;
}

PortMemory::PortMemory(const PackageManifest& manifest, Device& device, Plan& plan,
                       const std::vector<std::shared_ptr<DeviceBuffer>>& tensors, const std::vector<Launch>& launches)
    : device_(device), plan_(plan), inputs_(manifest.inputs.size()) {
  const std::vector<bool> alone = TensorsOfOnePort(manifest);
  for (const PackagePort& port : manifest.inputs) AddPort(tensors[port.tensor].get(), false, alone[port.tensor]);
  for (const PackagePort& port : manifest.outputs) AddPort(tensors[port.tensor].get(), true, alone[port.tensor]);
  in_place_.resize(ports_.size(), false);
  std::vector<AddressRange> own;
  for (const auto& tensor : tensors)
    if (tensor != nullptr) own.push_back(RangeOf(device_.AddressOf(*tensor), tensor->bytes()));
  for (const Launch& launch : launches)
    for (const DeviceBuffer* arg : launch.args) own.push_back(RangeOf(device_.AddressOf(*arg), arg->bytes()));
  own_ = Merged(std::move(own));
}

void PortMemory::AddPort(DeviceBuffer* buffer, bool written, bool alone) {
  DIAPASON_CHECK(buffer != nullptr);
  Port& port = ports_.emplace_back();
  port.buffer = buffer;
  port.written = written;
  port.movable = alone && plan_.CanRedirect(*buffer);
  port.address = Own(port);
}

AddressRange PortMemory::RangeOf(const void* address, int64_t bytes) const {
  const auto begin = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address));
  return {begin, begin + static_cast<uint64_t>(bytes)};
}

void* PortMemory::Given(size_t port, absl::Span<void* const> inputs, absl::Span<void* const> outputs) const {
  const bool input = port < inputs_;
  const absl::Span<void* const> list = input ? inputs : outputs;
  return list.empty() ? nullptr : list[input ? port : port - inputs_];
}

bool PortMemory::IsAsGiven(absl::Span<void* const> inputs, absl::Span<void* const> outputs) const {
  for (size_t i = 0; i < ports_.size(); ++i)
    if (Given(i, inputs, outputs) != ports_[i].caller) return false;
  return true;
}

absl::Status PortMemory::Use(absl::Span<void* const> inputs, absl::Span<void* const> outputs) {
  DIAPASON_CHECK(inputs.empty() || inputs.size() == inputs_);
  DIAPASON_CHECK(outputs.empty() || outputs.size() == ports_.size() - inputs_);
  if (known_ && IsAsGiven(inputs, outputs)) return absl::OkStatus();
  std::vector<CallerPort> callers;
  for (size_t i = 0; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    port.caller = Given(i, inputs, outputs);
    CallerPort& caller = callers.emplace_back(CallerPort{{}, port.written, port.movable});
    if (port.caller != nullptr && port.caller != Own(port)) caller.memory = RangeOf(port.caller, port.buffer->bytes());
  }
  in_place_ = UsableInPlace(callers, own_);
  std::vector<Redirection> redirections;
  for (size_t i = 0; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    void* const address = in_place_[i] ? port.caller : Own(port);
    if (address != port.address || !known_)
      if (port.movable) redirections.push_back({port.buffer, address});
    port.address = address;
    const bool copied = !in_place_[i] && callers[i].memory.begin < callers[i].memory.end;
    port.other = copied ? device_.Wrap(port.caller, port.buffer->bytes()) : nullptr;
  }
  known_ = false;
  if (!redirections.empty()) RETURN_IF_ERROR(plan_.Redirect(redirections));
  known_ = true;
  return absl::OkStatus();
}

absl::Status PortMemory::CopyIn(void* stream) {
  for (size_t i = 0; i < inputs_; ++i) {
    Port& port = ports_[i];
    if (port.other != nullptr) RETURN_IF_ERROR(device_.CopyOn(stream, *port.buffer, *port.other, port.buffer->bytes()));
  }
  return absl::OkStatus();
}

absl::Status PortMemory::CopyOut(void* stream) {
  for (size_t i = inputs_; i < ports_.size(); ++i) {
    Port& port = ports_[i];
    if (port.other != nullptr) RETURN_IF_ERROR(device_.CopyOn(stream, *port.other, *port.buffer, port.buffer->bytes()));
  }
  return absl::OkStatus();
}

}  // namespace diapason
