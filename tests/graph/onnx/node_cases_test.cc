// The node cases of ONNX (Debian's libonnx-testdata): every case whose operators we read is imported and evaluated, and
// its results are compared. Nothing is left out silently: a case either runs, or stands in a list below with the
// reason, or has an operator that the import names in its error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/graph/evaluate.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/onnx/model.h"
#include "compiler/graph/onnx/tensor_proto.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "tests/paths.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

// Cases with operators of ours that are not imported, and a part of the error that says why.
const std::map<std::string, std::string>& OutOfScope() {
  static const std::map<std::string, std::string>& cases = *new std::map<std::string, std::string>{
      {"test_bernoulli", "give it the attribute 'seed'"},
      {"test_bernoulli_double", "give it the attribute 'seed'"},
      {"test_bernoulli_double_expanded", "give it the attribute 'seed'"},
      {"test_bernoulli_expanded", "give it the attribute 'seed'"},
      {"test_cast_FLOAT_to_STRING", "has type STRING"},
      {"test_cast_STRING_to_FLOAT", "has type STRING"},
      {"test_castlike_BFLOAT16_to_FLOAT_expanded",
       "input 'like' is float32 3x4, not float32 1"},  // not as the model says
      {"test_castlike_FLOAT_to_BFLOAT16_expanded", "input 'like' is bfloat16 3x4, not bfloat16 1"},
      {"test_castlike_FLOAT_to_STRING", "has type STRING"},
      {"test_castlike_FLOAT_to_STRING_expanded", "has type STRING"},
      {"test_castlike_STRING_to_FLOAT", "has type STRING"},
      {"test_castlike_STRING_to_FLOAT_expanded", "has type STRING"},
      {"test_constantofshape_int_shape_zero", "output 'y' is empty"},
      {"test_if_opt", "output 'sequence' is a sequence"},
      {"test_if_seq", "output 'res' is a sequence"},
      {"test_reshape_allowzero_reordered", "empty tensors are not supported"},
      {"test_slice_start_out_of_bounds", "output 'y' is empty, which is not supported"},
      {"test_split_zero_size_splits", "cannot be split"},
      {"test_tril_zero", "the size of 'x.1' is open"},
      {"test_training_dropout", "training mode"},
      {"test_training_dropout_default", "training mode"},
      {"test_training_dropout_default_mask", "training mode"},
      {"test_training_dropout_mask", "training mode"},
      {"test_triu_zero", "input 'x' is"},
  };
  return cases;
}

// Inputs that must be known when a model is imported. The cases feed them at run time, like all inputs: here they
// become initializers.
const std::map<std::string, std::set<int>>& KnownInputs() {
  static const std::map<std::string, std::set<int>>& inputs = *new std::map<std::string, std::set<int>>{
      {"BlackmanWindow", {0}},
      {"CastLike", {1}},
      {"CenterCropPad", {1}},
      {"Col2Im", {1, 2}},
      {"Compress", {1}},
      {"ConstantOfShape", {0}},
      {"CumSum", {1}},
      {"DFT", {1, 2}},
      {"Dropout", {1, 2}},
      {"Expand", {1}},
      {"HammingWindow", {0}},
      {"HannWindow", {0}},
      {"If", {0}},
      {"Loop", {0, 1}},
      {"MaxUnpool", {2}},
      {"MelWeightMatrix", {0, 1, 2, 3, 4}},
      {"NonZero", {0}},
      {"NonMaxSuppression", {2}},
      {"OneHot", {1}},
      {"Pad", {1, 2, 3}},
      {"Range", {0, 1, 2}},
      {"ReduceL1", {1}},
      {"ReduceL2", {1}},
      {"ReduceLogSum", {1}},
      {"ReduceLogSumExp", {1}},
      {"ReduceMax", {1}},
      {"ReduceMean", {1}},
      {"ReduceMin", {1}},
      {"ReduceProd", {1}},
      {"ReduceSum", {1}},
      {"ReduceSumSquare", {1}},
      {"Reshape", {1}},
      {"Resize", {1, 2, 3}},
      {"STFT", {1, 3}},
      {"Slice", {1, 2, 3, 4}},
      {"Split", {1}},
      {"Squeeze", {1}},
      {"Tile", {1}},
      {"TopK", {1}},
      {"Trilu", {1}},
      {"Unique", {0}},
      {"Unsqueeze", {1}},
      {"Upsample", {1}},
  };
  return inputs;
}

// Operators of further cases, which are not read.
const std::set<std::string>& UnreadOperators() {
  static const std::set<std::string>& operators =
      *new std::set<std::string>{"Adagrad", "Adam", "Momentum", "StringNormalizer", "TfIdfVectorizer"};
  return operators;
}

struct Case {
  std::string name;
  fs::path folder;
  onnx::ModelProto model;
};

// A case has the version in which its operator last changed. Where that is older than what we read and the operator is
// the same in the oldest that we do, it becomes one of that.
void RaiseOpset(onnx::ModelProto& model) {
  for (onnx::OperatorSetIdProto& opset : *model.mutable_opset_import()) {
    if (!opset.domain().empty() || opset.version() >= kOldestOpset) continue;
    bool same = true;
    for (const onnx::NodeProto& node : model.graph().node()) {
      auto since = [&](int64_t version) {
        const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version), "");
        return schema ? schema->since_version() : -1;
      };
      same = same && since(opset.version()) == since(kOldestOpset);
    }
    if (same) opset.set_version(kOldestOpset);
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(TEST_PATH(ONNX_TESTDATA_DIR)) / "node")) {
    Case c{entry.path().filename().string(), entry.path(), {}};
    std::ifstream file(entry.path() / "model.onnx", std::ios::binary);
    EXPECT_TRUE(c.model.ParseFromIstream(&file)) << entry.path();
    RaiseOpset(c.model);
    cases.push_back(std::move(c));
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return cases;
}

// The first operator that we do not read, or nothing.
std::string UnknownOperator(const onnx::ModelProto& model) {
  static const std::vector<std::string>& known = *new std::vector<std::string>(OnnxOperators());
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (!node.domain().empty() || !std::binary_search(known.begin(), known.end(), node.op_type()))
      return node.op_type();
  }
  return "";
}

fs::path TensorFile(const Case& c, const std::string& kind, int i) {
  return c.folder / "test_data_set_0" / (kind + "_" + std::to_string(i) + ".pb");
}

// A tensor of a case. Debian's numpy had no bfloat16: its bits stand in tensors of uint16.
onnx::TensorProto ReadTensor(const Case& c, const std::string& kind, int i) {
  onnx::TensorProto tensor;
  std::ifstream file(TensorFile(c, kind, i), std::ios::binary);
  EXPECT_TRUE(tensor.ParseFromIstream(&file));
  const auto& info = kind == "input" ? c.model.graph().input(i) : c.model.graph().output(i);
  if (info.type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16)
    tensor.set_data_type(onnx::TensorProto::BFLOAT16);
  return tensor;
}

// What functions of ONNX compute shapes from: numbers, and lists of integers or truth values.
bool IsSmall(const onnx::TensorProto& tensor) {
  const int type = tensor.data_type();
  return tensor.dims_size() == 0 ||
         (tensor.dims_size() == 1 &&
          (type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32 || type == onnx::TensorProto::BOOL));
}

// Gives the inputs that must be known, or all small ones, their values. Returns the values of the others, in order.
std::vector<Array> BakeInputs(Case& c, bool all_small) {
  std::set<std::string> known;
  for (const onnx::NodeProto& node : c.model.graph().node()) {
    auto it = KnownInputs().find(node.op_type());
    for (int i = 0; it != KnownInputs().end() && i < node.input_size(); ++i) {
      if (it->second.count(i) != 0) known.insert(node.input(i));
    }
  }
  std::vector<Array> values;
  for (int i = 0; i < c.model.graph().input_size(); ++i) {
    const std::string& name = c.model.graph().input(i).name();
    if (!c.model.graph().input(i).type().has_tensor_type()) continue;
    onnx::TensorProto tensor = ReadTensor(c, "input", i);
    if (known.count(name) != 0 || (all_small && IsSmall(tensor))) {
      tensor.set_name(name);
      *c.model.mutable_graph()->add_initializer() = std::move(tensor);
    } else if (absl::StatusOr<Array> value = ArrayOfOnnx(tensor, ""); value.ok()) {
      values.push_back(std::move(*value));
    }
  }
  return values;
}

// Whether a result has as many rows as are found: room for as many as are expected is given, and a further output says
// how many they are.
bool FindsRows(const Case& c) { return c.model.graph().node(0).op_type() == "NonMaxSuppression"; }

absl::StatusOr<Network> ImportCase(const Case& c) {
  std::istringstream bytes(c.model.SerializeAsString());
  ModelOptions options;
  const onnx::NodeProto& node = c.model.graph().node(0);
  if (FindsRows(c)) options.dims[node.output(0) + ".rows"] = ReadTensor(c, "output", 0).dims(0);
  return ImportOnnxStream(bytes, c.name, c.folder.string(), options);
}

// As ONNX's own runner compares: relative to the expected value.
void ExpectClose(const Array& got, const Array& want, double single) {
  ASSERT_EQ(got.shape, want.shape);
  ASSERT_EQ(NameOf(got.dtype), std::string(NameOf(want.dtype)));
  double tolerance = want.dtype == DType::kFloat16 ? 1e-3 : single;
  for (int64_t i = 0, n = want.elements(); i < n; ++i) {
    double a = got.at(i), b = want.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_NEAR(a, b, tolerance * (1 + std::abs(b))) << "element " << i;
  }
}

double ToleranceOf(const Case& c) {
  if (c.model.graph().output(0).type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16)
    return 0x1p-7;  // this version's reference cuts off what later ones round
  // Expected values of four digits, and functions that know pi to six.
  for (const char* name : {"gridsample", "roialign", "window"})
    if (c.name.find(name) != std::string::npos) return 1e-4;
  return 1e-5;
}

void ExpectExpectedResults(const Case& given) {
  Case c = given;
  std::vector<Array> inputs = BakeInputs(c, false);
  absl::StatusOr<Network> network = ImportCase(c);
  if (!network.ok()) {
    c = given;
    inputs = BakeInputs(c, true);
    network = ImportCase(c);
  }
  ASSERT_TRUE(network.ok()) << network.status();
  absl::StatusOr<std::vector<Array>> outputs = EvaluateNetwork(*network, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  if (FindsRows(c)) {
    EXPECT_EQ(outputs->back().int_at(0), ReadTensor(c, "output", 0).dims(0));
    outputs->pop_back();
  }
  ASSERT_EQ(outputs->size(), static_cast<size_t>(c.model.graph().output_size()));
  const bool random = c.name.starts_with("test_bernoulli_seed");  // ONNX leaves the generator open
  for (size_t i = 0; i < outputs->size(); ++i) {
    absl::StatusOr<Array> want = ArrayOfOnnx(ReadTensor(c, "output", static_cast<int>(i)), "");
    ASSERT_TRUE(want.ok()) << want.status();
    if (random) {
      EXPECT_EQ((*outputs)[i].shape, want->shape);
      EXPECT_EQ((*outputs)[i].dtype, want->dtype);
    } else {
      ExpectClose((*outputs)[i], *want, ToleranceOf(c));
    }
  }
}

void ExpectRefused(const Case& given, const std::string& part) {
  Case c = given;
  std::vector<Array> inputs = BakeInputs(c, false);
  absl::StatusOr<Network> network = ImportCase(c);
  // An extent of 0 is one that is open: then the input of none is what does not fit.
  absl::Status status = network.ok() ? EvaluateNetwork(*network, inputs).status() : network.status();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
}

bool TakesTensorsAlone(const Case& c) {
  const auto& inputs = c.model.graph().input();
  return std::all_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.type().has_tensor_type(); });
}

TEST(NodeCases, RunOrAreRefusedForTheReasonGiven) {
  int run = 0, refused = 0, unknown = 0, of_sequences = 0;
  std::set<std::string> unread;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    std::string op = UnknownOperator(c.model);
    auto excluded = OutOfScope().find(c.name);
    if (excluded != OutOfScope().end()) {
      ++refused;
      EXPECT_EQ(op, "") << "needs no entry in the list";
      ExpectRefused(c, excluded->second);
    } else if (!op.empty()) {
      ++unknown;
      unread.insert(op);
      ExpectRefused(c, "");
    } else if (!TakesTensorsAlone(c)) {
      ++of_sequences;
      ExpectRefused(c, "is no tensor, which is not supported");
    } else {
      ++run;
      ExpectExpectedResults(c);
    }
  }
  EXPECT_EQ(run, 866);
  EXPECT_EQ(refused, static_cast<int>(OutOfScope().size()));
  EXPECT_EQ(unknown, 20);
  EXPECT_EQ(of_sequences, 22);
  EXPECT_EQ(unread, UnreadOperators());
}

}  // namespace
}  // namespace diapason
