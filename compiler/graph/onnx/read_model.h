// Reading of ONNX files: protobuf, tensors and external data, and the checks of ONNX's own library.
//
// Two steps, since the library checks a model with its shapes fixed: ReadOnnxModel, then (the caller has fixed the
// extents that the model leaves open) CheckOnnxModel. All errors are one sentence without the name of the file, which
// the caller adds. No exception of the library leaves these functions.
#pragma once

#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

struct OnnxProto;  // holds the ModelProto

struct OnnxFile {
  OnnxModel model;
  std::shared_ptr<OnnxProto> proto;
};

// `directory` holds the files of external data. InvalidArgument for what is no ONNX model, is cut off, has an opset
// outside of kOldestOpset to kNewestOpset, or tensors of types that we do not have. The graph is not checked.
absl::StatusOr<OnnxFile> ReadOnnxModel(std::istream& bytes, const std::string& directory);

// The library's checker and strict shape and type inference over the model, with inputs of these shapes (in the order
// of model.inputs). InvalidArgument in the library's words.
absl::Status CheckOnnxModel(const OnnxFile& file, const std::vector<std::vector<int64_t>>& shapes);

}  // namespace diapason
