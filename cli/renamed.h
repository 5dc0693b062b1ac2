// Names of commands and flags of the previous release that have changed. They are accepted for one release, with a
// warning, and neither help texts nor suggestions mention them.
#pragma once

#include <string>
#include <vector>

namespace diapason {

// A flag of `tune` and `submit` that they still have, hidden, since it adds to the value of another one.
inline constexpr char kFlushFlag[] = "--flush-l2";

struct CurrentArguments {
  std::vector<std::string> args;
  std::vector<std::string> warnings;  // one sentence for each name that was replaced
};

// The arguments, without the program's name, with the current names in place of old ones.
CurrentArguments ReplaceOldNames(const std::vector<std::string>& args);

// The current name of a flag in the section of `command` in a configuration file: "timeout" for {"jobs", "list"} and
// "give-up". Names have no dashes in front.
std::string CurrentKey(const std::vector<std::string>& command, const std::string& key);

}  // namespace diapason
