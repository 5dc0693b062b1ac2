// Layer and RMS normalizations that an exporter has written out in arithmetic: rows divided by the root of the mean of
// their squares, perhaps less their mean first. PyTorch exports the norms of LLaMA, Qwen and T5 like that, and did so
// with all layer normalizations before ONNX had an operator for them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/padding_values.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

class NormRecognizer {
 public:
  explicit NormRecognizer(Network& network) : network_(network), producers_(network.Producers()) {}

  void Run() {
    for (Node& node : network_.nodes) {
      const std::optional<Norm> norm = NormOf(node);
      if (!norm) continue;
      node.op = norm->centred ? "layer_norm" : "rms_norm";
      node.inputs = {norm->x};
      node.attributes = {{"axis", int64_t{-1}}, {"epsilon", norm->epsilon}};
    }
  }

 private:
  struct Norm {
    int x = -1;
    double epsilon = 0;
    bool centred = false;
  };
  // What a divisor is the root of: the mean of the squares of x, and what is added to it.
  struct Mean {
    int x = -1;
    double epsilon = 0;
  };

  const TensorType& type(int tensor) const { return network_.tensors[tensor].type; }

  // The node that computes the tensor, if it has that operator; or null.
  const Node* From(int tensor, const char* op) const {
    const int n = producers_[tensor];
    return n >= 0 && network_.nodes[n].op == op ? &network_.nodes[n] : nullptr;
  }

  // The value that all elements of a constant have.
  std::optional<double> NumberIn(int tensor) const {
    const Tensor& t = network_.tensors[tensor];
    return t.constant() ? UniformValue(*t.data) : std::nullopt;
  }
  bool Is(int tensor, double number) const {
    const std::optional<double> value = NumberIn(tensor);
    return value && *value == number;
  }

  // x, if the tensor is x * x.
  int SquaredIn(int tensor) const {
    if (const Node* mul = From(tensor, "mul"); mul != nullptr && mul->inputs[0] == mul->inputs[1])
      return mul->inputs[0];
    if (const Node* pow = From(tensor, "pow"); pow != nullptr && Is(pow->inputs[1], 2)) return pow->inputs[0];
    return -1;
  }

  // What the tensor is the mean of, along the last axis, which it keeps.
  int MeanOf(int tensor) const {
    const Node* mean = From(tensor, "reduce_mean");
    if (mean == nullptr || mean->attributes.Int("keepdims", 1) == 0) return -1;
    const auto rank = static_cast<int64_t>(type(mean->inputs[0]).shape.size());
    const std::vector<int64_t> axes = mean->attributes.Ints("axes", {});
    return rank > 0 && axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1) ? mean->inputs[0] : -1;
  }

  std::optional<Mean> MeanOfSquares(int tensor) const {
    Mean mean;
    if (const Node* add = From(tensor, "add")) {
      for (int side : {0, 1}) {
        const std::optional<double> epsilon = NumberIn(add->inputs[1 - side]);
        if (!epsilon || !(*epsilon >= 0) || std::isinf(*epsilon)) continue;
        mean.epsilon = *epsilon;
        tensor = add->inputs[side];
        break;
      }
    }
    const int squares = MeanOf(tensor);
    mean.x = squares < 0 ? -1 : SquaredIn(squares);
    return mean.x < 0 ? std::nullopt : std::optional(mean);
  }

  std::optional<Mean> RootOf(int tensor) const {
    if (const Node* root = From(tensor, "sqrt")) return MeanOfSquares(root->inputs[0]);
    if (const Node* pow = From(tensor, "pow"); pow != nullptr && Is(pow->inputs[1], 0.5))
      return MeanOfSquares(pow->inputs[0]);
    return std::nullopt;
  }

  std::optional<Mean> ReciprocalRootOf(int tensor) const {
    if (const Node* root = From(tensor, "rsqrt")) return MeanOfSquares(root->inputs[0]);
    if (const Node* reciprocal = From(tensor, "reciprocal")) return RootOf(reciprocal->inputs[0]);
    if (const Node* div = From(tensor, "div"); div != nullptr && Is(div->inputs[0], 1)) return RootOf(div->inputs[1]);
    if (const Node* pow = From(tensor, "pow"); pow != nullptr && Is(pow->inputs[1], -0.5))
      return MeanOfSquares(pow->inputs[0]);
    return std::nullopt;
  }

  std::optional<Norm> NormOf(const Node& node) const {
    std::optional<Mean> mean;
    if (node.op == "div") mean = WithRow(RootOf(node.inputs[1]), node.inputs[0]);
    if (node.op == "mul")
      for (int side : {0, 1})
        if (!mean) mean = WithRow(ReciprocalRootOf(node.inputs[1 - side]), node.inputs[side]);
    if (!mean || !(type(node.output) == type(mean->x))) return std::nullopt;
    if (const Node* centred = From(mean->x, "sub");
        centred != nullptr && MeanOf(centred->inputs[1]) == centred->inputs[0])
      return Norm{centred->inputs[0], mean->epsilon, true};
    return Norm{mean->x, mean->epsilon, false};
  }

  // That mean, if its squares are those of the row.
  static std::optional<Mean> WithRow(std::optional<Mean> mean, int row) {
    return mean && mean->x == row ? mean : std::nullopt;
  }

  Network& network_;
  const std::vector<int> producers_;
};

}  // namespace

void RecognizeNorms(Network& network) { NormRecognizer(network).Run(); }

}  // namespace diapason
