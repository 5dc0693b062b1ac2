#include "db/copy.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/json_lines.h"
#include "db/trials.h"

namespace diapason {
namespace {

// A file without a name, so that nothing is left of it.
absl::StatusOr<std::fstream> Scratch() {
  std::error_code ignored;
  std::string name = (std::filesystem::temp_directory_path(ignored) / "diapason-copy-XXXXXX").string();
  const int fd = mkstemp(name.data());
  std::fstream file;
  if (fd >= 0) file.open(name, std::ios::in | std::ios::out | std::ios::binary);
  if (fd >= 0) close(fd);
  if (fd >= 0) unlink(name.c_str());
  if (fd >= 0 && file.is_open()) return file;
  return absl::PermissionDeniedError(absl::StrCat("no temporary file can be made in ",
                                                  std::filesystem::temp_directory_path(ignored).string(),
                                                  "; name another folder with TMPDIR"));
}

}  // namespace

absl::StatusOr<CopyReport> CopyHistory(History& from, History& to) {
  ASSIGN_OR_RETURN(std::fstream lines, Scratch());
  RETURN_IF_ERROR(ExportJson(from, lines).status());
  lines.seekg(0);
  CopyReport report;
  ASSIGN_OR_RETURN(report.records, ImportJson(to, lines, from.path()));
  ASSIGN_OR_RETURN(const std::vector<NetworkLatency> latencies, TrialLog(from).Latencies());
  for (const NetworkLatency& latency : latencies) {
    ASSIGN_OR_RETURN(const std::optional<NetworkLatency> known,
                     to.Latency(latency.network, latency.target, latency.device_model));
    if (known.has_value() && known->measured_at >= latency.measured_at) continue;
    RETURN_IF_ERROR(to.SetLatency(latency));
    ++report.latencies;
  }
  return report;
}

}  // namespace diapason
