// The hidden subcommands: what the program runs as when a worker starts it as a builder or runner process.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace diapason {

// The exit code of "internal-builder --fd N" or "internal-runner --fd N --target TEXT"; nothing for any other arguments.
std::optional<int> RunInternal(const std::vector<std::string>& args);

}  // namespace diapason
