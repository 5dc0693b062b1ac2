// JSON that commands print with --json (base/document.h).
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "base/document.h"

namespace diapason {

void WriteDocument(std::ostream& out, const DocumentSchema& schema, const Json& fields);

// The document of an error, in place of the one that the command did not print: {"schema", "error",
// "code"}, the last one as absl::StatusCodeToString names it.
void WriteErrorDocument(std::ostream& out, absl::StatusCode code, const std::string& sentence);

}  // namespace diapason
