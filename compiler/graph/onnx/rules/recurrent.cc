// Recurrent networks, unrolled: the product with the input is one for all steps, and each step is the same small graph,
// so that the partition makes one task of all of them.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/quantized.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

using Ints = Composer::Ints;

// Steps of all directions together that are unrolled; more would make networks that take minutes to build.
constexpr int64_t kMostCells = 4096;

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

struct Cell {
  int64_t steps = 1, batch = 1, inputs = 1, hidden = 1;
  double clip = 0;
  bool linear_before_reset = false, input_forget = false;
  std::vector<Activation> activations;  // of one direction
};

ImportValue Activated(Composer& c, const Cell& cell, int which, const ImportValue& x) {
  const Activation& f = cell.activations[which];
  ImportValue clipped = cell.clip > 0 ? c.Op("clip", {x}, {{"min", -cell.clip}, {"max", cell.clip}}) : x;
  if (f.name == "affine") return c.Add(c.Mul(clipped, c.Scalar(f.alpha, x)), c.Scalar(f.beta, x));
  if (f.name == "scaledtanh") {
    return c.Mul(c.Op("tanh", {c.Mul(clipped, c.Scalar(f.beta, x))}), c.Scalar(f.alpha, x));
  }
  if (f.name == "hardsigmoid") return c.Op("hard_sigmoid", {clipped}, {{"alpha", f.alpha}, {"beta", f.beta}});
  if (f.name == "leakyrelu") return c.Op("leaky_relu", {clipped}, {{"alpha", f.alpha}});
  if (f.name == "thresholdedrelu") return c.Op("thresholded_relu", {clipped}, {{"alpha", f.alpha}});
  if (f.name == "elu") return c.Op("elu", {clipped}, {{"alpha", f.alpha}});
  return c.Op(f.name, {clipped});
}

absl::StatusOr<std::vector<Activation>> ActivationsOf(NodeImporter& node, std::vector<std::string> fallback,
                                                      int64_t directions) {
  std::vector<std::string> names = node.Strings("activations");
  size_t per_direction = fallback.size();
  while (names.size() < per_direction * directions) {
    names.push_back(fallback[names.size() % per_direction]);
  }
  ASSIGN_OR_RETURN(std::vector<double> alphas, node.Floats("activation_alpha"));
  ASSIGN_OR_RETURN(std::vector<double> betas, node.Floats("activation_beta"));
  static const auto& kAlpha = *new std::map<std::string, double>{
      {"affine", 1}, {"leakyrelu", 0.01}, {"thresholdedrelu", 1}, {"scaledtanh", 1}, {"hardsigmoid", 0.2}, {"elu", 1}};
  static const auto& kBeta = *new std::map<std::string, double>{{"affine", 0}, {"scaledtanh", 1}, {"hardsigmoid", 0.5}};
  std::vector<Activation> result;
  size_t next_alpha = 0, next_beta = 0;
  for (const std::string& name : names) {
    Activation f{absl::AsciiStrToLower(name)};
    bool plain =
        f.name == "relu" || f.name == "tanh" || f.name == "sigmoid" || f.name == "softsign" || f.name == "softplus";
    if (!plain && kAlpha.count(f.name) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("activation '", Printable(name),
                       "' is not supported: Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, ",
                       "Sigmoid, Softplus, Softsign, Tanh and ThresholdedRelu are"));
    }
    if (kAlpha.count(f.name) != 0) f.alpha = next_alpha < alphas.size() ? alphas[next_alpha++] : kAlpha.at(f.name);
    if (kBeta.count(f.name) != 0) f.beta = next_beta < betas.size() ? betas[next_beta++] : kBeta.at(f.name);
    result.push_back(f);
  }
  return result;
}

// Of quantised weights (DynamicQuantizeLSTM), which lie turned: inputs or hidden x gates*hidden. Without a scale they
// are float.
struct Quantisation {
  ImportValue scale, zero;
};

// One direction of one layer: the parameters of its gates.
struct Direction {
  ImportValue w, r;      // gates*hidden x inputs, gates*hidden x hidden
  ImportValue wb, rb;    // gates*hidden, or null
  ImportValue h, state;  // batch x hidden
  ImportValue peephole;  // 3*hidden, or null
  Quantisation of_w, of_r;
};

ImportValue Gate(Composer& c, const ImportValue& x, const Cell& cell, int64_t gate) {
  return c.Slice(x, -1, gate * cell.hidden, (gate + 1) * cell.hidden);
}

// What a step hands to the next one: the output and, for LSTM, the cell's state.
struct CellState {
  ImportValue h, state;
};

// x: batch x gates*hidden, the input's product with its biases. One step.
using CellStep =
    std::function<void(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s)>;

ImportValue TransposedProduct(Composer& c, const ImportValue& x, const ImportValue& w) {
  return c.Matmul(x, c.Transpose(w, {1, 0}));
}

ImportValue ProductWith(Composer& c, const ImportValue& x, const ImportValue& w, const Quantisation& of_w) {
  return of_w.scale ? DynamicProduct(c, x, w, of_w.scale, of_w.zero) : TransposedProduct(c, x, w);
}

void RnnStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  s.h = Activated(c, cell, 0, c.Add(TransposedProduct(c, s.h, d.r), x));
}

// Gates in the order z r h.
void GruStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  ImportValue& h = s.h;
  int64_t hidden = cell.hidden;
  ImportValue zr = c.Add(TransposedProduct(c, h, c.Slice(d.r, 0, 0, 2 * hidden)), c.Slice(x, -1, 0, 2 * hidden));
  ImportValue z = Activated(c, cell, 0, Gate(c, zr, cell, 0)), r = Activated(c, cell, 0, Gate(c, zr, cell, 1));
  ImportValue rh = c.Slice(d.r, 0, 2 * hidden, 3 * hidden), own = Gate(c, x, cell, 2), candidate;
  ImportValue bias = d.rb ? Gate(c, d.rb, cell, 2) : nullptr;
  if (cell.linear_before_reset) {
    ImportValue product = TransposedProduct(c, h, rh);
    if (bias) product = c.Add(product, bias);
    candidate = c.Add(c.Mul(r, product), own);
  } else {
    candidate = c.Add(TransposedProduct(c, c.Mul(r, h), rh), own);
    if (bias) candidate = c.Add(candidate, bias);
  }
  candidate = Activated(c, cell, 1, candidate);
  h = c.Add(c.Mul(c.Sub(c.Scalar(1, z), z), candidate), c.Mul(z, h));
}

// Gates in the order i o f c.
void LstmStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  auto& [h, state] = s;
  ImportValue gates = c.Add(ProductWith(c, h, d.r, d.of_r), x);
  auto gate = [&](int64_t which, int64_t peephole, const ImportValue& seen) {
    ImportValue y = Gate(c, gates, cell, which);
    if (d.peephole) y = c.Add(y, c.Mul(Gate(c, d.peephole, cell, peephole), seen));
    return Activated(c, cell, 0, y);
  };
  ImportValue i = gate(0, 0, state);
  ImportValue f = cell.input_forget ? c.Sub(c.Scalar(1, i), i) : gate(2, 2, state);
  ImportValue candidate = Activated(c, cell, 1, Gate(c, gates, cell, 3));
  state = c.Add(c.Mul(f, state), c.Mul(i, candidate));
  ImportValue o = gate(1, 1, state);
  ImportValue out = cell.activations[2].name == "tanh" && cell.clip == 0
                        ? c.Op("tanh", {state})
                        : Activated(c, Cell{1, 1, 1, 1, 0, false, false, cell.activations}, 2, state);
  h = c.Mul(o, out);
}

struct Kind {
  int64_t gates;
  std::vector<std::string> activations;
  CellStep step;
  bool has_state = false;
  int64_t late_biases = 0;  // of so many last gates the recurrent bias is not added to the input's product
  bool quantised = false;   // weights are integers, turned, with scales and zero points in inputs 8 to 11
};

// The inputs of the node, split by direction, and the whole result.
class Unrolled {
 public:
  Unrolled(NodeImporter& node, const Kind& kind) : node_(node), kind_(kind), c_(node) {}

  absl::Status Import() {
    RETURN_IF_ERROR(Prepare());
    for (int64_t d = 0; d < directions_; ++d) {
      Cell cell = cell_;
      size_t n = kind_.activations.size();
      cell.activations.assign(activations_.begin() + d * n, activations_.begin() + (d + 1) * n);
      Direction direction = DirectionOf(d);
      bool reverse = direction_ == "reverse" || d == 1;
      RunDirection(cell, direction, reverse);
    }
    if (!c_.ok()) return c_.status();
    return SetResults();
  }

 private:
  absl::Status Prepare() {
    x_ = c_.Input(0);
    layout_ = node_.Int("layout", 0) != 0;
    if (x_->type.shape.size() != 3) {
      return absl::InvalidArgumentError(absl::StrCat("input 0 must have 3 dimensions, not be ", x_->type.ToString()));
    }
    if (layout_) x_ = c_.Transpose(x_, {1, 0, 2});
    w_ = c_.Input(1);
    r_ = c_.Input(2);
    RETURN_IF_ERROR(c_.status());
    direction_ = node_.String("direction", "forward");
    if (direction_ != "forward" && direction_ != "reverse" && direction_ != "bidirectional") {
      return absl::InvalidArgumentError(
          absl::StrCat("direction must be forward, reverse or bidirectional, not '", direction_, "'"));
    }
    directions_ = direction_ == "bidirectional" ? 2 : 1;
    if (w_->type.shape.size() != 3 || r_->type.shape.size() != 3) {
      return absl::InvalidArgumentError("weights must have 3 dimensions");
    }
    cell_.steps = x_->type.shape[0];
    cell_.batch = x_->type.shape[1];
    cell_.inputs = x_->type.shape[2];
    cell_.hidden = node_.Int("hidden_size", r_->type.shape[2]);
    cell_.clip = node_.Float("clip", 0);
    cell_.linear_before_reset = node_.Int("linear_before_reset", 0) != 0;
    cell_.input_forget = node_.Int("input_forget", 0) != 0;
    Ints w = {directions_, kind_.gates * cell_.hidden, cell_.inputs}, r = {w[0], w[1], cell_.hidden};
    if (kind_.quantised) {
      std::swap(w[1], w[2]);
      std::swap(r[1], r[2]);
    }
    if (w_->type.shape != w || r_->type.shape != r) {
      return absl::InvalidArgumentError(absl::StrCat("weights of ", w_->type.ToString(), " and ", r_->type.ToString(),
                                                     " do not fit ", cell_.inputs, " inputs, ", cell_.hidden,
                                                     " hidden units and ", directions_, " directions"));
    }
    if (cell_.steps * directions_ > kMostCells) {
      return absl::InvalidArgumentError(absl::StrCat("it has ", cell_.steps * directions_, " steps, but at most ",
                                                     kMostCells, " are unrolled: shorten the sequence"));
    }
    ASSIGN_OR_RETURN(activations_, ActivationsOf(node_, kind_.activations, directions_));
    if (node_.HasInput(4)) lengths_ = c_.Cast(c_.Input(4), DType::kInt64);
    return c_.status();
  }

  ImportValue OfDirection(int input, int64_t d) { return c_.Squeeze(c_.Slice(c_.Input(input), 0, d, d + 1), {0}); }

  ImportValue InitialState(int input, int64_t d) {
    if (!node_.HasInput(input)) {
      return c_.Constant(Array(x_->type.dtype, {cell_.batch, cell_.hidden}));
    }
    if (!layout_) return OfDirection(input, d);
    return c_.Squeeze(c_.Slice(c_.Input(input), 1, d, d + 1), {1});
  }

  // A scale or zero point for all weights of the direction, or for each column.
  ImportValue ParameterOf(int input, int64_t d) {
    if (!node_.HasInput(input)) return nullptr;
    const ImportValue all = c_.Input(input);
    const int64_t columns = kind_.gates * cell_.hidden, n = all->type.elements();
    if (n != directions_ && n != directions_ * columns) {
      c_.Fail(absl::InvalidArgumentError(absl::StrCat("input ", input, " (", all->type.ToString(), ") does not fit ",
                                                      directions_, " directions of ", columns, " columns")));
      return all;
    }
    return c_.Reshape(c_.Slice(c_.Reshape(all, {directions_, -1}), 0, d, d + 1), {-1});
  }

  Direction DirectionOf(int64_t d) {
    Direction result;
    result.w = OfDirection(1, d);
    result.r = OfDirection(2, d);
    if (kind_.quantised) {
      result.of_w = {ParameterOf(8, d), ParameterOf(9, d)};
      result.of_r = {ParameterOf(10, d), ParameterOf(11, d)};
      if (!result.of_w.scale || !result.of_r.scale)
        c_.Fail(absl::InvalidArgumentError("the scales of the weights (inputs 8 and 10) are missing"));
    }
    if (node_.HasInput(3)) {
      ImportValue both = OfDirection(3, d);
      int64_t n = kind_.gates * cell_.hidden;
      result.wb = c_.Slice(both, 0, 0, n);
      result.rb = c_.Slice(both, 0, n, 2 * n);
    }
    result.h = InitialState(5, d);
    if (kind_.has_state) result.state = InitialState(6, d);
    if (kind_.has_state && node_.HasInput(7)) result.peephole = OfDirection(7, d);
    return result;
  }

  // The input's product for all steps, with the biases that may be added before the recurrent product is known.
  ImportValue InputProduct(const Direction& d) {
    ImportValue product = ProductWith(c_, c_.Reshape(x_, {-1, cell_.inputs}), d.w, d.of_w);
    if (!d.wb) return c_.Reshape(product, {cell_.steps, cell_.batch, -1});
    ImportValue bias = d.wb;
    int64_t early = (kind_.gates - kind_.late_biases) * cell_.hidden, all = kind_.gates * cell_.hidden;
    ImportValue rb = d.rb;
    if (kind_.late_biases > 0) {
      rb = c_.Concat({c_.Slice(rb, 0, 0, early), c_.Constant(Array(rb->type.dtype, {all - early}))}, 0);
    }
    bias = c_.Add(bias, rb);
    return c_.Reshape(c_.Add(product, bias), {cell_.steps, cell_.batch, -1});
  }

  void RunDirection(const Cell& cell, const Direction& d, bool reverse) {
    const ImportValue products = InputProduct(d);
    CellState last{d.h, d.state};
    std::vector<ImportValue> outputs(cell.steps);
    for (int64_t k = 0; k < cell.steps && c_.ok(); ++k) {
      int64_t t = reverse ? cell.steps - 1 - k : k;
      const ImportValue x = c_.Squeeze(c_.Slice(products, 0, t, t + 1), {0});
      CellState next = last;
      kind_.step(c_, cell, d, x, next);
      ImportValue out = next.h;
      if (lengths_) {  // sequences that have ended keep their state, and their outputs are zeros
        ImportValue runs = c_.Op("less", {c_.Scalar(static_cast<double>(t), lengths_), lengths_});
        runs = c_.Reshape(runs, {cell.batch, 1});
        out = c_.Op("where", {runs, next.h, c_.Scalar(0, next.h)});
        next.h = c_.Op("where", {runs, next.h, last.h});
        if (last.state) next.state = c_.Op("where", {runs, next.state, last.state});
      }
      outputs[t] = c_.Unsqueeze(out, {0});
      last = next;
    }
    y_.push_back(c_.ok() ? c_.Concat(outputs, 0) : last.h);
    last_h_.push_back(c_.Unsqueeze(last.h, {0}));
    if (last.state) last_state_.push_back(c_.Unsqueeze(last.state, {0}));
  }

  absl::Status SetResults() {
    if (node_.IsRead(0)) {
      std::vector<ImportValue> apart;
      for (const ImportValue& one : y_) apart.push_back(c_.Unsqueeze(one, {1}));
      ImportValue all = c_.Concat(apart, 1);
      c_.Set(0, layout_ ? c_.Transpose(all, {2, 0, 1, 3}) : all);
    }
    auto final_state = [&](const std::vector<ImportValue>& parts) {
      ImportValue all = c_.Concat(parts, 0);
      return layout_ ? c_.Transpose(all, {1, 0, 2}) : all;
    };
    if (node_.IsRead(1)) c_.Set(1, final_state(last_h_));
    if (kind_.has_state && node_.IsRead(2)) c_.Set(2, final_state(last_state_));
    return c_.status();
  }

  NodeImporter& node_;
  const Kind& kind_;
  Composer c_;
  Cell cell_;
  ImportValue x_, w_, r_, lengths_;
  bool layout_ = false;
  std::string direction_;
  int64_t directions_ = 1;
  std::vector<Activation> activations_;
  std::vector<ImportValue> y_, last_h_, last_state_;  // of each direction
};

absl::Status Rnn(NodeImporter& node) { return Unrolled(node, {1, {"Tanh"}, RnnStep}).Import(); }
absl::Status Gru(NodeImporter& node) { return Unrolled(node, {3, {"Sigmoid", "Tanh"}, GruStep, false, 1}).Import(); }
absl::Status Lstm(NodeImporter& node) {
  return Unrolled(node, {4, {"Sigmoid", "Tanh", "Tanh"}, LstmStep, true}).Import();
}
// The input of all steps is quantised by one range, the hidden units of each step by their own, as ONNX Runtime does
// it.
absl::Status DynamicQuantizeLstm(NodeImporter& node) {
  return Unrolled(node, {4, {"Sigmoid", "Tanh", "Tanh"}, LstmStep, true, 0, true}).Import();
}

}  // namespace

std::vector<OnnxRule> Recurrent() {
  return {{"RNN", Rnn}, {"GRU", Gru}, {"LSTM", Lstm}, {"com.microsoft.DynamicQuantizeLSTM", DynamicQuantizeLstm}};
}

}  // namespace diapason::onnx_rules
