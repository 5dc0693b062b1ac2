// What is wrong with a model is said in one sentence that names it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <tuple>

#include "../testing.h"
#include "compiler/graph/onnx/import.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

std::string ErrorOf(const absl::StatusOr<Network>& network) {
  return network.ok() ? "no error" : std::string(network.status().message());
}

ModelBuilder Relu(int64_t opset = 13) {
  ModelBuilder model(opset);
  model.Input("x", {1, 4}).Node("Relu", {"x"}, {"y"}).Output("y");
  return model;
}

Array IntTable(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  Array array(DType::kInt64, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

Array Scalar(float value) { return Array::FromFloats({}, {value}); }

struct ErrorCase {
  const char* name;
  ModelBuilder model;
  std::string message;  // behind "cannot import 'model.onnx': "
};

// Models that are no good graphs.
std::vector<ErrorCase> GraphErrors() {
  std::vector<ErrorCase> cases;
  auto add = [&](const char* name, ModelBuilder model, const std::string& message) {
    cases.push_back({name, std::move(model), message});
  };
  add("UnknownOperators",
      ModelBuilder(13)
          .Input("x", {1})
          .Node("FromTheFuture", {"x"}, {"a"})
          .Node("StringConcat", {"a"}, {"b"})
          .Node("StringConcat", {"b"}, {"y"})
          .Output("y"),
      "it has operators that are not supported, of opset 13: FromTheFuture, StringConcat (2 nodes: of text): "
      "export the model without them, or add them as CONTRIBUTING.md says");
  ModelBuilder foreign = Relu();
  foreign.proto().mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  add("UnknownDomain", foreign,
      "it has operators that are not supported, of opset 13: com.microsoft.Relu: export the model without them, or add "
      "them as CONTRIBUTING.md says");
  add("Cycle", ModelBuilder(13).Input("x", {1}).Node("Add", {"x", "b"}, {"a"}).Node("Relu", {"a"}, {"b"}).Output("b"),
      "node 'node_a' (Add) reads 'b' before it is computed: the graph has a cycle");
  add("ItselfAsInput", ModelBuilder(13).Input("x", {1}).Node("Add", {"x", "a"}, {"a"}).Output("a"),
      "node 'node_a' (Add) reads 'a' before it is computed: the graph has a cycle");
  add("BehindACycle",
      ModelBuilder(13)
          .Input("x", {1})
          .Node("Relu", {"b"}, {"y"})
          .Node("Add", {"x", "b"}, {"a"})
          .Node("Relu", {"a"}, {"b"})
          .Output("y"),
      "node 'node_a' (Add) reads 'b' before it is computed: the graph has a cycle");
  add("MissingInput", ModelBuilder(13).Input("x", {1}).Node("Add", {"x", "w"}, {"y"}).Output("y"),
      "node 'node_y' (Add) reads 'w', which is no input, no initializer and no result of a node");
  add("NameTwice", ModelBuilder(13).Input("x", {1}).Node("Relu", {"x"}, {"y"}).Node("Abs", {"x"}, {"y"}).Output("y"),
      "node 'node_y' (Abs) computes 'y', which node 'node_y' (Relu) computes already");
  add("ResultNamedAsInput", ModelBuilder(13).Input("x", {1}).Node("Relu", {"x"}, {"x"}).Output("x"),
      "node 'node_x' (Relu) computes 'x', which is an input or initializer already");
  add("ControlCharactersInAnAttribute",
      ModelBuilder(13)
          .Input("x", {1, 4})
          .Initializer("p", Array(DType::kInt64, {4}))
          .Node("Pad", {"x", "p"}, {"y"}, {{"mode", "re\n\x1bt"}})
          .Output("y"),
      "node 'node_y' (Pad of opset 13): unknown mode 're??t': constant, edge, reflect or wrap");
  add("TwoInputs", Relu().Input("x", {1}), "it has two inputs 'x'");
  add("TwoInitializers", Relu().Initializer("w", Scalar(1)).Initializer("w", Scalar(2)), "it has two initializers 'w'");
  add("TwoOutputs", Relu().Output("y"), "it has two outputs 'y'");
  add("OutputOfNobody", Relu().Output("z"), "no node computes its output 'z'");
  add("NoOutput", ModelBuilder(13).Input("x", {1}).Node("Relu", {"x"}, {"y"}), "it has no output, or it was cut off");
  add("OldOpset", Relu(6),
      "it uses opset 6 of ONNX's operators, but 7 to 28 are supported: export it with one of these, or convert it with "
      "onnx.version_converter");
  ModelBuilder classical(17);
  classical.Input("x", {1}).Node("Scaler", {"x"}, {"y"}).Output("y");
  classical.proto().mutable_graph()->mutable_node(0)->set_domain("ai.onnx.ml");
  classical.proto().mutable_opset_import(0)->set_domain("ai.onnx.ml");
  classical.proto().mutable_opset_import(0)->set_version(3);
  add("OperatorsOfAnotherDomainAlone", classical,
      "it has operators that are not supported, of opset 28: ai.onnx.ml.Scaler (opset 3: of classical machine "
      "learning, "
      "which is no neural network): export the model without them, or add them as CONTRIBUTING.md says");
  ModelBuilder no_opset = Relu();
  no_opset.proto().clear_opset_import();
  add("NoOpset", no_opset,
      "it does not say which version (opset) of ONNX's operators it uses, or it was cut off: export or download it "
      "again");
  ModelBuilder no_graph = Relu();
  no_graph.proto().clear_graph();
  add("NoGraph", no_graph, "it has no graph, or it was cut off: export or download it again");
  ModelBuilder text = Relu();
  text.proto().mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::STRING);
  add("InputType", text, "input 'x' has type STRING; bool, integers and floats are supported");
  ModelBuilder sequence = Relu();
  sequence.proto().mutable_graph()->mutable_input(0)->mutable_type()->mutable_sequence_type();
  add("InputIsNoTensor", sequence, "input 'x' is no tensor, which is not supported");
  ModelBuilder bytes = Relu().Initializer("w", Scalar(1));
  bytes.proto().mutable_graph()->mutable_initializer(0)->set_raw_data("123");
  add("InitializerBytes", bytes, "tensor 'w' has 3 bytes of data where its shape asks for 4");
  ModelBuilder huge = Relu().Initializer("w", Scalar(1));
  for (int i = 0; i < 3; ++i) huge.proto().mutable_graph()->mutable_initializer(0)->add_dims(int64_t{1} << 30);
  add("InitializerSize", huge, "tensor 'w' is too large");
  ModelBuilder twice = Relu().Node("Elu", {"x"}, {"e"}, {{"alpha", 1.f}, {"alpha", 2.f}});
  add("AttributeTwice", twice, "node 'node_e' (Elu) has two attributes 'alpha'");
  return cases;
}

// Nodes that do not fit their operator or inputs.
std::vector<ErrorCase> NodeErrors() {
  std::vector<ErrorCase> cases;
  auto add = [&](const char* name, ModelBuilder model, const std::string& message) {
    cases.push_back({name, std::move(model), message});
  };
  using Attributes = std::vector<std::pair<std::string, OnnxValue>>;
  auto one = [](const char* op, std::vector<OnnxDim> shape, const Attributes& attributes, int64_t opset = 13) {
    return ModelBuilder(opset).Input("x", std::move(shape)).Node(op, {"x"}, {"y"}, attributes).Output("y");
  };
  add("UnknownAttribute", one("Relu", {1}, {{"slope", 1.f}}),
      "node 'node_y' (Relu of opset 13): attribute 'slope' is not supported in this opset");
  add("UnknownInput", ModelBuilder(13).Input("x", {1}).Node("Relu", {"x", "x"}, {"y"}).Output("y"),
      "node 'node_y' (Relu of opset 13): input 1 is not supported in this opset");
  add("AttributeType", one("Elu", {1}, {{"alpha", int64_t{1}}}),
      "node 'node_y' (Elu of opset 13): attribute 'alpha' is an integer, and a float is supported");
  add("AttributeKind", one("Transpose", {1}, {{"perm", "ab"}}),
      "node 'node_y' (Transpose of opset 13): attribute 'perm' is text, and a list of integers is supported");
  Array none(DType::kInt64, {}), four(DType::kInt64, {});
  four.set_int(0, 4);
  add("RangeWithoutAStep",
      ModelBuilder(13)
          .Input("x", {1})
          .Initializer("none", none)
          .Initializer("four", four)
          .Node("Range", {"none", "four", "none"}, {"r"})
          .Node("Gather", {"x", "r"}, {"y"})
          .Output("y"),
      "node 'node_r' (Range of opset 13): it counts from 0 to 4 by 0: steps other than 0 and up to 268435456 numbers "
      "are "
      "supported");
  ModelBuilder rnn(13);
  rnn.Input("x", {2, 1, 3})
      .Initializer("w", Array(DType::kFloat32, {1, 2, 3}))
      .Initializer("r", Array(DType::kFloat32, {1, 2, 2}))
      .Node("RNN", {"x", "w", "r"}, {"y"}, {{"hidden_size", int64_t{2}}})
      .Output("y");
  onnx::AttributeProto* activations = rnn.proto().mutable_graph()->mutable_node(0)->add_attribute();
  activations->set_name("activations");
  activations->set_type(onnx::AttributeProto::STRINGS);
  activations->add_strings("Gelu");
  add("Activation", rnn,
      "node 'node_y' (RNN of opset 13): activation 'Gelu' is not supported: Affine, Elu, HardSigmoid, LeakyRelu, Relu, "
      "ScaledTanh, Sigmoid, Softplus, Softsign, Tanh and ThresholdedRelu are");
  add("TypesDiffer",
      ModelBuilder(13).Input("x", {1}).Input("i", {1}, DType::kInt32).Node("Add", {"x", "i"}, {"y"}).Output("y"),
      "node 'node_y' (Add of opset 13): inputs must have one type, not float32 and int32");
  add("WrongType", ModelBuilder(13).Input("x", {1}, DType::kBool).Node("Relu", {"x"}, {"y"}).Output("y"),
      "node 'node_y' (Relu of opset 13): works on numbers, not on bool");
  add("Product", ModelBuilder(13).Input("a", {2, 3}).Input("b", {2, 3}).Node("MatMul", {"a", "b"}, {"y"}).Output("y"),
      "node 'node_y' (MatMul of opset 13): matrices 2x3 and 2x3 do not multiply");
  add("Channels",
      ModelBuilder(13)
          .Input("x", {1, 3, 4, 4})
          .Initializer("w", Array(DType::kFloat32, {4, 2, 1, 1}))
          .Node("Conv", {"x", "w"}, {"y"})
          .Output("y"),
      "node 'node_y' (Conv of opset 13): weights for 2 to 4 channels in 1 groups do not fit an image of 3 channels");
  add("FourDimensions", one("MaxPool", {1, 1, 4, 4, 4, 4}, {{"kernel_shape", Ints{2, 2, 2, 2}}}),
      "node 'node_y' (MaxPool of opset 13): input 0 must be images of 1 to 3 dimensions (a tensor of 3 to 5), not "
      "float32 1x1x4x4x4x4");
  add("AutoPad", one("MaxPool", {1, 1, 4, 4}, {{"kernel_shape", Ints{2, 2}}, {"auto_pad", "MIDDLE"}}),
      "node 'node_y' (MaxPool of opset 13): auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, not 'MIDDLE'");
  add("NegativePads", one("AveragePool", {1, 1, 4, 4}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{0, -1, 0, 0}}}),
      "node 'node_y' (AveragePool of opset 13): pads must be at least 0, not -1");
  add("HugeAttribute", one("Flatten", {1, 4}, {{"axis", int64_t{1} << 40}}),
      "node 'node_y' (Flatten of opset 13): attribute 'axis' cannot be 1099511627776");
  add("ShapeAtRunTime",
      ModelBuilder(13).Input("x", {1, 4}).Input("s", {2}, DType::kInt64).Node("Reshape", {"x", "s"}, {"y"}).Output("y"),
      "node 'node_y' (Reshape of opset 13): input 1 (the shape) must be a constant, but 's' is known only when the "
      "network runs");
  add("TrainingBatchNorm",
      ModelBuilder(9)
          .Input("x", {1, 2})
          .Initializer("s", Array(DType::kFloat32, {2}))
          .Node("BatchNormalization", {"x", "s", "s", "s", "s"}, {"y", "mean", "var", "smean", "svar"})
          .Output("y"),
      "node 'node_y' (BatchNormalization of opset 9): it is in training mode, which is not supported: export the model "
      "for inference");
  add("BatchNormOfOtherElements",
      ModelBuilder(7)
          .Input("x", {2, 3, 4})
          .Initializer("s", Array(DType::kFloat32, {3}))
          .Node("BatchNormalization", {"x", "s", "s", "s", "s"}, {"y"}, {{"spatial", int64_t{0}}})
          .Output("y"),
      "node 'node_y' (BatchNormalization of opset 7): with spatial=0, input 1 must be as an element of input 0 "
      "(float32 "
      "2x3x4), not float32 3");
  add("UniqueAtRunTime", ModelBuilder(13).Input("x", {4}).Node("Unique", {"x"}, {"y"}).Output("y"),
      "node 'node_y' (Unique of opset 13): the extent of its result depends on what the network computes: do it after "
      "the network");
  add("DropoutMask",
      ModelBuilder(10).Input("x", {1 << 15, 1 << 16}).Node("Dropout", {"x"}, {"y", "m"}).Output("m", DType::kBool),
      "node 'node_y' (Dropout of opset 10): its mask of 2147483648 elements is used, which is too large");
  add("TextConstant", ModelBuilder(13).Node("Constant", {}, {"y"}, {{"value_string", "a"}}).Output("y"),
      "node 'node_y' (Constant of opset 13): a constant of text is not supported");
  add("CastToText", one("Cast", {1}, {{"to", int64_t{8}}}),
      "node 'node_y' (Cast of opset 13): its result has type STRING; bool, integers and floats are supported");
  return cases;
}

// Values of constants and attributes that do not fit their operator.
std::vector<ErrorCase> ValueErrors() {
  std::vector<ErrorCase> cases;
  auto add = [&](const char* name, ModelBuilder model, const std::string& message) {
    cases.push_back({name, std::move(model), message});
  };
  add("GatherOutside",
      ModelBuilder(13)
          .Input("x", {3})
          .Initializer("i",
                       [] {
                         Array index(DType::kInt64, {});
                         index.set_int(0, 3);
                         return index;
                       }())
          .Node("Gather", {"x", "i"}, {"y"})
          .Output("y"),
      "node 'node_y' (Gather of opset 13): index 3 is outside of an axis of 3");
  // By operator: what its input 1 is, and the axes that it counts in.
  for (const auto& [op, indices, axis] : std::vector<std::tuple<const char*, Array, const char*>>{
           {"GatherElements", IntTable({1, 2}, {0, 50}), "index 50 is outside of an axis of 2"},
           {"ScatterElements", IntTable({1, 2}, {0, -3}), "index -3 is outside of an axis of 2"},
           {"GatherND", IntTable({1, 2}, {1, 3}), "index 3 is outside of an axis of 3"},
           {"ScatterND", IntTable({1, 2}, {2, 0}), "index 2 is outside of an axis of 2"}}) {
    ModelBuilder model(13);
    model.Input("x", {2, 3}).Initializer("i", indices).Output("y");
    const bool scatters = op[0] == 'S', elements = std::string(op).ends_with("Elements");
    if (scatters) model.Input("u", elements ? std::vector<OnnxDim>{1, 2} : std::vector<OnnxDim>{1});
    model.Node(op, scatters ? std::vector<std::string>{"x", "i", "u"} : std::vector<std::string>{"x", "i"}, {"y"});
    add(op, model, std::string("node 'node_y' (") + op + " of opset 13): " + axis);
  }
  add("OneHotOfAnAbsurdDepth",
      ModelBuilder(13)
          .Input("x", {3}, DType::kInt64)
          .Initializer("d", Scalar(1e15F))
          .Initializer("v", Array::FromFloats({2}, {0, 1}))
          .Node("OneHot", {"x", "d", "v"}, {"y"})
          .Output("y"),
      "node 'node_y' (OneHot of opset 13): input 1 (the depth) cannot be 1e+15: give a number from 1 to 2^27");
  add("SplitIntoOtherParts",
      ModelBuilder(18).Input("x", {4}).Node("Split", {"x"}, {"y"}, {{"num_outputs", int64_t{0}}}).Output("y"),
      "node 'node_y' (Split of opset 18): num_outputs is 0, but the number of its results is 1");
  add("SliceOfAnAxisTwice",
      ModelBuilder(13)
          .Input("x", {4})
          .Initializer("zero", IntList({0, 0}))
          .Initializer("one", IntList({1, 1}))
          .Initializer("axes", IntList({0, -1}))
          .Node("Slice", {"x", "zero", "one", "axes"}, {"y"})
          .Output("y"),
      "node 'node_y' (Slice of opset 13): axis 0 is named twice in its axes");
  add("DivisionByZero",
      ModelBuilder(13)
          .Input("x", {1}, DType::kInt64)
          .Initializer("z", Array(DType::kInt64, {}))
          .Node("Div", {"x", "z"}, {"y"})
          .Output("y", DType::kInt64),
      "node 'node_y' (Div of opset 13): it divides integers by zero");
  return cases;
}

TEST(Errors, NameWhatIsWrong) {
  for (const std::vector<ErrorCase>& cases : {GraphErrors(), NodeErrors(), ValueErrors()}) {
    for (const ErrorCase& c : cases) {
      SCOPED_TRACE(c.name);
      EXPECT_EQ(ErrorOf(c.model.Import()), std::string("cannot import 'model.onnx': ") + c.message);
    }
  }
}

TEST(Errors, WhatIsNoProtobufIsSaidToBeNone) {
  EXPECT_EQ(ErrorOf(ImportBytes("this is no model")),
            "cannot import 'model.onnx': it is no ONNX model, or it was cut off: export or download it again");
  EXPECT_EQ(ErrorOf(ImportBytes("")),
            "cannot import 'model.onnx': it has no graph, or it was cut off: export or download it again");
}

TEST(Errors, FilesThatCannotBeRead) {
  EXPECT_EQ(ErrorOf(LoadModel("no/such.onnx", {})),
            "cannot read the model 'no/such.onnx': No such file or directory; give an .onnx file or the name of a "
            "built-in network");
  std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_EQ(ErrorOf(LoadModel(folder + "/", {})),
            "cannot read the model '" + folder +
                "/': it is a folder; give an .onnx file or the name of a built-in "
                "network");
}

TEST(Errors, OptionsOfBuiltInNetworksAreNotForFiles) {
  ModelOptions options;
  options.extra["kernel"] = "3";
  EXPECT_EQ(ErrorOf(Relu().Import(options)),
            "cannot import 'model.onnx': a model in a file has no option 'kernel', which is for built-in networks: "
            "leave it out");
}

// Names in a model may hold any bytes; messages are one line of text.
TEST(Errors, NamesArePrintable) {
  EXPECT_EQ(
      ErrorOf(ModelBuilder(13).Input("x", {1}).Node("Add", {"x", "it's\n\xc3\xa9"}, {"y"}).Output("y").Import()),
      "cannot import 'model.onnx': node 'node_y' (Add) reads 'it's\\n\xc3\xa9', which is no input, no initializer and "
      "no result of a node");
  EXPECT_EQ(ErrorOf(Relu().Output("z\n\xff").Import()),
            "cannot import 'model.onnx': the name 'z\\n\\377' is no UTF-8 text");
}

}  // namespace
}  // namespace diapason
