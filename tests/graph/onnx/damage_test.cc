// Damaged files are refused, or still are models; nothing crashes, hangs or takes much memory.
#include <gtest/gtest.h>

#include "../testing.h"
#include "compiler/graph/passes.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

// Imports and, where that works, optimises: what is wrong must have been found by then.
bool Imports(const std::string& bytes) {
  absl::StatusOr<Network> network = ImportBytes(bytes);
  if (!network.ok()) {
    EXPECT_EQ(network.status().message().find("\n"), absl::string_view::npos) << network.status();
    return false;
  }
  EXPECT_TRUE(network->Validate().ok());
  return true;
}

TEST(Damage, TheSampleIsGood) {
  auto network = ImportBytes(SampleModel());
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_TRUE(Optimize(*network, {}).ok());
}

TEST(Damage, CutAnywhere) {
  std::string bytes = SampleModel();
  // Only a cut behind the graph, before the opset's version, could leave a model: there it asks for the opset.
  for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(Imports(bytes.substr(0, length))) << length;
}

TEST(Damage, EveryBitFlipped) {
  std::string bytes = SampleModel();
  int good = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    good += Imports(damaged);
  }
  EXPECT_GT(good, 100);  // flips in weights and names
}

TEST(Damage, RandomBytesChanged) {
  std::string bytes = SampleModel();
  WeightRandom random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    for (int change = 0; change < 4; ++change) damaged[random.Next() % bytes.size()] = static_cast<char>(random.Next());
    Imports(damaged);
  }
}

// Attributes and known inputs that are extreme numbers.
TEST(Damage, ExtremeIntegers) {
  for (int64_t value : {INT64_MIN, INT64_MIN + 1, -(int64_t{1} << 31), int64_t{1} << 31, int64_t{1} << 32, INT64_MAX}) {
    Array list = IntList({value});
    Array two = IntList({value, value});
    auto model = [](const Array& constant) {
      ModelBuilder builder(13);
      builder.Input("x", {4}).Initializer("c", constant).Initializer("zero", IntList({0}));
      return builder;
    };
    Imports(model(list).Node("Reshape", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("Reshape", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("Pad", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("Pad", {"c", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("Expand", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("ConstantOfShape", {"c"}, {"y"}).Output("y").Bytes());
    Imports(model(list).Node("Slice", {"x", "c", "c", "zero", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(list).Node("Slice", {"x", "zero", "c", "zero", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(list).Node("Squeeze", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(list).Node("Unsqueeze", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(list).Node("Gather", {"x", "c"}, {"y"}).Output("y").Bytes());
    Imports(model(two).Node("Split", {"x", "c"}, {"y", "z"}).Output("y").Bytes());
    Imports(model(list).Node("ReduceSum", {"x", "c"}, {"y"}).Output("y").Bytes());
    for (const char* name : {"strides", "pads", "dilations", "kernel_shape"}) {
      ModelBuilder pool(13);
      std::vector<std::pair<std::string, OnnxValue>> attributes = {{name, Ints(name[0] == 'p' ? 4 : 2, value)}};
      if (name[0] != 'k') attributes.push_back({"kernel_shape", Ints{2, 2}});
      Imports(pool.Input("x", {1, 1, 4, 4}).Node("MaxPool", {"x"}, {"y"}, attributes).Output("y").Bytes());
    }
    for (const char* op : {"Concat", "Flatten", "Softmax", "Gather"}) {
      std::vector<std::string> inputs = {"x"};
      if (op[0] == 'G') inputs.push_back("zero");
      Imports(model(list).Node(op, inputs, {"y"}, {{"axis", value}}).Output("y").Bytes());
    }
    Imports(model(list).Node("Transpose", {"x"}, {"y"}, {{"perm", Ints{value}}}).Output("y").Bytes());
    Imports(model(list).Node("Cast", {"x"}, {"y"}, {{"to", value}}).Output("y").Bytes());
    Imports(model(list).Node("Shape", {"x"}, {"y"}).Output("y").Bytes());
  }
}

}  // namespace
}  // namespace diapason
