// Where tests find what they need beside their own program, and what a machine may lack. On the machine that built them
// these are the paths that CMake passes; from a bundle (deploy/bundle.sh --tests) bench/gpu_tests.sh names others in
// the environment.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace diapason {

inline std::string FromEnvironmentOr(const char* variable, const char* built_in) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : built_in;
}

// TEST_PATH(DIAPASON_PROGRAM): the environment variable of that name, or what CMake defined.
#define TEST_PATH(name) ::diapason::FromEnvironmentOr(#name, name)

// True if the environment says that this machine is not expected to have it: "opencl", "bubblewrap" (and "pyyaml", in
// Python). Cases that need it are skipped then; where the tests of a change run it must be there, and they fail.
inline bool MayLack(const std::string& what) {
  std::istringstream words(FromEnvironmentOr("DIAPASON_TEST_MAY_LACK", ""));
  for (std::string word; words >> word;)
    if (word == what) return true;
  return false;
}

}  // namespace diapason
