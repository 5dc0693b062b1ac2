// Random small networks: whatever passes and the partition do, results stay.
#include <gtest/gtest.h>

#include "compiler/graph/passes.h"
#include "testing.h"

namespace diapason {
namespace {

// Grows a network from an image by operators drawn at random, among those that fit the tensors there are.
class Grower {
 public:
  explicit Grower(uint64_t seed) : random_(seed) {
    n_.name = "random";
    nhwc_ = Pick(4) == 0;
    tensors_ = {n_.AddInput("x", {DType::kFloat32, nhwc_ ? Ints{1, 5, 6, 3} : Ints{1, 3, 5, 6}})};
  }

  Network Grow(int nodes) {
    for (int i = 0; i < nodes; ++i) Step();
    n_.outputs = {tensors_.back()};
    // Another tensor given out, and a product behind a flattened image.
    if (Pick(2)) Add("gemm", {Add("flatten", {Image()}, {}), 0}, {}, true);
    if (n_.outputs[0] != tensors_.back()) n_.outputs.push_back(tensors_.back());
    int middle = tensors_[1 + Pick(tensors_.size() - 1)];
    if (!n_.is_output(middle)) n_.outputs.push_back(middle);
    return n_;
  }

 private:
  size_t Pick(size_t n) { return random_.Next() % n; }
  const Ints& Shape(int t) { return n_.tensors[t].type.shape; }
  int64_t Channels(int t) { return Shape(t)[nhwc_ ? 3 : 1]; }
  int64_t Smaller(int t) { return std::min(Shape(t)[nhwc_ ? 1 : 2], Shape(t)[nhwc_ ? 2 : 3]); }
  int Const(Ints shape, double offset = 0) {
    Array array = RandomArray({DType::kFloat32, std::move(shape)}, random_.Next());
    for (int64_t i = 0; i < array.elements(); ++i) array.set(i, array.at(i) + offset);
    return n_.AddConstant("c", array);
  }

  // A four-dimensional tensor, mostly a late one.
  int Image() {
    for (size_t i = tensors_.size(); i-- > 0;) {
      if (Shape(tensors_[i]).size() == 4 && (i == 0 || Pick(3) != 0)) return tensors_[i];
    }
    return tensors_[0];
  }

  int Add(const std::string& op, std::vector<int> inputs, Attributes attributes, bool product = false) {
    if (product) inputs[1] = Const({Shape(inputs[0])[1], 4});
    auto id = n_.AddNode(op, std::move(inputs), std::move(attributes));
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) tensors_.push_back(*id);
    return tensors_.back();
  }

  void Conv(int x) {
    bool depthwise = Pick(3) == 0;
    int64_t in = Channels(x), out = depthwise ? in : 2 + static_cast<int64_t>(Pick(3)),
            kernel = 1 + 2 * static_cast<int64_t>(Pick(2));
    int64_t group_in = depthwise ? 1 : in;
    int w = Const(nhwc_ ? Ints{kernel, kernel, group_in, out} : Ints{out, group_in, kernel, kernel});
    std::vector<int> inputs = {x, w};
    if (Pick(2)) inputs.push_back(Const({out}));
    int64_t stride = Smaller(x) > 3 ? 1 + static_cast<int64_t>(Pick(2)) : 1;
    int y = Add("conv2d", inputs,
                {{"pads", Ints(4, kernel / 2)},
                 {"strides", Ints{stride, stride}},
                 {"group", depthwise ? in : 1},
                 {"layout", Name()}});
    if (Pick(2)) Norm(y);
  }

  void Norm(int x) {
    int64_t c = Channels(x);
    Add("batch_norm", {x, Const({c}), Const({c}), Const({c}), Const({c}, 1.5)}, {{"axis", int64_t{nhwc_ ? 3 : 1}}});
  }

  std::string Name() const { return nhwc_ ? "NHWC" : "NCHW"; }

  void Binary(int x) {
    const char* ops[] = {"add", "mul", "sub", "maximum"};
    const char* op = ops[Pick(4)];
    int other = -1;
    for (int t : tensors_) {
      if (Shape(t) == Shape(x) && Pick(2)) other = t;
    }
    if (other < 0) other = Const(nhwc_ ? Ints{Channels(x)} : Ints{Channels(x), 1, 1});
    if (Pick(2)) std::swap(x, other);
    Add(op, {x, other}, {});
  }

  void Step() {
    int x = Image();
    int64_t channel = nhwc_ ? 3 : 1;
    Ints image = nhwc_ ? Ints{1, 2} : Ints{2, 3};
    switch (Pick(13)) {
      case 0:
      case 1:
      case 2: return Conv(x);
      case 3: Add("relu", {x}, {}); return;
      case 4: Add("mul", {x, Add("sigmoid", {x}, {})}, {}); return;
      case 5:
      case 6: return Binary(x);
      case 7: return Norm(x);
      case 8: Add("concat", {x, Add("clip", {x}, {{"min", 0.0}})}, {{"axis", channel}}); return;
      case 9: Add("mul", {x, Add("reduce_mean", {x}, {{"axes", image}})}, {}); return;
      case 12: {  // rows: along the channels or over the image
        const Attributes over{{"axes", Pick(2) ? Ints{channel} : image}, {"keepdims", int64_t{1}}};
        const int left = Add("sub", {x, Add("reduce_max", {x}, over)}, {});
        Add("div", {left, Add("exp", {Add("reduce_mean", {Add("mul", {left, left}, {})}, over)}, {})}, {});
        return;
      }
      case 10:
        Add(Pick(2) ? "max_pool" : "avg_pool", {x},
            {{"kernel", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}, {"layout", Name()}});
        return;
      default: Add("pad", {x}, {{"pads", nhwc_ ? Ints{0, 1, 0, 0, 0, 0, 1, 0} : Ints{0, 0, 1, 0, 0, 0, 0, 1}}}); return;
    }
  }

  Network n_;
  WeightRandom random_;
  bool nhwc_ = false;
  std::vector<int> tensors_;
};

TEST(RandomNetworks, OptimizeAndPartitionKeepTheirResults) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Network before = Grower(seed).Grow(8);
    ASSERT_TRUE(before.Validate().ok()) << before.Validate();
    for (Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      ModelOptions options;
      options.layout = layout;
      auto after = Optimize(before, options);
      ASSERT_TRUE(after.ok()) << after.status() << before.ToString();
      ExpectSameResults(before, *after, 1e-4);
      if (testing::Test::HasFailure()) FAIL() << before.ToString() << after->ToString();
    }
  }
}

}  // namespace
}  // namespace diapason
