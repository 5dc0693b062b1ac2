// ONNX files from anywhere: refused in one sentence, or a valid network that can be optimized and cut into tasks.
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "compiler/graph/builtin.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/partition.h"
#include "compiler/graph/passes.h"
#include "onnx/onnx_pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

using Ints = std::vector<int64_t>;

Array IntList(const Ints& values) {
  Array array(DType::kInt64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

std::string ImageModel() {
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

std::string ListModel() {
  ModelBuilder model(11);
  model.Input("x", {3, 8})
      .Input("i", {2}, DType::kInt64)
      .Initializer("begin", IntList({0}))
      .Initializer("end", IntList({-1}))
      .Initializer("axis", IntList({1}))
      .Node("Slice", {"x", "begin", "end", "axis"}, {"a"})
      .Node("Gather", {"a", "i"}, {"b"}, {{"axis", int64_t{1}}})
      .Node("Transpose", {"b"}, {"c"}, {{"perm", Ints{1, 0}}})
      .Node("ReduceMean", {"c"}, {"d"}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}})
      .Node("Sub", {"c", "d"}, {"e"})
      .Node("Clip", {"e"}, {"f"})
      .Node("Sqrt", {"f"}, {"g"})
      .Node("Cast", {"g"}, {"h"}, {{"to", int64_t{10}}})
      .Node("Flatten", {"h"}, {"y"})
      .Output("y", DType::kFloat16);
  return model.Bytes();
}

}  // namespace

std::vector<std::string> FuzzSeeds() { return {ImageModel(), ListModel()}; }

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  std::istringstream bytes(std::string(reinterpret_cast<const char*>(data), size));
  absl::StatusOr<Network> network = ImportOnnxStream(bytes, "model.onnx", "/nonexistent", {});
  if (!network.ok()) {
    FUZZ_EXPECT(network.status().message().find("\n") == absl::string_view::npos);
    return 0;
  }
  FUZZ_EXPECT(network->Validate().ok());
  if (!Optimize(*network, {}).ok()) return 0;
  FUZZ_EXPECT(network->Validate().ok());
  (void)PartitionNetwork(*network);
  return 0;
}
