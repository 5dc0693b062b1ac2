#include "cli/document.h"

#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/rfc3339.h"

namespace diapason {
namespace {

// Documents of a later version than 1.
constexpr std::pair<std::string_view, int> kVersions[] = {
    {"build", 2},
    {"devices", 2},
    {"explanation", 2},
    {"fleet", 2},
    {"history_check", 2},
    {"history_export", 2},
    {"history_info", 2},
    {"job", 2},
    {"jobs", 2},
    {"networks", 2},
    {"package", 2},
    {"profile", 2},
    {"record_files", 2},
    {"record_files_add", 2},
    {"record_files_check", 2},
    {"records", 2},
    {"run", 2},
    {"tasks", 2},
    {"tune", 2},
};

int VersionOf(std::string_view document) {
  for (const auto& [name, version] : kVersions)
    if (name == document) return version;
  return 1;
}

}  // namespace

void WriteDocument(std::ostream& out, const std::string& name, const Json& fields) {
  Json document{{"schema", "diapason." + name + "/" + std::to_string(VersionOf(name))}};
  document.update(fields);
  out << JsonText(document, {.indent = 2}) << "\n";
}

Json Instant(int64_t unix_nanoseconds) {
  if (unix_nanoseconds <= 0) return nullptr;
  return Rfc3339(unix_nanoseconds);
}

void WriteErrorDocument(std::ostream& out, const std::string& sentence) {
  WriteDocument(out, "error", {{"error", sentence}});
}

}  // namespace diapason
