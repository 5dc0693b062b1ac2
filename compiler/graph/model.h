// Models by name: an ONNX file or a built-in network, with the options common to all commands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/dims.h"
#include "compiler/graph/network.h"

namespace diapason {

enum class Layout : uint8_t { kNCHW, kNHWC };
const char* NameOf(Layout layout);

// The types that weights and activations of a network may have: float32 and the narrow floats.
bool IsModelType(DType dtype);
// "float32 or float16"
std::string ModelTypes();
// InvalidArgument names `what`, the text and the types that there are.
absl::StatusOr<DType> ModelTypeFromName(const std::string& what, const std::string& name);

struct ModelOptions {
  // Extent of the first dimension of every input: replaces a symbolic or differing one. 0: as the model says, 1 where
  // it leaves it open (and for built-in networks).
  int64_t batch = 0;
  // Layout inside the network after Optimize; inputs and outputs keep the model's own.
  Layout layout = Layout::kNHWC;
  // float16: Optimize converts a float32 network (weights and activations; inputs and outputs too), after it has folded
  // what it can. float32 leaves the model in its own types.
  DType dtype = DType::kFloat32;
  // Sizes of the model's symbolic dimensions, by their names. A dimension that is open and has no name is called after
  // its input and its axis: "x.1". Built-in networks for images have the symbol "batch".
  SymbolSizes dims;
  // For a comparison of a network with itself at a smaller size of RESULT.rows: NonMaxSuppression takes as many boxes
  // as if it had these.
  SymbolSizes rows_taken;
  // --input-shape NAME=1x3x224x224: the same as sizes for the symbols of that input, and other extents where the
  // model's are fixed. InvalidArgument if a name is no input of the model.
  std::map<std::string, std::vector<int64_t>> input_shapes;
  // Options of single-operator networks ("m", "kernel", ...: builtin.h); seed of random weights is "seed".
  std::map<std::string, std::string> extra;
  // Whether a file may have weights in other files beside it; a service, which has the one file only, refuses them.
  bool external_data = true;
  // Whether what is read with a warning otherwise is refused: tensors of type float64, which Optimize makes float32,
  // and models of newer opsets of ONNX than those that are known.
  bool strict = false;
};

// An input as the model declares it.
struct ModelInput {
  std::string name;
  std::vector<std::string> symbols;  // by axis; empty where the extent is fixed
};

// What a model says beside its network.
struct ModelFacts {
  std::vector<ModelInput> inputs;  // those of the network, in order
  // By symbols of results whose number of rows only a run tells (RESULT.rows), as far as it was followed that rows
  // which are not real change nothing in others (onnx/found_rows.h): the outputs that have their rows, by place.
  std::map<std::string, std::vector<int>> followed;
  std::vector<std::string> warnings;  // for the user, one sentence each
};

// Whether it names a file.
bool IsModelFile(const std::string& name_or_path);

// A name ending in .onnx, or containing '/', is a file, else a built-in network. The network is as the model says
// (built-in ones in float32): run Optimize (passes.h) on it, which applies layout and dtype. NotFound or
// InvalidArgument in one sentence that says how to fix it. `facts`, unless null, receives the rest.
absl::StatusOr<Network> LoadModel(const std::string& name_or_path, const ModelOptions& options,
                                  ModelFacts* facts = nullptr);

// As LoadModel and Optimize: what tasks, tune and build work on.
absl::StatusOr<Network> LoadOptimized(const std::string& name_or_path, const ModelOptions& options);

}  // namespace diapason
