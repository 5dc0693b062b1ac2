// Files of ready-made records: JSON lines (docs/history.md) of what was measured elsewhere, such as those that come
// with Diapason. Builds look at them after histories (BuildOptions), searches begin with them. See model.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/history.h"

namespace diapason::api {

// The records of one target and device in one file.
struct RecordGroup {
  std::string file, target, device;
  int64_t record_count = 0, workload_count = 0;
  std::vector<std::string> networks, versions;  // that they are part of, and of the programs that measured
  int64_t first_at = 0, last_at = 0;            // Unix time in nanoseconds of the oldest and newest record
};

// Of `files`, or where there are none of those that come with Diapason; "cuda" matches "cuda -arch=sm_90" too, an empty
// target all. InvalidArgument: a target that does not parse, a damaged line; NotFound: a file, or that no records come
// with this program.
absl::StatusOr<std::vector<RecordGroup>> ListRecords(const std::vector<std::string>& files = {},
                                                     const std::string& target = "");

struct RecordProblems {
  int64_t record_count = 0, file_count = 0;
  std::vector<std::string> problems;  // one sentence each
  bool ok() const { return problems.empty(); }
};
// Reads the files as ListRecords does, replays and lowers each schedule; nothing is run. Whether records name hosts is
// checked as well. Errors: a file that cannot be read.
absl::StatusOr<RecordProblems> CheckRecords(const std::vector<std::string>& files = {});

struct RecordsToAdd {
  std::string history;
  std::string out;                    // file to make or to add to
  std::string target;                 // only records of it, as ListRecords; empty: all
  std::vector<std::string> networks;  // only their tasks; empty: all
  int64_t keep = 2;                   // of each workload, target and device, in the file as well
};
struct AddedRecords {
  int64_t record_count = 0;  // that the file has now
  int64_t added = 0;
};
// Puts the best verified records of a history into a file, without hosts and command lines. InvalidArgument: `keep` is
// below 1, a target that does not parse, a damaged file; NotFound: the history, or a network that it has no record of;
// PermissionDenied: the file cannot be written. After an error the file is as it was.
absl::StatusOr<AddedRecords> AddRecords(const RecordsToAdd& options);

}  // namespace diapason::api
