#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"
#include "compiler/graph/passes/quantized.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

// int8 or uint8 where it holds all values, else int32.
DType NarrowestOf(const Array& values) {
  int64_t low = 0, high = 0;
  for (int64_t i = 0, n = values.elements(); i < n; ++i) {
    low = std::min(low, values.int_at(i));
    high = std::max(high, values.int_at(i));
  }
  if (low >= -128 && high <= 127) return DType::kInt8;
  return low >= 0 && high <= 255 ? DType::kUint8 : DType::kInt32;
}

bool IsProduct(const Node& node) { return node.op == "conv2d" || node.op == "matmul" || node.op == "gemm"; }

// Takes the zero point of an image or a matrix out of its product with constants: sum((q - zero) * w) is sum(q * w)
// less zero times the sum of w, which is a constant of each column. Around an image there is the zero point then.
class ZeroPointFolder {
 public:
  explicit ZeroPointFolder(Network& network)
      : network_(network), producers_(network.Producers()), consumers_(network.Consumers()) {}

  void Run() {
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      Node node = network_.nodes[n];
      const std::optional<Shifted> left = IsProduct(node) ? ShiftedOf(node.inputs[0]) : std::nullopt;
      const std::optional<Array> sums = left ? SumsOfColumns(node, *left) : std::nullopt;
      if (!sums) {
        nodes_.push_back(std::move(node));
        continue;
      }
      node.inputs[0] = left->cast;
      if (left->zero) {
        TakeOff(std::move(node), *left->zero, *sums);
      } else {
        TakeOff(std::move(node), left->computed, *sums);
      }
    }
    network_.nodes = std::move(nodes_);
  }

 private:
  // q - zero: an int32 cast of q, and the integer that is subtracted, or the tensor of one element that holds it.
  struct Shifted {
    int cast = -1;
    DType dtype = DType::kUint8;  // of q
    std::optional<int64_t> zero;
    int computed = -1;
  };

  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }

  std::optional<Shifted> ShiftedOf(int tensor) const {
    const int shift = producers_[tensor];
    if (shift < 0 || network_.nodes[shift].op != "sub" || type(tensor).dtype != DType::kInt32) return std::nullopt;
    const std::vector<int>& inputs = network_.nodes[shift].inputs;
    const Tensor& zero = network_.tensors[inputs[1]];
    const std::optional<DType> dtype = CastFrom(inputs[0]);
    if (zero.type.elements() != 1 || !dtype || type(inputs[0]).shape != type(tensor).shape) return std::nullopt;
    if (!zero.constant())
      return CastFrom(inputs[1]) == dtype ? std::optional(Shifted{inputs[0], *dtype, std::nullopt, inputs[1]})
                                          : std::nullopt;
    const int64_t value = zero.data->int_at(0), low = dtype == DType::kInt8 ? -128 : 0, high = low + 255;
    if (value < low || value > high) return std::nullopt;
    return Shifted{inputs[0], *dtype, value};
  }

  // The type of 8 bits that a tensor is cast from.
  std::optional<DType> CastFrom(int tensor) const {
    const int cast = producers_[tensor];
    if (cast < 0 || network_.nodes[cast].op != "cast") return std::nullopt;
    const DType from = type(network_.nodes[cast].inputs[0]).dtype;
    return IsByte(from) ? std::optional(from) : std::nullopt;
  }

  // Which axes of the result and of the right factor are the product's columns.
  std::optional<std::pair<size_t, size_t>> ColumnsOf(const Node& node) const {
    const size_t left = type(node.inputs[0]).shape.size(), right = type(node.inputs[1]).shape.size(),
                 result = type(node.output).shape.size();
    if (node.op == "conv2d") {
      if (node.attributes.Float("pad_value", 0) != 0) return std::nullopt;
      return node.attributes.String("layout", "NCHW") == "NHWC" ? std::pair<size_t, size_t>{3, 3}
                                                                : std::pair<size_t, size_t>{1, 0};
    }
    if (left < 2 || right != 2 || node.attributes.Float("alpha", 1) != 1) return std::nullopt;
    return std::pair<size_t, size_t>{result - 1, node.attributes.Int("trans_b", 0) != 0 ? 0 : 1};
  }

  // The sums of the right factor's columns, in a shape that broadcasts to the products. Nothing where it is no
  // constant, int32 might not hold the sums of products before the zero point is taken off, or a zero point that is
  // computed would stand around the image.
  std::optional<Array> SumsOfColumns(const Node& node, const Shifted& left) const {
    const Tensor& right = network_.tensors[node.inputs[1]];
    const std::vector<int64_t> pads = node.attributes.Ints("pads", {});
    if (!left.zero && std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; })) return std::nullopt;
    const auto columns = ColumnsOf(node);
    if (!right.constant() || IsFloat(right.type.dtype) || !columns) return std::nullopt;
    const std::vector<int64_t>& shape = right.type.shape;
    const int64_t n = shape[columns->second];
    int64_t inner = 1;
    for (size_t d = columns->second + 1; d < shape.size(); ++d) inner *= shape[d];
    std::vector<int64_t> sums(n), magnitudes(n);
    for (int64_t i = 0, all = right.data->elements(); i < all; ++i) {
      const int64_t value = right.data->int_at(i);
      sums[i / inner % n] += value;
      magnitudes[i / inner % n] += std::abs(value);
    }
    const int64_t most = left.dtype == DType::kInt8 ? 128 : 255;
    if (*std::max_element(magnitudes.begin(), magnitudes.end()) > std::numeric_limits<int32_t>::max() / 2 / most)
      return std::nullopt;
    std::vector<int64_t> of_result(type(node.output).shape.size(), 1);
    of_result[columns->first] = n;
    Array result(DType::kInt32, of_result);
    for (int64_t i = 0; i < n; ++i) result.set_int(i, sums[i]);
    return result;
  }

  void TakeOff(Node product, int64_t zero, const Array& sums) {
    Array offset = sums;
    for (int64_t i = 0; i < offset.elements(); ++i) offset.set_int(i, -zero * sums.int_at(i));
    if (product.op == "conv2d") product.attributes.Set("pad_value", static_cast<double>(zero));
    if (AddToNext(product, offset)) {
      nodes_.push_back(std::move(product));
      return;
    }
    const int constant = network_.AddConstant(product.name + ".offset", offset);
    Append(std::move(product), "add", constant);
  }

  void TakeOff(Node product, int zero, const Array& sums) {
    const int offset = network_.AddTensor(product.name + ".offset", {DType::kInt32, sums.shape});
    const int constant = network_.AddConstant(product.name + ".sums", sums);
    nodes_.push_back(Node{"mul", product.name + ".offset", {}, {constant, zero}, offset});
    Append(std::move(product), "sub", offset);
  }

  // The product and what makes its result of the sums.
  void Append(Node product, const std::string& op, int offset) {
    const int result = product.output;
    product.output = network_.AddTensor(product.name + ".sum", type(result));
    Node last{op, product.name + ".offset", {}, {product.output, offset}, result};
    nodes_.push_back(std::move(product));
    nodes_.push_back(std::move(last));
  }

  // Where the next node adds a constant of each column (a bias), the offset becomes part of it.
  bool AddToNext(const Node& product, const Array& offset) {
    const std::vector<int>& readers = consumers_[product.output];
    if (readers.size() != 1 || network_.is_output(product.output)) return false;
    Node& add = network_.nodes[readers[0]];
    if (add.op != "add" || add.inputs[0] == add.inputs[1]) return false;
    int& other = add.inputs[add.inputs[0] == product.output ? 1 : 0];
    const Tensor bias = network_.tensors[other];
    // The same shape, but for leading ones.
    if (!bias.constant() || bias.type.shape.size() > offset.shape.size() ||
        bias.data->elements() != offset.elements() ||
        !std::equal(bias.type.shape.rbegin(), bias.type.shape.rend(), offset.shape.rbegin()))
      return false;
    Array sum = *bias.data;
    for (int64_t i = 0; i < sum.elements(); ++i) {
      const int64_t value = sum.int_at(i) + offset.int_at(i);
      if (std::abs(value) > std::numeric_limits<int32_t>::max() / 2) return false;
      sum.set_int(i, value);
    }
    other = network_.AddConstant(bias.name, std::move(sum));
    return true;
  }

  Network& network_;
  std::vector<Node> nodes_;                        // the new ones so far
  const std::vector<int> producers_;               // by tensor, of the nodes as they were
  const std::vector<std::vector<int>> consumers_;  // the same
};

// With so many zeros more behind those of an axis.
Array WithZeros(const Array& from, size_t axis, int64_t more) {
  std::vector<int64_t> shape = from.shape;
  shape[axis] += more;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t old_run = from.shape[axis] * inner, run = shape[axis] * inner;
  Array to(from.dtype, shape);  // of zeros
  for (int64_t i = 0; i < from.elements(); ++i) to.set_int(i / old_run * run + i % old_run, from.int_at(i));
  return to;
}

// Convolutions of images of 8 bits by constants get channels of zeros up to a multiple of four, which is what
// instructions multiply at once: an image of three colours is read by pixels of four bytes.
absl::Status PadChannels(Network& network) {
  std::vector<Node> nodes;
  for (Node node : network.nodes) {
    const TensorType image = network.tensors[node.inputs.empty() ? node.output : node.inputs[0]].type;
    const bool nhwc = node.attributes.String("layout", "NCHW") == "NHWC";
    if (node.op != "conv2d" || !IsByte(image.dtype) || node.attributes.Int("group", 1) != 1 ||
        network.tensors[node.inputs[0]].constant() || !network.tensors[node.inputs[1]].constant() ||
        !IsByte(network.tensors[node.inputs[1]].type.dtype)) {
      nodes.push_back(std::move(node));
      continue;
    }
    const size_t axis = nhwc ? 3 : 1, of_weights = nhwc ? 2 : 1;
    const int64_t missing = (kDotBytes - image.shape[axis] % kDotBytes) % kDotBytes;
    if (missing > 0) {
      std::vector<int64_t> pads(8, 0);
      pads[4 + axis] = missing;
      TensorType padded = image;
      padded.shape[axis] += missing;
      Node pad{
          "pad", node.name + ".channels", {{"pads", pads}}, {node.inputs[0]}, static_cast<int>(network.tensors.size())};
      network.tensors.push_back(Tensor{pad.name, padded, nullptr});
      node.inputs[0] = pad.output;
      const Tensor weights = network.tensors[node.inputs[1]];
      node.inputs[1] = network.AddConstant(weights.name, WithZeros(*weights.data, of_weights, missing));
      nodes.push_back(std::move(pad));
    }
    nodes.push_back(std::move(node));
  }
  network.nodes = std::move(nodes);
  return absl::OkStatus();
}

}  // namespace

absl::Status NarrowFactors(Network& network) {
  ZeroPointFolder(network).Run();
  const std::vector<int> producers = network.Producers();
  std::map<int, int> narrowed;  // constants
  for (Node& node : network.nodes) {
    if (!IsProduct(node)) continue;
    for (int f = 0; f < 2; ++f) {
      const int id = node.inputs[f];
      const Tensor factor = network.tensors[id];
      if (factor.type.dtype != DType::kInt32) continue;
      if (factor.constant()) {
        const auto [known, fresh] = narrowed.emplace(id, id);
        const DType type = fresh ? NarrowestOf(*factor.data) : DType::kInt32;
        if (type != DType::kInt32) known->second = network.AddConstant(factor.name, CastArray(*factor.data, type));
        node.inputs[f] = known->second;
      } else if (producers[id] >= 0 && network.nodes[producers[id]].op == "cast") {
        const int source = network.nodes[producers[id]].inputs[0];
        const DType type = network.tensors[source].type.dtype;
        if (IsByte(type)) node.inputs[f] = source;
      }
    }
  }
  RETURN_IF_ERROR(PadChannels(network));
  return EliminateDeadCode(network);
}

}  // namespace diapason
