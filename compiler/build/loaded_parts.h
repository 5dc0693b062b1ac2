// What runners hold of programs and weights on a device, so that what several of them need is there once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/program.h"

namespace diapason {

// Constants, modules, and what prologues made of constants, of packages whose weights are the same: the plans of one
// package, or versions of a network that differ in schedules. A part is kept by the runners that have it, and is gone
// with the last of them. Used while loading only, by one thread at a time.
class LoadedParts {
 public:
  // Which program and constants a prepared buffer was made by.
  struct Source {
    int program = 0;                                     // of Number
    std::vector<std::pair<int64_t, int64_t>> constants;  // offsets and sizes in the weights
    bool operator<(const Source& other) const {
      return std::tie(program, constants) < std::tie(other.program, other.constants);
    }
  };

  // The constant at an offset of `weights`, copied to the device unless a runner holds it already.
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Constant(Device& device, std::string_view weights, int64_t offset,
                                                         int64_t bytes);
  // A number that identifies the program and those that are equal to it.
  int Number(const Program& program);
  // The module of a program; null: no runner holds one.
  std::shared_ptr<const Module> FindModule(int program) const;
  void KeepModule(int program, const std::shared_ptr<const Module>& module) { modules_[program] = module; }
  // By buffer of the program, null for those that are not prepared; empty: no runner holds all of them.
  std::vector<std::shared_ptr<DeviceBuffer>> FindPrepared(const Source& source) const;
  void KeepPrepared(const Source& source, const std::vector<std::shared_ptr<DeviceBuffer>>& buffers);

 private:
  using WeakBuffers = std::vector<std::pair<size_t, std::weak_ptr<DeviceBuffer>>>;  // by buffer of the program

  std::map<std::pair<int64_t, int64_t>, std::weak_ptr<DeviceBuffer>> constants_;  // by offset and size
  std::map<std::tuple<size_t, uint64_t, size_t>, int> programs_;  // by the size of their bytes and two hashes of these
  std::map<int, std::weak_ptr<const Module>> modules_;            // by program
  std::map<Source, WeakBuffers> prepared_;
};

}  // namespace diapason
