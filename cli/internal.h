// The hidden subcommands: what the program runs as when it starts itself as a process that reads a model, builds or
// measures.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace diapason {

// The exit code of "internal-importer --fd N", "internal-builder --fd N" or "internal-runner --fd N --target TEXT";
// nothing for any other arguments.
std::optional<int> RunInternal(const std::vector<std::string>& args);

}  // namespace diapason
