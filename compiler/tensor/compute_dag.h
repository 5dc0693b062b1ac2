// A ComputeDag: what a tuning task computes, as stages of tensor expressions (Ansor's ComputeDAG, TVM's TE).
//
// A stage is a placeholder (an input) or computes one tensor: for each point of `axes`,
//     out[axes] = body                                 when there are no reduce axes
//     out[axes] = combine over reduce_axes of body     otherwise (sum, max, min, prod, from the combiner's identity)
// What follows a reduction (bias, activation) is a stage of its own. Stages refer to each other by id in kLoad; the id
// of a stage is its position in `stages`, which is a topological order. Shapes are static. Immutable once built.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/expr.h"

namespace diapason {

struct Axis {
  Expr var;            // kVar, used by this stage only
  int64_t extent = 1;  // the variable runs over [0, extent)
};

enum class Combiner : uint8_t { kNone = 0, kSum = 1, kMax = 2, kMin = 3, kProd = 4 };

struct Stage {
  std::string name;  // for people and generated code: [A-Za-z0-9_.]+, unique in the dag
  DType dtype = DType::kFloat32;
  std::vector<Axis> axes;  // one a dimension; a placeholder has axes too (their extents are its shape)
  std::vector<Axis> reduce_axes;
  Combiner combiner = Combiner::kNone;
  Expr body;  // null for a placeholder

  bool placeholder = false;
  // A placeholder whose contents are known when the package is built (weights). Stages that read only constants are
  // computed once at build time ("prologue"), never at run time.
  bool constant = false;
  // Integer placeholders: random inputs are drawn from [valid_min, valid_max]. Placeholders of floats: all elements
  // that are numbers are known to lie there. Both 0: nothing is known.
  int64_t valid_min = 0, valid_max = 0;
  // Names of axes of a small constant matrix transform (Winograd) whose loops are unrolled whole: Ansor's
  // auto_scheduler_simplify_const_tensor_indices. Empty for ordinary stages.
  std::vector<std::string> unroll_axes;
  // Of rewrites: each element is read so often, and takes so long, that the stage is computed in a kernel of its own
  // and never where it is read.
  bool kept = false;

  std::vector<int64_t> shape() const;
  int64_t elements() const;
  int64_t terms() const;  // that are reduced into each element; 1 without a reduction
  bool reduces() const { return !reduce_axes.empty(); }
  bool has_valid_range() const { return valid_min != 0 || valid_max != 0; }
};

class ComputeDag {
 public:
  ComputeDag() = default;
  // Checks the rules above: ids in range and topological, index counts, unique names, positive extents.
  static absl::StatusOr<ComputeDag> Create(std::vector<Stage> stages, std::vector<int> outputs);

  const std::vector<Stage>& stages() const { return stages_; }
  const Stage& stage(int id) const { return stages_[id]; }
  int size() const { return static_cast<int>(stages_.size()); }
  const std::vector<int>& outputs() const { return outputs_; }
  bool is_output(int id) const;
  // Placeholders in order of id.
  std::vector<int> inputs() const;
  // Stages that read `id`, each once, in order.
  const std::vector<int>& consumers(int id) const { return consumers_[id]; }
  // Stages read by `id`, each once, in order of first load.
  std::vector<int> producers(int id) const;
  // True if the stage depends on constant placeholders alone (such placeholders included): evaluated at build time. Not
  // an output: its memory may serve others between two runs, so each run writes it.
  bool is_prologue(int id) const { return prologue_[id]; }

  // Floating point operations of one evaluation, index arithmetic and prologue stages not counted (Ansor's estimate): a
  // multiply-add is 2.
  double flops() const;
  // Canonical key: equal for dags that differ in names and in order of import only. "conv2d-" like prefix is not part
  // of it: 32 hexadecimal digits of a hash of the canonical form, plus the output shape for people:
  // "3f...e1_1x56x56x64".
  std::string workload_key() const;
  // Readable text of all stages.
  std::string ToString() const;

 private:
  std::vector<Stage> stages_;
  std::vector<int> outputs_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> prologue_;
};

// The identity of a combiner as a literal of the type (0, -inf, +inf, 1; integer limits for integers).
Expr IdentityOf(Combiner combiner, DType dtype);
// combiner(a, b).
Expr Combine(Combiner combiner, Expr a, Expr b);

// Builds dags in code: each call adds a stage and returns its id.
//   DagBuilder b;
//   int x = b.Placeholder("x", {m, k});  int w = b.Constant("w", {k, n});
//   int c = b.Reduce("c", {m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
//     return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]})); });
//   ComputeDag dag = b.Build({c}).value();
class DagBuilder {
 public:
  using Vars = std::vector<Expr>;
  int Placeholder(std::string name, std::vector<int64_t> shape, DType dtype = DType::kFloat32);
  int Constant(std::string name, std::vector<int64_t> shape, DType dtype = DType::kFloat32);
  int Compute(std::string name, std::vector<int64_t> shape, const std::function<Expr(const Vars&)>& body);
  int Reduce(std::string name, std::vector<int64_t> shape, std::vector<int64_t> reduce, Combiner combiner,
             const std::function<Expr(const Vars&, const Vars&)>& body);
  Expr At(int stage, std::vector<Expr> indices) const;
  Stage& stage(int id) { return stages_[id]; }
  absl::StatusOr<ComputeDag> Build(std::vector<int> outputs);

 private:
  std::string Unique(std::string name);
  std::vector<Stage> stages_;
  std::unordered_map<std::string, int> names_;  // and the last number behind each
};

// Arithmetic operations of one evaluation of an expression: those of floats, and those of type `dtype`. Indices of
// loads are not counted.
double FlopsOf(const Expr& e, DType dtype);

}  // namespace diapason
