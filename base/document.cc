#include "base/document.h"

#include "base/rfc3339.h"

namespace diapason {

std::string DocumentText(const DocumentSchema& schema, const Json& fields) {
  Json document{{"schema", std::string("diapason.") + schema.name + "/" + std::to_string(schema.version)}};
  document.update(fields);
  return JsonText(document, {.indent = 2}) + "\n";
}

Json Instant(int64_t unix_nanoseconds) {
  if (unix_nanoseconds <= 0) return nullptr;
  return Rfc3339(unix_nanoseconds);
}

}  // namespace diapason
