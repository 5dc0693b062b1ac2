// Inputs and outputs of a package in memory of the caller: read and written there by the launches of a plan
// (Plan::Redirect), or, where that could give other results, copied around the run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/build/package_format.h"
#include "compiler/runtime/address_ranges.h"
#include "compiler/runtime/device.h"

namespace diapason {

// By tensor of the manifest: whether it is one input, or one output that steps compute, and no other input or output.
// A tensor that is both, or several of them, would have to be in several places; an output that is a constant or an
// input is written by no launch.
std::vector<bool> TensorsOfOnePort(const PackageManifest& manifest);

// An input or output for one run.
struct CallerPort {
  AddressRange memory;   // of the caller; empty: the runner's own is used
  bool written = false;  // an output
  bool movable = false;  // its tensor is that of this port alone, and Plan::CanRedirect
};

// Which of the ports the launches can use in the caller's memory. The others are copied: those that cannot be moved,
// that start at no multiple of kParameterAlignment, that lie in the runner's `own` memory (as Merged gives it), where a
// run writes what it likes when it likes, and outputs that overlap another port's memory, since launches read inputs
// after others have written outputs, and write outputs in any order. Inputs may overlap each other, and outputs that
// are copied, which is done at the end.
std::vector<bool> UsableInPlace(absl::Span<const CallerPort> ports, absl::Span<const AddressRange> own);

// Where the inputs and outputs of one plan are for the runs to come. One thread at a time.
class PortMemory {
 public:
  // `tensors`: by tensor of the manifest, null where there is none. `launches`: those of `plan`, which this reads here
  // alone; device and plan outlive it, and the buffers.
  PortMemory(const PackageManifest& manifest, Device& device, Plan& plan,
             const std::vector<std::shared_ptr<DeviceBuffer>>& tensors, const std::vector<Launch>& launches);

  // For each input and output of the manifest memory of the caller, or null for the runner's own; an empty list is one
  // of nulls. Does nothing where all is as it was. Errors as Plan::Redirect; then it must be called again before a run.
  absl::Status Use(absl::Span<void* const> inputs, absl::Span<void* const> outputs);
  // What has to be copied before a run and behind it.
  absl::Status CopyIn(void* stream);
  absl::Status CopyOut(void* stream);
  // Of the last Use, in order of inputs and outputs: read or written in place.
  const std::vector<bool>& in_place() const { return in_place_; }

 private:
  struct Port {
    DeviceBuffer* buffer = nullptr;
    bool written = false, movable = false;
    void* caller = nullptr;               // as given; null: own memory
    void* address = nullptr;              // that launches have
    std::unique_ptr<DeviceBuffer> other;  // the caller's memory where it is copied
  };
  void* Own(const Port& port) const { return device_.AddressOf(*port.buffer); }
  AddressRange RangeOf(const void* address, int64_t bytes) const;
  void AddPort(DeviceBuffer* buffer, bool written, bool alone);
  // What Use was given for a port; null: nothing.
  void* Given(size_t port, absl::Span<void* const> inputs, absl::Span<void* const> outputs) const;
  bool IsAsGiven(absl::Span<void* const> inputs, absl::Span<void* const> outputs) const;

  Device& device_;
  Plan& plan_;
  size_t inputs_ = 0;  // of ports_, which come first
  std::vector<Port> ports_;
  std::vector<AddressRange> own_;
  std::vector<bool> in_place_;
  bool known_ = true;  // false: a redirection failed
};

}  // namespace diapason
