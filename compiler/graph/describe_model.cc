#include "compiler/graph/describe_model.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/input_shapes.h"
#include "compiler/graph/onnx/read_model.h"

namespace diapason {
namespace {

DescribedPort FixedPort(const Tensor& tensor) {
  return {tensor.name, NameOf(tensor.type.dtype), true, tensor.type.shape,
          std::vector<std::string>(tensor.type.shape.size())};
}

void DescribeNetwork(const Network& network, ModelDescription& described) {
  described.name = network.name;
  for (int id : network.inputs) described.inputs.push_back(FixedPort(network.tensor(id)));
  for (int id : network.outputs) described.outputs.push_back(FixedPort(network.tensor(id)));
  for (const Tensor& tensor : network.tensors) {
    if (!tensor.constant()) continue;
    described.parameters += tensor.type.elements();
    described.weights_bytes += tensor.type.elements() * BytesOf(tensor.type.dtype);
  }
}

bool GivesSizes(const ModelOptions& options) {
  return options.batch > 0 || !options.dims.empty() || !options.input_shapes.empty();
}

absl::StatusOr<ModelDescription> DescribeBuiltin(const std::string& name, const ModelOptions& options) {
  ModelFacts facts;
  ASSIGN_OR_RETURN(const Network network, LoadModel(name, options, &facts));
  ModelDescription described;
  DescribeNetwork(network, described);
  for (const Node& node : network.nodes) ++described.operators[node.op];
  for (size_t i = 0; i < described.inputs.size() && !GivesSizes(options); ++i) {
    DescribedPort& port = described.inputs[i];
    port.symbols = facts.inputs[i].symbols;
    for (size_t d = 0; d < port.shape.size(); ++d)
      if (!port.symbols[d].empty()) port.shape[d] = 0;
  }
  return described;
}

DescribedPort DeclaredPort(const OnnxInput& declared, std::vector<std::string> symbols) {
  DescribedPort port{declared.name,
                     declared.narrow.empty() ? NameOf(declared.dtype) : declared.narrow,
                     declared.has_shape,
                     {},
                     std::move(symbols)};
  for (const OnnxDimension& d : declared.shape) port.shape.push_back(d.open() ? 0 : d.extent);
  port.symbols.resize(port.shape.size());
  return port;
}

DescribedPort OutputPort(const OnnxSignature::Output& output) {
  if (!output.declared.has_value()) return {output.name, "", false, {}, {}};
  std::vector<std::string> symbols;
  for (const OnnxDimension& d : output.declared->shape) symbols.push_back(d.open() ? d.symbol : "");
  return DeclaredPort(*output.declared, std::move(symbols));
}

absl::StatusOr<ModelDescription> DescribeFile(const std::string& path, const ModelOptions& options) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  // LoadModel says why a file cannot be read, and what is wrong with sizes and options.
  const bool readable = file.is_open() && !std::filesystem::is_directory(path, ignored);
  const bool wanted = GivesSizes(options) || !options.extra.empty();
  absl::StatusOr<Network> network = readable && !wanted ? absl::StatusOr<Network>(Network()) : LoadModel(path, options);
  RETURN_IF_ERROR(network.status());
  const absl::StatusOr<OnnxSignature> signature = ReadOnnxSignature(file);
  if (!signature.ok())
    return absl::Status(signature.status().code(),
                        absl::StrCat("cannot read '", path, "': ", WithoutControls(signature.status().message())));
  ModelDescription described;
  if (GivesSizes(options)) DescribeNetwork(*network, described);
  described.name = signature->name;
  described.opset = signature->opset;
  described.operators = signature->operators;
  described.parameters = signature->parameters;
  described.weights_bytes = signature->weights_bytes;
  if (GivesSizes(options)) return described;
  OnnxModel inputs;
  inputs.inputs = signature->inputs;
  const std::vector<ModelInput> symbols = InputsWithSymbols(inputs, {});
  for (size_t i = 0; i < symbols.size(); ++i)
    described.inputs.push_back(DeclaredPort(signature->inputs[i], symbols[i].symbols));
  for (const OnnxSignature::Output& output : signature->outputs) described.outputs.push_back(OutputPort(output));
  return described;
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const std::string& name_or_path, const ModelOptions& options) {
  return IsModelFile(name_or_path) ? DescribeFile(name_or_path, options) : DescribeBuiltin(name_or_path, options);
}

}  // namespace diapason
