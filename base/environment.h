// The environment variables that a process which we start gets.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace diapason {

using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

// Whether programs that we give to compilers and devices may see a variable of ours of that name: an allow-list of what
// compilers, drivers, sanitizers and the C library need (docs/fleet.md). Tokens, secrets of a shell, agents' sockets
// and LD_PRELOAD are not in it.
bool IsHarmlessVariable(const std::string& name);

// "NAME=value" of each harmless variable of ours and of those named in `keep`; `changed` takes the place of ours of
// that name.
std::vector<std::string> CleanEnvironment(const EnvironmentVariables& changed = {},
                                          const std::vector<std::string>& keep = {});

// All of ours: for programs that the user named and that need what he has set (sbatch, kubectl).
std::vector<std::string> WholeEnvironment();

// The program of that name in the folders of PATH, of `otherwise` where that is not set; empty if there is none.
std::string FindOnPath(const std::string& name, const std::string& otherwise = "");

}  // namespace diapason
