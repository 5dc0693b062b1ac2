// Runs networks again and again with changing inputs, while a second process keeps the device busy, and compares every
// output bit for bit with that of the first run of the same input. Finds what the comparison of one run cannot: kernels
// that read too early, memory that is shared and must not be, sums that are added in another order.
//
//   stress_packages --target cuda --history H.db --seconds 60 resnet-18 efficientnet.onnx
//   stress_packages --target cpu --runs 200                   all built-in image classifiers, fallback schedules
//
// Prints a line for each network and exits with 1 if one of them was wrong, with 2 if one could not be run.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/build_package.h"
#include "compiler/build/check_network.h"
#include "compiler/graph/builtin.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/runtime/device.h"
#include "db/history.h"
#include "service/network_assembly.h"
#include "service/records.h"
#include "service/target.h"

namespace diapason {
namespace {

struct Flags {
  std::string target = "cpu", history, layout = "NHWC", dtype = "float32";
  std::vector<std::string> networks, options;
  int64_t runs = 10'000, batch = 0;
  int inputs = 4;
  double seconds = 0;
  uint64_t seed = 1;
  bool no_load = false, reference = false, load = false;
};

absl::StatusOr<ModelOptions> OptionsOf(const Flags& flags) {
  ModelOptions options;
  options.batch = flags.batch;
  options.layout = flags.layout == "NCHW" ? Layout::kNCHW : Layout::kNHWC;
  ASSIGN_OR_RETURN(options.dtype, ModelTypeFromName("type", flags.dtype));
  for (const std::string& option : flags.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat("--set ", option, " is not understood; write it as NAME=VALUE"));
    options.extra[option.substr(0, equals)] = option.substr(equals + 1);
  }
  return options;
}

absl::StatusOr<RecordsByWorkload> RecordsOf(const Flags& flags, const ResolvedTarget& target,
                                            const FusionChoices& fusion) {
  if (flags.history.empty()) return RecordsByWorkload();
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(flags.history, HistoryMode::kReadOnly));
  std::vector<std::string> keys;
  for (const Task& task : fusion.partition.tasks) keys.push_back(task.workload_key);
  return RecordsForBuild(*history, keys, target.facts.model, target.target.ToString());
}

struct Loaded {
  std::unique_ptr<PackageRunner> runner;
  size_t tasks = 0, tuned = 0;
};

absl::StatusOr<Loaded> Load(const Flags& flags, const std::string& model, const ResolvedTarget& target,
                            Device& device) {
  ASSIGN_OR_RETURN(const ModelOptions options, OptionsOf(flags));
  ASSIGN_OR_RETURN(const Network network, LoadOptimized(model, options));
  ASSIGN_OR_RETURN(const FusionChoices fusion, FindFusionChoices(network));
  ASSIGN_OR_RETURN(const RecordsByWorkload records, RecordsOf(flags, target, fusion));
  ASSIGN_OR_RETURN(const Assembly assembly, Assemble(network, fusion, records));
  Loaded loaded;
  loaded.tasks = assembly.records.size();
  for (const auto& record : assembly.records) loaded.tuned += record.has_value();
  AssemblyCompiler compiler(target, 120);
  PackageRequest request{network, assembly.partition, target.target, target.facts, {}};
  ASSIGN_OR_RETURN(request.tasks, compiler.Compile(assembly, std::vector<bool>(loaded.tasks, true)));
  ASSIGN_OR_RETURN(PackageContents contents, AssemblePackage(request));
  const Package package = Package::InMemory(network.name, std::make_shared<const PackageContents>(std::move(contents)));
  ASSIGN_OR_RETURN(loaded.runner, PackageRunner::Load(package, &device, /*keep_other_plan=*/true));
  return loaded;
}

// The second process: a convolution and pauses of changing length, until the first one ends.
absl::Status KeepBusy(const Flags& flags) {
  ASSIGN_OR_RETURN(const ResolvedTarget target, ResolveMeasurableTarget(flags.target));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(target.target));
  Flags own = flags;
  own.history.clear();
  own.options.clear();
  ASSIGN_OR_RETURN(const Loaded loaded, Load(own, "conv2d", target, *device));
  for (uint64_t i = 0;; ++i) {
    RETURN_IF_ERROR(loaded.runner->RunTimes(static_cast<int64_t>(1 + i % 7)));
    usleep(static_cast<useconds_t>(i * 7919 % 3000));
  }
}

// Another process of this program; ended with the object.
class SecondProcess {
 public:
  explicit SecondProcess(const Flags& flags) {
    std::vector<std::string> args = {"stress_packages", "--load", "--target", flags.target};
    std::vector<char*> pointers;
    for (std::string& arg : args) pointers.push_back(arg.data());
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execv("/proc/self/exe", pointers.data());
    _exit(127);
  }
  ~SecondProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool lives() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

// Prints the line of a network; whether all was right.
absl::StatusOr<bool> Stress(const Flags& flags, const std::string& model, const ResolvedTarget& target,
                            Device& device) {
  ASSIGN_OR_RETURN(const Loaded loaded, Load(flags, model, target, device));
  const NetworkCheckOptions inputs{flags.seed, flags.inputs};
  NetworkReferences references = InputsWithoutReferences(loaded.runner->manifest(), inputs);
  std::unique_ptr<Device> cpu;  // of the references of opencl
  if (flags.reference) {
    if (device.kind() == TargetKind::kOpenCl) {
      ASSIGN_OR_RETURN(cpu, OpenDevice(Target{}));
    }
    ASSIGN_OR_RETURN(references, MakeReferences(loaded.runner->package(), cpu != nullptr ? *cpu : device, inputs));
  }
  ReplayOptions replays;
  replays.replays = static_cast<int>(std::max<int64_t>(2, flags.runs / flags.inputs));
  replays.most_seconds = flags.seconds > 0 ? flags.seconds : std::numeric_limits<int>::max();
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const NetworkVerdict verdict, CheckRepeatedly(*loaded.runner, references, replays));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("%-20s %6lld runs of %d inputs in %6.1f s, %zu of %zu tasks tuned, %d path%s%s: %s\n", model.c_str(),
              static_cast<long long>(verdict.runs), flags.inputs, seconds, loaded.tuned, loaded.tasks,
              loaded.runner->paths(), loaded.runner->paths() == 1 ? "" : "s",
              flags.reference ? ", compared with the reference implementation" : "",
              verdict.ok ? "right" : absl::StrCat("WRONG, ", verdict.text).c_str());
  std::fflush(stdout);
  return verdict.ok;
}

int StressAll(const Flags& flags) {
  std::unique_ptr<SecondProcess> load;
  if (!flags.no_load) load = std::make_unique<SecondProcess>(flags);  // before this process has a device
  const absl::StatusOr<ResolvedTarget> target = ResolveMeasurableTarget(flags.target);
  const absl::StatusOr<std::unique_ptr<Device>> device = target.ok() ? OpenDevice(target->target) : target.status();
  if (!device.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(device.status().message()).c_str());
    return 2;
  }
  int exit_code = 0;
  for (const std::string& model : flags.networks) {
    const absl::StatusOr<bool> right = Stress(flags, model, *target, **device);
    if (!right.ok())
      std::fprintf(stderr, "error: %s: %s\n", model.c_str(), std::string(right.status().message()).c_str());
    exit_code = std::max(exit_code, !right.ok() ? 2 : *right ? 0 : 1);
  }
  if (load != nullptr && !load->lives()) {
    std::fprintf(stderr, "error: the second process, which keeps the device busy, has ended by itself\n");
    return 2;
  }
  return exit_code;
}

// The image classifiers: the others are single operators.
std::vector<std::string> AllNetworks() {
  std::vector<std::string> names;
  for (const BuiltinInfo& info : BuiltinNetworks())
    if (info.help.find("image classifier") != std::string::npos) names.push_back(info.name);
  return names;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Runs networks again and again with changing inputs, beside a process that keeps the device busy, and compares "
      "every output "
      "bit for bit with that of the first run of the same input");
  app.add_option("NETWORK", flags.networks,
                 "Built-in networks and .onnx files (default: all built-in image classifiers)")
      ->type_name("");
  app.add_option("--target", flags.target, "cpu (default), opencl, cuda, with attributes as for diapason")
      ->type_name("TARGET");
  app.add_option("--history", flags.history, "Take the best records of this history (default: fallback schedules)")
      ->type_name("FILE");
  app.add_option("--runs", flags.runs, "Runs of each network (default 10000)")->check(CLI::PositiveNumber);
  app.add_option("--seconds", flags.seconds,
                 "At most so long for each network, compiling left out (default: no limit)");
  app.add_option("--inputs", flags.inputs, "Different inputs, in turns (default 4)")->check(CLI::Range(2, 64));
  app.add_option("--seed", flags.seed, "Of the first input (default 1)");
  app.add_option("--batch", flags.batch, "Extent of the inputs' first dimension");
  app.add_option("--layout", flags.layout, "NHWC (default) or NCHW");
  app.add_option("--dtype", flags.dtype, "float32 (default) or float16");
  app.add_option("--set", flags.options, "Option of a built-in network, NAME=VALUE; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--reference", flags.reference,
               "Compare the first runs with the reference implementation, which takes a while");
  app.add_flag("--no-load", flags.no_load, "Without the second process");
  app.add_flag("--load", flags.load, "Be the second process")->group("");
  CLI11_PARSE(app, argc, argv);
  if (flags.load) {
    const absl::Status ended = KeepBusy(flags);
    std::fprintf(stderr, "error: the second process: %s\n", std::string(ended.message()).c_str());
    return 2;
  }
  if (flags.networks.empty()) flags.networks = AllNetworks();
  return StressAll(flags);
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) { return diapason::Main(argc, argv); }
