#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/temporary.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

// $CC may carry arguments ("ccache gcc -m64"), as for make.
std::vector<std::string> CompilerCommand() {
  const char* cc = std::getenv("CC");
  std::istringstream words(cc != nullptr ? cc : "");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  if (command.empty()) command.push_back("cc");
  return command;
}

absl::Status NoCompiler(const std::string& name) {
  return absl::UnavailableError(
      "no C compiler: \"" + name +
      "\" was not found; install gcc or clang, or name a compiler in the environment variable CC");
}

absl::StatusOr<ProgramResult> RunCompiler(std::vector<std::string> args, double timeout_seconds) {
  ProgramOptions options;
  options.args = std::move(args);
  options.environment = CleanEnvironment();
  options.timeout_seconds = timeout_seconds;
  options.one_output = true;
  return RunProgram(options);
}

// First line of `cc --version`, asked once a process for each command.
absl::StatusOr<std::string> VersionOf(const std::vector<std::string>& command) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::vector<std::string>, std::string>;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto it = known.find(command); it != known.end()) return it->second;
  }
  std::vector<std::string> argv = command;
  argv.push_back("--version");
  absl::StatusOr<ProgramResult> result = RunCompiler(argv, 10);
  if (absl::IsNotFound(result.status())) return NoCompiler(command[0]);
  RETURN_IF_ERROR(result.status());
  std::string line = result->output.substr(0, result->output.find('\n'));
  std::lock_guard<std::mutex> lock(mutex);
  return known[command] = line;
}

// -O2 without its loop vectorizer: loops that should be vectors are printed as vectors, and what is left is cheaper
// scalar (vectorizing it costs a third of the compile time and bloats epilogues). Contraction gives the FMAs.
std::vector<std::string> Arguments(std::vector<std::string> command, const Target& target, const std::string& source,
                                   const std::string& object) {
  for (const char* flag : {"-x", "c", "-std=gnu11", "-w", "-O2", "-fno-tree-vectorize", "-ffp-contract=fast",
                           "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-fvisibility=default"})
    command.push_back(flag);
  command.push_back("-march=" + target.mcpu);
  command.insert(command.end(), {"-o", object, source, "-lm"});
  return command;
}

// What the system says when the compiler cannot write what it makes: not the fault of the source.
bool NoRoom(const ProgramResult& result) {
  if (result.exit_code == 128 + SIGXFSZ) return true;
  for (const char* text : {"No space left on device", "Disk quota exceeded", "File too large", "File size limit exceeded"})
    if (result.output.find(text) != std::string::npos) return true;
  return false;
}

std::string Shown(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

}  // namespace

std::string FirstErrors(const std::string& report, int count) {
  std::istringstream lines(report);
  std::string errors, first;
  int found = 0, seen = 0;
  for (std::string line; std::getline(lines, line);) {
    if (seen++ < count) first += (first.empty() ? "" : "\n") + line;
    if (line.find("error") == std::string::npos || found == count) continue;
    errors += (found++ == 0 ? "" : "\n") + line;
  }
  return found > 0 ? errors : first;
}

absl::Status CompileC(Program& program, double timeout_seconds) {
  ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Create());
  const std::string source = directory.File("kernels.c"), object = directory.File("kernels.so");
  const std::vector<std::string> command = CompilerCommand();
  ASSIGN_OR_RETURN(const std::string version, VersionOf(command));
  RETURN_IF_ERROR(WriteFile(source, program.source));
  absl::StatusOr<ProgramResult> result = RunCompiler(Arguments(command, program.target, source, object), timeout_seconds);
  if (absl::IsNotFound(result.status())) return NoCompiler(command[0]);
  if (absl::IsDeadlineExceeded(result.status()))
    return absl::DeadlineExceededError("the C compiler \"" + command[0] + "\" took longer than " +
                                       Shown(timeout_seconds) + " seconds");
  RETURN_IF_ERROR(result.status());
  if (result->exit_code != 0 && NoRoom(*result))
    return absl::UnavailableError("the C compiler \"" + command[0] + "\" had no room to write its output:\n" +
                                  FirstErrors(result->output) + "\nset TMPDIR to a folder with space");
  if (result->exit_code != 0)
    return absl::InvalidArgumentError("the C compiler \"" + command[0] + "\" refused the generated source:\n" +
                                      FirstErrors(result->output));
  ASSIGN_OR_RETURN(std::string binary, ReadFile(object));
  program.binary = std::move(binary);
  program.compiler = version;
  return absl::OkStatus();
}

}  // namespace diapason
