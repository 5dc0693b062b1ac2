// What a model takes and gives, without compiling it: `diapason inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"

namespace diapason {

// An input or output.
struct DescribedPort {
  std::string name;
  std::string dtype;           // "float32"; empty: the model does not say
  bool has_shape = true;       // false: nor even its rank
  std::vector<int64_t> shape;  // 0: open
  std::vector<std::string>
      symbols;  // by axis: of inputs the name that --dim takes; empty where the extent is fixed, or open without a name
};

struct ModelDescription {
  std::string name;
  int64_t opset = 0;  // of ONNX's operators; 0: a built-in network
  std::vector<DescribedPort> inputs, outputs;
  std::map<std::string, int64_t> operators;   // how many nodes of each, in the terms of the model
  int64_t parameters = 0, weights_bytes = 0;  // of constants
};

// As the model declares it, open dimensions by their symbols. Options that give sizes (batch, dims, input_shapes) are
// applied: then the model is read as LoadModel does, and all shapes are fixed. Errors as LoadModel, of what is read.
absl::StatusOr<ModelDescription> DescribeModel(const std::string& name_or_path, const ModelOptions& options);

}  // namespace diapason
