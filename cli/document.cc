#include "cli/document.h"

namespace diapason {

void WriteDocument(std::ostream& out, const DocumentSchema& schema, const Json& fields) {
  out << DocumentText(schema, fields);
}

void WriteErrorDocument(std::ostream& out, absl::StatusCode code, const std::string& sentence) {
  WriteDocument(out, {"error", 1}, {{"error", sentence}, {"code", absl::StatusCodeToString(code)}});
}

}  // namespace diapason
