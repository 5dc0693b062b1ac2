#include "cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <streambuf>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/renamed.h"
#include "cli/version_text.h"
#include "diapason/history.h"

namespace diapason {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // as shells report a program ended by Ctrl-C
constexpr int kExitNoReader = 141;     // and one ended by SIGPIPE

constexpr char kFooter[] =
    "First steps:\n"
    "  diapason tasks resnet-18 --target cpu\n"
    "  diapason tune resnet-18 --target cpu --history h.db --seconds 120\n"
    "  diapason build resnet-18 --target cpu --history h.db --out package\n"
    "  diapason run package --check --bench";

// The message on one line, without the end of sentence that some libraries write.
std::string OneLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '.')) text.pop_back();
  return absl::StrReplaceAll(text, {{"\r", ""}, {"\n", " "}});
}

// Knows whether anything was written to another stream buffer through it.
class Watched : public std::streambuf {
 public:
  explicit Watched(std::streambuf* inner) : inner_(inner) {}
  bool written() const { return written_; }

 protected:
  int_type overflow(int_type c) override {
    written_ = true;
    return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c)
                                                           : inner_->sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    written_ = true;
    return inner_->sputn(text, count);
  }
  int sync() override { return inner_->pubsync(); }

 private:
  std::streambuf* const inner_;
  bool written_ = false;
};

bool WantsJson(const std::vector<std::string>& args) {
  return std::find(args.begin(), args.end(), "--json") != args.end();
}

void PrintError(std::ostream& err, const std::string& message) { err << "error: " << OneLine(message) << "\n"; }

// The command that was recognized, and its names from the program's on.
struct Recognized {
  const CLI::App* command;
  std::string name = "diapason";
};
Recognized DeepestCommand(const CLI::App& app) {
  Recognized found{&app};
  while (!found.command->get_subcommands().empty()) {
    found.command = found.command->get_subcommands().front();
    absl::StrAppend(&found.name, " ", found.command->get_name());
  }
  return found;
}

std::vector<std::string> CommandsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

// "--target" and the like, hidden ones too, but for those that are old names (renamed.h).
std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames())
      if ("--" + name != kFlushFlag) names.push_back("--" + name);
  return names;
}

// `unknown argument --taget`, with what it may have been. A value may be behind "=".
std::string UnknownArgument(const CLI::App& command, const std::string& extra, const std::string& help) {
  const std::string flag = extra.substr(0, extra.find('='));
  const bool is_flag = flag.rfind("--", 0) == 0;
  return absl::StrCat("unknown argument ", extra, "; ", is_flag ? DidYouMean(flag, FlagsOf(command)) : "", help,
                      " lists those that it takes");
}

// The first argument that nothing took.
std::string FirstExtra(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  return extras.empty() ? "" : extras.front();
}

// What the parser did not like, in one sentence that says how to fix it.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const Recognized recognized = DeepestCommand(app);
  const std::string help = absl::StrCat("`", recognized.name, " --help`"), extra = FirstExtra(app),
                    what = OneLine(error.what());
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    // "--trials: 0: give ..." begins with the flag's name.
    const size_t colon = what.find(": ");
    return colon == std::string::npos ? what : what.substr(0, colon) + what.substr(colon + 1);
  }
  const bool lacks_command = what == "A subcommand is required";
  if (lacks_command && extra.empty()) return absl::StrCat("no command is given; ", help, " lists them");
  if (lacks_command)
    return absl::StrCat("unknown command ", extra, "; ", DidYouMean(extra, CommandsOf(*recognized.command)), help,
                        " lists them");
  // What is missing was mistyped, most likely.
  if (extra.rfind("--", 0) == 0) return UnknownArgument(*recognized.command, extra, help);
  const size_t required = what.find(" is required");
  if (required != std::string::npos)
    return absl::StrCat(what.substr(0, required), " is missing; ", help, " shows what to give");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return UnknownArgument(*recognized.command, extra, help);
  const size_t missing = what.find(" required");
  if (missing != std::string::npos) return absl::StrCat(what.substr(0, what.find(':')), " needs a value; see ", help);
  return absl::StrCat(what, "; see ", help);
}

void AddCommands(CLI::App& app, CommandBody& chosen) {
  AddNetworks(app, chosen);
  AddDevices(app, chosen);
  AddTasks(app, chosen);
  AddTune(app, chosen);
  AddBuild(app, chosen);
  AddRun(app, chosen);
  AddProfile(app, chosen);
  AddExportKernels(app, chosen);
  AddInspect(app, chosen);
  AddQuery(app, chosen);
  AddHistory(app, chosen);
  AddRecords(app, chosen);
  AddExplain(app, chosen);
  AddUi(app, chosen);
  AddReport(app, chosen);
  AddFleet(app, chosen);
  AddServe(app, chosen);
  AddSubmit(app, chosen);
  AddJobs(app, chosen);
  AddTracker(app, chosen);
  AddWorker(app, chosen);
  AddCompletion(app, chosen);
  AddMan(app, chosen);
}

// Histories keep it: without the password that a URI may have.
std::string Joined(const std::vector<std::string>& args) {
  std::string line = "diapason";
  for (const std::string& arg : args) {
    const size_t value = arg.rfind("--", 0) == 0 && arg.find('=') != std::string::npos ? arg.find('=') + 1 : 0;
    absl::StrAppend(&line, " ", ShellQuoted(arg.substr(0, value) + api::HistoryName(arg.substr(value))));
  }
  return line;
}

}  // namespace

void Warn(Session& session, const std::string& sentence) {
  session.err << "warning: " << OneLine(sentence) << "\n" << std::flush;
}

api::Hooks HooksOf(Session& session) {
  return {[&session](const std::string& sentence) { Warn(session, sentence); }, nullptr};
}

int RunCli(const std::vector<std::string>& typed, std::ostream& stdout_stream, std::ostream& err,
           const CliEnvironment& environment) {
  Watched watched(stdout_stream.rdbuf());
  std::ostream out(&watched);
  CLI::App app("Tunes the kernels of a neural network for a device by search and measurement.", "diapason");
  const CurrentArguments current = ReplaceOldNames(typed);
  const std::vector<std::string>& args = current.args;
  for (const std::string& warning : current.warnings) err << "warning: " << warning << "\n";
  app.set_version_flag("--version", VersionText());
  app.require_subcommand(1);
  CommandBody chosen;
  AddCommands(app, chosen);
  app.footer(kFooter);  // behind the commands, which would inherit it
  const absl::Status defaults = ApplyDefaults(app, args, environment);
  // With --json standard output has one document in any case.
  const auto fail = [&](const std::string& message, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    if (WantsJson(args) && !watched.written()) WriteErrorDocument(out, code, OneLine(message));
    out.flush();
    PrintError(err, message);
  };
  // A report that did not get through is no success, but whoever reads no further (`| head`) knows that.
  const auto finish = [&] {
    if (out.flush()) return 0;
    if (environment.out_has_no_reader && environment.out_has_no_reader()) return kExitNoReader;
    PrintError(err, "the report could not be written to its end; write standard output where there is free space");
    return kExitFailure;
  };
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // it takes them last first
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return finish();
  } catch (const CLI::CallForVersion& version) {
    out << version.what() << "\n";
    return finish();
  } catch (const CLI::ParseError& error) {
    fail(defaults.ok() ? UsageError(app, error) : std::string(defaults.message()));
    return kExitUsage;
  }
  if (!defaults.ok()) {  // only now: the help is there all the same
    fail(std::string(defaults.message()));
    return kExitUsage;
  }
  Session session{out, err, environment, Joined(args)};
  const absl::Status status = chosen(session);
  if (status.ok()) return finish();
  fail(std::string(status.message()), status.code());
  return status.code() == absl::StatusCode::kCancelled ? kExitInterrupted : kExitFailure;
}

}  // namespace diapason
