// Small rewrites, one function each: it looks at node n and returns true if it changed the network.
#include <algorithm>
#include <numeric>

#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

class Canonicalizer {
 public:
  explicit Canonicalizer(Network& network) : network_(network) {}

  // Rewrites only remove nodes or make one simpler, so this ends.
  absl::Status Run() {
    bool changed = true;
    while (changed) {
      changed = false;
      consumers_ = network_.Consumers();
      producers_ = network_.Producers();
      for (size_t n = 0; n < network_.nodes.size() && !changed; ++n) {
        changed = DropIdentity(n) || MergeTransposes(n) || MergeReshapes(n) || DropReducedAxes(n) || MergePad(n) ||
                  MatmulToGemm(n) || PlainGemm(n);
      }
      if (changed) RETURN_IF_ERROR(EliminateDeadCode(network_));
    }
    return absl::OkStatus();
  }

 private:
  Node& node(size_t n) { return network_.nodes[n]; }
  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }
  const Node* producer(int tensor) const {
    return producers_[tensor] < 0 ? nullptr : &network_.nodes[producers_[tensor]];
  }
  const Node* ProducerOf(int tensor, const std::string& op) const {
    const Node* p = producer(tensor);
    return p && p->op == op ? p : nullptr;
  }
  bool OnlyReader(int tensor) const { return consumers_[tensor].size() == 1 && !network_.is_output(tensor); }

  // A view that keeps type and shape.
  bool DropIdentity(size_t n) {
    const Node& view = node(n);
    const Operator& op = *FindOperator(view.op);
    if (!op.is_view || !(type(view.inputs[0]) == type(view.output))) return false;
    if (!op.is_view(ArgsOf(network_, view))) return false;
    int output = view.output, input = view.inputs[0];
    // The view's own write of `output` goes first, so that a producer may take its place.
    if (!ReplaceTensor(network_, output, input)) return false;
    network_.nodes.erase(network_.nodes.begin() + n);
    return true;
  }

  static std::vector<int64_t> PermutationOf(const Node& node, size_t rank) {
    std::vector<int64_t> reversed(rank);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    std::vector<int64_t> perm = node.attributes.Ints("perm", reversed);
    for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    return perm;
  }

  // transpose(transpose(x)) = one transpose, which DropIdentity may remove.
  bool MergeTransposes(size_t n) {
    Node& outer = node(n);
    if (outer.op != "transpose") return false;
    const Node* inner = ProducerOf(outer.inputs[0], "transpose");
    if (!inner) return false;
    size_t rank = type(outer.output).shape.size();
    std::vector<int64_t> first = PermutationOf(*inner, rank), second = PermutationOf(outer, rank), both;
    for (int64_t axis : second) both.push_back(first[axis]);
    outer.attributes.Set("perm", both);
    outer.inputs[0] = inner->inputs[0];
    return true;
  }

  static bool IsReshape(const Node& node) {
    return node.op == "reshape" || node.op == "flatten" || node.op == "squeeze" || node.op == "unsqueeze";
  }

  bool MergeReshapes(size_t n) {
    Node& outer = node(n);
    if (!IsReshape(outer)) return false;
    const Node* inner = producer(outer.inputs[0]);
    if (!inner || !IsReshape(*inner)) return false;
    outer.op = "reshape";
    outer.attributes = Attributes{{"shape", type(outer.output).shape}};
    outer.inputs[0] = inner->inputs[0];
    return true;
  }

  // A reduction whose axes of extent 1 a view takes away again (a global pool and a flatten) gives them up itself: the
  // same task however a model was written.
  bool DropReducedAxes(size_t n) {
    const Node& view = node(n);
    if (!IsReshape(view) || producers_[view.inputs[0]] < 0 || !OnlyReader(view.inputs[0])) return false;
    Node reduce = node(producers_[view.inputs[0]]);
    if (reduce.op.rfind("reduce_", 0) != 0 || reduce.attributes.Int("keepdims", 1) == 0) return false;
    reduce.attributes.Set("keepdims", int64_t{0});
    absl::StatusOr<TensorType> dropped = InferNode(network_, reduce);
    if (!dropped.ok() || !(*dropped == type(view.output))) return false;
    reduce.output = view.output;
    node(producers_[view.inputs[0]]) = std::move(reduce);
    network_.nodes.erase(network_.nodes.begin() + n);
    return true;
  }

  // Zeros around an image become padding of the convolution that reads it.
  bool MergePad(size_t n) {
    Node& conv = node(n);
    if (conv.op != "conv2d") return false;
    const Node* pad = ProducerOf(conv.inputs[0], "pad");
    if (!pad || !OnlyReader(pad->output) || pad->attributes.String("mode", "constant") != "constant") return false;
    std::vector<int64_t> amount = pad->attributes.Ints("pads", {});
    if (pad->attributes.Float("value", 0) != 0 || *std::min_element(amount.begin(), amount.end()) < 0) return false;
    bool nhwc = conv.attributes.String("layout", "NCHW") == "NHWC";
    int h = nhwc ? 1 : 2, c = nhwc ? 3 : 1;
    if (amount[0] || amount[4] || amount[c] || amount[c + 4]) return false;
    std::vector<int64_t> pads = conv.attributes.Ints("pads", {0, 0, 0, 0});
    const int64_t more[4] = {amount[h], amount[h + 1], amount[h + 4], amount[h + 5]};
    for (int i = 0; i < 4; ++i) pads[i] += more[i];
    conv.attributes.Set("pads", pads);
    conv.inputs[0] = pad->inputs[0];
    return true;
  }

  // A product of matrices by constant weights; rows of more dimensions stay a matmul.
  bool MatmulToGemm(size_t n) {
    Node& product = node(n);
    if (product.op != "matmul" || type(product.inputs[0]).shape.size() != 2) return false;
    if (type(product.inputs[1]).shape.size() != 2) return false;
    product.op = "gemm";
    return true;
  }

  void SetConstant(Node& node, int input, Array value) {
    node.inputs[input] = network_.AddConstant(network_.tensors[node.inputs[input]].name, std::move(value));
  }

  static Array Scaled(const Array& array, double factor) {
    Array out = array;
    for (int64_t i = 0, n = out.elements(); i < n; ++i) out.set(i, array.at(i) * factor);
    return out;
  }

  // Constant operands of gemm: b as (depth, columns), scales multiplied in.
  bool PlainGemm(size_t n) {
    if (node(n).op != "gemm") return false;
    const Array* b = network_.tensors[node(n).inputs[1]].data.get();
    Node gemm = node(n);
    bool changed = false;
    if (b && gemm.attributes.Int("trans_b", 0) != 0) {
      SetConstant(gemm, 1, TransposeArray(*b, {1, 0}));
      gemm.attributes.Erase("trans_b");
      changed = true;
    }
    if (double alpha = gemm.attributes.Float("alpha", 1); b && alpha != 1) {
      SetConstant(gemm, 1, Scaled(*network_.tensors[gemm.inputs[1]].data, alpha));
      gemm.attributes.Erase("alpha");
      changed = true;
    }
    double beta = gemm.attributes.Float("beta", 1);
    if (gemm.inputs.size() == 3 && beta != 1 && network_.tensors[gemm.inputs[2]].constant()) {
      SetConstant(gemm, 2, Scaled(*network_.tensors[gemm.inputs[2]].data, beta));
      gemm.attributes.Erase("beta");
      changed = true;
    }
    if (changed) node(n) = std::move(gemm);
    return changed;
  }

  Network& network_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> producers_;
};

}  // namespace

absl::Status Canonicalize(Network& network) { return Canonicalizer(network).Run(); }

}  // namespace diapason
