// Commands with actions: `diapason history info`, `diapason records list`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "cli/command.h"
#include "cli/flags.h"

namespace diapason {

template <typename Flags>
struct Action {
  const char* name;
  const char* help;
  absl::Status (*body)(const Flags&, Session&);
};

// Adds an action with the flag --json. When the parser meets it, `chosen` becomes its body with the flags, which the
// actions of a command share.
template <typename Flags>
CLI::App* AddAction(CLI::App* command, CommandBody& chosen, const std::shared_ptr<Flags>& flags,
                    const std::type_identity_t<Action<Flags>>& added) {
  CLI::App* action = command->add_subcommand(added.name, added.help);
  AddJsonFlag(action, &flags->json);
  action->callback([&chosen, flags, body = added.body] {
    chosen = [flags, body](Session& session) { return body(*flags, session); };
  });
  return action;
}

}  // namespace diapason
