#include "service/importer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/describe_model.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/padding.h"
#include "compiler/graph/passes.h"
#include "diapason/v1/import.pb.h"
#include "service/import_form.h"
#include "service/import_model.h"
#include "worker/process/child_process.h"
#include "worker/process/frame.h"

namespace diapason {
namespace {

constexpr size_t kGuardBytes = 1 << 20;  // below the stack; a frame is smaller
constexpr size_t kSignalStackBytes = 64 << 10;

// Where a stack overflow shows. Written before the stack is used.
uintptr_t guard_begin = 0, guard_end = 0;

void OnFault(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (address >= guard_begin && address < guard_end) _exit(kExitStackOverflow);
  // Another fault: it happens again when this returns, and ends the process.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
}

// For the calling thread, which has a guard below its stack.
void ReportStackOverflow() {
  pthread_attr_t attributes;
  void* stack = nullptr;
  size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &size);
  pthread_attr_destroy(&attributes);
  // Whether the guard is counted as part of the stack differs between versions of glibc.
  guard_end = reinterpret_cast<uintptr_t>(stack) + kGuardBytes + 4096;
  guard_begin = reinterpret_cast<uintptr_t>(stack) - kGuardBytes;
  static char signal_stack[kSignalStackBytes];
  const stack_t alternative{signal_stack, 0, sizeof signal_stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
}

void Limit(int resource, int64_t value) {
  const rlimit limit{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  setrlimit(resource, &limit);
}

std::vector<ImportedInput> InputsOf(const Network& network, const std::vector<ModelInput>& declared) {
  std::vector<ImportedInput> inputs;
  for (size_t i = 0; i < network.inputs.size(); ++i) {
    const Tensor& tensor = network.tensor(network.inputs[i]);
    inputs.push_back({tensor.name, tensor.type, declared[i].symbols});
  }
  return inputs;
}

// The options with another size of one symbol.
ModelOptions WithSize(ModelOptions options, const std::vector<ImportedInput>& inputs, const std::string& symbol,
                      int64_t size) {
  bool is_batch = false;
  for (const ImportedInput& input : inputs) {
    const auto given = options.input_shapes.find(input.name);
    for (size_t d = 0; d < input.symbols.size(); ++d) {
      if (input.symbols[d] != symbol) continue;
      is_batch = is_batch || d == 0;
      if (given != options.input_shapes.end()) given->second[d] = size;
    }
  }
  if (is_batch) options.batch = 0;
  options.dims[symbol] = size;
  return options;
}

// The sizes with which a network is compared: the smallest that is padded to `size` and the one below `size`, but not 1
// or less, at which exporters and operators treat axes in other ways.
std::set<int64_t> OtherSizes(int64_t size, int64_t least) {
  if (size == 2) return {3};
  return {std::max<int64_t>(2, std::min(least, size - 1)), size - 1};
}

int64_t SizeOf(const ModelOptions& options, const std::vector<ImportedInput>& inputs, const std::string& symbol) {
  ImportedModel model;
  model.inputs = inputs;
  const SymbolSizes sizes = model.Sizes();
  return sizes.contains(symbol) ? sizes.at(symbol) : options.dims.at(symbol);
}

// A model as it was read.
struct ReadModel {
  const v1::ImportJob& job;
  const ModelOptions& options;
  const Network& network;
  const std::vector<ImportedInput>& inputs;
};

SymbolPadding FindPadding(const ReadModel& model, const std::string& symbol, int64_t least) {
  const auto& [job, options, network, inputs] = model;
  const int64_t size = SizeOf(options, inputs, symbol);
  SymbolPadding found{least, "", {}};
  for (int64_t other_size : OtherSizes(size, found.least)) {
    const absl::StatusOr<Network> other = LoadModel(job.model(), WithSize(options, inputs, symbol, other_size));
    if (!other.ok()) {
      found.why_not = absl::StrCat("with ", symbol, "=", other_size, ", ", other.status().message());
      return found;
    }
    absl::StatusOr<PaddingProof> proof =
        ProvePadding({symbol, network, size, *other, other_size, found.least, job.mask()});
    if (!proof.ok()) {
      found.why_not = std::string(proof.status().message());
      return found;
    }
    found.outputs = std::move(proof->outputs);
    found.needs_first = found.needs_first || proof->needs_first;
  }
  return found;
}

absl::Status CheckMask(const std::string& mask, const std::vector<ImportedInput>& inputs) {
  std::vector<std::string> names;
  for (const ImportedInput& input : inputs) names.push_back(Quoted(input.name));
  if (mask.empty() || std::find(names.begin(), names.end(), Quoted(mask)) != names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the model has no input ", Quoted(mask),
                                                 " for --mask: its inputs are ", absl::StrJoin(names, ", ")));
}

// Those of results whose number of rows only a run tells (graph/onnx/input_shapes.h).
std::vector<std::string> SymbolsOfResults(const ModelOptions& options, const std::vector<ImportedInput>& inputs) {
  ImportedModel model;
  model.inputs = inputs;
  const SymbolSizes of_inputs = model.Sizes();
  std::vector<std::string> symbols;
  for (const auto& [symbol, size] : options.dims)
    if (!of_inputs.contains(symbol)) symbols.push_back(symbol);
  return symbols;
}

// The outputs that have rows of a symbol's, where ProvePadding shows that those which are not real are harmless.
absl::StatusOr<std::vector<int>> ProveFreeRows(const ReadModel& model, const std::string& symbol) {
  ModelOptions same = model.options;
  same.rows_taken = model.options.dims;
  SymbolPadding free = FindPadding({model.job, same, model.network, model.inputs}, symbol, 0);
  if (free.needs_first) free.why_not = "a maximum or softmax is taken along it, which may have no rows";
  if (!free.why_not.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot import '", model.job.model(), "': rows after those found, for which ", Quoted(symbol),
                     " has room, are not known to be harmless (", free.why_not,
                     "): export the model without what follows, and do that after the network"));
  }
  std::vector<int> outputs;
  for (size_t i = 0; i < free.outputs.size(); ++i)
    if (!free.outputs[i].empty()) outputs.push_back(static_cast<int>(i));
  return outputs;
}

// That what a result with room for more rows than were found has in the others changes nothing in the rows that were:
// import has followed them, or there is a proof.
absl::Status CheckFreeRows(const ReadModel& model, const ModelFacts& facts, const std::string& symbol,
                           std::vector<std::string>& warnings) {
  const auto& [job, options, network, inputs] = model;
  if (options.dims.at(symbol) < 2) {
    return absl::InvalidArgumentError(absl::StrCat("cannot import '", job.model(), "': ", Quoted(symbol),
                                                   " must have room for 2 or more, not for ", options.dims.at(symbol)));
  }
  std::vector<int> places;
  if (const auto followed = facts.followed.find(symbol); followed != facts.followed.end()) {
    places = followed->second;
  } else {
    ASSIGN_OR_RETURN(places, ProveFreeRows(model, symbol));
  }
  const int64_t room = options.dims.at(symbol);
  if (places.empty()) {
    warnings.push_back(absl::StrCat("there is room for ", room, " rows of ", Quoted(symbol),
                                    ": further ones are left out; the output of that name says how many there were"));
    return absl::OkStatus();
  }
  std::vector<std::string> outputs;
  for (int i : places) outputs.push_back(Quoted(network.tensor(network.outputs[i]).name));
  warnings.push_back(absl::StrCat(outputs.size() == 1 ? "output " : "outputs ", absl::StrJoin(outputs, ", "),
                                  outputs.size() == 1 ? " has" : " have", " room for ", room,
                                  " rows; as many as the output ", Quoted(symbol),
                                  " says are results, the first ones"));
  return absl::OkStatus();
}

absl::Status Import(const v1::ImportJob& job, v1::ImportReply& reply) {
  ASSIGN_OR_RETURN(const ModelOptions options, FromProto(job));
  if (job.describe()) {
    ASSIGN_OR_RETURN(const ModelDescription described, DescribeModel(job.model(), options));
    ToProto(described, *reply.mutable_description());
    return absl::OkStatus();
  }
  ModelFacts facts;
  ASSIGN_OR_RETURN(Network imported, LoadModel(job.model(), options, &facts));
  std::vector<ImportedInput> inputs = InputsOf(imported, facts.inputs);
  RETURN_IF_ERROR(CheckMask(job.mask(), inputs));
  const ReadModel read{job, options, imported, inputs};
  std::map<std::string, SymbolPadding> padding;
  if (job.prove_padding()) {
    ImportedModel model;
    model.inputs = inputs;
    for (const auto& [symbol, size] : model.Sizes()) {
      const auto least = job.least().find(symbol);
      if (size > 1) padding[symbol] = FindPadding(read, symbol, least != job.least().end() ? least->second : 1);
    }
  }
  std::vector<std::string> warnings = facts.warnings;
  for (const std::string& symbol : SymbolsOfResults(options, inputs))
    RETURN_IF_ERROR(CheckFreeRows(read, facts, symbol, warnings));
  ASSIGN_OR_RETURN(Network network, Optimize(std::move(imported), options, &warnings));
  if (DeferNorms(network, job.deferred_norm_rows()) > 0) RETURN_IF_ERROR(EliminateDeadCode(network));
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].type.dtype = network.tensor(network.inputs[i]).type.dtype;
  AddInputs(inputs, padding, reply);
  for (const std::string& warning : warnings) reply.add_warnings(warning);
  ASSIGN_OR_RETURN(
      const FusionChoices fusion,
      FindFusionChoices(network, {job.whole_recurrence_bytes(), job.one_query_apart(), job.find_factor_bounds()}));
  ToProto(fusion, *reply.mutable_fusion());
  if (!job.with_network()) return absl::OkStatus();
  const char* folder = std::getenv("TMPDIR");
  std::ofstream constants(std::string(folder == nullptr ? "/tmp" : folder) + "/" + kConstantsFile, std::ios::binary);
  return ToProto(network, *reply.mutable_network(), constants);
}

struct Work {
  int fd;
  v1::ImportJob job;
  int exit_status = 0;
};

void* RunImport(void* argument) {
  Work& work = *static_cast<Work*>(argument);
  ReportStackOverflow();
  v1::ImportReply reply;
  if (const absl::Status status = Import(work.job, reply); !status.ok()) {
    reply.Clear();
    reply.mutable_failure()->set_code(static_cast<int>(status.code()));
    reply.mutable_failure()->set_message(std::string(status.message()));
  }
  // Nothing is torn down: the process ends, and a graph may take longer to take apart than to make.
  _exit(WriteMessage(work.fd, reply).ok() ? 0 : 1);
}

}  // namespace

int ImporterMain(int fd) {
  PrepareChildProcess(fd);
  Work work{fd, {}};
  if (!ReadMessage(fd, work.job).ok()) return 1;
  LimitMemory(work.job.memory_bytes());
  Limit(RLIMIT_CPU, std::max<int64_t>(1, work.job.cpu_seconds()));
  // Weights on their way back; a write past it fails.
  signal(SIGXFSZ, SIG_IGN);
  Limit(RLIMIT_FSIZE, work.job.memory_bytes());
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setguardsize(&attributes, kGuardBytes);
  pthread_attr_setstacksize(&attributes,
                            static_cast<size_t>(std::max<int64_t>(1 << 20, work.job.stack_bytes())) + kGuardBytes);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, RunImport, &work) != 0) return kExitOutOfMemory;
  pthread_join(thread, nullptr);
  return 1;
}

}  // namespace diapason
