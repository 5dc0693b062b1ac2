// The ModelProto behind OnnxFile, for the files that see ONNX's protobufs.
#pragma once

#include "compiler/graph/onnx/read_model.h"
#include "onnx/onnx_pb.h"

namespace diapason {

struct OnnxProto {
  onnx::ModelProto model;  // large initializers have lost their values, which OnnxModel holds
};

}  // namespace diapason
