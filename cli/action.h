// Commands with actions: `diapason history info`, `diapason records list`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/status/status.h"
#include "cli/command.h"

namespace diapason {

// Adds an action with the flag --json. When the parser meets it, `chosen` becomes `body` with the flags, which the
// actions of a command share.
template <typename Flags>
CLI::App* AddAction(CLI::App* command, CommandBody& chosen, const std::shared_ptr<Flags>& flags, const char* name,
                    const char* help, absl::Status (*body)(const Flags&, Session&)) {
  CLI::App* action = command->add_subcommand(name, help);
  action->add_flag("--json", flags->json, "One JSON document instead of text");
  action->callback(
      [&chosen, flags, body] { chosen = [flags, body](Session& session) { return body(*flags, session); }; });
  return action;
}

}  // namespace diapason
