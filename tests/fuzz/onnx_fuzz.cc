// ONNX files from anywhere: refused in one sentence, or a valid network that can be optimized and cut into tasks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "compiler/graph/builtin.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/onnx/input_shapes.h"
#include "compiler/graph/onnx/read_model.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/accesses.h"
#include "diapason/v1/import.pb.h"
#include "onnx/onnx_pb.h"
#include "service/import_form.h"
#include "tests/fuzz/fuzz.h"
#include "tests/graph/onnx/model_builder.h"
#include "tests/paths.h"

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

// Two filters, each with a non-maximum suppression behind it.
std::string DetectorModel() {
  ModelBuilder model(17);
  model.Input("boxes", {6, 4}).Input("scores", {6}).Initializer("limit", Array::FromFloats({}, {0}));
  model.Initializer("zero", IntList({0})).Initializer("front", IntList({0, 1})).Initializer("most", IntList({4}));
  model.Initializer("two", IntList({2})).Initializer("one", IntList({1}));
  std::string boxes = "boxes", scores = "scores";
  for (const std::string k : {"1", "2"}) {
    const auto n = [&](const std::string& name) { return name + k; };
    model.Node("Greater", {scores, "limit"}, {n("good")}).Node("NonZero", {n("good")}, {n("places")});
    model.Node("Squeeze", {n("places"), "zero"}, {n("list")}).Node("Gather", {boxes, n("list")}, {n("b")});
    model.Node("Gather", {scores, n("list")}, {n("s")}).Node("Unsqueeze", {n("b"), "zero"}, {n("b3")});
    model.Node("Unsqueeze", {n("s"), "front"}, {n("s3")});
    model.Node("NonMaxSuppression", {n("b3"), n("s3"), "most"}, {n("found")});
    model.Node("Gather", {n("found"), "two"}, {n("column")}, {{"axis", int64_t{1}}});
    model.Node("Squeeze", {n("column"), "one"}, {n("kept")});
    model.Node("Gather", {n("b"), n("kept")}, {n("boxes")}).Node("Gather", {n("s"), n("kept")}, {n("scores")});
    boxes = n("boxes");
    scores = n("scores");
  }
  return model.Output(boxes).Output(scores).Bytes();
}

// ONNX's models of single nodes, as Debian's libonnx-testdata has them; small ones.
std::vector<std::string> NodeModels() {
  constexpr uintmax_t kMostBytes = 2048;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_PATH(ONNX_TESTDATA_DIR) + "/node")) {
    const std::filesystem::path file = entry.path() / "model.onnx";
    if (std::filesystem::exists(file) && std::filesystem::file_size(file) <= kMostBytes) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> models;
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    models.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  return models;
}

// A size for each result whose number of rows only a run tells.
ModelOptions RoomForRows(const std::string& bytes) {
  ModelOptions options;
  std::istringstream stream(bytes);
  const absl::StatusOr<OnnxModel> model = ReadOnnxModel(stream, "/nonexistent", true);
  if (!model.ok()) return options;
  for (const std::string& symbol : RowsSymbols(*model)) options.dims[symbol] = 3;
  return options;
}

}  // namespace

std::string CutsSeed() {
  ModelOptions options;
  options.extra["image"] = "32";
  v1::ImportedFusionChoices fusion;
  ToProto(FindFusionChoices(LoadOptimized("squeezenet_v1.1", options).value()).value(), fusion);
  return fusion.SerializeAsString();
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = NodeModels();
  for (std::string seed : {SampleModel(), ListModel(), DetectorModel(), CutsSeed()}) seeds.push_back(std::move(seed));
  return seeds;
}

void TryModel(const std::string& bytes, const ModelOptions& options) {
  std::istringstream stream(bytes);
  absl::StatusOr<Network> network = ImportOnnxStream(stream, "model.onnx", "/nonexistent", options);
  if (!network.ok()) {
    FUZZ_EXPECT(network.status().message().find("\n") == absl::string_view::npos);
    return;
  }
  FUZZ_EXPECT(network->Validate().ok());
  if (!Optimize(*network, {}).ok()) return;
  FUZZ_EXPECT(network->Validate().ok());
  const absl::StatusOr<FusionChoices> fusion = FindFusionChoices(*network);
  if (!fusion.ok()) return;
  // As from the process that reads models.
  v1::ImportedFusionChoices sent;
  ToProto(*fusion, sent);
  const absl::StatusOr<FusionChoices> received = FromProto(sent);
  FUZZ_EXPECT(received.ok() && received->partition.tasks.size() == fusion->partition.tasks.size());
  for (size_t t = 0; t < fusion->partition.tasks.size(); ++t) {
    FUZZ_EXPECT(received->partition.tasks[t].workload_key == fusion->partition.tasks[t].workload_key);
    (void)CheckAccesses(received->partition.tasks[t].dag);
  }
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  // From a process that a model has taken over.
  if (v1::ImportedFusionChoices fusion; fusion.ParseFromArray(data, static_cast<int>(size))) (void)FromProto(fusion);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  TryModel(bytes, {});
  if (const ModelOptions with_room = RoomForRows(bytes); !with_room.dims.empty()) TryModel(bytes, with_room);
  return 0;
}
