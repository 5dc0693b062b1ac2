#include "compiler/graph/onnx/read_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/unknown_field_set.h"
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

absl::StatusOr<std::shared_ptr<const Array>> TakeTensor(onnx::SparseTensorProto& tensor, const std::string& directory) {
  ASSIGN_OR_RETURN(Array array, ArrayOfSparseOnnx(tensor, directory));
  tensor.Clear();
  return std::make_shared<const Array>(std::move(array));
}

absl::StatusOr<std::shared_ptr<const OnnxGraph>> BodyOf(onnx::GraphProto& graph, const std::string& directory);

absl::StatusOr<OnnxAttribute> AttributeOf(onnx::AttributeProto& attribute, const std::string& directory) {
  if (!attribute.ref_attr_name().empty()) return OnnxAttribute(OnnxAttributeReference{attribute.ref_attr_name()});
  switch (attribute.type()) {
    case onnx::AttributeProto::INT: return OnnxAttribute(int64_t{attribute.i()});
    case onnx::AttributeProto::FLOAT: return OnnxAttribute(ShortDecimal(attribute.f()));
    case onnx::AttributeProto::STRING: return OnnxAttribute(attribute.s());
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
    case onnx::AttributeProto::SPARSE_TENSOR: {
      ASSIGN_OR_RETURN(std::shared_ptr<const Array> value, TakeTensor(*attribute.mutable_sparse_tensor(), directory));
      return OnnxAttribute(std::move(value));
    }
    case onnx::AttributeProto::GRAPH: {
      ASSIGN_OR_RETURN(std::shared_ptr<const OnnxGraph> body, BodyOf(*attribute.mutable_g(), directory));
      return OnnxAttribute(std::move(body));
    }
    default: return OnnxAttribute(OnnxOtherAttribute{onnx::AttributeProto::AttributeType_Name(attribute.type())});
  }
}

std::string DomainOf(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

absl::StatusOr<OnnxNode> NodeOf(onnx::NodeProto& proto, const std::string& directory) {
  OnnxNode node{proto.op_type(), DomainOf(proto.domain()), proto.name(), {}, {}, {}, ""};
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (size_t i = 0; i < node.outputs.size() && node.name.empty(); ++i) node.name = node.outputs[i];
  for (onnx::AttributeProto& attribute : *proto.mutable_attribute()) {
    if (attribute.type() == onnx::AttributeProto::TENSOR) node.narrow = NarrowNameOfOnnx(attribute.t().data_type());
    if (attribute.type() == onnx::AttributeProto::SPARSE_TENSOR)
      node.narrow = NarrowNameOfOnnx(attribute.sparse_tensor().values().data_type());
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
  OnnxInput input{info.name(), DType::kFloat32, type.has_shape(), {}, ""};
  absl::StatusOr<DType> dtype = StorageOfOnnx(type.elem_type());
  if (!dtype.ok()) return bad(std::string(dtype.status().message()));
  input.dtype = *dtype;
  input.narrow = NarrowNameOfOnnx(type.elem_type());
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
  const auto is_own = [](const onnx::NodeProto& node) { return DomainOf(node.domain()).empty(); };
  const auto& nodes = proto.graph().node();
  if (own == model.opsets.end() && !model.opsets.empty() && std::none_of(nodes.begin(), nodes.end(), is_own))
    own = model.opsets.emplace("", kNewestOpset).first;  // it has operators of other domains alone
  if (own == model.opsets.end()) {
    return absl::InvalidArgumentError(
        "it does not say which version (opset) of ONNX's operators it uses, or it was cut off: export or download it "
        "again");
  }
  if (own->second < kOldestOpset) {
    return absl::InvalidArgumentError(
        absl::StrCat("it uses opset ", own->second, " of ONNX's operators, but ", kOldestOpset, " to ", kNewestOpset,
                     " are supported: export it with one of these, or convert it with onnx.version_converter"));
  }
  return absl::OkStatus();
}

// Initializers of a model or of a body of one.
template <typename Graph>
absl::Status ReadInitializers(onnx::GraphProto& graph, const std::string& directory, Graph& read) {
  const auto read_one = [&](auto& tensor, const onnx::TensorProto& values) -> absl::Status {
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): TakeTensor clears the tensor
    const std::string name = values.name();
    if (const std::string narrow = NarrowNameOfOnnx(values.data_type()); !narrow.empty()) read.narrow[name] = narrow;
    ASSIGN_OR_RETURN(std::shared_ptr<const Array> value, TakeTensor(tensor, directory));
    if (!read.initializers.emplace(name, std::move(value)).second) {
      return absl::InvalidArgumentError(absl::StrCat("it has two initializers ", Quoted(name)));
    }
    return absl::OkStatus();
  };
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) RETURN_IF_ERROR(read_one(tensor, tensor));
  for (onnx::SparseTensorProto& sparse : *graph.mutable_sparse_initializer())
    RETURN_IF_ERROR(read_one(sparse, sparse.values()));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const OnnxGraph>> BodyOf(onnx::GraphProto& graph, const std::string& directory) {
  auto body = std::make_shared<OnnxGraph>();
  RETURN_IF_ERROR(ReadInitializers(graph, directory, *body));
  for (const onnx::ValueInfoProto& info : graph.input()) body->inputs.push_back(info.name());
  for (onnx::NodeProto& proto : *graph.mutable_node()) {
    ASSIGN_OR_RETURN(OnnxNode node, NodeOf(proto, directory));
    body->nodes.push_back(std::move(node));
  }
  for (const onnx::ValueInfoProto& info : graph.output()) body->outputs.push_back(info.name());
  return body;
}

absl::Status ReadFunctions(onnx::ModelProto& proto, const std::string& directory, OnnxModel& model) {
  for (onnx::FunctionProto& function : *proto.mutable_functions()) {
    OnnxFunction read;
    read.inputs.assign(function.input().begin(), function.input().end());
    read.outputs.assign(function.output().begin(), function.output().end());
    for (onnx::NodeProto& node : *function.mutable_node()) {
      ASSIGN_OR_RETURN(OnnxNode body, NodeOf(node, directory));
      read.nodes.push_back(std::move(body));
    }
    // What a function needs and the model does not say.
    for (const onnx::OperatorSetIdProto& opset : function.opset_import())
      model.opsets.emplace(DomainOf(opset.domain()), opset.version());
    // attribute_proto of onnx.proto, which Debian's does not know.
    const google::protobuf::UnknownFieldSet& unknown = function.unknown_fields();
    for (int i = 0; i < unknown.field_count(); ++i) {
      const google::protobuf::UnknownField& field = unknown.field(i);
      onnx::AttributeProto attribute;
      if (field.number() != 11 || field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
      if (!attribute.ParseFromString(field.length_delimited()))
        return absl::InvalidArgumentError(absl::StrCat("function ", Quoted(function.name()), " is damaged"));
      if (attribute.t().data_location() == onnx::TensorProto::EXTERNAL)
        return absl::InvalidArgumentError(
            absl::StrCat("function ", Quoted(function.name()), " has a default in another file"));
      ASSIGN_OR_RETURN(OnnxAttribute value, AttributeOf(attribute, directory));
      read.defaults[attribute.name()] = std::move(value);
    }
    if (!model.functions.emplace(std::pair(DomainOf(function.domain()), function.name()), std::move(read)).second)
      return absl::InvalidArgumentError(
          absl::StrCat("it has two functions ", Quoted(function.name()), ", which is not supported"));
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

absl::Status RefuseExternal(const onnx::SparseTensorProto& tensor) {
  RETURN_IF_ERROR(RefuseExternal(tensor.values()));
  return RefuseExternal(tensor.indices());
}

absl::Status RefuseExternalData(const onnx::GraphProto& graph);

absl::Status RefuseExternalData(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (const onnx::NodeProto& node : nodes) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      RETURN_IF_ERROR(RefuseExternal(attribute.t()));
      RETURN_IF_ERROR(RefuseExternal(attribute.sparse_tensor()));
      if (attribute.has_g()) RETURN_IF_ERROR(RefuseExternalData(attribute.g()));
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseExternalData(const onnx::GraphProto& graph) {
  for (const onnx::TensorProto& tensor : graph.initializer()) RETURN_IF_ERROR(RefuseExternal(tensor));
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) RETURN_IF_ERROR(RefuseExternal(tensor));
  return RefuseExternalData(graph.node());
}

absl::StatusOr<onnx::ModelProto> ParseModel(std::istream& bytes) {
  onnx::ModelProto proto;
  if (!proto.ParseFromIstream(&bytes)) {
    return absl::InvalidArgumentError("it is no ONNX model, or it was cut off: export or download it again");
  }
  if (!proto.has_graph()) {
    return absl::InvalidArgumentError("it has no graph, or it was cut off: export or download it again");
  }
  return proto;
}

// By the sizes that it says; nothing for a type that we do not have.
void CountWeights(const onnx::TensorProto& tensor, OnnxSignature& signature) {
  constexpr int64_t kMost = int64_t{1} << 48;
  int64_t elements = 1;
  for (const int64_t extent : tensor.dims()) {
    if (extent < 0 || (extent > 0 && elements > kMost / extent)) return;
    elements *= extent;
  }
  const absl::StatusOr<DType> dtype = StorageOfOnnx(tensor.data_type());
  if (!dtype.ok()) return;
  signature.parameters += elements;
  signature.weights_bytes += elements * BytesOf(*dtype);
}

}  // namespace

absl::StatusOr<OnnxModel> ReadOnnxModel(std::istream& bytes, const std::string& directory, bool external_data) {
  google::protobuf::LogSilencer silence;
  OnnxModel model;
  ASSIGN_OR_RETURN(onnx::ModelProto proto, ParseModel(bytes));
  RETURN_IF_ERROR(ReadOpsets(proto, model));
  if (!external_data) {
    RETURN_IF_ERROR(RefuseExternalData(proto.graph()));
    for (const onnx::FunctionProto& function : proto.functions()) RETURN_IF_ERROR(RefuseExternalData(function.node()));
  }
  RETURN_IF_ERROR(ReadFunctions(proto, directory, model));
  RETURN_IF_ERROR(ReadGraph(*proto.mutable_graph(), directory, model));
  return model;
}

absl::StatusOr<OnnxSignature> ReadOnnxSignature(std::istream& bytes) {
  google::protobuf::LogSilencer silence;
  ASSIGN_OR_RETURN(const onnx::ModelProto proto, ParseModel(bytes));
  OnnxModel opsets;
  RETURN_IF_ERROR(ReadOpsets(proto, opsets));
  const onnx::GraphProto& graph = proto.graph();
  OnnxSignature signature;
  signature.name = graph.name();
  signature.opset = opsets.opset();
  std::set<std::string> initialized;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    initialized.insert(tensor.name());
    CountWeights(tensor, signature);
  }
  for (const onnx::ValueInfoProto& info : graph.input()) {
    if (initialized.contains(info.name())) continue;
    ASSIGN_OR_RETURN(OnnxInput input, InputOf(info));
    signature.inputs.push_back(std::move(input));
  }
  for (const onnx::ValueInfoProto& info : graph.output()) {
    absl::StatusOr<OnnxInput> declared = InputOf(info);
    signature.outputs.push_back({info.name(), declared.ok() ? std::optional(*std::move(declared)) : std::nullopt});
  }
  for (const onnx::NodeProto& node : graph.node()) {
    const std::string domain = DomainOf(node.domain());
    ++signature.operators[domain.empty() ? node.op_type() : absl::StrCat(domain, ".", node.op_type())];
  }
  return signature;
}

}  // namespace diapason
