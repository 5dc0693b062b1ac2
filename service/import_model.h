// Models read by a process of their own.
//
// A model comes from anywhere: a few bytes of it may ask for all memory, for hours, or for a recursion without end. It
// is read, optimized and partitioned by a child process, this program again as `internal-importer`, with limits of
// memory, time and stack; what comes back is checked like any input from outside. The caller's own process keeps what
// it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/describe_model.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"
#include "compiler/graph/padding.h"

namespace diapason {

struct ImportLimits {
  int64_t memory_bytes = 0;  // of address space; 0: half of the host's memory
  double seconds = 300;
  int64_t stack_bytes = int64_t{64} << 20;
  std::string program = "/proc/self/exe";  // what runs ImporterMain as `internal-importer --fd 3`
};

struct ImportRequest {
  std::string model;  // an .onnx file, or a built-in network
  ModelOptions options;
  ImportLimits limits;
  bool with_network = false;
  const std::atomic<bool>* stop = nullptr;  // ends it when it becomes true
  // Whether inputs may be padded is to be found out for each symbol of size 2 or more: `mask` is the input that is 0
  // where there is padding, `least` by symbol the smallest size that is padded to that of the options (1 where it is
  // not there).
  bool prove_padding = false;
  std::string mask = {};
  SymbolSizes least = {};
  FusionPreferences fusion = {};  // PreferredFusion has it for targets
};

// An input: its shape as it was read, its type as the optimized network has it.
struct ImportedInput {
  std::string name;
  TensorType type;
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed
};

struct ImportedModel {
  Network network;       // optimized; empty unless asked for
  FusionChoices fusion;  // its partition has tasks only: PartitionAs makes the subgraphs
  std::vector<ImportedInput> inputs;
  std::map<std::string, SymbolPadding> padding;  // by symbol
  std::vector<std::string> warnings;             // for the user, one sentence each

  // Of all symbols of the inputs.
  SymbolSizes Sizes() const;
};

// Errors of LoadOptimized and FindFusionChoices as they are. InvalidArgument in one sentence that names the model and
// the limit that it hit, or what its process died of. Unavailable when there is no process to be had; Cancelled by
// `stop`. The calling thread must not end before it returns, nor does it.
absl::StatusOr<ImportedModel> ImportModel(const ImportRequest& request);

// What the model takes and gives, without compiling it. Of the request, model, options, limits and `stop` count. Errors
// as ImportModel, of what is read.
absl::StatusOr<ModelDescription> DescribeModelFile(const ImportRequest& request);

// The main function of the process, with the socket as `fd`. Returns the exit status.
int ImporterMain(int fd);

}  // namespace diapason
