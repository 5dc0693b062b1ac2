#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

extern char** environ;

namespace diapason {
namespace {

constexpr std::string_view kNames[] = {
    // the C library and shells
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
    "VIRTUAL_ENV", "CONDA_PREFIX",
    // C compilers, also behind ccache
    "CC", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCACHE_DIR",
    "CCACHE_CONFIGPATH", "CCACHE_DISABLE",
    // sanitizers
    "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"};
// Locales, drivers of devices, threads of libraries.
constexpr std::string_view kPrefixes[] = {"LC_",   "CUDA_", "NVIDIA_", "CUDNN_", "CUBLAS_",
                                          "POCL_", "OCL_",  "OPENCL_", "OMP_",   "GOMP_"};

}  // namespace

bool IsHarmlessVariable(const std::string& name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> CleanEnvironment(const EnvironmentVariables& changed, const std::vector<std::string>& keep) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('='));
    if (!IsHarmlessVariable(name) && std::find(keep.begin(), keep.end(), name) == keep.end()) continue;
    if (std::any_of(changed.begin(), changed.end(), [&](const auto& c) { return c.first == name; })) continue;
    result.push_back(text);
  }
  for (const auto& [name, value] : changed) result.push_back(name + "=" + value);
  return result;
}

std::vector<std::string> WholeEnvironment() {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) result.emplace_back(*variable);
  return result;
}

std::string FindOnPath(const std::string& name, const std::string& otherwise) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? otherwise : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    std::error_code ignored;
    if (access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file, ignored)) return file;
  }
  return "";
}

}  // namespace diapason
