#include "compiler/graph/onnx/attribute_reader.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

using Numbers = std::vector<int64_t>;

OnnxNode NodeWith(std::map<std::string, OnnxAttribute> attributes) {
  OnnxNode node;
  node.attributes = std::move(attributes);
  return node;
}

TEST(AttributeReader, ReturnsWhatTheNodeHasOrTheFallback) {
  const OnnxNode node =
      NodeWith({{"axis", int64_t{-1}}, {"alpha", 0.5}, {"mode", std::string("edge")}, {"pads", Numbers{1, 2}}});
  AttributeReader reader(node);
  EXPECT_EQ(reader.Int("axis", 0), -1);
  EXPECT_EQ(reader.Int("group", 1), 1);
  EXPECT_EQ(reader.Float("alpha", 1), 0.5);
  EXPECT_EQ(reader.String("mode", "constant"), "edge");
  EXPECT_EQ(reader.Ints("pads", {}), (Numbers{1, 2}));
  EXPECT_EQ(reader.Ints("strides", {3}), Numbers{3});
  EXPECT_EQ(reader.Floats("scales").value(), std::vector<double>{});
  EXPECT_EQ(reader.Body("body"), nullptr);
  EXPECT_TRUE(reader.Has("axis"));
  EXPECT_FALSE(reader.Has("group"));
  EXPECT_EQ(reader.Check(), absl::OkStatus());
  EXPECT_EQ(reader.CheckAllRead(), absl::OkStatus());
}

TEST(AttributeReader, AttributesOfAnotherKindAreErrorsOfWhichTheFirstIsKept) {
  const OnnxNode node = NodeWith({{"axis", 0.5}, {"mode", int64_t{1}}});
  AttributeReader reader(node);
  EXPECT_EQ(reader.Int("axis", 7), 7);
  EXPECT_EQ(reader.String("mode", "x"), "x");
  const absl::Status wrong = absl::InvalidArgumentError("attribute 'axis' is a float, and an integer is supported");
  EXPECT_EQ(reader.Check(), wrong);
  EXPECT_EQ(reader.Floats("scales").status(), wrong);
}

TEST(AttributeReader, NumbersBeyond32BitsAreErrorsSaveForEnds) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  const OnnxNode node = NodeWith({{"ends", Numbers{kLarge}}, {"pads", Numbers{kLarge}}, {"axis", kLarge}});
  AttributeReader ends(node), pads(node), axis(node);
  EXPECT_EQ(ends.Ints("ends", {}), Numbers{kLarge});
  EXPECT_EQ(ends.Check(), absl::OkStatus());
  EXPECT_EQ(pads.Ints("pads", {}), Numbers{});
  EXPECT_EQ(pads.Check(), absl::InvalidArgumentError("attribute 'pads' cannot hold 1099511627776"));
  EXPECT_EQ(axis.Int("axis", 2), 2);
  EXPECT_EQ(axis.Check(), absl::InvalidArgumentError("attribute 'axis' cannot be 1099511627776"));
}

TEST(AttributeReader, FindsAttributesThatNobodyRead) {
  const OnnxNode node = NodeWith({{"axis", int64_t{0}}, {"training_mode", int64_t{0}}, {"unheard_of", int64_t{0}}});
  AttributeReader reader(node);
  reader.Int("axis", 0);
  reader.Ignore({"training_mode"});
  EXPECT_EQ(reader.CheckAllRead(), absl::InvalidArgumentError("attribute 'unheard_of' is not supported in this opset"));
  reader.Has("unheard_of");
  EXPECT_EQ(reader.CheckAllRead(), absl::OkStatus());
}

}  // namespace
}  // namespace diapason
