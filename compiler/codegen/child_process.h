// A program run to its end, or to a deadline, in a process group of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

struct ProcessResult {
  int exit_code = 0;   // of an exit; 128 + signal where a signal ended it
  std::string output;  // stdout and stderr together, at most 1 MiB
};

// Runs argv[0] (searched in $PATH) with empty input and waits. Never leaves a process behind: past `timeout_seconds`
// its whole group is killed. Errors: NotFound when there is no such program, DeadlineExceeded, Unavailable when no process
// can be made. `output_path` is a file that may be overwritten with the output.
absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& argv, const std::string& output_path,
                                         double timeout_seconds);

// A fresh directory under $TMPDIR (or /tmp), removed with its contents by the destructor.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Create();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Unavailable, naming the path and the reason.
absl::Status WriteFile(const std::string& path, const std::string& contents);
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit = SIZE_MAX);

}  // namespace diapason
