#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/nearest.h"
#include "base/run_program.h"
#include "compiler/codegen/compile.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/codegen/object_symbols.h"
#include "compiler/codegen/temporary.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

// The variable that names the compiler: CC, or CC_aarch64_linux_gnu for another architecture than this machine's.
std::string CompilerVariable(const Target& target) {
  std::string name = target.is_foreign() ? "CC_" + target.triple : "CC";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// It may carry arguments ("ccache gcc -m64"), as for make.
std::vector<std::string> CompilerCommand(const Target& target) {
  const char* cc = std::getenv(CompilerVariable(target).c_str());
  std::istringstream words(cc != nullptr ? cc : "");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  if (command.empty()) command.push_back(target.is_foreign() ? target.triple + "-gcc" : "cc");
  return command;
}

absl::Status NoCompiler(const std::string& name, const Target& target) {
  if (target.is_foreign()) {
    std::string package = "gcc-" + target.triple;  // Debian's, which has no underscores in names
    std::replace(package.begin(), package.end(), '_', '-');
    return absl::UnavailableError(
        absl::StrCat("no C compiler for ", target.triple, ": \"", name, "\" was not found; install Debian's package ",
                     package, ", or name a compiler in the environment variable ", CompilerVariable(target)));
  }
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
absl::StatusOr<std::string> VersionOf(const std::vector<std::string>& command, const Target& target) {
  static Mutex mutex;
  static auto& known = *new std::map<std::vector<std::string>, std::string>;
  {
    MutexLock lock(mutex);
    if (auto it = known.find(command); it != known.end()) return it->second;
  }
  std::vector<std::string> argv = command;
  argv.push_back("--version");
  absl::StatusOr<ProgramResult> result = RunCompiler(argv, 10);
  if (absl::IsNotFound(result.status())) return NoCompiler(command[0], target);
  RETURN_IF_ERROR(result.status());
  std::string line = result->output.substr(0, result->output.find('\n'));
  MutexLock lock(mutex);
  return known[command] = line;
}

constexpr size_t kMostObjectBytes = size_t{64} << 20;

ObjectCache& Objects() {
  static auto& cache = *new ObjectCache(kMostObjectBytes);
  return cache;
}

// Of a line of its --version: clang is no GCC, whatever it is called.
bool IsGcc(const std::string& version) {
  return version.find("clang") == std::string::npos && version.find("LLVM") == std::string::npos;
}

// Of the passes that -O2 adds to -O1 these make kernels faster: the first also fuses multiplications and additions, the
// last but one lifts loads out of loops. The others, and following single bits of values, take a quarter of the time of
// compiling and gain nothing that could be measured (docs/lab-notes.md, 2026-11-27).
const char* const kGccFlags[] = {"-O1",        "-fexpensive-optimizations", "-fcaller-saves", "-fstrict-aliasing",
                                 "-ftree-pre", "-fno-tree-bit-ccp"};

std::vector<std::string> CompileFlags(const Target& target, bool gcc) {
  std::vector<std::string> flags = {"-x", "c", "-std=gnu11"};
  for (std::string& flag : CKernelFlags(target)) flags.push_back(std::move(flag));
  if (gcc) flags.insert(flags.end(), std::begin(kGccFlags), std::end(kGccFlags));
  flags.insert(flags.end(), {"-fPIC", "-fvisibility=default", "-pipe", "-c"});
  return flags;
}

// Kernels have no constructors, so they need no start files; their objects have no code for link time. Most call no
// function of a library: reading libraries takes the linker longer than all else.
std::vector<std::string> LinkFlags(const std::vector<ObjectCache::Object>& objects) {
  const bool alone = std::all_of(objects.begin(), objects.end(),
                                 [](const ObjectCache::Object& object) { return UndefinedSymbols(*object).empty(); });
  if (alone) return {"-shared", "-nostdlib", "-fno-lto"};
  return {"-shared", "-nostartfiles", "-fno-lto", "-lm"};
}

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
  CompilerRun(std::vector<std::string> command, const Target& target, double timeout_seconds)
      : command_(std::move(command)), target_(target), timeout_seconds_(timeout_seconds) {}

  absl::Status Run(const std::vector<std::string>& args) const {
    std::vector<std::string> all = command_;
    all.insert(all.end(), args.begin(), args.end());
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const absl::StatusOr<ProgramResult> result = RunCompiler(std::move(all), std::max(timeout_seconds_ - spent, 0.001));
    if (absl::IsNotFound(result.status())) return NoCompiler(command_[0], target_);
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
  const Target& target_;
  const double timeout_seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// GCC's and clang's names of processors belong to -march on x86, and to -mcpu on ARM, whose -march takes versions of
// the architecture.
std::string ProcessorFlag(const Target& target) {
  const std::string triple = target.is_foreign() ? target.triple : HostTriple();
  return absl::StrCat(ArchOfTriple(triple) == "aarch64" ? "-mcpu=" : "-march=", target.mcpu);
}

// The processors that a compiler lists when it refuses one ("valid arguments to '-march=' switch are: a b; did you mean
// ..." of GCC, "valid target CPU values are: a, b" of clang). Empty: it lists none, and the name was not the trouble.
std::vector<std::string> ListedProcessors(const std::string& report) {
  for (const char* before : {"switch are: ", "valid arguments are: ", "CPU values are: "}) {
    const size_t at = report.find(before);
    if (at == std::string::npos) continue;
    const size_t begin = at + std::string(before).size();
    std::string list = report.substr(begin, report.find_first_of(";\n", begin) - begin);
    std::replace(list.begin(), list.end(), ',', ' ');
    std::istringstream words(list);
    std::vector<std::string> names;
    for (std::string word; words >> word;) names.push_back(word);
    return names;
  }
  return {};
}

absl::Status UnknownProcessor(const Target& target, const std::string& compiler,
                              const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(
      absl::StrCat("target '", target.ToString(), "': the C compiler \"", compiler, "\" knows no processor '",
                   target.mcpu, "': ", DidYouMean(target.mcpu, known), "it knows ", absl::StrJoin(known, ", ")));
}

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
          ProcessorFlag(target)};
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

absl::StatusOr<std::string> FeaturesOf(const Target& target) {
  const std::vector<std::string> command = CompilerCommand(target);
  std::vector<std::string> argv = command;
  argv.insert(argv.end(), {ProcessorFlag(target), "-x", "c", "-E", "-P", "-"});
  ProgramOptions options;
  options.args = argv;
  options.environment = CleanEnvironment();
  options.environment.push_back("LC_ALL=C");  // the quotes and words of its messages
  options.input = FeaturesSource();
  options.timeout_seconds = 10;
  absl::StatusOr<ProgramResult> result = RunProgram(options);
  if (absl::IsNotFound(result.status())) return NoCompiler(command[0], target);
  RETURN_IF_ERROR(result.status());
  if (result->exit_code != 0) {
    const std::vector<std::string> known = ListedProcessors(result->errors);
    if (!known.empty()) return UnknownProcessor(target, command[0], known);
    return absl::InvalidArgumentError(absl::StrCat("target '", target.ToString(), "': the C compiler \"", command[0],
                                                   "\" refused it: ", FirstErrors(result->errors, 1)));
  }
  std::string features = result->output.substr(std::min(result->output.find('='), result->output.size() - 1) + 1);
  std::erase_if(features, [](char c) { return c == '"' || c == ';'; });
  std::replace(features.begin(), features.end(), '\n', ' ');
  return features;
}

absl::Status CheckRunsHere(const Target& target) {
  if (target.kind != TargetKind::kCpu || target.mcpu == Target().mcpu) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string features, FeaturesOf(target));
  if (target.is_foreign())
    return absl::FailedPreconditionError(absl::StrCat("target '", target.ToString(), "' is for ", target.triple,
                                                      " and this machine is ", ArchOfTriple(HostTriple())));
  const absl::Status here = CheckFeatures(features, HostFeatures());
  if (here.ok()) return here;
  return absl::FailedPreconditionError(absl::StrCat("target '", target.ToString(), "': ", here.message()));
}

absl::Status CompileC(Program& program, const std::vector<std::string>& units, double timeout_seconds) {
  ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  const std::vector<std::string> command = CompilerCommand(program.target);
  ASSIGN_OR_RETURN(const std::string version, VersionOf(command, program.target));
  const std::vector<std::string> flags = CompileFlags(program.target, IsGcc(version));
  const CompilerRun run(command, program.target, timeout_seconds);
  std::vector<std::string> all = units;
  all.push_back(FeaturesSource());
  const std::string key =
      absl::StrCat(version, "\n", absl::StrJoin(command, " "), "\n", absl::StrJoin(flags, " "), "\n");
  ASSIGN_OR_RETURN(const std::vector<ObjectCache::Object> objects, UnitCompiler(run, flags, key, folder).Compile(all));
  const std::string library = folder.File("kernels.so");
  std::vector<std::string> args = {"-o", library};
  for (size_t i = 0; i < objects.size(); ++i) {
    args.push_back(folder.File(absl::StrCat("kernels", i, ".o")));
    RETURN_IF_ERROR(WriteFile(args.back(), *objects[i]));
  }
  for (std::string& flag : LinkFlags(objects)) args.push_back(std::move(flag));
  RETURN_IF_ERROR(run.Run(args));
  ASSIGN_OR_RETURN(std::string binary, ReadFile(library));
  program.binary = std::move(binary);
  program.compiler = version;
  return absl::OkStatus();
}

}  // namespace diapason
