// Where the launches of a plan have a buffer as an argument: what Plan::Redirect changes. No device is needed.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "compiler/runtime/device.h"

namespace diapason {

struct ArgumentPlace {
  size_t launch = 0, argument = 0;
  bool operator==(const ArgumentPlace&) const = default;
};

// The buffers of the launches must outlive it, since they are known by their addresses.
class ArgumentTable {
 public:
  ArgumentTable() = default;
  explicit ArgumentTable(const std::vector<Launch>& launches);

  // A launch that was not given has the buffer too. Nothing changes for a buffer without places.
  void Add(const DeviceBuffer& buffer, const ArgumentPlace& place);
  // In order. None for a buffer that no launch has, or that a call of a library has: such a call may hold what was made
  // of the address (a descriptor, a plan), and the kernels that it launches are not known.
  const std::vector<ArgumentPlace>& PlacesOf(const DeviceBuffer& buffer) const;

 private:
  std::map<const DeviceBuffer*, std::vector<ArgumentPlace>> places_;
};

}  // namespace diapason
