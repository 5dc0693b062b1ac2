#include "model_builder.h"

#include <sstream>

#include "base/check.h"
#include "compiler/graph/network_builder.h"
#include "compiler/graph/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

int TypeNumber(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return onnx::TensorProto::FLOAT;
    case DType::kFloat16: return onnx::TensorProto::FLOAT16;
    case DType::kFloat64: return onnx::TensorProto::DOUBLE;
    case DType::kInt32: return onnx::TensorProto::INT32;
    case DType::kInt64: return onnx::TensorProto::INT64;
    case DType::kBool: return onnx::TensorProto::BOOL;
    case DType::kInt8: return onnx::TensorProto::INT8;
    case DType::kUint8: return onnx::TensorProto::UINT8;
    case DType::kBfloat16: return onnx::TensorProto::BFLOAT16;
  }
  return onnx::TensorProto::UNDEFINED;
}

struct AttributeSetter {
  onnx::AttributeProto& attribute;
  void operator()(int64_t value) {
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }
  void operator()(float value) {
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(value);
  }
  void operator()(const char* value) {
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(value);
  }
  void operator()(const std::vector<int64_t>& values) {
    attribute.set_type(onnx::AttributeProto::INTS);
    for (int64_t value : values) attribute.add_ints(value);
  }
  void operator()(const std::vector<float>& values) {
    attribute.set_type(onnx::AttributeProto::FLOATS);
    for (float value : values) attribute.add_floats(value);
  }
  void operator()(const Array& value) {
    attribute.set_type(onnx::AttributeProto::TENSOR);
    SetTensor(*attribute.mutable_t(), "value", value);
  }
};

}  // namespace

void SetTensor(onnx::TensorProto& tensor, const std::string& name, const Array& value) {
  tensor.set_name(name);
  tensor.set_data_type(TypeNumber(value.dtype));
  for (int64_t extent : value.shape) tensor.add_dims(extent);
  tensor.set_raw_data(value.data.data(), value.data.size());
}

ModelBuilder::ModelBuilder(int64_t opset) : proto_(std::make_shared<onnx::ModelProto>()) {
  proto_->set_ir_version(7);
  onnx::OperatorSetIdProto* import = proto_->add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  proto_->mutable_graph()->set_name("graph");
}

ModelBuilder& ModelBuilder::Input(const std::string& name, std::vector<OnnxDim> shape, DType dtype) {
  onnx::ValueInfoProto* info = proto_->mutable_graph()->add_input();
  info->set_name(name);
  onnx::TypeProto::Tensor* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(TypeNumber(dtype));
  type->mutable_shape();
  for (const OnnxDim& d : shape) {
    onnx::TensorShapeProto::Dimension* dim = type->mutable_shape()->add_dim();
    if (const int64_t* extent = std::get_if<int64_t>(&d)) {
      dim->set_dim_value(*extent);
    } else {
      dim->set_dim_param(std::get<const char*>(d));
    }
  }
  return *this;
}

ModelBuilder& ModelBuilder::Initializer(const std::string& name, const Array& value) {
  SetTensor(*proto_->mutable_graph()->add_initializer(), name, value);
  return *this;
}

ModelBuilder& ModelBuilder::Node(const std::string& op, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs,
                                 const std::vector<std::pair<std::string, OnnxValue>>& attributes) {
  onnx::NodeProto* node = proto_->mutable_graph()->add_node();
  node->set_op_type(op);
  node->set_name("node_" + outputs[0]);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  for (const auto& [name, value] : attributes) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    std::visit(AttributeSetter{*attribute}, value);
  }
  return *this;
}

ModelBuilder& ModelBuilder::External(const std::string& initializer, const std::string& location) {
  for (onnx::TensorProto& tensor : *proto_->mutable_graph()->mutable_initializer()) {
    if (tensor.name() != initializer) continue;
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto* entry = tensor.add_external_data();
    entry->set_key("location");
    entry->set_value(location);
  }
  return *this;
}

ModelBuilder& ModelBuilder::Output(const std::string& name, DType dtype) {
  onnx::ValueInfoProto* info = proto_->mutable_graph()->add_output();
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(TypeNumber(dtype));
  return *this;
}

std::string ModelBuilder::Bytes() const { return proto_->SerializeAsString(); }

absl::StatusOr<Network> ModelBuilder::Import(const ModelOptions& options) const {
  return ImportBytes(Bytes(), options);
}

absl::StatusOr<Network> ImportBytes(const std::string& bytes, const ModelOptions& options) {
  std::istringstream stream(bytes);
  return ImportOnnxStream(stream, "model.onnx", "", options);
}

namespace {

void ExportNode(const Network& network, const Node& node, ModelBuilder& model) {
  std::vector<std::string> inputs;
  for (int id : node.inputs) inputs.push_back("t" + std::to_string(id));
  std::vector<std::string> outputs = {"t" + std::to_string(node.output)};
  const Attributes& a = node.attributes;
  std::vector<int64_t> ones = {1, 1}, none = {0, 0, 0, 0};
  if (node.op == "conv2d") {
    model.Node("Conv", inputs, outputs,
               {{"strides", a.Ints("strides", ones)},
                {"pads", a.Ints("pads", none)},
                {"dilations", a.Ints("dilations", ones)},
                {"group", a.Int("group", 1)}});
  } else if (node.op == "max_pool") {
    model.Node("MaxPool", inputs, outputs,
               {{"kernel_shape", a.Ints("kernel", {})},
                {"strides", a.Ints("strides", ones)},
                {"pads", a.Ints("pads", none)},
                {"ceil_mode", a.Int("ceil_mode", 0)}});
  } else if (node.op == "batch_norm") {
    model.Node("BatchNormalization", inputs, outputs, {{"epsilon", static_cast<float>(a.Float("epsilon", 1e-5))}});
  } else if (node.op == "reduce_mean") {
    // The image axes drop out of ours; ONNX keeps them until a Flatten, as in PyTorch's exports.
    model.Node("GlobalAveragePool", inputs, {outputs[0] + "_pool"});
    model.Node("Flatten", {outputs[0] + "_pool"}, outputs);
  } else if (node.op == "gemm") {
    model.Node("Gemm", inputs, outputs, {{"transB", a.Int("trans_b", 0)}});
  } else {
    DIAPASON_CHECK_MSG(node.op == "relu" || node.op == "add", node.op);
    model.Node(node.op == "relu" ? "Relu" : "Add", inputs, outputs);
  }
}

}  // namespace

ModelBuilder ExportNetwork(const Network& network) {
  ModelBuilder model(13);
  for (int id : network.inputs) {
    std::vector<OnnxDim> shape(network.tensors[id].type.shape.begin(), network.tensors[id].type.shape.end());
    model.Input("t" + std::to_string(id), shape);
  }
  for (size_t id = 0; id < network.tensors.size(); ++id) {
    if (network.tensors[id].data) model.Initializer("t" + std::to_string(id), *network.tensors[id].data);
  }
  for (const Node& node : network.nodes) ExportNode(network, node, model);
  for (int id : network.outputs) model.Output("t" + std::to_string(id));
  return model;
}

Array RandomIntegers(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  WeightRandom random(seed);
  Array array(dtype, std::move(shape));
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    array.set_int(i, static_cast<int64_t>(random.Next() % 256) - (dtype == DType::kInt8 ? 128 : 0));
  return array;
}

Array OneInteger(DType dtype, int64_t value) {
  Array array(dtype, {});
  array.set_int(0, value);
  return array;
}

Array IntList(const std::vector<int64_t>& values) {
  Array array(DType::kInt64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

std::string SampleModel() {
  using Ints = std::vector<int64_t>;
  ModelBuilder model(13);
  model.Input("x", {"N", 2, 4, 4})
      .Initializer("w", Array(DType::kFloat32, {2, 2, 1, 1}))
      .Initializer("s", Array(DType::kFloat32, {2}))
      .Initializer("p", IntList({0, 0, 1, 1, 0, 0, 1, 1}))
      .Initializer("f", Array(DType::kFloat32, {3, 18}))
      .Node("Conv", {"x", "w", "s"}, {"c"}, {{"strides", Ints{1, 1}}, {"auto_pad", "SAME_UPPER"}})
      .Node("BatchNormalization", {"c", "s", "s", "s", "s"}, {"b"}, {{"epsilon", 0.1f}})
      .Node("Pad", {"b", "p"}, {"d"}, {{"mode", "reflect"}})
      .Node("MaxPool", {"d"}, {"m"}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}})
      .Node("Shape", {"m"}, {"shape"})
      .Node("Constant", {}, {"zero"}, {{"value", Array(DType::kInt64, {})}})
      .Node("Gather", {"shape", "zero"}, {"n"})
      .Node("Constant", {}, {"axes"}, {{"value", IntList({0})}})
      .Node("Unsqueeze", {"n", "axes"}, {"n1"})
      .Node("Constant", {}, {"rest"}, {{"value", IntList({-1})}})
      .Node("Concat", {"n1", "rest"}, {"target"}, {{"axis", int64_t{0}}})
      .Node("Reshape", {"m", "target"}, {"r"})
      .Node("Gemm", {"r", "f"}, {"g"}, {{"transB", int64_t{1}}, {"alpha", 0.5f}})
      .Node("Softmax", {"g"}, {"y"})
      .Output("y");
  return model.Bytes();
}

}  // namespace diapason
