// Recurrent layers, unrolled, as dags.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/tensor/compute_dag.h"

namespace diapason::testing {

enum class CellKind { kRnn, kLstm, kGru, kResetFirst };  // kResetFirst: a GRU whose reset gate is in front of a product

struct RecurrentShape {
  CellKind cell = CellKind::kLstm;
  int64_t steps = 6, rows = 1, units = 8;
  bool initial = false;   // the state is given; else it is zero, and the first step differs
  bool collects = true;   // all outputs, one behind the other; else the last one
  bool reshapes = false;  // ... each of which becomes a matrix of one row first, behind all steps
  bool backward = false;  // from the last step of the input to the first
  DType dtype = DType::kFloat32;
  bool wide = false;  // steps compute in float32: the type is that of inputs, weights and the rounded result
};

class RecurrentDag {
 public:
  explicit RecurrentDag(const RecurrentShape& shape) : shape_(shape) {}

  ComputeDag Build() {
    const int64_t gates = Gates();
    x_ = b_.Placeholder("x", {shape_.steps, shape_.rows, gates * shape_.units}, shape_.dtype);
    int h = shape_.initial ? b_.Placeholder("h0", {shape_.rows, shape_.units}, shape_.dtype) : -1;
    int c = shape_.initial && shape_.cell == CellKind::kLstm
                ? b_.Placeholder("c0", {shape_.rows, shape_.units}, shape_.dtype)
                : -1;
    std::vector<int> outputs(shape_.steps);
    for (int64_t k = 0; k < shape_.steps; ++k) {
      const int64_t t = shape_.backward ? shape_.steps - 1 - k : k;
      Step(std::to_string(k), t, &h, &c);
      outputs[t] = h;
    }
    if (!shape_.collects) return b_.Build({Rounded(h)}).value();
    if (shape_.reshapes)
      for (int& output : outputs)
        output = b_.Compute("row_" + std::to_string(output), {1, shape_.rows, shape_.units}, [&](const auto& i) {
          return b_.At(output, {i[1], i[2]});
        });
    const int all = b_.Compute("y", {shape_.steps, shape_.rows, shape_.units}, [&](const auto& i) {
      const auto at = [&](int64_t t) {
        return shape_.reshapes ? b_.At(outputs[t], {Sub(i[0], IntImm(t)), i[1], i[2]})
                               : b_.At(outputs[t], {i[1], i[2]});
      };
      Expr value = at(shape_.steps - 1);
      for (int64_t t = shape_.steps - 1; t-- > 0;) value = Select(Lt(i[0], IntImm(t + 1)), at(t), value);
      return value;
    });
    return b_.Build({Rounded(all)}).value();
  }

 private:
  int64_t Gates() const { return shape_.cell == CellKind::kRnn ? 1 : shape_.cell == CellKind::kLstm ? 4 : 3; }

  // A placeholder, which is made where it is first read, and then known.
  int Weight(const std::string& name, int64_t gates) {
    int& id = name == "r" ? r_ : r2_;
    if (id < 0) id = b_.Constant(name, {shape_.units, gates * shape_.units}, shape_.dtype);
    return id;
  }

  int Product(const std::string& name, int h, const std::string& weight, int64_t gates) {
    const int w = Weight(weight, gates);
    const int sum = b_.Reduce(name, {shape_.rows, gates * shape_.units}, {shape_.units}, Combiner::kSum,
                              [&](const auto& i, const auto& r) {
                                return Mul(Wide(b_.At(h, {i[0], r[0]})), Wide(b_.At(w, {r[0], i[1]})));
                              });
    return sum;
  }

  Expr Wide(const Expr& e) const { return e->dtype == DType::kFloat32 ? e : Cast(DType::kFloat32, e); }
  Expr Stored(const Expr& e) const { return shape_.wide ? e : Cast(shape_.dtype, e); }
  int Rounded(int result) {
    if (!shape_.wide) return result;
    return b_.Compute("rounded", b_.stage(result).shape(),
                      [&](const auto& i) { return Cast(shape_.dtype, b_.At(result, i)); });
  }

  int Each(const std::string& name, int64_t gates, const std::function<Expr(const std::vector<Expr>&)>& body) {
    return b_.Compute(name, {shape_.rows, gates * shape_.units}, body);
  }
  int Slice(const std::string& name, int from, int64_t gate) {
    return Each(name, 1, [&](const auto& i) { return b_.At(from, {i[0], Add(i[1], IntImm(gate * shape_.units))}); });
  }

  // The input of the step, with the product of the state if there is one.
  int GatesOf(const std::string& k, int64_t t, int h) {
    const int64_t gates = Gates();
    const int x = Each("x_" + k, gates, [&](const auto& i) { return b_.At(x_, {IntImm(t), i[0], i[1]}); });
    if (h < 0) return x;
    const int product = Product("product_" + k, h, "r", gates);
    return Each("gates_" + k, gates, [&](const auto& i) { return Add(b_.At(product, i), Wide(b_.At(x, i))); });
  }

  void Step(const std::string& k, int64_t t, int* h, int* c) {
    switch (shape_.cell) {
      case CellKind::kRnn: {
        const int gates = GatesOf(k, t, *h);
        *h = Each("h_" + k, 1, [&](const auto& i) { return Stored(Call("tanh", {Wide(b_.At(gates, i))})); });
        return;
      }
      case CellKind::kLstm: {
        const int gates = GatesOf(k, t, *h);
        const int in = Slice("i_" + k, gates, 0), out = Slice("o_" + k, gates, 1), forget = Slice("f_" + k, gates, 2),
                  cell = Slice("g_" + k, gates, 3), before = *c;
        *c = Each("c_" + k, 1, [&](const auto& i) {
          const Expr fresh = Mul(Call("sigmoid", {Wide(b_.At(in, i))}), Call("tanh", {Wide(b_.At(cell, i))}));
          if (before < 0) return fresh;
          return Add(Mul(Call("sigmoid", {Wide(b_.At(forget, i))}), Wide(b_.At(before, i))), fresh);
        });
        *h = Each("h_" + k, 1, [&](const auto& i) {
          return Stored(Mul(Call("sigmoid", {Wide(b_.At(out, i))}), Call("tanh", {Wide(b_.At(*c, i))})));
        });
        return;
      }
      case CellKind::kGru:
      case CellKind::kResetFirst: return GruStep(k, t, h);
    }
  }

  // Gates z, r, n.
  void GruStep(const std::string& k, int64_t t, int* h) {
    const int x = Each("x_" + k, 3, [&](const auto& i) { return b_.At(x_, {IntImm(t), i[0], i[1]}); });
    const int xz = Slice("xz_" + k, x, 0), xr = Slice("xr_" + k, x, 1), xn = Slice("xn_" + k, x, 2), before = *h;
    const auto at = [&](int id, const std::vector<Expr>& i) { return Wide(b_.At(id, i)); };
    if (before < 0) {
      *h = Each("h_" + k, 1, [&](const auto& i) {
        const Expr z = Call("sigmoid", {at(xz, i)}), n = Call("tanh", {at(xn, i)});
        return Stored(Mul(Sub(FloatImm(1), z), n));
      });
      return;
    }
    const bool first = shape_.cell == CellKind::kResetFirst;
    const int product = Product("product_" + k, before, "r", first ? 2 : 3);
    const int pz = Slice("pz_" + k, product, 0), pr = Slice("pr_" + k, product, 1);
    int pn = -1;
    if (first) {
      const int reset = Each("reset_" + k, 1, [&](const auto& i) {
        return Stored(Mul(Call("sigmoid", {Add(at(pr, i), at(xr, i))}), at(before, i)));
      });
      pn = Product("candidate_" + k, reset, "rn", 1);
    } else {
      const int raw = Slice("pn_" + k, product, 2);
      pn = Each("reset_" + k, 1,
                [&](const auto& i) { return Mul(Call("sigmoid", {Add(at(pr, i), at(xr, i))}), at(raw, i)); });
    }
    *h = Each("h_" + k, 1, [&](const auto& i) {
      const Expr z = Call("sigmoid", {Add(at(pz, i), at(xz, i))}), n = Call("tanh", {Add(at(pn, i), at(xn, i))});
      return Stored(Add(Mul(Sub(FloatImm(1), z), n), Mul(z, at(before, i))));
    });
  }

  const RecurrentShape shape_;
  DagBuilder b_;
  int x_ = -1, r_ = -1, r2_ = -1;
};

inline ComputeDag Recurrent(const RecurrentShape& shape) { return RecurrentDag(shape).Build(); }

struct NamedRecurrence {
  std::string name;
  RecurrentShape shape;
};

// Cells, directions, rows and results that differ.
inline std::vector<NamedRecurrence> Recurrences() {
  return {
      {"rnn", {.cell = CellKind::kRnn}},
      {"rnn, last output", {.cell = CellKind::kRnn, .collects = false}},
      {"lstm", {.cell = CellKind::kLstm}},
      {"lstm, backward", {.cell = CellKind::kLstm, .rows = 3, .backward = true}},
      {"lstm, state given", {.cell = CellKind::kLstm, .rows = 2, .units = 12, .initial = true}},
      {"lstm, last output", {.cell = CellKind::kLstm, .initial = true, .collects = false}},
      {"lstm, half", {.cell = CellKind::kLstm, .rows = 2, .units = 16, .dtype = DType::kFloat16}},
      {"lstm, wide", {.cell = CellKind::kLstm, .rows = 2, .dtype = DType::kFloat16, .wide = true}},
      {"gru, wide, last output",
       {.cell = CellKind::kGru, .initial = true, .collects = false, .dtype = DType::kFloat16, .wide = true}},
      {"lstm, reshaped", {.cell = CellKind::kLstm, .rows = 2, .reshapes = true, .backward = true}},
      {"lstm, many rows", {.cell = CellKind::kLstm, .rows = 8, .units = 32, .dtype = DType::kFloat16, .wide = true}},
      {"lstm, bfloat16",
       {.cell = CellKind::kLstm, .rows = 5, .units = 48, .initial = true, .dtype = DType::kBfloat16, .wide = true}},
      {"gru, reset first, half",
       {.cell = CellKind::kResetFirst, .rows = 11, .units = 32, .initial = true, .dtype = DType::kFloat16}},
      {"gru, many rows, wide",
       {.cell = CellKind::kGru,
        .rows = 16,
        .units = 32,
        .initial = true,
        .backward = true,
        .dtype = DType::kFloat16,
        .wide = true}},
      {"gru", {.cell = CellKind::kGru, .units = 10}},
      {"gru, state given", {.cell = CellKind::kGru, .rows = 2, .units = 6, .initial = true}},
      {"gru, reset first", {.cell = CellKind::kResetFirst, .rows = 2, .initial = true, .backward = true}}};
}

}  // namespace diapason::testing
