#include "cli/version_text.h"

#include "absl/strings/str_cat.h"
#include "commit.h"  // written when it is built, by cmake/commit.cmake
#include "diapason/model.h"

namespace diapason {

std::string VersionText() {
  return absl::StrCat("diapason ", api::Version(), "\ncommit ", kCommit, "\nbuilt ", DIAPASON_BUILD_OPTIONS);
}

}  // namespace diapason
