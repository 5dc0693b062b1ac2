// Defaults of flags from the environment and from a configuration file (config_file.h), for flags that every command on
// a fleet needs.
//
// A flag that is typed wins over DIAPASON_<FLAG>, that over the section of the command in the file, and that over the
// top of the file. At the top and in the environment are --tracker, --service, --history, --target, --token-file,
// --tokens and --tls-cert, --tls-key, --tls-ca; a section may have any flag of its command that takes a value.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/cli.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
class Option;
}  // namespace CLI

namespace diapason {

// Adds --config to every command of `app`, and sets the defaults. Which file counts: --config of `args`,
// DIAPASON_CONFIG, $XDG_CONFIG_HOME/diapason.toml or ~/.config/diapason.toml, if there is one. Paths in it may begin
// with "~/"; those that are not absolute are relative to its folder. To be called when all commands are there, and
// before the arguments are parsed. InvalidArgument or NotFound names the file, the line or the variable, and what is
// wrong.
absl::Status ApplyDefaults(CLI::App& app, const std::vector<std::string>& args, const CliEnvironment& environment);

// Of a command that reads a history or asks a service: the one that was typed counts, whatever default the other has.
// InvalidArgument ("a build reads one history; ...") when both were, or both are defaults.
absl::Status ChooseSource(const std::string& what, const CLI::Option* history, std::string* history_value,
                          const CLI::Option* service, std::string* service_value);

}  // namespace diapason
