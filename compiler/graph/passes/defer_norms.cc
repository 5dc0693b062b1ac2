// Normalizations of rows behind the products that read them. With W' = g * W, of which each column's mean is taken off,
//     (g * (x - mean) / deviation + b) W = (x W') / deviation + b W,
// so that a product needs no more of the normalization than each row's deviation, and starts when the row is there. The
// deviation follows from sums of runs of the row and of their squares, which the kernel that makes x has at hand. What
// adds the normalized row to something computes it from x anew.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/only_reader.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/plain_product.h"
#include "compiler/tensor/array.h"

namespace diapason {
namespace {

constexpr int64_t kRun = 64, kMostRuns = 32, kFewestRows = 32;

class NormDeferrer {
 public:
  NormDeferrer(Network& network, int64_t most_rows)
      : network_(network), most_rows_(most_rows), consumers_(network.Consumers()), producers_(network.Producers()) {}

  int Run() {
    int deferred = 0;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const std::optional<Norm> norm = NormOf(n);
      if (!norm) continue;
      Defer(*norm);
      ++deferred;
    }
    if (deferred == 0) return 0;
    std::vector<Node> nodes;
    for (size_t n = 0; n < network_.nodes.size(); ++n) {
      const auto before = before_.find(n);
      if (before != before_.end()) nodes.insert(nodes.end(), before->second.begin(), before->second.end());
      const auto instead = instead_.find(n);
      if (instead == instead_.end())
        nodes.push_back(network_.nodes[n]);
      else
        nodes.insert(nodes.end(), instead->second.begin(), instead->second.end());
      const auto behind = behind_.find(n);
      if (behind != behind_.end()) nodes.insert(nodes.end(), behind->second.begin(), behind->second.end());
    }
    network_.nodes = std::move(nodes);
    return deferred;
  }

 private:
  struct Norm {
    // Tensors: what is normalized, the same in the shape in which a kernel makes it, and the result with scale and
    // shift.
    int x, made, result;
    const Array *scale = nullptr, *shift = nullptr;
    bool centred = true;
    double epsilon = 0;
    std::string name;
  };

  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }

  // A constant of one row, or null.
  const Array* RowConstant(int tensor, int64_t width) const {
    const Tensor& t = network_.tensors[tensor];
    if (!t.constant() || t.type.elements() != width || t.type.shape.empty() || t.type.shape.back() != width)
      return nullptr;
    return t.data.get();
  }

  std::optional<Norm> NormOf(size_t n) const {
    const Node& node = network_.nodes[n];
    if (node.op != "layer_norm" && node.op != "rms_norm") return std::nullopt;
    const TensorType& x = type(node.inputs[0]);
    const auto rank = static_cast<int64_t>(x.shape.size()), axis = node.attributes.Int("axis", -1);
    if (!IsNarrowFloat(x.dtype) || rank < 2 || (axis < 0 ? axis + rank : axis) != rank - 1) return std::nullopt;
    const int64_t width = x.shape.back();
    if (width % kRun != 0 || width / kRun > kMostRuns) return std::nullopt;
    if (const int64_t rows = x.elements() / width; rows < kFewestRows || rows > most_rows_) return std::nullopt;
    const int made = BehindViews(node.inputs[0]);
    if (!IsOfProduct(made)) return std::nullopt;
    Norm norm{node.inputs[0],
              made,
              node.output,
              nullptr,
              nullptr,
              node.op == "layer_norm",
              node.attributes.Float("epsilon", 1e-5),
              node.name};
    if (const int reader = OnlyReader(network_, consumers_, norm.result); reader >= 0)
      Take("mul", reader, width, norm, &norm.scale);
    if (const int reader = OnlyReader(network_, consumers_, norm.result); reader >= 0)
      Take("add", reader, width, norm, &norm.shift);
    if (network_.is_output(norm.result) || consumers_[norm.result].empty()) return std::nullopt;
    for (int reader : consumers_[norm.result])
      if (!IsProduct(reader, norm) && !IsAddition(reader, norm)) return std::nullopt;
    return norm;
  }

  // The node's constant becomes the norm's, if it is one of a row.
  void Take(const std::string& op, int reader, int64_t width, Norm& norm, const Array** constant) const {
    const Node& node = network_.nodes[reader];
    if (node.op != op || node.inputs[0] == node.inputs[1]) return;
    const int other = node.inputs[node.inputs[0] == norm.result ? 1 : 0];
    const Array* row = RowConstant(other, width);
    if (row == nullptr || !(type(node.output) == type(norm.result))) return;
    *constant = row;
    norm.result = node.output;
  }

  // The tensor of which this one is a view that leaves rows whole.
  int BehindViews(int tensor) const {
    for (int n = producers_[tensor]; n >= 0 && network_.nodes[n].op == "reshape"; n = producers_[tensor]) {
      const int viewed = network_.nodes[n].inputs[0];
      const TensorType &view = type(tensor), &of = type(viewed);
      if (of.dtype != view.dtype || of.shape.size() < 2 || of.shape.back() != view.shape.back()) break;
      tensor = viewed;
    }
    return tensor;
  }

  // Whether a kernel of a product makes the tensor: sums, biases and activations behind it.
  bool IsOfProduct(int tensor) const {
    constexpr int kMostSteps = 6;
    for (int step = 0; step < kMostSteps; ++step) {
      tensor = BehindViews(tensor);
      const int from = producers_[tensor];
      if (from < 0) return false;
      const Node& node = network_.nodes[from];
      if (node.op == "matmul" || node.op == "gemm") return true;
      if (FindOperator(node.op)->kind != OperatorKind::kElementwise) return false;
      // The operand that is deepest: a residual comes from further away.
      int next = -1;
      for (int input : node.inputs) {
        const bool is_old = input < static_cast<int>(producers_.size());  // not of a norm that was deferred
        if (is_old && type(input).shape == type(node.output).shape && producers_[input] >= 0 &&
            (next < 0 || producers_[input] > producers_[next]))
          next = input;
      }
      if (next < 0) return false;
      tensor = next;
    }
    return false;
  }

  bool IsProduct(int reader, const Norm& norm) const {
    const Node& node = network_.nodes[reader];
    if (!IsPlainProduct(node) || node.inputs[0] != norm.result) return false;
    // What a gemm adds is a constant of each column.
    if (node.inputs.size() > 2 && RowConstant(node.inputs[2], type(node.output).shape.back()) == nullptr) return false;
    const Tensor& weight = network_.tensors[node.inputs[1]];
    return weight.constant() && weight.type.shape.size() == 2 && weight.type.dtype == type(norm.x).dtype &&
           type(node.output).dtype == type(norm.x).dtype && weight.type.shape[1] > 1;
  }

  bool IsAddition(int reader, const Norm& norm) const {
    const Node& node = network_.nodes[reader];
    return node.op == "add" && node.inputs[0] != node.inputs[1] && type(node.output) == type(norm.x);
  }

  Attributes StatisticsOf(const Norm& norm, bool shifts) const {
    return {{"count", type(norm.x).shape.back()},
            {"epsilon", norm.epsilon},
            {"centred", int64_t{norm.centred}},
            {"shifts", int64_t{shifts}}};
  }

  // Of all bits that an element of 16 bits may have.
  const std::vector<float>& NumbersOf(DType dtype) {
    std::vector<float>& numbers = numbers_[dtype];
    for (uint32_t bits = static_cast<uint32_t>(numbers.size()); bits < 65536; ++bits)
      numbers.push_back(NarrowToFloat(dtype, static_cast<uint16_t>(bits)));
    return numbers;
  }

  TensorType TypeOfSums(int tensor) const {
    std::vector<int64_t> shape = type(tensor).shape;
    shape.insert(shape.begin(), shape.back() / kRun);
    shape.back() = 2;
    return {DType::kFloat32, shape};
  }

  // The sums of the runs of the rows, in the shape of the normalization.
  int SumsFor(const Norm& norm) {
    const std::string name = absl::StrCat(norm.name, ".sums");
    std::vector<Node>& nodes = behind_[producers_[norm.made]];
    const auto [known, is_new] = sums_.try_emplace(norm.made, -1);
    int& sums = known->second;
    if (is_new) {
      sums = network_.AddTensor(name, TypeOfSums(norm.made));
      nodes.push_back({"run_sums", name, {{"run", kRun}}, {norm.made}, sums});
    }
    const TensorType wanted = TypeOfSums(norm.x);
    if (network_.tensors[sums].type == wanted) return sums;
    const int viewed = network_.AddTensor(absl::StrCat(name, ".view"), wanted);
    nodes.push_back({"reshape", absl::StrCat(name, ".view"), {{"shape", wanted.shape}}, {sums}, viewed});
    return viewed;
  }

  void Defer(const Norm& norm) {
    const int sums = SumsFor(norm);
    const std::vector<int> readers = consumers_[norm.result];
    for (int reader : std::set<int>(readers.begin(), readers.end())) {
      if (IsProduct(reader, norm))
        DeferBehind(norm, reader, sums);
      else
        Repeat(norm, reader, sums);
    }
    // The nodes of the norm have no readers any more.
  }

  void DeferBehind(const Norm& norm, int reader, int sums) {
    const Node product = network_.nodes[reader];
    const Tensor weight = network_.tensors[product.inputs[1]];
    const int64_t rows = weight.type.shape[0], columns = weight.type.shape[1];
    Array scaled(weight.type.dtype, weight.type.shape), offset(weight.type.dtype, {columns});
    std::vector<double> means(columns, 0), offsets(columns, 0);
    // There are hundreds of millions of weights.
    const std::vector<float>& numbers = NumbersOf(weight.type.dtype);
    const auto* const from = reinterpret_cast<const uint16_t*>(weight.data->data.data());
    auto* const to = reinterpret_cast<uint16_t*>(scaled.data.data());
    const auto scale_of = [&](int64_t k) { return norm.scale != nullptr ? norm.scale->at(k) : 1.0; };
    for (int64_t k = 0; k < rows; ++k) {
      const double scale = scale_of(k) / static_cast<double>(rows),
                   shift = norm.shift != nullptr ? norm.shift->at(k) : 0;
      for (int64_t n = 0; n < columns; ++n) {
        const double w = numbers[from[k * columns + n]];
        means[n] += scale * w;
        offsets[n] += shift * w;
      }
    }
    if (!norm.centred) means.assign(columns, 0);
    for (int64_t k = 0; k < rows; ++k) {
      const double scale = scale_of(k);
      for (int64_t n = 0; n < columns; ++n) {
        const double w = scale * numbers[from[k * columns + n]] - means[n];
        to[k * columns + n] = FloatToNarrow(weight.type.dtype, static_cast<float>(w));
      }
    }
    const std::string name = product.name;
    // A bias takes the offset in.
    bool shifts = norm.shift != nullptr;
    if (product.inputs.size() > 2) {
      for (int64_t n = 0; n < columns; ++n) offsets[n] += network_.tensors[product.inputs[2]].data->at(n);
      shifts = true;
    } else if (shifts) {
      shifts = !AddToBias(product.output, offsets);
    }
    const int new_weight = network_.AddConstant(absl::StrCat(weight.name, ".deferred"), std::move(scaled));
    const int raw = network_.AddTensor(absl::StrCat(name, ".raw"), type(product.output));
    const int normal =
        shifts ? network_.AddTensor(absl::StrCat(name, ".normal"), type(product.output)) : product.output;
    std::vector<Node>& nodes = instead_[reader];
    Node first = product;
    first.inputs = {norm.x, new_weight};
    first.output = raw;
    nodes.push_back(std::move(first));
    nodes.push_back(
        {"normalize_by_sums", absl::StrCat(name, ".normal"), StatisticsOf(norm, false), {raw, sums}, normal});
    if (!shifts) return;
    for (int64_t n = 0; n < columns; ++n) offset.set(n, offsets[n]);
    const int constant = network_.AddConstant(absl::StrCat(name, ".offset"), std::move(offset));
    nodes.push_back({"add", absl::StrCat(name, ".shifted"), {}, {normal, constant}, product.output});
  }

  // Whether the only reader adds a constant of each column, which then has these offsets too.
  bool AddToBias(int tensor, const std::vector<double>& offsets) {
    const int reader = OnlyReader(network_, consumers_, tensor);
    if (reader < 0) return false;
    Node& add = network_.nodes[reader];
    if (add.op != "add" || add.inputs[0] == add.inputs[1]) return false;
    int& other = add.inputs[add.inputs[0] == tensor ? 1 : 0];
    const Array* bias = RowConstant(other, static_cast<int64_t>(offsets.size()));
    if (bias == nullptr) return false;
    Array sum = *bias;
    for (size_t n = 0; n < offsets.size(); ++n)
      sum.set(static_cast<int64_t>(n), bias->at(static_cast<int64_t>(n)) + offsets[n]);
    other = network_.AddConstant(absl::StrCat(network_.tensors[other].name, ".shifted"), std::move(sum));
    return true;
  }

  void Repeat(const Norm& norm, int reader, int sums) {
    const TensorType row = type(norm.x);  // tensors are added below
    const std::string name = absl::StrCat(norm.name, ".for.", network_.nodes[reader].name);
    std::vector<Node>& nodes = before_[reader];
    int tensor = network_.AddTensor(absl::StrCat(name, ".normal"), row);
    nodes.push_back(
        {"normalize_by_sums", absl::StrCat(name, ".normal"), StatisticsOf(norm, norm.centred), {norm.x, sums}, tensor});
    const auto apply = [&](const char* op, const Array* constant) {
      if (constant == nullptr) return;
      const int with = network_.AddConstant(absl::StrCat(name, ".", op), *constant);
      const int result = network_.AddTensor(absl::StrCat(name, ".", op, "ed"), row);
      nodes.push_back({op, absl::StrCat(name, ".", op), {}, {tensor, with}, result});
      tensor = result;
    };
    apply("mul", norm.scale);
    apply("add", norm.shift);
    Node& add = network_.nodes[reader];
    for (int& input : add.inputs)
      if (input == norm.result) input = tensor;
  }

  Network& network_;
  const int64_t most_rows_;
  const std::vector<std::vector<int>> consumers_;
  const std::vector<int> producers_;
  std::map<size_t, std::vector<Node>> before_, instead_, behind_;  // by node
  std::map<DType, std::vector<float>> numbers_;
  std::map<int, int> sums_;  // by the tensor whose rows they are of
};

}  // namespace

int DeferNorms(Network& network, int64_t most_rows) { return NormDeferrer(network, most_rows).Run(); }

}  // namespace diapason
