// The configuration file: defaults of flags, in TOML.
//
//   tracker = "10.0.0.1:9190"            # of every command that has --tracker
//   token-file = "~/.config/diapason.token"
//   [tune]                               # of one command
//   seconds = 600
//   [fleet.status]
//   wait-timeout = 20
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

struct ConfigFile {
  struct Entry {
    std::vector<std::string> command;  // "fleet", "status"; empty: at the top
    std::string key;                   // of a flag, without dashes
    std::string value;                 // as the flag takes it
    int line = 0;
  };
  std::string path;
  std::vector<Entry> entries;  // by their lines
};

// NotFound for a file that cannot be read; InvalidArgument, with the line, for what is no TOML, and for values that are
// neither text nor numbers.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

}  // namespace diapason
