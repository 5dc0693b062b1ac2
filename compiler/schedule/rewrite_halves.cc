#include "compiler/schedule/rewrite_halves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/rewrite_gemm.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

constexpr int64_t kParts = 3;   // products of parts along k
constexpr int64_t kDepth = 16;  // elements of k in a product of tensor cores
// Tensor cores cut sums off at each product: errors of longer ones would be many times those of multiply-adds.
constexpr int64_t kMostTerms = 4096;
constexpr double kLargest = 65504;  // of float16
// Factors are scaled such that their bound becomes this: room for rounding, and a power of two.
constexpr double kScaledBound = 32768;
constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr const char* kNoBound = "a factor may have elements of any size";

absl::Status NoHalves(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no halves rewrite: ", why));
}

// Which of the products has the low part of rows and of columns; all others have the high one.
constexpr int64_t kLowPart[] = {1, 0};

class HalvesRewriter {
 public:
  explicit HalvesRewriter(const ComputeDag& gemm) : dag_(gemm), product_(gemm), new_id_(gemm.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(CheckProduct());
    for (int id = 0; id < dag_.size(); ++id) {
      if (id == product_.id()) {
        EmitProduct();
        continue;
      }
      if (product_.IsInlined(id)) continue;
      Stage stage = dag_.stage(id);
      if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
      new_id_[id] = AddStage(std::move(stage));
    }
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  const Stage& product() const { return product_.stage(); }
  int64_t terms() const { return product().reduce_axes[0].extent; }
  int64_t terms_of_part() const { return (terms() + kDepth - 1) / kDepth * kDepth; }

  absl::Status CheckProduct() {
    if (product().dtype != DType::kFloat32) return NoHalves("the product is not in float32");
    if (terms() > kMostTerms)
      return NoHalves(absl::StrCat("its sums have ", terms(), " terms, more than ", kMostTerms));
    for (size_t side = 0; side < 2; ++side) {
      const Expr& factor = product().body->args[side];
      if (factor->kind != ExprKind::kLoad || factor->dtype != DType::kFloat32)
        return NoHalves("a factor is not in float32");
      const double bound = BoundOf(factor);
      if (!(bound <= kScaledBound)) return NoHalves(kNoBound);
      scale_[side] = std::exp2(std::floor(std::log2(kScaledBound / std::max(bound, 1.0))));
      if (ElementsBehind(factor->buffer) < dag_.stage(factor->buffer).elements())
        return NoHalves("an operand has more elements than what it is made of");
    }
    return absl::OkStatus();
  }

  // What the magnitudes of a stage's elements are at most, where it is a placeholder or moves elements of one.
  double BoundOf(const Stage& stage) const {
    if (!stage.placeholder) return stage.reduces() ? kUnknown : BoundOf(stage.body);
    if (!stage.has_valid_range()) return kUnknown;
    return std::max(std::abs(static_cast<double>(stage.valid_min)), std::abs(static_cast<double>(stage.valid_max)));
  }
  double BoundOf(const Expr& e) const {
    if (e->kind == ExprKind::kLoad) return BoundOf(dag_.stage(e->buffer));
    if (e->kind == ExprKind::kSelect) return std::max(BoundOf(e->args[1]), BoundOf(e->args[2]));
    if (e->kind == ExprKind::kFloatImm) return std::abs(e->fvalue);
    return kUnknown;
  }

  // Of the placeholders that a stage moves elements of.
  int64_t ElementsBehind(int id) const {
    const Stage& stage = dag_.stage(id);
    if (stage.placeholder) return stage.elements();
    int64_t elements = 0;
    for (int producer : dag_.producers(id)) elements += ElementsBehind(producer);
    return elements;
  }

  // The operand with three parts along `along`, the dimension of k.
  int EmitHalves(size_t side, size_t along) {
    const int id = product().body->args[side]->buffer;
    const Stage& operand = dag_.stage(id);
    Stage stage;
    stage.name = absl::StrCat(operand.name, ".halves");
    stage.dtype = DType::kFloat16;
    stage.kept = true;
    Analyzer analyzer;
    std::vector<Expr> point;
    for (size_t d = 0; d < operand.axes.size(); ++d) {
      const int64_t extent = d == along ? kParts * terms_of_part() : operand.axes[d].extent;
      stage.axes.push_back({MakeVar(operand.axes[d].var->name), extent});
      analyzer.Bind(stage.axes.back().var, extent);
      point.push_back(stage.axes.back().var);
    }
    const Expr part = FloorDiv(point[along], terms_of_part()), k = FloorMod(point[along], terms_of_part());
    point[along] = k;
    Expr value = product_.OperandAt(id, point, new_id_);
    if (terms() < terms_of_part()) value = Select(Lt(k, IntImm(terms())), value, FloatImm(0));
    // A bound holds for exact results, and is far above those of any rounding; what is beyond it all the same (sums
    // that overflowed) stays a number.
    value = Min(Max(Mul(value, FloatImm(scale_[side])), FloatImm(-kLargest)), FloatImm(kLargest));
    // TensorFloat-32 has the fractions of float16. What is too small for this to hold is rounded once more.
    const Expr high = Call("tf32", {value});
    const Expr chosen = Select(Eq(part, IntImm(kLowPart[side])), Sub(value, high), high);
    stage.body = analyzer.Simplify(Cast(DType::kFloat16, chosen));
    return AddStage(std::move(stage));
  }

  void EmitProduct() {
    Stage stage = product();
    const Axis k{MakeVar("k"), kParts * terms_of_part()};
    std::array<Expr, 2> factors;
    for (size_t side = 0; side < 2; ++side) {
      std::vector<Expr> indices = product().body->args[side]->args;
      const auto along = std::find(indices.begin(), indices.end(), product().reduce_axes[0].var);
      DIAPASON_CHECK(along != indices.end());
      const int halves = EmitHalves(side, static_cast<size_t>(along - indices.begin()));
      *along = k.var;
      factors[side] = Cast(DType::kFloat32, Load(halves, DType::kFloat16, std::move(indices)));
    }
    stage.reduce_axes = {k};
    stage.body = Mul(factors[0], factors[1]);
    Stage scaled;
    scaled.name = absl::StrCat(stage.name, ".scaled");
    std::vector<Expr> point;
    for (const Axis& axis : stage.axes) {
      scaled.axes.push_back({MakeVar(axis.var->name), axis.extent});
      point.push_back(scaled.axes.back().var);
    }
    const int sum = AddStage(std::move(stage));
    scaled.body = Mul(Load(sum, DType::kFloat32, std::move(point)), FloatImm(1 / (scale_[0] * scale_[1])));
    new_id_[product_.id()] = AddStage(std::move(scaled));
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  const ComputeDag& dag_;  // the gemm rewrite
  const GemmProduct product_;
  std::array<double, 2> scale_{};  // of rows and columns
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> HalvesRewrite(const ComputeDag& dag) {
  // Most tasks have no bounds, and need no gemm rewrite to find that out.
  const bool bounded = std::any_of(dag.stages().begin(), dag.stages().end(),
                                   [](const Stage& s) { return IsFloat(s.dtype) && s.has_valid_range(); });
  if (!bounded) return NoHalves(kNoBound);
  absl::StatusOr<ComputeDag> gemm = GemmRewrite(dag, /*k_innermost=*/true);
  if (!gemm.ok()) gemm = GemmRewrite(dag);
  if (!gemm.ok()) return NoHalves(std::string(gemm.status().message()));
  return HalvesRewriter(*gemm).Run();
}

}  // namespace diapason
