#include "compiler/graph/onnx/read_model.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx/printable.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "compiler/tensor/check.h"
#include "google/protobuf/stubs/logging.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

// The double that the shortest decimal of a float stands for.
double ShortDecimal(float value) {
  if (!std::isfinite(value)) return value;
  char text[64];
  char* end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = value;
  std::from_chars(text, end, result);
  return result;
}

// The value of a tensor, which the proto loses: it is not twice in memory.
absl::StatusOr<std::shared_ptr<const Array>> TakeTensor(onnx::TensorProto& tensor, const std::string& directory) {
  ASSIGN_OR_RETURN(Array array, ArrayOfOnnx(tensor, directory));
  tensor.Clear();
  return std::make_shared<const Array>(std::move(array));
}

absl::StatusOr<OnnxAttribute> AttributeOf(onnx::AttributeProto& attribute, const std::string& directory) {
  switch (attribute.type()) {
    case onnx::AttributeProto::INT:
      return OnnxAttribute(int64_t{attribute.i()});
    case onnx::AttributeProto::FLOAT:
      return OnnxAttribute(ShortDecimal(attribute.f()));
    case onnx::AttributeProto::STRING:
      return OnnxAttribute(attribute.s());
    case onnx::AttributeProto::INTS:
      return OnnxAttribute(std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end()));
    case onnx::AttributeProto::STRINGS:
      return OnnxAttribute(std::vector<std::string>(attribute.strings().begin(), attribute.strings().end()));
    case onnx::AttributeProto::FLOATS: {
      std::vector<double> values;
      for (float value : attribute.floats()) values.push_back(ShortDecimal(value));
      return OnnxAttribute(std::move(values));
    }
    case onnx::AttributeProto::TENSOR: {
      ASSIGN_OR_RETURN(std::shared_ptr<const Array> value, TakeTensor(*attribute.mutable_t(), directory));
      return OnnxAttribute(std::move(value));
    }
    default:
      return OnnxAttribute(OnnxOtherAttribute{onnx::AttributeProto::AttributeType_Name(attribute.type())});
  }
}

std::string DomainOf(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

absl::StatusOr<OnnxNode> NodeOf(onnx::NodeProto& proto, const std::string& directory) {
  OnnxNode node{proto.op_type(), DomainOf(proto.domain()), proto.name(), {}, {}, {}};
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (size_t i = 0; i < node.outputs.size() && node.name.empty(); ++i) node.name = node.outputs[i];
  for (onnx::AttributeProto& attribute : *proto.mutable_attribute()) {
    absl::StatusOr<OnnxAttribute> value = AttributeOf(attribute, directory);
    if (!value.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("node ", Quoted(node.name), " (", Printable(node.op),
                                                     "): attribute ", Quoted(attribute.name()), ": ",
                                                     value.status().message()));
    }
    if (!node.attributes.emplace(attribute.name(), std::move(*value)).second) {
      return absl::InvalidArgumentError(absl::StrCat("node ", Quoted(node.name), " (", Printable(node.op),
                                                     ") has two attributes ", Quoted(attribute.name())));
    }
  }
  return node;
}

absl::StatusOr<OnnxInput> InputOf(const onnx::ValueInfoProto& info) {
  auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(info.name()), " ", why));
  };
  if (!info.type().has_tensor_type()) return bad("is no tensor, which is not supported");
  const onnx::TypeProto::Tensor& type = info.type().tensor_type();
  OnnxInput input{info.name(), DType::kFloat32, type.has_shape(), {}};
  absl::StatusOr<DType> dtype = DTypeOfOnnx(type.elem_type());
  if (!dtype.ok()) return bad(std::string(dtype.status().message()));
  input.dtype = *dtype;
  for (const onnx::TensorShapeProto::Dimension& d : type.shape().dim()) {
    // Some exporters write 0 or -1 for an extent that is open.
    bool fixed = d.has_dim_value() && d.dim_value() > 0;
    input.shape.push_back({fixed ? d.dim_value() : -1, d.dim_param()});
  }
  return input;
}

absl::Status ReadOpsets(const onnx::ModelProto& proto, OnnxModel& model) {
  for (const onnx::OperatorSetIdProto& opset : proto.opset_import()) {
    model.opsets[DomainOf(opset.domain())] = opset.version();
  }
  auto own = model.opsets.find("");
  if (own == model.opsets.end()) {
    return absl::InvalidArgumentError(
        "it does not say which version (opset) of ONNX's operators it uses, or it was cut off: export or download it "
        "again");
  }
  if (own->second < kOldestOpset || own->second > kNewestOpset) {
    return absl::InvalidArgumentError(
        absl::StrCat("it uses opset ", own->second, " of ONNX's operators, but ", kOldestOpset, " to ", kNewestOpset,
                     " are supported: export it with one of these, or convert it with onnx.version_converter"));
  }
  return absl::OkStatus();
}

absl::Status ReadInitializers(onnx::GraphProto& graph, const std::string& directory, OnnxModel& model) {
  if (graph.sparse_initializer_size() > 0) {
    return absl::InvalidArgumentError("it has sparse initializers, which are not supported");
  }
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    const std::string name = tensor.name();
    ASSIGN_OR_RETURN(std::shared_ptr<const Array> value, TakeTensor(tensor, directory));
    if (!model.initializers.emplace(name, std::move(value)).second) {
      return absl::InvalidArgumentError(absl::StrCat("it has two initializers ", Quoted(name)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadGraph(onnx::GraphProto& graph, const std::string& directory, OnnxModel& model) {
  model.name = graph.name();
  RETURN_IF_ERROR(ReadInitializers(graph, directory, model));
  for (const onnx::ValueInfoProto& info : graph.input()) {
    if (model.initializers.count(info.name()) != 0) continue;  // its default value, which nobody replaces here
    ASSIGN_OR_RETURN(OnnxInput input, InputOf(info));
    model.inputs.push_back(std::move(input));
  }
  for (onnx::NodeProto& proto : *graph.mutable_node()) {
    ASSIGN_OR_RETURN(OnnxNode node, NodeOf(proto, directory));
    model.nodes.push_back(std::move(node));
  }
  for (const onnx::ValueInfoProto& info : graph.output()) model.outputs.push_back(info.name());
  return absl::OkStatus();
}

absl::Status RefuseExternal(const onnx::TensorProto& tensor) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Quoted(tensor.name()),
                   " has its data in another file, which a service does not have: save the model as one file"));
}

absl::Status RefuseExternalData(const onnx::GraphProto& graph) {
  for (const onnx::TensorProto& tensor : graph.initializer()) RETURN_IF_ERROR(RefuseExternal(tensor));
  for (const onnx::NodeProto& node : graph.node())
    for (const onnx::AttributeProto& attribute : node.attribute()) RETURN_IF_ERROR(RefuseExternal(attribute.t()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OnnxModel> ReadOnnxModel(std::istream& bytes, const std::string& directory, bool external_data) {
  google::protobuf::LogSilencer silence;
  OnnxModel model;
  onnx::ModelProto proto;
  if (!proto.ParseFromIstream(&bytes)) {
    return absl::InvalidArgumentError("it is no ONNX model, or it was cut off: export or download it again");
  }
  if (!proto.has_graph()) {
    return absl::InvalidArgumentError("it has no graph, or it was cut off: export or download it again");
  }
  RETURN_IF_ERROR(ReadOpsets(proto, model));
  if (!external_data) RETURN_IF_ERROR(RefuseExternalData(proto.graph()));
  RETURN_IF_ERROR(ReadGraph(*proto.mutable_graph(), directory, model));
  return model;
}

}  // namespace diapason
