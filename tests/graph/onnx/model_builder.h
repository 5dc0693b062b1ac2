// ONNX models written by hand, for the tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/model.h"
#include "compiler/graph/network.h"

namespace onnx {
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace diapason {

using OnnxDim = std::variant<int64_t, const char*>;  // an extent or the name of an open one
using OnnxValue = std::variant<int64_t, float, const char*, std::vector<int64_t>, std::vector<float>, Array>;

// The array in raw_data.
void SetTensor(onnx::TensorProto& tensor, const std::string& name, const Array& value);

class ModelBuilder {
 public:
  explicit ModelBuilder(int64_t opset);
  ModelBuilder& Input(const std::string& name, std::vector<OnnxDim> shape, DType dtype = DType::kFloat32);
  ModelBuilder& Initializer(const std::string& name, const Array& value);
  // The node bears the name of its first output with "node_" in front.
  ModelBuilder& Node(const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs,
                     const std::vector<std::pair<std::string, OnnxValue>>& attributes = {});
  // The initializer's data are in the file `location` instead.
  ModelBuilder& External(const std::string& initializer, const std::string& location);
  ModelBuilder& Output(const std::string& name, DType dtype = DType::kFloat32);

  onnx::ModelProto& proto() { return *proto_; }
  std::string Bytes() const;
  // As the file "model.onnx".
  absl::StatusOr<Network> Import(const ModelOptions& options = {}) const;

 private:
  std::shared_ptr<onnx::ModelProto> proto_;
};

absl::StatusOr<Network> ImportBytes(const std::string& bytes, const ModelOptions& options = {});

// Integers of 8 bits, all values equally often.
Array RandomIntegers(DType dtype, std::vector<int64_t> shape, uint64_t seed);
// A scalar.
Array OneInteger(DType dtype, int64_t value);
// A list of int64.
Array IntList(const std::vector<int64_t>& values);
// A bit of everything: attributes of all kinds, constants, shapes computed.
std::string SampleModel();

// The network as a model of opset 13, which must have operators of residual networks in NCHW only.
ModelBuilder ExportNetwork(const Network& network);

}  // namespace diapason
