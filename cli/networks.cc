// diapason networks: the built-in networks and their options.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "diapason/model.h"

namespace diapason {
namespace {

struct NetworksFlags {
  std::string name;
  bool json = false;
};

void PrintJson(std::ostream& out, const std::vector<api::BuiltinNetwork>& shown) {
  Json networks = Json::array();
  for (const api::BuiltinNetwork& network : shown) {
    Json options = Json::array();
    for (const api::NetworkOption& option : network.options) {
      options.push_back({{"name", option.name}, {"default", option.fallback}, {"help", option.help}});
    }
    networks.push_back({{"network", network.name}, {"help", network.help}, {"options", options}});
  }
  WriteDocument(out, {"networks", 2}, {{"networks", networks}});
}

void PrintText(std::ostream& out) {
  TextTable names({{"network"}, {"what it is"}});
  for (const api::BuiltinNetwork& network : api::Networks()) names.AddRow({network.name, network.help});
  out << names.ToString() << "\n`diapason networks NAME` lists the options of one\n";
}

void PrintOne(std::ostream& out, const api::BuiltinNetwork& network) {
  TextTable options({{"option"}, {"default", true}, {"meaning"}});
  for (const api::NetworkOption& option : network.options) options.AddRow({option.name, option.fallback, option.help});
  out << network.name << ": " << network.help << "\n\n"
      << options.ToString()
      << "\nGive options as --set NAME=VALUE; --batch, --layout, --dtype and --input-shape apply to all networks.\n";
}

absl::StatusOr<api::BuiltinNetwork> Find(const std::string& name) {
  std::vector<std::string> names;
  for (const api::BuiltinNetwork& network : api::Networks()) {
    if (network.name == name) return network;
    names.push_back(network.name);
  }
  return absl::NotFoundError(
      absl::StrCat("unknown network '", name, "': ", DidYouMean(name, names), "`diapason networks` lists them"));
}

absl::Status RunNetworks(const NetworksFlags& flags, Session& session) {
  std::vector<api::BuiltinNetwork> shown = api::Networks();
  if (!flags.name.empty()) {
    ASSIGN_OR_RETURN(const api::BuiltinNetwork network, Find(flags.name));
    shown = {network};
  }
  if (flags.json) {
    PrintJson(session.out, shown);
  } else if (flags.name.empty()) {
    PrintText(session.out);
  } else {
    PrintOne(session.out, shown.front());
  }
  return absl::OkStatus();
}

}  // namespace

void AddNetworks(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("networks", "List the built-in networks, or the options of one");
  auto flags = std::make_shared<NetworksFlags>();
  command->add_option("NAME", flags->name, "Network whose options are shown (default: all networks, without options)")
      ->type_name("");
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunNetworks(*flags, session); }; });
}

}  // namespace diapason
