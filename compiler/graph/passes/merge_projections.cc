// Queries, keys and values of an attention are three products of one tensor by constant matrices. Here they are one, by
// the matrices side by side: a larger product has more parallelism, and its input is read once. Each projection becomes
// some heads of the result, which the transposition behind it reads from there.
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/graph/only_reader.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/plain_product.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;

// A product by a constant, perhaps a bias, and a view that tells heads apart; the view is read by one transposition.
struct Projection {
  int product = -1, bias = -1, view = -1;  // nodes; bias -1: none, or an operand of the product
  int weight = -1, offset = -1;            // constants; offset -1: none
  int64_t heads = 0;
};

class Merger {
 public:
  explicit Merger(Network& network) : network_(network), consumers_(network.Consumers()) {}

  absl::Status Run() {
    // By operator, input, type, shape of the view before the heads, and size of a head.
    std::map<std::tuple<std::string, int, DType, Shape, int64_t>, std::vector<Projection>> alike;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const std::optional<Projection> found = ProjectionAt(static_cast<int>(n));
      if (!found) continue;
      const Node& product = network_.nodes[n];
      Shape before = ShapeOf(network_.nodes[found->view].output);
      const int64_t size = before.back();
      before.resize(before.size() - 2);
      alike[{product.op, product.inputs[0], network_.tensors[product.output].type.dtype, before, size}].push_back(
          *found);
    }
    for (const auto& [key, projections] : alike)
      if (projections.size() > 1) Merge(projections);
    std::vector<Node> nodes;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const auto instead = instead_.find(static_cast<int>(n));
      if (instead == instead_.end())
        nodes.push_back(network_.nodes[n]);
      else
        nodes.insert(nodes.end(), instead->second.begin(), instead->second.end());
    }
    network_.nodes = std::move(nodes);
    return absl::OkStatus();
  }

 private:
  const Shape& ShapeOf(int tensor) const { return network_.tensors[tensor].type.shape; }
  bool IsConstant(int tensor) const { return network_.tensors[tensor].constant(); }

  bool IsProductByMatrix(const Node& node) const {
    return IsPlainProduct(node) && IsConstant(node.inputs[1]) && ShapeOf(node.inputs[1]).size() == 2 &&
           ShapeOf(node.inputs[0]).size() >= 2;
  }

  // A constant with one element a column.
  bool IsOffset(int tensor, int64_t columns) const { return IsConstant(tensor) && ShapeOf(tensor) == Shape{columns}; }

  std::optional<Projection> ProjectionAt(int n) const {
    const Node& product = network_.nodes[n];
    if (!IsProductByMatrix(product)) return std::nullopt;
    Projection p;
    p.product = n;
    p.weight = product.inputs[1];
    const int64_t columns = ShapeOf(p.weight)[1];
    if (product.inputs.size() == 3) {
      if (!IsOffset(product.inputs[2], columns)) return std::nullopt;
      p.offset = product.inputs[2];
    }
    int reader = OnlyReader(network_, consumers_, product.output);
    if (reader >= 0 && network_.nodes[reader].op == "add" && p.offset < 0) {
      const std::vector<int>& operands = network_.nodes[reader].inputs;
      p.bias = reader;
      p.offset = operands[operands[0] == product.output];
      if (!IsOffset(p.offset, columns)) return std::nullopt;
      reader = OnlyReader(network_, consumers_, network_.nodes[reader].output);
    }
    if (reader < 0 || network_.nodes[reader].op != "reshape") return std::nullopt;
    p.view = reader;
    const Shape& heads = ShapeOf(network_.nodes[reader].output);
    if (heads.size() < 3 || heads[heads.size() - 2] * heads.back() != columns) return std::nullopt;
    p.heads = heads[heads.size() - 2];
    const int behind = OnlyReader(network_, consumers_, network_.nodes[reader].output);
    if (behind < 0 || network_.nodes[behind].op != "transpose") return std::nullopt;
    return p;
  }

  // Constants of equal rows side by side; zeros for those that are missing.
  int SideBySide(const std::vector<Projection>& parts, int Projection::*which, const Shape& rows, int64_t columns,
                 DType dtype) {
    Shape shape = rows;
    shape.push_back(columns);
    Array all(dtype, shape);
    const int64_t bytes = BytesOf(dtype), height = all.elements() / columns;
    int64_t begin = 0;
    for (const Projection& part : parts) {
      const int64_t width = ShapeOf(part.weight)[1];
      const Array* from = part.*which < 0 ? nullptr : network_.tensors[part.*which].data.get();
      for (int64_t row = 0; row < height && from != nullptr; ++row)
        std::memcpy(all.data.data() + (row * columns + begin) * bytes, from->data.data() + row * width * bytes,
                    width * bytes);
      begin += width;
    }
    return network_.AddConstant(network_.nodes[parts[0].product].name + "_parts", std::move(all));
  }

  void Merge(const std::vector<Projection>& parts) {
    Node product = network_.nodes[parts[0].product];
    const DType dtype = network_.tensors[product.output].type.dtype;
    int64_t columns = 0, heads = 0;
    bool offsets = false;
    for (const Projection& part : parts) {
      if (network_.tensors[part.weight].type.dtype != dtype) return;
      if (part.offset >= 0 && network_.tensors[part.offset].type.dtype != dtype) return;
      columns += ShapeOf(part.weight)[1];
      heads += part.heads;
      offsets |= part.offset >= 0;
    }
    const std::string name = product.name + "_merged";
    Shape shape = ShapeOf(product.output), viewed = ShapeOf(network_.nodes[parts[0].view].output);
    shape.back() = columns;
    viewed[viewed.size() - 2] = heads;
    product.inputs = {product.inputs[0],
                      SideBySide(parts, &Projection::weight, {ShapeOf(parts[0].weight)[0]}, columns, dtype)};
    product.name = name;
    int result = product.output = network_.AddTensor(name, {dtype, shape});
    std::vector<Node>& merged = instead_[parts[0].product];
    merged = {product};
    if (offsets) {
      const int sum = network_.AddTensor(name + "_bias", {dtype, shape});
      merged.push_back(
          {"add", name + "_bias", {}, {result, SideBySide(parts, &Projection::offset, {}, columns, dtype)}, sum});
      result = sum;
    }
    const int view = network_.AddTensor(name + "_heads", {dtype, viewed});
    merged.push_back({"reshape", name + "_heads", Attributes{{"shape", viewed}}, {result}, view});
    const auto axis = static_cast<int64_t>(viewed.size()) - 2;
    int64_t begin = 0;
    for (const Projection& part : parts) {
      if (part.product != parts[0].product) instead_[part.product] = {};
      if (part.bias >= 0) instead_[part.bias] = {};
      const Node& old = network_.nodes[part.view];
      const Attributes slice{{"starts", Shape{begin}}, {"ends", Shape{begin + part.heads}}, {"axes", Shape{axis}}};
      instead_[part.view].push_back({"slice", old.name, slice, {view}, old.output});
      begin += part.heads;
    }
  }

  Network& network_;
  const std::vector<std::vector<int>> consumers_;
  std::map<int, std::vector<Node>> instead_;  // of a node
};

}  // namespace

absl::Status MergeProjections(Network& network) { return Merger(network).Run(); }

}  // namespace diapason
