#include "cli/document.h"

#include "base/json.h"
#include "base/rfc3339.h"

namespace diapason {
namespace {

constexpr int kDocumentVersion = 1;  // of all documents, until one changes

}  // namespace

void WriteDocument(std::ostream& out, const std::string& name, const Json& fields) {
  Json document{{"schema", "diapason." + name + "/" + std::to_string(kDocumentVersion)}};
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
