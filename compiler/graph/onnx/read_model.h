// Reading of ONNX files: protobuf, tensors and external data, and the checks of ONNX's own library.
//
// All errors are one sentence without the name of the file, which the caller adds. No exception of the library leaves
// these functions.
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

// `directory` holds the files of external data, which are refused without `external_data`. InvalidArgument for what is no ONNX model, is cut off, has an opset
// outside of kOldestOpset to kNewestOpset, or tensors of types that we do not have. The graph is not checked.
absl::StatusOr<OnnxFile> ReadOnnxModel(std::istream& bytes, const std::string& directory, bool external_data);

// The library's checker: operators and their attributes exist in the model's opset. InvalidArgument in the library's
// words.
absl::Status CheckOnnxModel(const OnnxFile& file);

// The library's strict shape and type inference over the model, with inputs of these shapes (in the order of
// model.inputs). InvalidArgument in the library's words. REQUIRES: CheckOnnxModel is OK and all nodes were imported.
// The library divides by strides and indexes by axes without a look at them: version 1.12 crashes on attributes that no
// rule of ours lets pass.
absl::Status CheckOnnxTypes(const OnnxFile& file, const std::vector<std::vector<int64_t>>& shapes);

}  // namespace diapason
