// ONNX files from anywhere: refused in one sentence, or a valid network that can be optimized and cut into tasks.
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "compiler/graph/builtin.h"
#include "compiler/graph/cuts.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/accesses.h"
#include "diapason/v1/import.pb.h"
#include "onnx/onnx_pb.h"
#include "service/import_form.h"
#include "tests/fuzz/fuzz.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

using Ints = std::vector<int64_t>;

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

std::string CutsSeed() {
  ModelOptions options;
  options.extra["image"] = "32";
  v1::ImportedCuts cuts;
  ToProto(FindCuts(LoadOptimized("squeezenet_v1.1", options).value()).value(), cuts);
  return cuts.SerializeAsString();
}

std::vector<std::string> FuzzSeeds() { return {SampleModel(), ListModel(), CutsSeed()}; }

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  // From a process that a model has taken over.
  if (v1::ImportedCuts cuts; cuts.ParseFromArray(data, static_cast<int>(size))) (void)FromProto(cuts);
  std::istringstream bytes(std::string(reinterpret_cast<const char*>(data), size));
  absl::StatusOr<Network> network = ImportOnnxStream(bytes, "model.onnx", "/nonexistent", {});
  if (!network.ok()) {
    FUZZ_EXPECT(network.status().message().find("\n") == absl::string_view::npos);
    return 0;
  }
  FUZZ_EXPECT(network->Validate().ok());
  if (!Optimize(*network, {}).ok()) return 0;
  FUZZ_EXPECT(network->Validate().ok());
  const absl::StatusOr<Cuts> cuts = FindCuts(*network);
  if (!cuts.ok()) return 0;
  // As from the process that reads models.
  v1::ImportedCuts sent;
  ToProto(*cuts, sent);
  const absl::StatusOr<Cuts> received = FromProto(sent);
  FUZZ_EXPECT(received.ok() && received->partition.tasks.size() == cuts->partition.tasks.size());
  for (size_t t = 0; t < cuts->partition.tasks.size(); ++t) {
    FUZZ_EXPECT(received->partition.tasks[t].workload_key == cuts->partition.tasks[t].workload_key);
    (void)CheckAccesses(received->partition.tasks[t].dag);
  }
  return 0;
}
