#include "cli/defaults.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/nearest.h"
#include "cli/config_file.h"
#include "cli/renamed.h"
#include "diapason/history.h"

namespace diapason {
namespace {

const std::vector<std::string>& CommonKeys() {
  static const auto* const keys = new std::vector<std::string>{"tracker", "service",  "history", "target", "token-file",
                                                               "tokens",  "tls-cert", "tls-key", "tls-ca"};
  return *keys;
}

std::string VariableOf(const std::string& key) {
  return absl::StrCat("DIAPASON_", absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{"-", "_"}})));
}

std::string Variable(const CliEnvironment& environment, const std::string& name) {
  return environment.variable ? environment.variable(name) : "";
}

std::vector<CLI::App*> CommandsBelow(CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void ForEachCommand(CLI::App& app, const std::function<void(CLI::App&)>& visit) {
  visit(app);
  for (CLI::App* command : CommandsBelow(app)) ForEachCommand(*command, visit);
}

CLI::Option* FlagOf(CLI::App& command, const std::string& key) { return command.get_option_no_throw("--" + key); }

// Flags with a value, which a default can be given for.
std::vector<std::string> KeysOf(CLI::App& command) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames())
      if (option->get_items_expected_max() > 0 && name != "config") keys.push_back(name);
  return keys;
}

bool IsPath(const CLI::Option& option) { return option.get_type_name() == "FILE" || option.get_type_name() == "DIR"; }

std::string ResolvePath(const std::string& value, const std::string& file, const CliEnvironment& environment) {
  if (api::IsDatabase(value)) return value;
  if (value.rfind("~/", 0) == 0) return Variable(environment, "HOME") + value.substr(1);
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return value.empty() ? value : (folder / value).string();  // an absolute one stays
}

absl::Status SetDefault(CLI::Option& option, const std::string& value, const std::string& source) {
  try {
    option.required(false)->default_val(value);
    if (api::IsDatabase(value)) option.default_str(api::HistoryName(value));  // what --help shows
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", absl::StrReplaceAll(error.what(), {{"\n", " "}})));
  }
  return absl::OkStatus();
}

// --config of the arguments; nothing when it is not there, or lacks its value (which the parser says).
std::optional<std::string> GivenConfig(const std::vector<std::string>& args) {
  const std::string flag = "--config";
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == flag && i + 1 < args.size()) return args[i + 1];
    if (args[i].rfind(flag + "=", 0) == 0) return args[i].substr(flag.size() + 1);
  }
  return std::nullopt;
}

absl::StatusOr<ConfigFile> FindConfig(const std::vector<std::string>& args, const CliEnvironment& environment) {
  if (const std::optional<std::string> given = GivenConfig(args)) return ReadConfigFile(*given);
  if (const std::string named = Variable(environment, "DIAPASON_CONFIG"); !named.empty()) return ReadConfigFile(named);
  std::string folder = Variable(environment, "XDG_CONFIG_HOME");
  if (const std::string home = Variable(environment, "HOME"); folder.empty() && !home.empty())
    folder = home + "/.config";
  const std::string path = folder + "/diapason.toml";
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(path, ignored)) return ConfigFile();
  return ReadConfigFile(path);
}

class Defaults {
 public:
  Defaults(CLI::App& app, const CliEnvironment& environment) : app_(app), environment_(environment) {}

  absl::Status Apply(const ConfigFile& file) {
    for (const ConfigFile::Entry& entry : file.entries)
      if (entry.command.empty()) RETURN_IF_ERROR(ApplyToAll(file, entry));
    for (const ConfigFile::Entry& entry : file.entries)
      if (!entry.command.empty()) RETURN_IF_ERROR(ApplyToOne(file, entry));
    for (const std::string& key : CommonKeys())
      if (const std::string value = Variable(environment_, VariableOf(key)); !value.empty())
        RETURN_IF_ERROR(SetEverywhere(key, value, VariableOf(key), ""));
    return absl::OkStatus();
  }

 private:
  static std::string SourceOf(const ConfigFile& file, const ConfigFile::Entry& entry) {
    return absl::StrCat(file.path, ", line ", entry.line);
  }

  // `file`: where a path comes from; empty: the environment.
  absl::Status SetEverywhere(const std::string& key, const std::string& value, const std::string& source,
                             const std::string& file) {
    absl::Status status;
    ForEachCommand(app_, [&](CLI::App& command) {
      CLI::Option* option = FlagOf(command, key);
      if (option == nullptr || !status.ok()) return;
      status = SetDefault(*option, file.empty() || !IsPath(*option) ? value : ResolvePath(value, file, environment_),
                          source);
    });
    return status;
  }

  absl::Status ApplyToAll(const ConfigFile& file, const ConfigFile::Entry& entry) {
    const std::vector<std::string>& keys = CommonKeys();
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end())
      return SetEverywhere(entry.key, entry.value, SourceOf(file, entry), file.path);
    return absl::InvalidArgumentError(absl::StrCat(SourceOf(file, entry), ": unknown key '", entry.key,
                                                   "': ", DidYouMean(entry.key, keys), "those of all commands are ",
                                                   absl::StrJoin(keys, ", "),
                                                   "; flags of one command stand in its section, as in [tune]"));
  }

  absl::Status ApplyToOne(const ConfigFile& file, const ConfigFile::Entry& entry) {
    CLI::App* command = &app_;
    for (const std::string& name : entry.command) {
      CLI::App* below = nullptr;
      std::vector<std::string> names;
      for (CLI::App* one : CommandsBelow(*command)) {
        names.push_back(one->get_name());
        if (one->get_name() == name) below = one;
      }
      if (below == nullptr)
        return absl::InvalidArgumentError(absl::StrCat(
            SourceOf(file, entry), ": there is no command '", absl::StrJoin(entry.command, " "), "' for the section [",
            absl::StrJoin(entry.command, "."), "]; ", DidYouMean(name, names), "`diapason --help` lists them"));
      command = below;
    }
    const std::string key = CurrentKey(entry.command, entry.key);
    const std::vector<std::string> keys = KeysOf(*command);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return absl::InvalidArgumentError(
          absl::StrCat(SourceOf(file, entry), ": `diapason ", absl::StrJoin(entry.command, " "), "` has no flag --",
                       entry.key, " that takes a value; ", DidYouMean(entry.key, keys), "its --help lists them"));
    CLI::Option& option = *FlagOf(*command, key);
    return SetDefault(option, IsPath(option) ? ResolvePath(entry.value, file.path, environment_) : entry.value,
                      SourceOf(file, entry));
  }

  CLI::App& app_;
  const CliEnvironment& environment_;
};

void AddConfigFlag(CLI::App& app) {
  ForEachCommand(app, [](CLI::App& command) {
    command.add_option("--config", "File with defaults of flags (default: ~/.config/diapason.toml, if it exists)")
        ->type_name("FILE");
  });
}

}  // namespace

absl::Status ApplyDefaults(CLI::App& app, const std::vector<std::string>& args, const CliEnvironment& environment) {
  AddConfigFlag(app);
  ASSIGN_OR_RETURN(const ConfigFile file, FindConfig(args, environment));
  return Defaults(app, environment).Apply(file);
}

absl::Status ChooseSource(const std::string& what, const CLI::Option* history, std::string* history_value,
                          const CLI::Option* service, std::string* service_value) {
  const bool typed_history = history->count() > 0, typed_service = service->count() > 0;
  if (typed_history && !typed_service) service_value->clear();
  if (typed_service && !typed_history) history_value->clear();
  if (history_value->empty() || service_value->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " reads one history; give either --history or --service"));
}

}  // namespace diapason
