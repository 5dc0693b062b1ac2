#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/run_program.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/codegen/temporary.h"

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

constexpr size_t kMostObjectBytes = size_t{64} << 20;

ObjectCache& Objects() {
  static auto& cache = *new ObjectCache(kMostObjectBytes);
  return cache;
}

std::vector<std::string> CompileFlags(const Target& target) {
  std::vector<std::string> flags = {"-x", "c", "-std=gnu11"};
  for (std::string& flag : CKernelFlags(target)) flags.push_back(std::move(flag));
  flags.insert(flags.end(), {"-fPIC", "-fvisibility=default", "-pipe", "-c"});
  return flags;
}

// Kernels have no constructors, so they need no start files; their objects have no code for link time.
const char* const kLinkFlags[] = {"-shared", "-nostartfiles", "-fno-lto"};

// What the system says when the compiler cannot write what it makes: not the fault of the source.
bool NoRoom(const ProgramResult& result) {
  if (result.exit_code == 128 + SIGXFSZ) return true;
  for (const char* text :
       {"No space left on device", "Disk quota exceeded", "File too large", "File size limit exceeded"})
    if (result.output.find(text) != std::string::npos) return true;
  return false;
}

std::string Shown(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

// One compiler, and the time that it has left.
class CompilerRun {
 public:
  CompilerRun(std::vector<std::string> command, double timeout_seconds)
      : command_(std::move(command)), timeout_seconds_(timeout_seconds) {}

  absl::Status Run(const std::vector<std::string>& args) const {
    std::vector<std::string> all = command_;
    all.insert(all.end(), args.begin(), args.end());
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const absl::StatusOr<ProgramResult> result = RunCompiler(std::move(all), std::max(timeout_seconds_ - spent, 0.001));
    if (absl::IsNotFound(result.status())) return NoCompiler(command_[0]);
    if (absl::IsDeadlineExceeded(result.status()))
      return absl::DeadlineExceededError("the C compiler \"" + command_[0] + "\" took longer than " +
                                         Shown(timeout_seconds_) + " seconds");
    RETURN_IF_ERROR(result.status());
    if (result->exit_code == 0) return absl::OkStatus();
    if (NoRoom(*result))
      return absl::UnavailableError("the C compiler \"" + command_[0] + "\" had no room to write its output:\n" +
                                    FirstErrors(result->output) + "\nset TMPDIR to a folder with space");
    return absl::InvalidArgumentError("the C compiler \"" + command_[0] + "\" refused the generated source:\n" +
                                      FirstErrors(result->output));
  }

 private:
  const std::vector<std::string> command_;
  const double timeout_seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Makes the objects of units in a folder, each once in this process.
class UnitCompiler {
 public:
  UnitCompiler(const CompilerRun& run, const std::vector<std::string>& flags, std::string key,
               const TemporaryDirectory& folder)
      : run_(run), flags_(flags), key_(std::move(key)), folder_(folder) {}

  absl::StatusOr<std::vector<ObjectCache::Object>> Compile(const std::vector<std::string>& units) {
    std::vector<ObjectCache::Object> objects(units.size());
    // First what nobody else makes, then what others were at.
    for (const bool wait : {false, true}) {
      for (size_t i = 0; i < units.size(); ++i) {
        if (objects[i] != nullptr) continue;
        ASSIGN_OR_RETURN(objects[i], Object(units[i], wait));
      }
    }
    return objects;
  }

 private:
  // Null if another thread makes it and this one is not to wait.
  absl::StatusOr<ObjectCache::Object> Object(const std::string& unit, bool wait) {
    const std::string key = key_ + unit;
    while (true) {
      const ObjectCache::Answer answer = Objects().Ask(key);
      if (answer.state == ObjectCache::State::kKnown) return answer.object;
      if (answer.state == ObjectCache::State::kClaimed) return Make(unit, key);
      if (!wait) return nullptr;
      if (ObjectCache::Object object = Objects().Wait(key)) return object;
    }
  }

  absl::StatusOr<ObjectCache::Object> Make(const std::string& unit, const std::string& key) {
    absl::StatusOr<std::string> bytes = CompileUnit(unit);
    if (!bytes.ok()) {
      Objects().GiveUp(key);
      return bytes.status();
    }
    auto object = std::make_shared<const std::string>(*std::move(bytes));
    Objects().Put(key, object);
    return object;
  }

  absl::StatusOr<std::string> CompileUnit(const std::string& unit) {
    const std::string source = folder_.File("kernels.c"), object = folder_.File("unit.o");
    RETURN_IF_ERROR(WriteFile(source, unit));
    std::vector<std::string> args = flags_;
    args.insert(args.end(), {"-o", object, source});
    RETURN_IF_ERROR(run_.Run(args));
    return ReadFile(object);
  }

  const CompilerRun& run_;
  const std::vector<std::string> flags_;
  const std::string key_;
  const TemporaryDirectory& folder_;
};

}  // namespace

// -O2 without its loop vectorizer: loops that should be vectors are printed as vectors, and what is left is cheaper
// scalar (vectorizing it costs a third of the compile time and bloats epilogues). Contraction gives the FMAs.
std::vector<std::string> CKernelFlags(const Target& target) {
  return {"-w",
          "-O2",
          "-fno-tree-vectorize",
          "-ffp-contract=fast",
          "-fno-math-errno",
          "-fno-trapping-math",
          "-march=" + target.mcpu};
}

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

absl::Status CompileC(Program& program, const std::vector<std::string>& units, double timeout_seconds) {
  ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  const std::vector<std::string> command = CompilerCommand();
  ASSIGN_OR_RETURN(const std::string version, VersionOf(command));
  const std::vector<std::string> flags = CompileFlags(program.target);
  const CompilerRun run(command, timeout_seconds);
  const std::string key =
      absl::StrCat(version, "\n", absl::StrJoin(command, " "), "\n", absl::StrJoin(flags, " "), "\n");
  ASSIGN_OR_RETURN(const std::vector<ObjectCache::Object> objects,
                   UnitCompiler(run, flags, key, folder).Compile(units));
  const std::string library = folder.File("kernels.so");
  std::vector<std::string> args(std::begin(kLinkFlags), std::end(kLinkFlags));
  args.insert(args.end(), {"-o", library});
  for (size_t i = 0; i < objects.size(); ++i) {
    args.push_back(folder.File(absl::StrCat("kernels", i, ".o")));
    RETURN_IF_ERROR(WriteFile(args.back(), *objects[i]));
  }
  args.push_back("-lm");
  RETURN_IF_ERROR(run.Run(args));
  ASSIGN_OR_RETURN(std::string binary, ReadFile(library));
  program.binary = std::move(binary);
  program.compiler = version;
  return absl::OkStatus();
}

}  // namespace diapason
