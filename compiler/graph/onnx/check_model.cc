#include <algorithm>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/graph/onnx/onnx_proto.h"
#include "compiler/graph/onnx/printable.h"
#include "compiler/graph/onnx/read_model.h"
#include "google/protobuf/stubs/logging.h"
#include "onnx/checker.h"
#include "onnx/shape_inference/implementation.h"

namespace diapason {
namespace {

// The text of an exception of the library as one line: what happened and, in brackets, where.
std::string OneLine(std::string text) {
  std::string where;
  if (size_t at = text.find("\n\n==> Context: "); at != std::string::npos) {
    where = text.substr(at + 15);
    text.resize(at);
    where.resize(std::min(where.find('\n'), where.size()));
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '.' || text.back() == ' ')) text.pop_back();
  for (const char* tag : {"[ShapeInferenceError] ", "[TypeInferenceError] ", "Shape inference error(s): "}) {
    text = absl::StrReplaceAll(text, {{tag, ""}});
  }
  text = absl::StrReplaceAll(text, {{"\n", "; "}});
  return Printable(where.empty() ? text : absl::StrCat(text, " (", where, ")"));
}

// Inputs get their extents; shapes that the model notes for other tensors go, since they may be of another batch.
void FixShapes(onnx::GraphProto& graph, const OnnxModel& model, const std::vector<std::vector<int64_t>>& shapes) {
  size_t next = 0;
  for (onnx::ValueInfoProto& info : *graph.mutable_input()) {
    if (model.initializers.count(info.name()) != 0) continue;
    onnx::TensorShapeProto* shape = info.mutable_type()->mutable_tensor_type()->mutable_shape();
    shape->clear_dim();
    for (int64_t extent : shapes[next]) shape->add_dim()->set_dim_value(extent);
    ++next;
  }
  graph.clear_value_info();
  for (onnx::ValueInfoProto& info : *graph.mutable_output()) {
    if (info.type().has_tensor_type()) info.mutable_type()->mutable_tensor_type()->clear_shape();
  }
}

// The checker asks for shapes of inputs and outputs, which nothing here needs of outputs: they are inferred.
void AddMissingShapes(onnx::GraphProto& graph) {
  for (auto* list : {graph.mutable_input(), graph.mutable_output()}) {
    for (onnx::ValueInfoProto& info : *list) {
      if (info.type().has_tensor_type()) info.mutable_type()->mutable_tensor_type()->mutable_shape();
    }
  }
}

}  // namespace

absl::Status CheckOnnxModel(const OnnxFile& file) {
  google::protobuf::LogSilencer silence;
  onnx::ModelProto model = file.proto->model;
  AddMissingShapes(*model.mutable_graph());
  try {
    onnx::checker::check_model(model);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("it is not valid ONNX: ", OneLine(error.what())));
  }
  return absl::OkStatus();
}

absl::Status CheckOnnxTypes(const OnnxFile& file, const std::vector<std::vector<int64_t>>& shapes) {
  google::protobuf::LogSilencer silence;
  onnx::ModelProto model = file.proto->model;
  FixShapes(*model.mutable_graph(), file.model, shapes);
  try {
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), {true, 1, false});
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("its types or shapes do not fit: ", OneLine(error.what())));
  }
  return absl::OkStatus();
}

}  // namespace diapason
