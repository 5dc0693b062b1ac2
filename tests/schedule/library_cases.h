// Tasks that libraries can compute, taken from small networks, partitioned as compiler/graph does it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"
#include "compiler/runtime/fill.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason::testing {

struct ConvolutionCase {
  std::string name{};
  bool nhwc = true;
  DType dtype = DType::kFloat32;
  int64_t batch = 1, in = 8, height = 8, width = 8;
  int64_t out = 16, kernel_h = 3, kernel_w = 3, groups = 1;
  std::vector<int64_t> strides{1, 1}, pads{1, 1, 1, 1}, dilations{1, 1};  // pads: top, left, bottom, right
  bool bias = true, residual = false, scale = false;
  std::string activation = "relu";
};

// The task of a network of one anchor. Weights are seeded by position.
class OneTask {
 public:
  int Input(const std::string& name, std::vector<int64_t> shape, DType dtype) {
    return network_.AddInput(name, {dtype, std::move(shape)});
  }
  int Constant(const std::string& name, std::vector<int64_t> shape, DType dtype) {
    Array value(dtype, std::move(shape));
    FillRandom(value, network_.tensors.size());
    return network_.AddConstant(name, std::move(value));
  }
  int Op(const std::string& op, std::vector<int> inputs, Attributes attributes = {}) {
    const absl::StatusOr<int> id = network_.AddNode(op, std::move(inputs), std::move(attributes), "");
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  ComputeDag Dag(int output) {
    network_.name = "test";
    network_.outputs = {output};
    const absl::StatusOr<Partition> partition = PartitionNetwork(network_);
    EXPECT_TRUE(partition.ok()) << partition.status();
    EXPECT_EQ(partition->tasks.size(), 1u);
    return partition->tasks[0].dag;
  }

 private:
  Network network_;
};

inline ComputeDag DagOf(const ConvolutionCase& c) {
  OneTask task;
  const int64_t in_group = c.in / c.groups;
  const int x = task.Input("x",
                           c.nhwc ? std::vector<int64_t>{c.batch, c.height, c.width, c.in}
                                  : std::vector<int64_t>{c.batch, c.in, c.height, c.width},
                           c.dtype);
  const int w = task.Constant("w",
                              c.nhwc ? std::vector<int64_t>{c.kernel_h, c.kernel_w, in_group, c.out}
                                     : std::vector<int64_t>{c.out, in_group, c.kernel_h, c.kernel_w},
                              c.dtype);
  std::vector<int> inputs{x, w};
  if (c.bias) inputs.push_back(task.Constant("b", {c.out}, c.dtype));
  const Attributes attributes{{"layout", std::string(c.nhwc ? "NHWC" : "NCHW")},
                              {"pads", c.pads},
                              {"strides", c.strides},
                              {"dilations", c.dilations},
                              {"group", c.groups}};
  int y = task.Op("conv2d", inputs, attributes);
  const auto extent = [&](int d) {
    const int64_t size = d == 0 ? c.height : c.width, kernel = d == 0 ? c.kernel_h : c.kernel_w;
    return (size + c.pads[d] + c.pads[d + 2] - (kernel - 1) * c.dilations[d] - 1) / c.strides[d] + 1;
  };
  const std::vector<int64_t> shape = c.nhwc ? std::vector<int64_t>{c.batch, extent(0), extent(1), c.out}
                                            : std::vector<int64_t>{c.batch, c.out, extent(0), extent(1)};
  const std::vector<int64_t> channel = c.nhwc ? std::vector<int64_t>{c.out} : std::vector<int64_t>{c.out, 1, 1};
  if (c.scale) {
    y = task.Op("mul", {y, task.Constant("scale", channel, c.dtype)});
    y = task.Op("add", {y, task.Constant("shift", channel, c.dtype)});
  }
  if (c.residual) y = task.Op("add", {y, task.Input("z", shape, c.dtype)});
  if (!c.activation.empty()) y = task.Op(c.activation, {y});
  return task.Dag(y);
}

// Convolutions of every kind that cuDNN is asked for.
inline std::vector<ConvolutionCase> ConvolutionCases() {
  std::vector<ConvolutionCase> cases = {
      {.name = "3x3"},
      {.name = "residual", .residual = true},
      {.name = "bare", .bias = false, .activation = ""},
      {.name = "relu_without_bias", .bias = false},
      {.name = "bias_alone", .activation = ""},
      {.name = "scale_shift", .bias = false, .scale = true},
      {.name = "hard_swish", .residual = true, .activation = "hard_swish"},
      {.name = "1x1", .kernel_h = 1, .kernel_w = 1, .pads = {0, 0, 0, 0}},
      {.name = "1x1_stride", .kernel_h = 1, .kernel_w = 1, .strides = {2, 2}, .pads = {0, 0, 0, 0}},
      {.name = "7x7_stride",
       .in = 3,
       .height = 17,
       .width = 15,
       .kernel_h = 7,
       .kernel_w = 7,
       .strides = {2, 2},
       .pads = {3, 3, 3, 3}},
      {.name = "5x5", .kernel_h = 5, .kernel_w = 5, .pads = {2, 2, 2, 2}},
      {.name = "oblong",
       .height = 9,
       .width = 6,
       .kernel_h = 3,
       .kernel_w = 1,
       .strides = {2, 1},
       .pads = {1, 0, 1, 0}},
      {.name = "lopsided", .strides = {2, 2}, .pads = {0, 0, 1, 1}},
      {.name = "dilated", .height = 12, .width = 12, .pads = {2, 2, 2, 2}, .dilations = {2, 2}},
      {.name = "unpadded", .batch = 3, .pads = {0, 0, 0, 0}},
      {.name = "groups", .in = 16, .out = 32, .groups = 4},
      {.name = "depthwise", .in = 16, .out = 16, .groups = 16, .activation = "relu"},
      {.name = "depthwise_stride", .in = 16, .height = 9, .width = 9, .out = 32, .groups = 16, .strides = {2, 2}},
      {.name = "to_a_point", .height = 5, .width = 5, .kernel_h = 5, .kernel_w = 5, .pads = {0, 0, 0, 0}},
      {.name = "one_channel", .in = 1, .out = 4},
  };
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    ConvolutionCase other = cases[i];
    other.nhwc = false;
    other.name += "_nchw";
    cases.push_back(other);
    // Half-precision kernels want channels in eights.
    if (other.in % 8 != 0 || other.out % 8 != 0) continue;
    for (bool nhwc : {true, false}) {
      other.nhwc = nhwc;
      other.dtype = DType::kFloat16;
      other.name = cases[i].name + (nhwc ? "_half" : "_nchw_half");
      cases.push_back(other);
    }
  }
  return cases;
}

struct NamedTask {
  std::string name;
  ComputeDag dag;
};

// Products of every kind that cuBLAS is asked for.
inline std::vector<NamedTask> ProductCases() {
  std::vector<NamedTask> cases;
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const std::string half = dtype == DType::kFloat16 ? "_half" : "";
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        OneTask task;
        const int a = task.Input("a", ta ? std::vector<int64_t>{40, 24} : std::vector<int64_t>{24, 40}, dtype);
        const int b = task.Constant("b", tb ? std::vector<int64_t>{56, 40} : std::vector<int64_t>{40, 56}, dtype);
        const int c = task.Constant("c", {56}, dtype);
        const int y = task.Op("gemm", {a, b, c}, {{"trans_a", int64_t{ta}}, {"trans_b", int64_t{tb}}});
        cases.push_back(
            {std::string("gemm") + (ta ? "_ta" : "") + (tb ? "_tb" : "") + half, task.Dag(task.Op("relu", {y}))});
      }
    }
    OneTask row;
    cases.push_back(
        {"row" + half, row.Dag(row.Op("gemm", {row.Input("a", {1, 64}, dtype), row.Constant("b", {64, 16}, dtype)},
                                      {{"alpha", 0.5}}))});
    OneTask batched;
    cases.push_back({"batched" + half, batched.Dag(batched.Op("matmul", {batched.Input("a", {3, 8, 16}, dtype),
                                                                         batched.Input("b", {3, 16, 24}, dtype)}))});
    OneTask shared;
    cases.push_back({"shared_weights" + half,
                     shared.Dag(shared.Op(
                         "matmul", {shared.Input("a", {3, 8, 16}, dtype), shared.Constant("b", {16, 24}, dtype)}))});
    for (bool nhwc : {true, false}) {
      ConvolutionCase pointwise{.name = "", .nhwc = nhwc, .dtype = dtype, .batch = 2, .residual = true};
      pointwise.kernel_h = pointwise.kernel_w = 1;
      pointwise.pads = {0, 0, 0, 0};
      cases.push_back({std::string("pointwise") + (nhwc ? "" : "_nchw") + half, DagOf(pointwise)});
    }
  }
  return cases;
}

}  // namespace diapason::testing
