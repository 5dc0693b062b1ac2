#include "cli/document.h"

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/rfc3339.h"

namespace diapason {

void WriteDocument(std::ostream& out, const DocumentSchema& schema, const Json& fields) {
  Json document{{"schema", absl::StrCat("diapason.", schema.name, "/", schema.version)}};
  document.update(fields);
  out << JsonText(document, {.indent = 2}) << "\n";
}

Json Instant(int64_t unix_nanoseconds) {
  if (unix_nanoseconds <= 0) return nullptr;
  return Rfc3339(unix_nanoseconds);
}

void WriteErrorDocument(std::ostream& out, const std::string& sentence) {
  WriteDocument(out, {"error", 1}, {{"error", sentence}});
}

}  // namespace diapason
