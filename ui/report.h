// The page as one file that needs no network: to send to a colleague.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/json.h"

namespace diapason {

// The file's text. `data` is what live pages ask for: {"history": HistoryFeed::Snapshot(), "records": {ID: record}}.
// Scripts and style sheets are allowed by their hashes alone, and no address of any kind: whatever texts of the history
// hold, they are shown as text.
std::string ReportHtml(const Json& data);

// Writes it whole or not at all. AlreadyExists, and the file stays, when there is one that is no such report.
absl::Status WriteReport(const std::string& path, const std::string& html);

// As JSON between the tags of a script element: valid UTF-8 without "<", which could end the element.
std::string EmbeddedJson(const Json& json);

}  // namespace diapason
