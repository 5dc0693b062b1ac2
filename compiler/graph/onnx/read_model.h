// Reading of ONNX files: protobuf, tensors and external data.
//
// All errors are one sentence without the name of the file, which the caller adds. No exception of the library leaves
// these functions.
#pragma once

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// `directory` holds the files of external data, which are refused without `external_data`. InvalidArgument for what is no
// ONNX model, is cut off, has an opset outside of kOldestOpset to kNewestOpset, or tensors of types that we do not have.
// The graph is not checked.
absl::StatusOr<OnnxModel> ReadOnnxModel(std::istream& bytes, const std::string& directory, bool external_data);

}  // namespace diapason
