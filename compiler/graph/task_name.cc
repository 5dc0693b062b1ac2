#include "compiler/graph/task_name.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/operator.h"

namespace diapason {
namespace {

std::string TypeEnding(DType dtype) { return IsNarrowFloat(dtype) ? absl::StrCat("_", NameOf(dtype)) : ""; }

// Operators beside the anchor that a name has, which is for people.
constexpr size_t kMostListed = 20;

std::string ShapeText(std::vector<int64_t> shape) {
  if (shape.size() == 4 && shape[0] == 1) shape.erase(shape.begin());
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

std::string StrideText(const Node& node) {
  std::vector<int64_t> strides = node.attributes.Ints("strides", {1, 1});
  return absl::StrCat("_s", strides[0] == strides[1] ? absl::StrCat(strides[0]) : absl::StrJoin(strides, "x"));
}

std::string ConvName(const Network& network, const Node& node) {
  const std::vector<int64_t>& x = network.tensors[node.inputs[0]].type.shape;
  const std::vector<int64_t>& w = network.tensors[node.inputs[1]].type.shape;
  bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
  int64_t kh = nhwc ? w[0] : w[2], kw = nhwc ? w[1] : w[3], in = nhwc ? w[2] : w[1], out = nhwc ? w[3] : w[0];
  int64_t group = node.attributes.Int("group", 1);
  std::string name = absl::StrCat(in == 1 && group > 1 ? "depthwise_" : "", "conv2d_", kh, "x", kw, StrideText(node),
                                  "_", ShapeText(x));
  if (in > 1 || group == 1) absl::StrAppend(&name, "_", out);
  if (in > 1 && group > 1) absl::StrAppend(&name, "_g", group);
  int64_t dilation = node.attributes.Ints("dilations", {1, 1})[0];
  if (dilation != 1) absl::StrAppend(&name, "_d", dilation);
  return name;
}

bool IsGlobalPool(const Node& node, const std::vector<int64_t>& x) {
  if (x.size() != 4 || (node.op != "reduce_mean" && node.op != "reduce_max")) return false;
  std::vector<int64_t> axes = node.attributes.Ints("axes", {});
  for (int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
  return axes == std::vector<int64_t>{1, 2} || axes == std::vector<int64_t>{2, 3};
}

std::string AnchorName(const Network& network, const Node& node) {
  const std::vector<int64_t>& x = network.tensors[node.inputs[0]].type.shape;
  const std::vector<int64_t>& out = network.tensors[node.output].type.shape;
  if (node.op == "conv2d") return ConvName(network, node);
  if (node.op == "max_pool" || node.op == "avg_pool") {
    return absl::StrCat(node.op, "_", absl::StrJoin(node.attributes.Ints("kernel", {}), "x"), StrideText(node), "_",
                        ShapeText(x));
  }
  if (node.op == "gemm") {
    int64_t depth = node.attributes.Int("trans_a", 0) != 0 ? x[0] : x[1];
    return absl::StrCat("gemm_", out[0], "x", out[1], "x", depth);
  }
  if (node.op == "matmul") return absl::StrCat("matmul_", ShapeText(out), "_", x.back());
  if (IsGlobalPool(node, x))
    return absl::StrCat(node.op == "reduce_mean" ? "global_avg_pool_" : "global_max_pool_", ShapeText(x));
  return absl::StrCat(node.op, "_", ShapeText(x));
}

// Operator `n` in the name of a group. A transposition of an NCHW image in front of the anchor is "nchw", since
// "transpose_conv2d" would read as a transposed convolution.
std::string NameInGroup(const Network& network, int n, int anchor) {
  const Node& node = network.nodes[n];
  const bool image = anchor >= 0 && node.op == "transpose" && node.output == network.nodes[anchor].inputs[0] &&
                     node.attributes.Ints("perm", {}) == std::vector<int64_t>{0, 2, 3, 1};
  return image ? "nchw" : node.op;
}

// The shape of the scores, the sizes of keys and values, and what else there is but moved data and the softmax.
std::string AttentionName(const Network& network, const std::vector<int>& nodes, int scores, int anchor) {
  const Node &first = network.nodes[scores], &last = network.nodes[anchor];
  const int64_t size = network.tensors[first.inputs[0]].type.shape.back(),
                values = network.tensors[last.output].type.shape.back();
  std::string name = absl::StrCat("attention_", ShapeText(network.tensors[first.output].type.shape), "_", size);
  if (values != size) absl::StrAppend(&name, "x", values);
  size_t listed = 0;
  for (int n : nodes) {
    const std::string& op = network.nodes[n].op;
    if (n == scores || n == anchor || FindOperator(op)->kind != OperatorKind::kElementwise || listed++ >= kMostListed)
      continue;
    absl::StrAppend(&name, "_", op);
  }
  absl::StrAppend(&name, TypeEnding(network.tensors[network.nodes[nodes.back()].output].type.dtype));
  return name;
}

// Of the two products and the softmax of an attention: its first product, if it is one; else -1.
int ScoresOf(const Network& network, const std::vector<int>& nodes, int anchor) {
  for (int n : nodes)
    if (n < anchor && network.nodes[n].op == "matmul" && network.nodes[anchor].op == "matmul") return n;
  return -1;
}

}  // namespace

std::string TaskName(const Network& network, const std::vector<int>& nodes, int anchor) {
  if (const int scores = anchor < 0 ? -1 : ScoresOf(network, nodes, anchor); scores >= 0)
    return AttentionName(network, nodes, scores, anchor);
  const Node& last = network.nodes[nodes.back()];
  std::string name = anchor < 0 ? "" : AnchorName(network, network.nodes[anchor]);
  if (anchor >= 0 && network.nodes[anchor].inputs.size() == 3) absl::StrAppend(&name, "_bias");
  std::string before;
  size_t listed = 0, more = 0;
  for (int n : nodes) {
    if (n == anchor) continue;
    if (listed++ >= kMostListed) {
      ++more;
      continue;
    }
    std::string& text = n < anchor ? before : name;
    absl::StrAppend(&text, text.empty() ? "" : "_", NameInGroup(network, n, anchor));
  }
  if (!before.empty()) name = absl::StrCat(before, "_", name);
  if (more > 0) absl::StrAppend(&name, "_", more, "_more");
  if (anchor < 0) absl::StrAppend(&name, "_", ShapeText(network.tensors[last.output].type.shape));
  absl::StrAppend(&name, TypeEnding(network.tensors[last.output].type.dtype));
  return name;
}

std::string RecurrenceName(const Network& network, int result) {
  const TensorType& type = network.tensors[network.nodes[result].output].type;
  return absl::StrCat("recurrence_", ShapeText(type.shape), TypeEnding(type.dtype));
}

std::string CopyName(const Network& network, int tensor) {
  const TensorType& type = network.tensors[tensor].type;
  return absl::StrCat("copy_", ShapeText(type.shape), TypeEnding(type.dtype));
}

}  // namespace diapason
