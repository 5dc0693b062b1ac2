// Reading of ONNX files: protobuf, tensors and external data.
//
// All errors are one sentence without the name of the file, which the caller adds. No exception of the library leaves
// these functions.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// `directory` holds the files of external data, which are refused without `external_data`. InvalidArgument for what is
// no ONNX model, is cut off, has an opset before kOldestOpset, or tensors of types that we do not
// have. The graph is not checked.
absl::StatusOr<OnnxModel> ReadOnnxModel(std::istream& bytes, const std::string& directory, bool external_data);

// What a model says of itself, without its weights and the graph.
struct OnnxSignature {
  std::string name;  // of the graph
  int64_t opset = 0;
  std::vector<OnnxInput> inputs;  // without those that have a value
  struct Output {
    std::string name;
    std::optional<OnnxInput> declared;  // nothing: neither type nor shape is
  };
  std::vector<Output> outputs;
  std::map<std::string, int64_t> operators;   // how many nodes of each; "com.microsoft.Gelu" of other domains
  int64_t parameters = 0, weights_bytes = 0;  // of initializers, wherever their data lie
};

// Errors as ReadOnnxModel, of what is read here.
absl::StatusOr<OnnxSignature> ReadOnnxSignature(std::istream& bytes);

}  // namespace diapason
