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
    std::vector<Node> nodes;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      Node node = network_.nodes[n];
      const std::optional<Shifted> left = IsProduct(node) ? ShiftedOf(node.inputs[0]) : std::nullopt;
      const std::optional<Array> offset = left ? OffsetOf(node, *left) : std::nullopt;
      if (!offset) {
        nodes.push_back(std::move(node));
        continue;
      }
      node.inputs[0] = left->cast;
      if (node.op == "conv2d") node.attributes.Set("pad_value", static_cast<double>(left->zero));
      if (AddToNext(node, *offset)) {
        nodes.push_back(std::move(node));
        continue;
      }
      const int result = node.output, constant = network_.AddConstant(node.name + ".offset", *offset);
      node.output = static_cast<int>(network_.tensors.size());
      Tensor sum = network_.tensors[result];
      sum.name = node.name + ".sum";
      network_.tensors.push_back(std::move(sum));
      Node add{"add", node.name + ".offset", {}, {node.output, constant}, result};
      nodes.push_back(std::move(node));
      nodes.push_back(std::move(add));
    }
    network_.nodes = std::move(nodes);
  }

 private:
  // q - zero: an int32 cast of q, and the integer that is subtracted.
  struct Shifted {
    int cast = -1;
    DType dtype = DType::kUint8;  // of q
    int64_t zero = 0;
  };

  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }

  std::optional<Shifted> ShiftedOf(int tensor) const {
    const int shift = producers_[tensor];
    if (shift < 0 || network_.nodes[shift].op != "sub" || type(tensor).dtype != DType::kInt32) return std::nullopt;
    const std::vector<int>& inputs = network_.nodes[shift].inputs;
    const Tensor& zero = network_.tensors[inputs[1]];
    const int cast = producers_[inputs[0]];
    if (!zero.constant() || zero.data->elements() != 1 || cast < 0 || network_.nodes[cast].op != "cast" ||
        type(inputs[0]).shape != type(tensor).shape)
      return std::nullopt;
    const DType dtype = type(network_.nodes[cast].inputs[0]).dtype;
    const int64_t value = zero.data->int_at(0), low = dtype == DType::kInt8 ? -128 : 0, high = low + 255;
    if (!IsByte(dtype) || value < low || value > high) return std::nullopt;
    return Shifted{inputs[0], dtype, value};
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

  // What is added to the sums then, in a shape that broadcasts to them. Nothing where the right factor is no constant
  // or int32 might not hold them before that.
  std::optional<Array> OffsetOf(const Node& node, const Shifted& left) const {
    const Tensor& right = network_.tensors[node.inputs[1]];
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
    Array offset(DType::kInt32, of_result);
    for (int64_t i = 0; i < n; ++i) offset.set_int(i, -left.zero * sums[i]);
    return offset;
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
  const std::vector<int> producers_;               // by tensor, of the nodes as they were
  const std::vector<std::vector<int>> consumers_;  // the same
};

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
  return EliminateDeadCode(network);
}

}  // namespace diapason
