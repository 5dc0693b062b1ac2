// diapason completion and man: what shells and readers of manuals want to know of the commands, out of their option
// tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "diapason/model.h"

namespace diapason {
namespace {

struct OptionFacts {
  std::vector<std::string> names;  // "--target", "-h"; the argument's own name where it is positional
  bool positional = false, takes_value = false, required = false;
  std::string value;                 // "DIR"; may be empty
  std::vector<std::string> choices;  // of its value, where they are a list
  std::string help;
};

struct CommandFacts {
  std::string path;  // "diapason history check"
  std::string help, footer;
  std::vector<OptionFacts> options;                              // as the help lists them, without hidden ones
  std::vector<std::pair<std::string, std::string>> subcommands;  // with their help
};

// Lists of choices are in the type, as "TEXT:{a,b}".
void ReadType(const std::string& type, OptionFacts& facts) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close)
    facts.choices = absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  facts.value = type.substr(0, type.find_first_of(":{ "));
}

OptionFacts FactsOf(const CLI::Option& option) {
  OptionFacts facts;
  facts.positional = option.get_positional();
  if (facts.positional) facts.names.push_back(option.get_name());
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  facts.takes_value = option.get_type_size_max() > 0;
  facts.required = option.get_required();
  if (facts.takes_value) ReadType(option.get_type_name(), facts);
  facts.help = option.get_description();
  if (facts.positional && facts.names[0] == "MODEL")
    for (const api::BuiltinNetwork& network : api::Networks()) facts.choices.push_back(network.name);
  return facts;
}

void Collect(const CLI::App& command, const std::string& path, std::vector<CommandFacts>& all) {
  CommandFacts facts{path, command.get_description(), command.get_footer(), {}, {}};
  for (const CLI::Option* option : command.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
    facts.options.push_back(FactsOf(*option));
  const std::vector<const CLI::App*> subcommands =
      command.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
  for (const CLI::App* one : subcommands) facts.subcommands.emplace_back(one->get_name(), one->get_description());
  all.push_back(std::move(facts));
  for (const CLI::App* one : subcommands) Collect(*one, absl::StrCat(path, " ", one->get_name()), all);
}

std::vector<CommandFacts> Commands(const CLI::App& app) {
  std::vector<CommandFacts> all;
  Collect(app, "diapason", all);
  return all;
}

// In single quotes of a POSIX shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// "a|b": patterns of a case.
std::string Patterns(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(Quoted(word));
  return absl::StrJoin(quoted, " | ");
}

std::vector<std::string> PathsBelow(const std::vector<CommandFacts>& commands) {
  std::vector<std::string> paths;
  for (const CommandFacts& command : commands)
    if (command.path != "diapason") paths.push_back(command.path);
  return paths;
}

std::string Bash(const std::vector<CommandFacts>& commands) {
  std::string text =
      "# bash completion for diapason, written by `diapason completion bash`\n"
      "_diapason() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} path=diapason words= options= i\n"
      "  [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
      "  [[ $cur == '=' ]] && prev=${COMP_WORDS[COMP_CWORD - 1]} cur=\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$path ${COMP_WORDS[i]}\" in\n";
  absl::StrAppend(&text, "      ", Patterns(PathsBelow(commands)),
                  ") path=\"$path ${COMP_WORDS[i]}\" ;;\n    esac\n  done\n  case \"$path $prev\" in\n");
  for (const CommandFacts& command : commands) {
    std::vector<std::string> free;  // options whose values are no list: files, most likely
    for (const OptionFacts& option : command.options) {
      if (option.positional || !option.takes_value) continue;
      for (const std::string& name : option.names) {
        const std::string pattern = absl::StrCat(command.path, " ", name);
        if (option.choices.empty()) {
          free.push_back(pattern);
        } else {
          absl::StrAppend(&text, "    ", Quoted(pattern), ") COMPREPLY=($(compgen -W ",
                          Quoted(absl::StrJoin(option.choices, " ")), " -- \"$cur\")); return ;;\n");
        }
      }
    }
    if (!free.empty()) absl::StrAppend(&text, "    ", Patterns(free), ") return ;;\n");
  }
  text += "  esac\n  case \"$path\" in\n";
  for (const CommandFacts& command : commands) {
    std::vector<std::string> words, options;
    for (const auto& [name, help] : command.subcommands) words.push_back(name);
    for (const OptionFacts& option : command.options) {
      const std::vector<std::string>& known = option.positional ? option.choices : option.names;
      (option.positional ? words : options)
          .insert((option.positional ? words : options).end(), known.begin(), known.end());
    }
    absl::StrAppend(&text, "    ", Quoted(command.path), ") words=", Quoted(absl::StrJoin(words, " ")),
                    " options=", Quoted(absl::StrJoin(options, " ")), " ;;\n");
  }
  return text +
         "  esac\n"
         "  [[ $cur == -* ]] && words=$options\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -o default -F _diapason diapason\n";
}

// The first sentence or line, short enough for a list.
std::string Short(const std::string& help) {
  std::string line = help.substr(0, help.find_first_of("\n;("));
  absl::StripTrailingAsciiWhitespace(&line);
  return line.size() <= 90 ? line : absl::StrCat(line.substr(0, 87), "...");
}

std::string Zsh(const std::vector<CommandFacts>& commands) {
  std::string text =
      "#compdef diapason\n# zsh completion for diapason, written by `diapason completion zsh`\n"
      "_diapason() {\n"
      "  local command=diapason word previous=${words[CURRENT-1]}\n"
      "  local -a subcommands options values\n"
      "  for word in ${words[2,CURRENT-1]}; do\n"
      "    case \"$command $word\" in\n";
  absl::StrAppend(&text, "      ", Patterns(PathsBelow(commands)),
                  ") command=\"$command $word\" ;;\n    esac\n  done\n  case \"$command $previous\" in\n");
  for (const CommandFacts& command : commands) {
    for (const OptionFacts& option : command.options) {
      if (option.positional || !option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(absl::StrCat(command.path, " ", name));
      absl::StrAppend(
          &text, "    ", Patterns(patterns), ") ",
          option.choices.empty() ? "_files" : absl::StrCat("compadd -- ", absl::StrJoin(option.choices, " ")),
          "; return ;;\n");
    }
  }
  // "name:what it is", where a colon in the name would end it; no name has one.
  const auto entry = [](const std::string& name, const std::string& help) {
    return Quoted(absl::StrCat(name, ":", Short(help)));
  };
  text += "  esac\n  case \"$command\" in\n";
  for (const CommandFacts& command : commands) {
    absl::StrAppend(&text, "    ", Quoted(command.path), ")\n      subcommands=(");
    for (const auto& [name, help] : command.subcommands) absl::StrAppend(&text, "\n        ", entry(name, help));
    text += ")\n      options=(";
    for (const OptionFacts& option : command.options)
      for (const std::string& name : option.names)
        if (!option.positional) absl::StrAppend(&text, "\n        ", entry(name, option.help));
    text += ")\n      values=(";
    for (const OptionFacts& option : command.options)
      if (option.positional) absl::StrAppend(&text, " ", absl::StrJoin(option.choices, " "));
    text += ") ;;\n";
  }
  return text +
         "  esac\n"
         "  if [[ ${words[CURRENT]} == -* ]]; then\n"
         "    _describe -o option options\n"
         "  elif (( $#subcommands )); then\n"
         "    _describe command subcommands\n"
         "  else\n"
         "    (( $#values )) && compadd -- $values\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $funcstack[1] == _diapason ]]; then _diapason \"$@\"; else compdef _diapason diapason; fi\n";
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string Fish(const std::vector<CommandFacts>& commands) {
  std::string text =
      "# fish completion for diapason, written by `diapason completion fish`\n"
      "function __diapason_command\n"
      "  set -l command diapason\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command $word\"\n      case";
  for (const std::string& path : PathsBelow(commands)) absl::StrAppend(&text, " ", FishQuoted(path));
  text +=
      "\n        set command \"$command $word\"\n    end\n  end\n  echo $command\nend\n"
      "function __diapason_in\n  test (__diapason_command) = \"$argv\"\nend\n";
  for (const CommandFacts& command : commands) {
    const std::string when = absl::StrCat("complete -c diapason -n ", FishQuoted("__diapason_in " + command.path));
    for (const auto& [name, help] : command.subcommands)
      absl::StrAppend(&text, when, " -f -a ", name, " -d ", FishQuoted(Short(help)), "\n");
    for (const OptionFacts& option : command.options) {
      if (option.positional && !option.choices.empty())
        absl::StrAppend(&text, when, " -a ", FishQuoted(absl::StrJoin(option.choices, " ")), "\n");
      if (option.positional) continue;
      text += when;
      for (const std::string& name : option.names)
        absl::StrAppend(&text, name[1] == '-' ? " -l " : " -s ", name.substr(name[1] == '-' ? 2 : 1));
      if (!option.choices.empty())
        absl::StrAppend(&text, " -x -a ", FishQuoted(absl::StrJoin(option.choices, " ")));
      else if (option.takes_value)
        text += " -r";
      absl::StrAppend(&text, " -d ", FishQuoted(Short(option.help)), "\n");
    }
  }
  return text;
}

// As roff shows it: backslashes, and lines that would begin a request.
std::string Roff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"`", "\\(ga"}, {"'", "\\(aq"}});
  escaped = absl::StrReplaceAll(escaped, {{"\n.", "\n\\&."}});
  return !escaped.empty() && escaped[0] == '.' ? "\\&" + escaped : escaped;
}

std::string PageName(const std::string& path) { return absl::StrReplaceAll(path, {{" ", "-"}}); }

std::string Synopsis(const CommandFacts& command) {
  std::string text = absl::StrCat(".B ", Roff(command.path), "\n");
  if (!command.subcommands.empty()) text += ".I command\n";
  for (const OptionFacts& option : command.options) {
    if (option.positional)
      absl::StrAppend(&text, option.required ? "" : "[", "\\fI", Roff(option.names[0]), "\\fR",
                      option.required ? "" : "]", "\n");
    if (!option.positional && option.required)
      absl::StrAppend(&text, "\\fB", Roff(option.names.back()), "\\fR \\fI", Roff(option.value), "\\fR\n");
  }
  return text + "[\\fIoptions\\fR]\n";
}

std::string ManOption(const OptionFacts& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(absl::StrCat(option.positional ? "\\fI" : "\\fB", Roff(name), "\\fR"));
  std::string value;
  if (!option.positional && option.takes_value)
    value =
        absl::StrCat(" \\fI", Roff(option.choices.empty() ? option.value : absl::StrJoin(option.choices, "|")), "\\fR");
  return absl::StrCat(".TP\n", absl::StrJoin(names, ", "), value, "\n", Roff(option.help), "\n");
}

// The manual page of a command: sections as man-pages(7) names them.
std::string ManPage(const CommandFacts& command) {
  std::string text =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(PageName(command.path)), " 1 \"\" \"diapason ", api::Version(),
                   "\" \"Diapason\"\n.SH NAME\n", Roff(PageName(command.path)), " \\- ",
                   Roff(absl::StrReplaceAll(command.help, {{"\n", " "}})), "\n.SH SYNOPSIS\n", Synopsis(command));
  if (!command.subcommands.empty()) text += ".SH COMMANDS\n";
  for (const auto& [name, help] : command.subcommands)
    absl::StrAppend(&text, ".TP\n.BR ", Roff(PageName(absl::StrCat(command.path, " ", name))), " (1)\n", Roff(help),
                    "\n");
  text += ".SH OPTIONS\n";
  for (const OptionFacts& option : command.options) text += ManOption(option);
  if (!command.footer.empty())
    absl::StrAppend(
        &text, ".SH NOTES\n",
        command.path == "diapason" ? absl::StrCat(".nf\n", Roff(command.footer), "\n.fi") : Roff(command.footer), "\n");
  text +=
      ".SH EXIT STATUS\n0: success; 1: failure, with a message on standard error; 2: invalid arguments; 130: stopped "
      "by Ctrl\\-C.\n";
  if (command.path != "diapason") text += ".SH SEE ALSO\n.BR diapason (1)\n";
  return text;
}

absl::Status WritePages(const CLI::App& app, const std::string& folder, Session& session) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::vector<CommandFacts> commands = Commands(app);
  for (const CommandFacts& command : commands) {
    const std::string path = absl::StrCat(folder, "/", PageName(command.path), ".1");
    std::ofstream file(path, std::ios::binary);
    if (!(file << ManPage(command) << std::flush))
      return absl::UnavailableError(
          absl::StrCat("cannot write ", path, "; name a folder where you may write with --out"));
  }
  session.out << "wrote " << commands.size() << " manual pages to " << folder << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddCompletion(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("completion", "Print the shell completion of commands and options");
  command->footer(
      "bash: source <(diapason completion bash), or write it to ~/.local/share/bash-completion/completions/diapason. "
      "zsh: write it to a file _diapason in a folder of $fpath. fish: write it to "
      "~/.config/fish/completions/diapason.fish. `cmake --install` installs all three.");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(OneOf({"bash", "zsh", "fish"}))
      ->type_name("");
  command->callback([&app, &chosen, shell] {
    chosen = [&app, shell](Session& session) {
      const std::vector<CommandFacts> commands = Commands(app);
      session.out << (*shell == "bash" ? Bash(commands) : *shell == "zsh" ? Zsh(commands) : Fish(commands));
      return absl::OkStatus();
    };
  });
}

void AddMan(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("man", "Write the manual pages of all commands");
  command->footer("Read one with `man -l DIR/diapason-tune.1`. `cmake --install` installs them where man looks.");
  auto folder = std::make_shared<std::string>();
  command->add_option("--out", *folder, "Folder to write to")->required()->type_name("DIR");
  command->callback([&app, &chosen, folder] {
    chosen = [&app, folder](Session& session) { return WritePages(app, *folder, session); };
  });
}

}  // namespace diapason
