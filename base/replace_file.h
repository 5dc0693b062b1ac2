// Files that are written as a whole.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace diapason {

// Makes the file, or replaces the one that is there, by what `write` puts into the stream: under another name beside it
// first, so that nobody finds half of it, and a failure leaves what was there. Of a link, the file that it leads to is
// replaced. Pipes and devices are written directly.
// Errors: that of `write`; Unavailable "cannot write 'PATH' (REASON); ...".
absl::Status ReplaceFile(const std::string& path, const std::function<absl::Status(std::ostream&)>& write);

// AlreadyExists if there is a file that is neither empty nor begins with one of the marks: "'PATH' is there already and
// is no KIND; name another file". Pipes and devices pass.
absl::Status CheckReplaceable(const std::string& path, const std::string& kind,
                              const std::vector<std::string_view>& marks);

}  // namespace diapason
