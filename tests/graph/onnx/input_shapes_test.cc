// How options fix the shapes that a model leaves open.
#include <gtest/gtest.h>

#include <sstream>

#include "../testing.h"
#include "compiler/graph/onnx/import.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

ModelBuilder Two(std::vector<OnnxDim> first, std::vector<OnnxDim> second) {
  ModelBuilder model(13);
  model.Input("x", std::move(first)).Input("z", std::move(second));
  model.Node("Relu", {"x"}, {"a"}).Node("Relu", {"z"}, {"b"}).Output("a").Output("b");
  return model;
}

// Shapes of both inputs, or the error.
std::string ShapesOf(const ModelBuilder& model, const ModelOptions& options) {
  absl::StatusOr<Network> n = model.Import(options);
  if (!n.ok()) return std::string(n.status().message());
  return n->tensors[n->inputs[0]].type.ToString() + " " + n->tensors[n->inputs[1]].type.ToString();
}

ModelOptions Batch(int64_t batch) {
  ModelOptions options;
  options.batch = batch;
  return options;
}

ModelOptions Given(const std::string& name, std::vector<int64_t> shape, int64_t batch = 0) {
  ModelOptions options = Batch(batch);
  options.input_shapes[name] = std::move(shape);
  return options;
}

TEST(InputShapes, TheBatchFixesTheFirstExtent) {
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {"N", 4}), Batch(0)), "float32 1x3 float32 1x4");
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {"N", 4}), Batch(8)), "float32 8x3 float32 8x4");
  EXPECT_EQ(ShapesOf(Two({2, 3}, {2, 4}), Batch(0)), "float32 2x3 float32 2x4");
  EXPECT_EQ(ShapesOf(Two({2, 3}, {2, 4}), Batch(8)), "float32 8x3 float32 8x4");
  EXPECT_EQ(ShapesOf(Two({-1, 3}, {0, 4}), Batch(0)), "float32 1x3 float32 1x4");
}

TEST(InputShapes, ANamedExtentIsTheSameEverywhere) {
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {4, "N"}), Batch(0)), "float32 1x3 float32 4x1");
  EXPECT_EQ(ShapesOf(Two({"N", "H"}, {"N", "H"}), Given("x", {2, 5})), "float32 2x5 float32 2x5");
}

TEST(InputShapes, UnknownExtentsAreNotOneSymbol) {
  EXPECT_EQ(ShapesOf(Two({"?", 3, "?"}, {"None", "-1"}), Given("x", {2, 3, 5}, 0)),
            "cannot import 'model.onnx': the size of 'z.1' is open (input 'z' is z.0xz.1): give it with --dim z.1=128");
  ModelOptions options = Given("x", {2, 3, 5});
  options.input_shapes["z"] = {7, 8};
  EXPECT_EQ(ShapesOf(Two({"?", 3, "?"}, {"?", "?"}), options), "float32 2x3x5 float32 7x8");
}

TEST(InputShapes, AGivenShapeReplacesTheModels) {
  EXPECT_EQ(ShapesOf(Two({"N", "H"}, {1, 4}), Given("x", {2, 5})), "float32 2x5 float32 1x4");
  EXPECT_EQ(ShapesOf(Two({1, 3}, {1, 4}), Given("x", {2, 5}, 7)), "float32 2x5 float32 7x4");
}

ModelOptions Dims(SymbolSizes dims, int64_t batch = 0) {
  ModelOptions options = Batch(batch);
  options.dims = std::move(dims);
  return options;
}

TEST(InputShapes, SymbolsHaveTheirSizes) {
  EXPECT_EQ(ShapesOf(Two({"N", "seq"}, {"N", "seq"}), Dims({{"seq", 7}})), "float32 1x7 float32 1x7");
  EXPECT_EQ(ShapesOf(Two({"N", "seq"}, {"N", 4}), Dims({{"seq", 7}, {"N", 3}})), "float32 3x7 float32 3x4");
  EXPECT_EQ(ShapesOf(Two({"N", "seq"}, {"N", 4}), Dims({{"seq", 7}}, 5)), "float32 5x7 float32 5x4");
  EXPECT_EQ(ShapesOf(Two({"N", -1}, {-1, 4}), Dims({{"x.1", 7}, {"z.0", 2}})), "float32 1x7 float32 2x4");
}

TEST(InputShapes, InputsBearTheirSymbols) {
  ModelFacts facts;
  std::istringstream bytes(Two({"N", -1, 3}, {4}).Bytes());
  ASSERT_TRUE(ImportOnnxStream(bytes, "model.onnx", "", Dims({{"x.1", 2}}), &facts).ok());
  const std::vector<ModelInput>& inputs = facts.inputs;
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].name, "x");
  EXPECT_EQ(inputs[0].symbols, (std::vector<std::string>{"N", "x.1", ""}));
  EXPECT_EQ(inputs[1].symbols, (std::vector<std::string>{""}));
}

TEST(InputShapes, WhatStaysOpenIsAnError) {
  EXPECT_EQ(ShapesOf(Two({"N", "height"}, {1, 4}), Batch(2)),
            "cannot import 'model.onnx': the size of 'height' is open (input 'x' is Nxheight): give it with --dim "
            "height=128");
  EXPECT_EQ(ShapesOf(Two({"N", "seq", -1}, {"N", "seq", "2*seq"}), Batch(2)),
            "cannot import 'model.onnx': the sizes of 'seq', 'x.2', '2*seq' are open (input 'x' is Nxseqxx.2, input "
            "'z' is Nxseqx2*seq): "
            "give them with --dim seq=128 --dim x.2=128 --dim '2*seq=128'");
  ModelBuilder none = Two({1}, {1});
  none.proto().mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_EQ(ShapesOf(none, Batch(2)),
            "cannot import 'model.onnx': input 'z' has an open shape: fix it with --input-shape z=1x3x224x224, with "
            "its own numbers");
  EXPECT_EQ(ShapesOf(none, Given("z", {4, 4}, 2)), "float32 2 float32 4x4");
}

TEST(InputShapes, UnknownSymbolsAndContradictionsAreErrors) {
  EXPECT_EQ(ShapesOf(Two({"N", "seq"}, {"N", 4}), Dims({{"sequence", 7}})),
            "cannot import 'model.onnx': it has no symbolic dimension 'sequence': it has 'N', 'seq'");
  EXPECT_EQ(ShapesOf(Two({1}, {1}), Dims({{"seq", 7}})),
            "cannot import 'model.onnx': it has no symbolic dimension 'seq': all its dimensions are fixed");
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {"N", 4}), Dims({{"N", 7}}, 5)),
            "cannot import 'model.onnx': 'N' cannot be 7 (--dim N=7) and 5 (--batch 5) at once: leave one of them out");
  ModelOptions both = Given("x", {2, 5});
  both.dims = {{"seq", 7}};
  EXPECT_EQ(ShapesOf(Two({"N", "seq"}, {"N", 4}), both),
            "cannot import 'model.onnx': 'seq' cannot be 7 (--dim seq=7) and 5 (--input-shape x=2x5) at once: leave "
            "one of them out");
}

TEST(InputShapes, OptionsThatDoNotFit) {
  EXPECT_EQ(ShapesOf(Two({1, 3}, {1, 4}), Given("data", {1, 3})),
            "cannot import 'model.onnx': it has no input 'data' to give a shape to: its inputs are 'x', 'z'");
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {1, 4}), Given("x", {1, 3, 4})),
            "cannot import 'model.onnx': input 'x' has the shape Nx3, which does not fit the given 1x3x4");
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {1, 4}), Given("x", {1, 0})),
            "cannot import 'model.onnx': input 'x' cannot have the shape 1x0");
  EXPECT_EQ(ShapesOf(Two({"N", 3}, {1, 4}), Given("x", {int64_t{1} << 62, 4})),
            "cannot import 'model.onnx': input 'x' cannot have the shape 4611686018427387904x4");
}

// A shape that the exporter has written into the graph does not follow the batch.
TEST(InputShapes, ABatchThatTheGraphContradicts) {
  Array shape(DType::kInt64, {2});
  shape.set_int(0, 1);
  shape.set_int(1, 4);
  ModelBuilder model(13);
  model.Input("x", {1, 2, 2}).Input("z", {1});
  model.Initializer("s", shape).Node("Reshape", {"x", "s"}, {"y"}).Output("y").Output("z");
  EXPECT_EQ(ShapesOf(model, Batch(1)), "float32 1x2x2 float32 1");
  EXPECT_EQ(ShapesOf(model, Batch(2)),
            "cannot import 'model.onnx': node 'node_y' (Reshape of opset 13): cannot reshape 2x2x2 to 1x4");
}

// Shapes that the model notes for results are those of its own batch.
TEST(InputShapes, NotedShapesDoNotContradictTheBatch) {
  ModelBuilder model = Two({2, 3}, {2, 4});
  for (onnx::ValueInfoProto& output : *model.proto().mutable_graph()->mutable_output()) {
    output.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
    output.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(3);
  }
  EXPECT_EQ(ShapesOf(model, Batch(8)), "float32 8x3 float32 8x4");
}

}  // namespace
}  // namespace diapason
