// What holds other graphs: functions of a model, If, Loop and Scan.
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

Array Truth(bool value) {
  Array array(DType::kBool, {});
  array.set_int(0, value);
  return array;
}

onnx::NodeProto* AddNode(google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes, const std::string& op,
                         const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                         const std::string& domain = "") {
  onnx::NodeProto* node = nodes->Add();
  node->set_op_type(op);
  node->set_domain(domain);
  node->set_name("node_" + outputs[0]);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  return node;
}

void AddNames(onnx::GraphProto* graph, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs) {
  for (const std::string& name : inputs) graph->add_input()->set_name(name);
  for (const std::string& name : outputs) graph->add_output()->set_name(name);
}

onnx::GraphProto* AddBody(onnx::NodeProto* node, const std::string& attribute) {
  onnx::AttributeProto* body = node->add_attribute();
  body->set_name(attribute);
  body->set_type(onnx::AttributeProto::GRAPH);
  body->mutable_g()->set_name(attribute);
  return body->mutable_g();
}

void ExpectValues(const ModelBuilder& model, const std::vector<Array>& inputs, const std::vector<Array>& want) {
  const absl::StatusOr<Network> network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  const absl::StatusOr<std::vector<Array>> got = EvaluateNetwork(*network, inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ExpectNear((*got)[i], want[i], 1e-6);
}

std::string ErrorOf(const ModelBuilder& model) { return std::string(model.Import().status().message()); }

// y = Twice(x) where Twice(a) = Leaky(a) + Leaky(a), with an attribute that it hands on.
ModelBuilder Functions(bool with_slope) {
  ModelBuilder model(18);
  model.Input("x", {2}).Output("y");
  onnx::ModelProto& proto = model.proto();
  proto.add_opset_import()->set_domain("mine");
  proto.mutable_opset_import(1)->set_version(1);
  onnx::FunctionProto* leaky = proto.add_functions();
  leaky->set_domain("mine");
  leaky->set_name("Leaky");
  leaky->add_input("a");
  leaky->add_output("b");
  leaky->add_attribute("slope");
  onnx::AttributeProto* alpha = AddNode(leaky->mutable_node(), "LeakyRelu", {"a"}, {"b"})->add_attribute();
  alpha->set_name("alpha");
  alpha->set_type(onnx::AttributeProto::FLOAT);
  alpha->set_ref_attr_name("slope");
  onnx::FunctionProto* twice = proto.add_functions();
  twice->set_domain("mine");
  twice->set_name("Twice");
  twice->add_input("a");
  twice->add_output("sum");
  onnx::NodeProto* first = AddNode(twice->mutable_node(), "Leaky", {"a"}, {"b"}, "mine");
  if (with_slope) {
    onnx::AttributeProto* slope = first->add_attribute();
    slope->set_name("slope");
    slope->set_type(onnx::AttributeProto::FLOAT);
    slope->set_f(0.5f);
  }
  AddNode(twice->mutable_node(), "Add", {"b", "b"}, {"sum"});
  AddNode(proto.mutable_graph()->mutable_node(), "Twice", {"x"}, {"y"}, "mine");
  return model;
}

TEST(Functions, AreInlinedWithTheirAttributes) {
  ExpectValues(Functions(true), {Array::FromFloats({2}, {-4, 3})}, {Array::FromFloats({2}, {-4, 6})});
}

TEST(Functions, LeaveOutAnAttributeThatTheCallDoes) {  // LeakyRelu's own default is 0.01
  ExpectValues(Functions(false), {Array::FromFloats({2}, {-4, 3})}, {Array::FromFloats({2}, {-0.08f, 6})});
}

TEST(Functions, ThatCallThemselvesAreRefused) {
  ModelBuilder model = Functions(true);
  AddNode(model.proto().mutable_functions(0)->mutable_node(), "Twice", {"b"}, {"c"}, "mine");
  EXPECT_EQ(ErrorOf(model), "cannot import 'model.onnx': its function 'Twice' calls itself, or functions are 32 deep");
}

ModelBuilder Choice() {
  ModelBuilder model(18);
  model.Input("x", {2}).Output("y");
  onnx::NodeProto* node = AddNode(model.proto().mutable_graph()->mutable_node(), "If", {"c"}, {"y"});
  onnx::GraphProto* yes = AddBody(node, "then_branch");
  AddNode(yes->mutable_node(), "Neg", {"x"}, {"r"});
  AddNames(yes, {}, {"r"});
  onnx::GraphProto* no = AddBody(node, "else_branch");
  AddNode(no->mutable_node(), "Add", {"x", "x"}, {"r"});
  AddNames(no, {}, {"r"});
  return model;
}

TEST(If, TakesTheBranchThatIsKnown) {
  for (bool condition : {true, false}) {
    ModelBuilder model = Choice();
    model.Initializer("c", Truth(condition));
    ExpectValues(model, {Array::FromFloats({2}, {1, 2})},
                 {Array::FromFloats({2}, condition ? std::vector<float>{-1, -2} : std::vector<float>{2, 4})});
  }
}

TEST(If, WithAConditionOfRunTimeIsRefused) {
  ModelBuilder model = Choice();
  model.Input("c", {}, DType::kBool);
  EXPECT_EQ(ErrorOf(model),
            "cannot import 'model.onnx': node 'node_y' (If of opset 18): its condition is known only when the network "
            "runs, which is not supported: "
            "export the model with static shapes, or with the input it depends on as a constant");
}

// s += x in each step, and 2 * s of each step are stacked.
ModelBuilder Sums(int64_t steps) {
  ModelBuilder model(18);
  model.Input("x", {2})
      .Initializer("n", Number(steps))
      .Initializer("yes", Truth(true))
      .Initializer("zero", Array(DType::kFloat32, {2}));
  model.Output("total").Output("all");
  onnx::NodeProto* node =
      AddNode(model.proto().mutable_graph()->mutable_node(), "Loop", {"n", "yes", "zero"}, {"total", "all"});
  onnx::GraphProto* body = AddBody(node, "body");
  AddNode(body->mutable_node(), "Add", {"s", "x"}, {"t"});
  AddNode(body->mutable_node(), "Add", {"t", "t"}, {"twice"});
  AddNames(body, {"i", "go", "s"}, {"go", "t", "twice"});
  return model;
}

TEST(Loop, IsUnrolled) {
  ExpectValues(Sums(3), {Array::FromFloats({2}, {1, 10})},
               {Array::FromFloats({2}, {3, 30}), Array::FromFloats({3, 2}, {2, 20, 4, 40, 6, 60})});
}

TEST(Loop, EndsWhenItsConditionSaysSo) {
  ModelBuilder model = Sums(100);
  onnx::GraphProto* body = model.proto().mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g();
  Array two = Number(1);
  SetTensor(*body->add_initializer(), "one", two);
  AddNode(body->mutable_node(), "Less", {"i", "one"}, {"more"});
  body->mutable_output(0)->set_name("more");  // true after step 0, false after step 1
  ExpectValues(model, {Array::FromFloats({2}, {1, 10})},
               {Array::FromFloats({2}, {2, 20}), Array::FromFloats({2, 2}, {2, 20, 4, 40})});
}

TEST(Loop, OfTooManyStepsIsRefused) {
  EXPECT_EQ(ErrorOf(Sums(100000)),
            "cannot import 'model.onnx': node 'node_total' (Loop of opset 18): it has more than 1024 steps, and loops "
            "of up to 1024 are unrolled");
}

TEST(Loop, ReadsNamesThatExist) {
  ModelBuilder model = Sums(3);
  model.proto().mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(
      1, "nobody");
  EXPECT_EQ(ErrorOf(model),
            "cannot import 'model.onnx': node 'node_total' (Loop) reads 'nobody', which is no input, no initializer "
            "and no result of a node");
}

// s += v in each step, and -s of each step is stacked.
onnx::NodeProto* AddSums(ModelBuilder& model, const std::vector<std::string>& inputs) {
  onnx::NodeProto* node = AddNode(model.proto().mutable_graph()->mutable_node(), "Scan", inputs, {"last", "all"});
  onnx::AttributeProto* count = node->add_attribute();
  count->set_name("num_scan_inputs");
  count->set_type(onnx::AttributeProto::INT);
  count->set_i(1);
  onnx::GraphProto* body = AddBody(node, "body");
  AddNode(body->mutable_node(), "Add", {"s", "v"}, {"t"});
  AddNode(body->mutable_node(), "Neg", {"t"}, {"u"});
  AddNames(body, {"s", "v"}, {"t", "u"});
  model.Output("last").Output("all");
  return node;
}

void AddDirection(onnx::NodeProto* node, const std::string& name) {
  onnx::AttributeProto* directions = node->add_attribute();
  directions->set_name(name);
  directions->set_type(onnx::AttributeProto::INTS);
  directions->add_ints(1);
}

TEST(Scan, RunsBackwardsToo) {
  ModelBuilder model(18);
  model.Input("x", {3, 1}).Initializer("zero", Array(DType::kFloat32, {1}));
  AddDirection(AddSums(model, {"zero", "x"}), "scan_input_directions");
  ExpectValues(model, {Array::FromFloats({3, 1}, {1, 2, 4})},
               {Array::FromFloats({1}, {7}), Array::FromFloats({3, 1}, {-4, -6, -7})});
}

ModelBuilder BatchedSums(const std::string& lengths, bool backwards) {
  ModelBuilder model(8);
  model.Input("x", {2, 3, 1}).Initializer("start", Array::FromFloats({2, 1}, {0, 100}));
  onnx::NodeProto* node = AddSums(model, {lengths, "start", "x"});
  if (backwards) AddDirection(node, "directions");
  return model;
}

TEST(Scan, OfOpset8RunsEachSequenceOfABatch) {
  const Array x = Array::FromFloats({2, 3, 1}, {1, 2, 4, 10, 20, 40});
  ExpectValues(BatchedSums("", false), {x},
               {Array::FromFloats({2, 1}, {7, 170}), Array::FromFloats({2, 3, 1}, {-1, -3, -7, -110, -130, -170})});
  ExpectValues(BatchedSums("", true), {x},
               {Array::FromFloats({2, 1}, {7, 170}), Array::FromFloats({2, 3, 1}, {-4, -6, -7, -140, -160, -170})});
}

TEST(Scan, OfOpset8EndsWhereASequenceDoes) {
  const Array x = Array::FromFloats({2, 3, 1}, {1, 2, 4, 10, 20, 40});
  ModelBuilder model = BatchedSums("lengths", true);
  model.Initializer("lengths", IntList({3, 2}));
  ExpectValues(model, {x},
               {Array::FromFloats({2, 1}, {7, 130}), Array::FromFloats({2, 3, 1}, {-4, -6, -7, -120, -130, 0})});
  ModelBuilder longer = BatchedSums("lengths", false);
  longer.Initializer("lengths", IntList({3, 4}));
  EXPECT_EQ(
      ErrorOf(longer),
      "cannot import 'model.onnx': node 'node_last' (Scan of opset 8): its lengths must be 2 numbers from 1 to 3");
}

TEST(Scan, OfOpset8HasOneBatch) {
  ModelBuilder model(8);
  model.Input("x", {3, 3, 1}).Initializer("start", Array(DType::kFloat32, {2, 1}));
  AddSums(model, {"", "start", "x"});
  EXPECT_EQ(ErrorOf(model),
            "cannot import 'model.onnx': node 'node_last' (Scan of opset 8): its inputs differ in their batch or in "
            "their number of steps");
}

// A type that we do not have is kept in a wider one, and its results are those of the narrow one.
TEST(NarrowTypes, RoundAndWrapAsTheyWould) {
  ModelBuilder model(18);
  model.Input("x", {3}).Node("Cast", {"x"}, {"b"}, {{"to", int64_t{17}}}).Node("Add", {"b", "b"}, {"y"});
  model.Node("Cast", {"x"}, {"i"}, {{"to", int64_t{5}}})
      .Node("Mul", {"i", "i"}, {"z"})
      .Output("y")
      .Output("z", DType::kInt32);
  // float8e4m3fn has 4 bits: 257 becomes 256, 300 lies nearer to 288 than to 320, and the sums are cut off at 448.
  // int16 wraps at 2^15: 257^2 = 66049 = 65536 + 513, 300^2 = 90000 = 65536 + 24464.
  Array z(DType::kInt32, {3});
  z.set_int(0, 1);
  z.set_int(1, 513);
  z.set_int(2, 24464);
  ExpectValues(model, {Array::FromFloats({3}, {1, 257, 300})}, {Array::FromFloats({3}, {2, 448, 448}), z});
}

// bfloat16 has 8 bits: 257 lies between 256 and 258, and the tie goes to 256; each sum is rounded.
TEST(Bfloat16, KeepsItsTypeFromInputsToOutputs) {
  Array weight(DType::kBfloat16, {3});
  weight.set(0, 1);
  weight.set(1, 258);
  weight.set(2, 0x1p100);
  ModelBuilder model(18);
  model.Input("x", {3}, DType::kBfloat16).Input("z", {3}).Initializer("w", weight);
  model.Node("Add", {"x", "w"}, {"y"}).Node("Cast", {"z"}, {"narrow"}, {{"to", int64_t{16}}});
  model.Node("Add", {"y", "narrow"}, {"sum"}).Node("Cast", {"sum"}, {"wide"}, {{"to", int64_t{1}}});
  model.Node("CastLike", {"z", "x"}, {"like"});
  model.Output("sum", DType::kBfloat16).Output("wide").Output("like", DType::kBfloat16);
  const absl::StatusOr<Network> network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->tensors[network->inputs[0]].type.ToString(), "bfloat16 3");
  EXPECT_EQ(network->tensors[network->outputs[0]].type.ToString(), "bfloat16 3");
  EXPECT_EQ(network->tensors[network->outputs[2]].type.ToString(), "bfloat16 3");
  for (const Tensor& tensor : network->tensors) {
    if (tensor.constant()) {
      EXPECT_EQ(tensor.type.dtype, DType::kBfloat16) << tensor.name;
    }
  }
  Array x(DType::kBfloat16, {3}), sum(DType::kBfloat16, {3}), like(DType::kBfloat16, {3});
  for (const auto& [at, value] : {std::pair{0, 2.0}, {1, 258.0}, {2, 0.0}}) x.set(at, value);
  for (const auto& [at, value] : {std::pair{0, 4.0}, {1, 772.0}, {2, 0x1p100}}) sum.set(at, value);
  for (const auto& [at, value] : {std::pair{0, 1.0}, {1, 256.0}, {2, 1.0}}) like.set(at, value);
  ExpectValues(model, {x, Array::FromFloats({3}, {1, 257, 1})}, {sum, CastArray(sum, DType::kFloat32), like});
}

}  // namespace
}  // namespace diapason
