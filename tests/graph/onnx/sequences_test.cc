// Sequences of tensors and optional values, of which nothing is left in the network.
#include <gtest/gtest.h>

#include "../testing.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

Array Number(int64_t value) {
  Array array(DType::kInt64, {});
  array.set_int(0, value);
  return array;
}

// Of models with an input x of counting numbers, from 1.
void ExpectValues(const ModelBuilder& model, const Ints& shape, const std::vector<Array>& want) {
  const absl::StatusOr<Network> network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  const absl::StatusOr<std::vector<Array>> got = EvaluateNetwork(*network, {Counting(shape)});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ((*got)[i].shape, want[i].shape);
    ExpectNear((*got)[i], want[i], 1e-6);
  }
}

std::string ErrorOf(const ModelBuilder& model) { return std::string(model.Import().status().message()); }

TEST(Sequences, PartsOfATensorAreTakenOutAndJoined) {
  ModelBuilder model(17);
  model.Input("x", {2, 3})
      .Initializer("first", Number(0))
      .Initializer("last", Number(-1))
      .Node("SplitToSequence", {"x"}, {"columns"}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}})
      .Node("SequenceAt", {"columns", "first"}, {"a"})
      .Node("SequenceAt", {"columns", "last"}, {"b"})
      .Node("Sub", {"a", "b"}, {"y"})
      .Node("ConcatFromSequence", {"columns"}, {"z"}, {{"axis", int64_t{-1}}, {"new_axis", int64_t{1}}})
      .Output("y")
      .Output("z");
  ExpectValues(model, {2, 3}, {Array::FromFloats({2}, {-2, -2}), Counting({2, 3})});
}

TEST(Sequences, ALengthSplitsAsFarAsTheAxisGoesAndAListAsItSays) {
  for (const bool list : {false, true}) {
    ModelBuilder model(17);
    model.Input("x", {5})
        .Initializer("split", list ? IntList({0, 4, 1}) : Number(2))
        .Initializer("at", Number(2))
        .Node("SplitToSequence", {"x", "split"}, {"parts"})
        .Node("SequenceAt", {"parts", "at"}, {"y"})
        .Node("ConcatFromSequence", {"parts"}, {"z"}, {{"axis", int64_t{0}}})
        .Output("y")
        .Output("z");
    ExpectValues(model, {5}, {Array::FromFloats({1}, {5}), Counting({5})});
  }
}

TEST(Sequences, AreBuiltAndChanged) {
  ModelBuilder model(17);
  model.Input("x", {2})
      .Initializer("front", Number(0))
      .Initializer("second", Number(1))
      .Node("SequenceEmpty", {}, {"empty"})
      .Node("SequenceConstruct", {"x", "x"}, {"two"})
      .Node("Neg", {"x"}, {"minus"})
      .Node("SequenceInsert", {"two", "minus", "front"}, {"three"})
      .Node("SequenceErase", {"three", "second"}, {"left"})
      .Node("SequenceInsert", {"left", "minus"}, {"grown"})
      .Node("Identity", {"grown"}, {"same"})
      .Node("ConcatFromSequence", {"same"}, {"y"}, {{"axis", int64_t{0}}})
      .Node("SequenceLength", {"same"}, {"length"})
      .Node("SequenceLength", {"empty"}, {"none"})
      .Output("y")
      .Output("length", DType::kInt64)
      .Output("none", DType::kInt64);
  ExpectValues(model, {2}, {Array::FromFloats({6}, {-1, -2, 1, 2, -1, -2}), Number(3), Number(0)});
}

onnx::GraphProto* AddBody(ModelBuilder& model, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs) {
  onnx::AttributeProto* body = model.proto().mutable_graph()->mutable_node()->rbegin()->add_attribute();
  body->set_name("body");
  body->set_type(onnx::AttributeProto::GRAPH);
  for (const std::string& name : inputs) body->mutable_g()->add_input()->set_name(name);
  for (const std::string& name : outputs) body->mutable_g()->add_output()->set_name(name);
  return body->mutable_g();
}

void AddNode(onnx::GraphProto* body, const std::string& op, const std::vector<std::string>& inputs,
             const std::string& output) {
  onnx::NodeProto* node = body->add_node();
  node->set_op_type(op);
  node->set_name("node_" + output);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output);
}

TEST(Sequences, GrowInLoops) {
  ModelBuilder model(17);
  model.Input("x", {2})
      .Initializer("steps", Number(3))
      .Node("SequenceEmpty", {}, {"empty"})
      .Node("Loop", {"steps", "", "x", "empty"}, {"sum", "all"});
  onnx::GraphProto* body = AddBody(model, {"i", "more", "sum_in", "all_in"}, {"more_out", "sum_out", "all_out"});
  AddNode(body, "Identity", {"more"}, "more_out");
  AddNode(body, "Add", {"sum_in", "x"}, "sum_out");
  AddNode(body, "SequenceInsert", {"all_in", "sum_out"}, "all_out");
  model.Node("ConcatFromSequence", {"all"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
  ExpectValues(model, {2}, {Array::FromFloats({6}, {2, 4, 3, 6, 4, 8})});
}

TEST(Sequences, AreMappedElementByElement) {
  ModelBuilder model(17);
  model.Input("x", {2, 2}).Node("SplitToSequence", {"x"}, {"rows"}).Node("SequenceMap", {"rows", "x"}, {"sums"});
  onnx::GraphProto* body = AddBody(model, {"row", "all"}, {"sum"});
  AddNode(body, "Add", {"row", "all"}, "sum");
  model.Node("ConcatFromSequence", {"sums"}, {"y"}, {{"axis", int64_t{0}}}).Output("y");
  ExpectValues(model, {2, 2}, {Array::FromFloats({4, 2}, {2, 4, 4, 6, 4, 6, 6, 8})});
}

TEST(Sequences, OptionalValuesAreTheirElements) {
  ModelBuilder model(17);
  model.Input("x", {2})
      .Node("Optional", {"x"}, {"some"})
      .Node("Optional", {}, {"none"})
      .Node("OptionalGetElement", {"some"}, {"y"})
      .Node("OptionalHasElement", {"some"}, {"yes"})
      .Node("OptionalHasElement", {"none"}, {"no"})
      .Output("y")
      .Output("yes", DType::kBool)
      .Output("no", DType::kBool);
  Array yes(DType::kBool, {});
  yes.set_int(0, 1);
  ExpectValues(model, {2}, {Counting({2}), yes, Array(DType::kBool, {})});
  model.Node("OptionalGetElement", {"none"}, {"nothing"}).Output("nothing");
  EXPECT_EQ(
      ErrorOf(model),
      "cannot import 'model.onnx': node 'node_nothing' (OptionalGetElement of opset 17): its optional value has no "
      "element");
}

TEST(Sequences, WhatIsWrongWithThemIsTold) {
  const auto model = [] {
    ModelBuilder made(17);
    made.Input("x", {2}).Initializer("at", Number(2)).Node("SequenceConstruct", {"x", "x"}, {"two"}).Output("y");
    return made;
  };
  const std::string prefix = "cannot import 'model.onnx': node 'node_y' ";
  EXPECT_EQ(ErrorOf(model().Node("SequenceAt", {"two", "at"}, {"y"})),
            prefix + "(SequenceAt of opset 17): position 2 is outside of a sequence of 2 tensors");
  EXPECT_EQ(ErrorOf(model().Node("Relu", {"two"}, {"y"})),
            prefix + "(Relu of opset 17): input 0 ('two') is a sequence, and a tensor is supported");
  EXPECT_EQ(ErrorOf(model().Node("SequenceLength", {"x"}, {"y"})),
            prefix + "(SequenceLength of opset 17): input 0 must be a sequence, not float32 2");
  EXPECT_EQ(ErrorOf(model().Node("Identity", {"two"}, {"y"})),
            "cannot import 'model.onnx': output 'y' is a sequence, which is not supported: join its tensors "
            "(ConcatFromSequence)");
  EXPECT_EQ(
      ErrorOf(
          model().Node("SequenceEmpty", {}, {"e"}).Node("ConcatFromSequence", {"e"}, {"y"}, {{"axis", int64_t{0}}})),
      prefix + "(ConcatFromSequence of opset 17): its sequence is empty, so that its result would be, too");
  ModelBuilder large(17);
  large.Input("x", {1025}).Node("SplitToSequence", {"x"}, {"s"}).Node("SequenceLength", {"s"}, {"y"}).Output("y");
  EXPECT_EQ(
      ErrorOf(large),
      "cannot import 'model.onnx': node 'node_s' (SplitToSequence of opset 17): its sequence would have more than "
      "1024 tensors, which is not supported");
}

}  // namespace
}  // namespace diapason
