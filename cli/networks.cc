// diapason networks: the built-in networks and their options.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/table.h"
#include "compiler/graph/builtin.h"

namespace diapason {
namespace {

void PrintJson(std::ostream& out) {
  nlohmann::ordered_json networks = nlohmann::ordered_json::array();
  for (const BuiltinInfo& network : BuiltinNetworks()) {
    nlohmann::ordered_json options = nlohmann::ordered_json::array();
    for (const BuiltinOption& option : network.options) {
      options.push_back({{"name", option.name}, {"default", option.fallback}, {"help", option.help}});
    }
    networks.push_back({{"name", network.name}, {"help", network.help}, {"options", options}});
  }
  out << nlohmann::ordered_json{{"networks", networks}}.dump(2) << "\n";
}

// One line an option; networks that share it, with its default, share the line.
TextTable OptionsTable() {
  std::vector<std::pair<BuiltinOption, std::vector<std::string>>> shared;
  for (const BuiltinInfo& network : BuiltinNetworks()) {
    for (const BuiltinOption& option : network.options) {
      auto same = std::find_if(shared.begin(), shared.end(), [&](const auto& other) {
        return other.first.name == option.name && other.first.fallback == option.fallback && other.first.help == option.help;
      });
      if (same == shared.end()) same = shared.insert(shared.end(), {option, {}});
      same->second.push_back(network.name);
    }
  }
  TextTable table({{"option"}, {"default", true}, {"meaning"}, {"of"}});
  for (const auto& [option, networks] : shared) {
    const bool all = networks.size() == BuiltinNetworks().size();
    const bool many = networks.size() > 3;
    table.AddRow({option.name, option.fallback, option.help,
                  all ? "all" : many ? absl::StrCat(networks.front(), " to ", networks.back()) : absl::StrJoin(networks, ", ")});
  }
  return table;
}

void PrintText(std::ostream& out) {
  TextTable names({{"network"}, {"what it is"}});
  for (const BuiltinInfo& network : BuiltinNetworks()) names.AddRow({network.name, network.help});
  out << names.ToString() << "\n"
      << OptionsTable().ToString() << "\nGive options as --set NAME=VALUE; all networks take --batch, --layout, --dtype and "
      << "--input-shape too.\n";
}

}  // namespace

void AddNetworks(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("networks", "List the built-in networks and their options");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON document instead of text");
  command->callback([&chosen, json] {
    chosen = [json](Session& session) {
      *json ? PrintJson(session.out) : PrintText(session.out);
      return absl::OkStatus();
    };
  });
}

}  // namespace diapason
