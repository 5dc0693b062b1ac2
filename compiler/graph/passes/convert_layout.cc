// The network is written anew, node after node. Of each tensor of the old network the new one may hold two forms: in
// the old order of dimensions and, for four-dimensional tensors, in the wanted one ("converted"). Image operators ask
// for the converted form of their image, elementwise operators and reductions follow the form their inputs are in, all
// others ask for the old order; a form that is not there is made by one transpose, shared by all readers.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

using Perm = std::vector<int64_t>;

class LayoutConverter {
 public:
  LayoutConverter(const Network& old, Layout layout) : old_(old), wanted_(NameOf(layout)) {
    bool to_nhwc = layout == Layout::kNHWC;
    to_ = to_nhwc ? Perm{0, 2, 3, 1} : Perm{0, 3, 1, 2};
    back_ = to_nhwc ? Perm{0, 3, 1, 2} : Perm{0, 2, 3, 1};
    weight_ = to_nhwc ? Perm{2, 3, 1, 0} : Perm{3, 2, 0, 1};
    consumers_ = old.Consumers();
  }

  absl::StatusOr<Network> Run() {
    new_.name = old_.name;
    for (int input : old_.inputs) plain_[input] = new_.AddInput(old_.tensors[input].name, old_.tensors[input].type);
    for (const Node& node : old_.nodes) RETURN_IF_ERROR(Convert(node));
    for (int output : old_.outputs) {
      ASSIGN_OR_RETURN(int id, Plain(output));
      new_.tensors[id].name = old_.tensors[output].name;
      new_.outputs.push_back(id);
    }
    return std::move(new_);
  }

 private:
  const TensorType& TypeOf(int tensor) const { return old_.tensors[tensor].type; }
  size_t RankOf(int tensor) const { return TypeOf(tensor).shape.size(); }

  absl::StatusOr<int> Transposed(int id, const Perm& perm) {
    return new_.AddNode("transpose", {id}, {{"perm", perm}}, new_.tensors[id].name + "_transposed");
  }

  // The form in the old order of dimensions.
  absl::StatusOr<int> Plain(int tensor) {
    auto known = plain_.find(tensor);
    if (known != plain_.end()) return known->second;
    const Tensor& t = old_.tensors[tensor];
    int id;
    if (t.constant()) {
      id = static_cast<int>(new_.tensors.size());
      new_.tensors.push_back(t);
    } else {
      DIAPASON_CHECK(converted_.count(tensor));
      ASSIGN_OR_RETURN(id, Transposed(converted_[tensor], back_));
    }
    return plain_[tensor] = id;
  }

  absl::StatusOr<int> Converted(int tensor) {
    auto known = converted_.find(tensor);
    if (known != converted_.end()) return known->second;
    const Tensor& t = old_.tensors[tensor];
    if (t.constant()) return converted_[tensor] = new_.AddConstant(t.name, TransposeArray(*t.data, to_));
    ASSIGN_OR_RETURN(int plain, Plain(tensor));
    ASSIGN_OR_RETURN(int id, Transposed(plain, to_));
    return converted_[tensor] = id;
  }

  // An operand that is broadcast to a four-dimensional result.
  absl::StatusOr<int> ConvertedOperand(int tensor) {
    const Tensor& t = old_.tensors[tensor];
    if (RankOf(tensor) == 4) return Converted(tensor);
    if (t.type.elements() == 1) return Plain(tensor);
    std::vector<int64_t> shape(4 - RankOf(tensor), 1);
    shape.insert(shape.end(), t.type.shape.begin(), t.type.shape.end());
    if (t.constant()) return new_.AddConstant(t.name, TransposeArray(ReshapeArray(*t.data, shape), to_));
    ASSIGN_OR_RETURN(int plain, Plain(tensor));
    ASSIGN_OR_RETURN(int whole, new_.AddNode("reshape", {plain}, {{"shape", shape}}, t.name + "_4d"));
    return Transposed(whole, to_);
  }

  absl::StatusOr<int> ConvertedWeights(int tensor) {
    const Tensor& t = old_.tensors[tensor];
    if (t.constant()) return new_.AddConstant(t.name, TransposeArray(*t.data, weight_));
    ASSIGN_OR_RETURN(int plain, Plain(tensor));
    return Transposed(plain, weight_);
  }

  // Where dimension `axis` of an old tensor stands in the converted form.
  int64_t NewAxis(int64_t axis) const {
    if (axis < 0) axis += 4;
    return std::find(to_.begin(), to_.end(), axis) - to_.begin();
  }

  bool OnlyConverted(int tensor) const { return converted_.count(tensor) && !plain_.count(tensor); }

  absl::Status Convert(const Node& node) {
    const Operator& op = *FindOperator(node.op);
    bool image = node.op == "conv2d" || node.op == "max_pool" || node.op == "avg_pool";
    if (image && node.attributes.String("layout", "NCHW") != wanted_) return ConvertImageOperator(node);
    if (image) return Keep(node);
    if (IsFlatGemm(node)) return ConvertFlatGemm(node);
    bool follows = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int id) { return OnlyConverted(id); });
    if (!follows) return Keep(node);
    if (op.kind == OperatorKind::kElementwise && RankOf(node.output) == 4) return ConvertElementwise(node);
    if (node.op == "flatten" || node.op == "reshape") return ConvertFlatten(node);
    if (node.op.rfind("reduce_", 0) == 0) return ConvertReduce(node);
    if (node.op == "concat" || node.op == "softmax" || node.op == "log_softmax") return ConvertAxis(node);
    if (node.op == "pad") return ConvertPad(node);
    if (node.op == "slice" && node.attributes.has("axes")) return ConvertSlice(node);
    return Keep(node);
  }

  absl::Status Emit(const Node& node, const std::vector<int>& inputs, Attributes attributes, std::map<int, int>& form) {
    ASSIGN_OR_RETURN(form[node.output], new_.AddNode(node.op, inputs, std::move(attributes), node.name));
    new_.tensors[form[node.output]].name = old_.tensors[node.output].name;
    return absl::OkStatus();
  }

  absl::Status Keep(const Node& node) {
    std::vector<int> inputs;
    for (int input : node.inputs) {
      ASSIGN_OR_RETURN(int id, Plain(input));
      inputs.push_back(id);
    }
    return Emit(node, inputs, node.attributes, plain_);
  }

  absl::Status ConvertImageOperator(const Node& node) {
    std::vector<int> inputs(1);
    ASSIGN_OR_RETURN(inputs[0], Converted(node.inputs[0]));
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      ASSIGN_OR_RETURN(int id, i == 1 ? ConvertedWeights(node.inputs[i]) : Plain(node.inputs[i]));
      inputs.push_back(id);
    }
    Attributes attributes = node.attributes;
    attributes.Set("layout", wanted_);
    return Emit(node, inputs, std::move(attributes), converted_);
  }

  absl::Status ConvertElementwise(const Node& node) {
    std::vector<int> inputs;
    Attributes attributes = node.attributes;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      bool parameter = node.op == "batch_norm" && i > 0;
      ASSIGN_OR_RETURN(int id, parameter ? Plain(node.inputs[i]) : ConvertedOperand(node.inputs[i]));
      inputs.push_back(id);
    }
    if (node.op == "batch_norm") attributes.Set("axis", NewAxis(attributes.Int("axis", 1)));
    return Emit(node, inputs, std::move(attributes), converted_);
  }

  // concat, softmax: one axis.
  absl::Status ConvertAxis(const Node& node) {
    if (RankOf(node.output) != 4) return Keep(node);
    std::vector<int> inputs;
    for (int input : node.inputs) {
      ASSIGN_OR_RETURN(int id, Converted(input));
      inputs.push_back(id);
    }
    Attributes attributes = node.attributes;
    attributes.Set("axis", NewAxis(attributes.Int("axis", node.op == "concat" ? 0 : -1)));
    return Emit(node, inputs, std::move(attributes), converted_);
  }

  // With the dimensions kept, or where what remains keeps its order (the mean over an image), the result needs no
  // transpose.
  absl::Status ConvertReduce(const Node& node) {
    bool keep = node.attributes.Int("keepdims", 1) != 0;
    std::vector<int64_t> axes = node.attributes.Ints("axes", {0, 1, 2, 3}), moved;
    bool reduced[4] = {false, false, false, false};
    for (int64_t axis : axes) {
      moved.push_back(NewAxis(axis));
      reduced[moved.back()] = true;
    }
    int64_t last = -1;
    for (int d = 0; d < 4 && !keep; ++d) {
      if (reduced[d]) continue;
      if (to_[d] < last) return Keep(node);
      last = to_[d];
    }
    std::sort(moved.begin(), moved.end());
    ASSIGN_OR_RETURN(int input, Converted(node.inputs[0]));
    Attributes attributes = node.attributes;
    attributes.Set("axes", moved);
    return Emit(node, {input}, std::move(attributes), keep ? converted_ : plain_);
  }

  absl::Status ConvertPad(const Node& node) {
    std::vector<int64_t> pads = node.attributes.Ints("pads", {}), moved;
    for (int half = 0; half < 2; ++half) {
      for (int d = 0; d < 4; ++d) moved.push_back(pads[4 * half + to_[d]]);
    }
    ASSIGN_OR_RETURN(int input, Converted(node.inputs[0]));
    Attributes attributes = node.attributes;
    attributes.Set("pads", moved);
    return Emit(node, {input}, std::move(attributes), converted_);
  }

  absl::Status ConvertSlice(const Node& node) {
    std::vector<int64_t> axes = node.attributes.Ints("axes", {});
    for (int64_t& axis : axes) axis = NewAxis(axis);
    ASSIGN_OR_RETURN(int input, Converted(node.inputs[0]));
    Attributes attributes = node.attributes;
    attributes.Set("axes", axes);
    return Emit(node, {input}, std::move(attributes), converted_);
  }

  // flatten of an image whose readers are all products by constant matrices: the matrices' rows are put into the
  // converted order instead. Not needed where the image has one pixel: then the transpose is a view.
  absl::Status ConvertFlatten(const Node& node) {
    const std::vector<int64_t>&from = TypeOf(node.inputs[0]).shape, &to = TypeOf(node.output).shape;
    bool flat = from.size() == 4 && to.size() == 2 && from[0] == to[0] && !old_.is_output(node.output);
    for (int reader : consumers_[node.output]) flat = flat && TakesFlat(old_.nodes[reader], node.output);
    if (!flat || consumers_[node.output].empty()) return Keep(node);
    ASSIGN_OR_RETURN(int input, Converted(node.inputs[0]));
    flat_[node.output] = {from[1], from[2], from[3]};
    return Emit(node, {input}, node.attributes.has("shape") ? Attributes{{"shape", to}} : node.attributes, converted_);
  }

  bool TakesFlat(const Node& node, int tensor) const {
    return node.op == "gemm" && node.inputs[0] == tensor && old_.tensors[node.inputs[1]].constant() &&
           node.attributes.Int("trans_a", 0) == 0 && (node.inputs.size() < 3 || node.inputs[2] != tensor);
  }

  bool IsFlatGemm(const Node& node) const { return node.op == "gemm" && flat_.count(node.inputs[0]) != 0; }

  absl::Status ConvertFlatGemm(const Node& node) {
    const std::vector<int64_t>& image = flat_[node.inputs[0]];
    const Tensor& weight = old_.tensors[node.inputs[1]];
    bool transposed = node.attributes.Int("trans_b", 0) != 0;
    // Rows as three dimensions, in the order of `to_` without the batch.
    std::vector<int64_t> split = image;
    split.insert(transposed ? split.begin() : split.end(), weight.type.shape[transposed ? 0 : 1]);
    Perm perm = transposed ? Perm{0, to_[1], to_[2], to_[3]} : Perm{to_[1] - 1, to_[2] - 1, to_[3] - 1, 3};
    Array moved = TransposeArray(ReshapeArray(*weight.data, split), perm);
    std::vector<int> inputs = {converted_[node.inputs[0]],
                               new_.AddConstant(weight.name, ReshapeArray(std::move(moved), weight.type.shape))};
    if (node.inputs.size() == 3) {
      ASSIGN_OR_RETURN(int bias, Plain(node.inputs[2]));
      inputs.push_back(bias);
    }
    return Emit(node, inputs, node.attributes, plain_);
  }

  const Network& old_;
  const std::string wanted_;
  Perm to_, back_, weight_;  // old order to converted, converted to old, weights to converted
  std::vector<std::vector<int>> consumers_;
  Network new_;
  std::map<int, int> plain_, converted_;      // old tensor -> new tensor
  std::map<int, std::vector<int64_t>> flat_;  // flattened in converted order -> old extents behind the batch
};

}  // namespace

absl::Status ConvertLayout(Network& network, Layout layout) {
  ASSIGN_OR_RETURN(network, LayoutConverter(network, layout).Run());
  return EliminateDeadCode(network);
}

}  // namespace diapason
