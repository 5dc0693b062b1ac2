// Recurrent networks, unrolled: the product with the input is one for all steps, and each step is the same small graph
// that reads the same constants, so that the partition makes one task of all of them, or one kernel
// (compiler/graph/recurrent_nodes.h). The first step has no product where the initial state is zero.
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
// From so many steps on, the final states are further rows behind the outputs of all steps. All steps may be one kernel
// then, since it has one result; the outputs are copied if they are given out.
constexpr int64_t kStepsWithStates = 8;

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

// One direction of one layer: the parameters of its gates, as its steps read them.
struct Direction {
  ImportValue w, r;                   // inputs or hidden x gates*hidden
  ImportValue last_r;                 // GRU: that of the last gate, hidden x hidden, if `r` has the others alone
  ImportValue wb, rb;                 // gates*hidden, or null
  ImportValue late_bias;              // of `rb`: what is not added to the input's product, or null
  ImportValue h, state;               // batch x hidden; null where they are zero
  std::vector<ImportValue> peephole;  // of i, o and f, or none
  Quantisation of_w, of_r;
};

ImportValue Gate(Composer& c, const ImportValue& x, const Cell& cell, int64_t gate) {
  return c.Slice(x, -1, gate * cell.hidden, (gate + 1) * cell.hidden);
}

// What a step hands to the next one: the output and, for LSTM, the cell's state. Null in front of the first step where
// they are zero.
struct CellState {
  ImportValue h, state;
  ImportValue runs;  // which sequences have this step; null: all
};

// What has ended keeps what was there before the step, zero where that is null. Outputs are computed from states that
// are kept so: of sequences that have ended they do not count, and each step then computes all that it hands on.
ImportValue Kept(Composer& c, const ImportValue& runs, const ImportValue& value, const ImportValue& before) {
  return runs ? c.Op("where", {runs, value, before ? before : c.Scalar(0, value)}) : value;
}

// x: batch x gates*hidden, the input's product with its biases. One step.
using CellStep =
    std::function<void(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s)>;

ImportValue ProductWith(Composer& c, const ImportValue& x, const ImportValue& w, const Quantisation& of_w) {
  return of_w.scale ? DynamicProduct(c, x, w, of_w.scale, of_w.zero) : c.Matmul(x, w);
}

// A null operand is zero.
ImportValue SumOfTerms(Composer& c, const ImportValue& a, const ImportValue& b) {
  return a && b ? c.Add(a, b) : a ? a : b;
}

void RnnStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  s.h = Activated(c, cell, 0, s.h ? c.Add(c.Matmul(s.h, d.r), x) : x);
}

// Gates in the order z r h. One product serves all of them if the reset gate comes after it; the sums of z and r are
// apart then, since each is computed in the kernel that reads it, and else in the product's.
void GruStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  ImportValue& h = s.h;
  const bool together = cell.linear_before_reset;
  const ImportValue product = h ? c.Matmul(h, d.r) : nullptr, own = Gate(c, x, cell, 2);
  const auto of_product = [&](int64_t gate) { return product ? Gate(c, product, cell, gate) : nullptr; };
  const ImportValue zr = together ? nullptr : SumOfTerms(c, product, c.Slice(x, -1, 0, 2 * cell.hidden));
  const auto gate = [&](int64_t which) {
    return Activated(c, cell, 0,
                     together ? SumOfTerms(c, of_product(which), Gate(c, x, cell, which)) : Gate(c, zr, cell, which));
  };
  ImportValue seen;
  if (const ImportValue before_reset = together ? SumOfTerms(c, of_product(2), d.late_bias) : h; before_reset) {
    seen = c.Mul(gate(1), before_reset);
    if (!together) seen = c.Matmul(seen, d.last_r);
  }
  const ImportValue z = gate(0), candidate = Activated(c, cell, 1, SumOfTerms(c, seen, own));
  // (1 - z) candidate + z h, without a tensor that holds a 1: verification draws constants, and the state would grow.
  h = h ? c.Add(candidate, c.Mul(z, c.Sub(h, candidate))) : c.Sub(candidate, c.Mul(z, candidate));
}

// Gates in the order i o f c.
void LstmStep(Composer& c, const Cell& cell, const Direction& d, const ImportValue& x, CellState& s) {
  auto& [h, state, runs] = s;
  const ImportValue gates = h ? c.Add(ProductWith(c, h, d.r, d.of_r), x) : x;
  auto gate = [&](int64_t which, int64_t peephole, const ImportValue& seen) {
    ImportValue y = Gate(c, gates, cell, which);
    if (!d.peephole.empty() && seen) y = c.Add(y, c.Mul(d.peephole[peephole], seen));
    return Activated(c, cell, 0, y);
  };
  const ImportValue i = gate(0, 0, state);
  const ImportValue candidate = Activated(c, cell, 1, Gate(c, gates, cell, 3));
  ImportValue next = c.Mul(i, candidate);
  if (state && cell.input_forget) {
    next = c.Add(state, c.Mul(i, c.Sub(candidate, state)));  // (1 - i) state + i candidate
  } else if (state) {
    next = c.Add(c.Mul(gate(2, 2, state), state), next);
  }
  state = Kept(c, runs, next, state);
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
  bool reset_gate = false;  // of what the last state gives to the last gate
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
    if (cell_.steps < 1) return absl::InvalidArgumentError("a sequence has no step");
    if (cell_.steps * directions_ > kMostCells) {
      return absl::InvalidArgumentError(absl::StrCat("it has ", cell_.steps * directions_, " steps, but at most ",
                                                     kMostCells, " are unrolled: shorten the sequence"));
    }
    ASSIGN_OR_RETURN(activations_, ActivationsOf(node_, kind_.activations, directions_));
    has_lengths_ = node_.HasInput(4);
    return c_.status();
  }

  // steps x batch x 1, in the order of one direction: whether a sequence has not ended, or has begun. A tensor for each
  // direction, since it belongs to its steps.
  ImportValue RunningSequences(bool reverse) {
    Array numbers(DType::kInt64, {cell_.steps, 1, 1});
    for (int64_t k = 0; k < cell_.steps; ++k) numbers.set_int(k, reverse ? cell_.steps - 1 - k : k);
    const ImportValue lengths = c_.Cast(c_.Input(4), DType::kInt64);
    return c_.Op("less", {c_.Constant(std::move(numbers)), c_.Reshape(lengths, {1, cell_.batch, 1})});
  }

  // Row t of a tensor of all steps.
  ImportValue RowOf(const ImportValue& all, int64_t t) { return c_.Squeeze(c_.Slice(all, 0, t, t + 1), {0}); }

  ImportValue OfDirection(int input, int64_t d) { return c_.Squeeze(c_.Slice(c_.Input(input), 0, d, d + 1), {0}); }

  // Null if it is known to be zero: exporters write zeros out.
  ImportValue InitialState(int input, int64_t d) {
    if (!node_.HasInput(input) || IsZero(c_.Input(input))) return nullptr;
    if (!layout_) return OfDirection(input, d);
    return c_.Squeeze(c_.Slice(c_.Input(input), 1, d, d + 1), {1});
  }

  static bool IsZero(const ImportValue& x) {
    int64_t i = 0;
    const int64_t n = x->value ? x->value->elements() : -1;
    while (i < n && x->value->at(i) == 0) ++i;
    return i == n;
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
    if (!kind_.quantised) {
      result.w = c_.Transpose(result.w, {1, 0});
      result.r = c_.Transpose(result.r, {1, 0});
    } else {
      result.of_w = {ParameterOf(8, d), ParameterOf(9, d)};
      result.of_r = {ParameterOf(10, d), ParameterOf(11, d)};
      if (!result.of_w.scale || !result.of_r.scale)
        c_.Fail(absl::InvalidArgumentError("the scales of the weights (inputs 8 and 10) are missing"));
    }
    const int64_t hidden = cell_.hidden, n = kind_.gates * hidden;
    if (node_.HasInput(3)) {
      ImportValue both = OfDirection(3, d);
      result.wb = c_.Slice(both, 0, 0, n);
      result.rb = c_.Slice(both, 0, n, 2 * n);
      if (kind_.reset_gate && cell_.linear_before_reset) result.late_bias = c_.Slice(result.rb, 0, n - hidden, n);
    }
    if (kind_.reset_gate && !cell_.linear_before_reset) {
      result.last_r = c_.Slice(result.r, 1, n - hidden, n);
      result.r = c_.Slice(result.r, 1, 0, n - hidden);
    }
    result.h = InitialState(5, d);
    if (kind_.has_state) result.state = InitialState(6, d);
    if (kind_.has_state && node_.HasInput(7)) {
      const ImportValue all = OfDirection(7, d);
      for (int64_t gate = 0; gate < 3; ++gate) result.peephole.push_back(Gate(c_, all, cell_, gate));
    }
    return result;
  }

  // The input's product for all steps, with the biases that may be added before the recurrent product is known.
  ImportValue InputProduct(const Direction& d) {
    ImportValue product = ProductWith(c_, c_.Reshape(x_, {-1, cell_.inputs}), d.w, d.of_w);
    if (!d.wb) return c_.Reshape(product, {cell_.steps, cell_.batch, -1});
    ImportValue bias = d.wb;
    ImportValue rb = d.rb;
    if (d.late_bias) {
      const int64_t early = (kind_.gates - 1) * cell_.hidden;
      rb = c_.Concat({c_.Slice(rb, 0, 0, early), c_.Constant(Array(rb->type.dtype, {cell_.hidden}))}, 0);
    }
    bias = c_.Add(bias, rb);
    return c_.Reshape(c_.Add(product, bias), {cell_.steps, cell_.batch, -1});
  }

  void RunDirection(const Cell& cell, const Direction& d, bool reverse) {
    const ImportValue products = InputProduct(d);
    const ImportValue runs = has_lengths_ ? RunningSequences(reverse) : nullptr;
    CellState last{d.h, d.state, nullptr};
    std::vector<ImportValue> outputs(cell.steps);
    for (int64_t k = 0; k < cell.steps && c_.ok(); ++k) {
      int64_t t = reverse ? cell.steps - 1 - k : k;
      CellState next = last;
      next.runs = runs ? RowOf(runs, k) : nullptr;
      kind_.step(c_, cell, d, RowOf(products, t), next);
      next.h = Kept(c_, next.runs, next.h, last.h);
      outputs[t] = c_.Unsqueeze(Kept(c_, next.runs, next.h, nullptr), {0});
      last = next;
    }
    if (c_.ok()) Collect(std::move(outputs), last, reverse);
  }

  // What is read of one direction, where it can be in one tensor.
  void Collect(std::vector<ImportValue> outputs, const CellState& last, bool reverse) {
    const bool all = node_.IsRead(0), h = node_.IsRead(1), state = kind_.has_state && node_.IsRead(2);
    const bool may_join = cell_.steps >= kStepsWithStates;
    std::vector<ImportValue> rows;
    if (all) rows = std::move(outputs);
    const auto add_row = [&](const ImportValue& value) {
      rows.push_back(c_.Unsqueeze(value, {0}));
      return static_cast<int64_t>(rows.size()) - 1;
    };
    int64_t row_of_h = -1, row_of_state = -1;
    if (h && all && !has_lengths_) {
      row_of_h = reverse ? 0 : cell_.steps - 1;
    } else if (h && may_join && (all || state)) {
      row_of_h = add_row(last.h);
    }
    if (state && may_join && (all || h)) row_of_state = add_row(last.state);
    const ImportValue joined = rows.empty() ? nullptr : c_.Concat(rows, 0);
    const auto row_or = [&](int64_t row, const ImportValue& value) {
      return row < 0 ? c_.Unsqueeze(value, {0}) : c_.Slice(joined, 0, row, row + 1);
    };
    const bool more = static_cast<int64_t>(rows.size()) > cell_.steps;
    if (all) y_.push_back(more ? c_.Slice(joined, 0, 0, cell_.steps) : joined);
    if (h) last_h_.push_back(row_or(row_of_h, last.h));
    if (state) last_state_.push_back(row_or(row_of_state, last.state));
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
  ImportValue x_, w_, r_;
  bool has_lengths_ = false;
  bool layout_ = false;
  std::string direction_;
  int64_t directions_ = 1;
  std::vector<Activation> activations_;
  std::vector<ImportValue> y_, last_h_, last_state_;  // of each direction
};

absl::Status Rnn(NodeImporter& node) { return Unrolled(node, {1, {"Tanh"}, RnnStep}).Import(); }
absl::Status Gru(NodeImporter& node) { return Unrolled(node, {3, {"Sigmoid", "Tanh"}, GruStep, false, true}).Import(); }
absl::Status Lstm(NodeImporter& node) {
  return Unrolled(node, {4, {"Sigmoid", "Tanh", "Tanh"}, LstmStep, true}).Import();
}
// The input of all steps is quantised by one range, the hidden units of each step by their own, as ONNX Runtime does
// it.
absl::Status DynamicQuantizeLstm(NodeImporter& node) {
  return Unrolled(node, {4, {"Sigmoid", "Tanh", "Tanh"}, LstmStep, true, false, true}).Import();
}

}  // namespace

std::vector<OnnxRule> Recurrent() {
  return {{"RNN", Rnn}, {"GRU", Gru}, {"LSTM", Lstm}, {"com.microsoft.DynamicQuantizeLSTM", DynamicQuantizeLstm}};
}

}  // namespace diapason::onnx_rules
