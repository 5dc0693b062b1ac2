// The hidden subcommands of the program, which the library starts as processes of their own: they list devices, read
// models, build and measure. Every program that child processes are started from (SetProgram) calls this first.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace diapason::api {

// The exit code of "internal-devices", "internal-importer --fd N", "internal-builder --fd N" or "internal-runner --fd N
// --target TEXT"; nothing for any other arguments.
std::optional<int> RunInternal(const std::vector<std::string>& args);

}  // namespace diapason::api
