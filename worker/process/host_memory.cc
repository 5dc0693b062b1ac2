#include "worker/process/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace diapason {
namespace {

constexpr int64_t kLeast = int64_t{1} << 30;

// A limit of a control group; `otherwise` where there is none ("max", no such file).
int64_t ReadLimit(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : otherwise;
}

// The limits of this process's group in version 2 and of all above it.
int64_t GroupLimit(int64_t most) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    for (std::string group = line.substr(3); !group.empty(); group.resize(group.rfind('/')))
      most = std::min(most, ReadLimit("/sys/fs/cgroup" + group + "/memory.max", most));
  }
  most = std::min(most, ReadLimit("/sys/fs/cgroup/memory.max", most));
  return std::min(most, ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes", most));
}

}  // namespace

int64_t HostMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const int64_t host = pages > 0 && page > 0 ? pages * page : kLeast;
  return std::max(kLeast, GroupLimit(host));
}

}  // namespace diapason
