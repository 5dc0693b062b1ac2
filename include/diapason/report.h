// A history as one HTML file (docs/page.md). See model.h.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

struct ReportOptions {
  std::string history;
  std::string out;  // file to write; an existing report is replaced
  // Best records to include with loops, source and features, those of the slowest tasks first. Their schedules are
  // replayed in this process.
  int64_t details = 40;
  Hooks hooks;  // warn: each record that is without details, and why
};

struct Report {
  int64_t bytes = 0;  // size of the file
};

// Writes the page of `diapason ui` with all measurements to a file that needs no server and no network, whole or not at
// all. InvalidArgument: `details` is below 0; AlreadyExists: `out` is there and no such report, and stays; Unavailable:
// it cannot be written; Cancelled: hooks.stop became true. Other errors are those of History::Open.
absl::StatusOr<Report> WriteReport(const ReportOptions& options);

}  // namespace diapason::api
