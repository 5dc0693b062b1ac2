#include "cli/version_text.h"

#include "absl/strings/str_cat.h"
#include "api/version.h"
#include "commit.h"  // written when it is built, by cmake/commit.cmake

namespace diapason {

std::string VersionText() {
  return absl::StrCat("diapason ", kVersion, "\ncommit ", kCommit, "\nbuilt ", DIAPASON_BUILD_OPTIONS);
}

}  // namespace diapason
