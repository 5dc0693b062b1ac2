#include "compiler/lower/warp_products.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Sums of a lane that can be held twice, beside the fragments.
constexpr int64_t kMostSums = 64;

// Loads of two matrices each, two at a time where they are the same number of elements apart for all lanes: lanes from
// 16 on (`upper`: 1, else 0) then give the rows of the second.
std::vector<Stmt> InFours(std::vector<Stmt> loads, const Expr& upper, Analyzer* analyzer) {
  std::vector<Stmt> result;
  for (size_t i = 0; i < loads.size(); ++i) {
    const Stmt& one = loads[i];
    const Stmt two = i + 1 < loads.size() ? loads[i + 1] : nullptr;
    const auto is_pair = [](const Stmt& s) { return s && s->kind == StmtKind::kLoadMatrix && s->extent == 2; };
    const bool follows = is_pair(one) && is_pair(two) && one->buffer == two->buffer &&
                         one->transposed == two->transposed && one->value->buffer == two->value->buffer &&
                         IsInt(analyzer->Simplify(Sub(two->index, one->index)), 2);
    const Expr apart = follows ? analyzer->Simplify(Sub(two->value->args[0], one->value->args[0])) : Expr();
    if (!follows || apart->kind != ExprKind::kIntImm) {
      result.push_back(one);
      continue;
    }
    const Expr at = analyzer->Simplify(Add(one->value->args[0], Mul(upper, apart)));
    result.push_back(MakeLoadMatrix({.tensor = one->tensor,
                                     .buffer = one->buffer,
                                     .index = one->index,
                                     .matrices = 4,
                                     .value = Load(one->value->buffer, one->value->dtype, {at}),
                                     .transposed = one->transposed}));
    ++i;
  }
  return result;
}

// The products of one stage. REQUIRES: CheckProducts.
class WarpProducts {
 public:
  WarpProducts(NestParts& parts, const TileProducts& products, const FragmentLoader::Factors& factors)
      : nest_(parts.state),
        products_(products),
        stage_(nest_.kernel.state.stage(products.id)),
        extent_(nest_.kernel.bounds.stages[products.id].extent),
        end_(stage_.order.size() - 3),
        intrinsic_(TensorIntrinsicOf(stage_.tensor)),
        loader_(&parts, products.id) {
    for (size_t p = products.first; p < end_; ++p) tiles_ *= extent_[stage_.order[p]];  // CheckProducts: no overflow
    operands_[0] = {.load = factors.rows, .rows = true};
    operands_[1] = {.load = factors.columns};
  }

  Stmt Emit() {
    for (Fragments& operand : operands_) operand.buffer = nest_.buffers.NewId();
    if (intrinsic_.parts) sums_ = nest_.buffers.NewId();
    std::vector<Expr>& mine = nest_.stages[products_.id].value;
    const std::vector<Expr> before = mine;
    std::vector<Stmt> all, products;
    for (int64_t k = 0; k < extent_[stage_.tensor_k]; k += intrinsic_.depth()) {
      // Operands are on their way while the products of those before are made.
      const std::vector<Stmt> before_these = std::exchange(products, ProductsAt(k));
      TakeLoads(k, &all);
      all.insert(all.end(), before_these.begin(), before_these.end());
    }
    all.insert(all.end(), products.begin(), products.end());
    mine = before;
    if (intrinsic_.parts) Declare(sums_, "sums", stage_.op.dtype, tiles_ * kTileSums);
    Declare(operands_[0].buffer, "rows", intrinsic_.register_type(), most_[0]);
    Declare(operands_[1].buffer, "columns", intrinsic_.register_type(), most_[1]);
    return MakeSeq(all);
  }

 private:
  // Of all tiles, over the depth of one product. The loads of their operands are with these.
  std::vector<Stmt> ProductsAt(int64_t k) {
    const int64_t depth = intrinsic_.depth();
    const int64_t run = tiles_ * kTileSums <= kMostSums ? kLongestRunOfK : depth;
    const bool whole = intrinsic_.parts && ((k + depth) % run == 0 || k + depth == extent_[stage_.tensor_k]);
    std::vector<Stmt> products;
    std::vector<int64_t> tile(end_ - products_.first, 0);
    for (int64_t number = 0; number < tiles_; ++number) {
      VarMap values = StandAt(tile);
      std::vector<Expr> parts;
      for (int64_t i = 0; i < kTileSums; ++i)
        parts.push_back(intrinsic_.parts ? IntImm(number * kTileSums + i) : PlaceOf(i, &values));
      for (Fragments& operand : operands_) {
        const int64_t at = loader_.RegistersAt(&operand, k);
        for (int64_t i = 0; i < (operand.rows ? 4 : 2); ++i)
          parts.push_back(Load(operand.buffer, intrinsic_.register_type(), {IntImm(at + i)}));
      }
      products.push_back(MakeMma(stage_.tensor, {operands_[0].load->dtype, operands_[1].load->dtype},
                                 intrinsic_.parts ? sums_ : products_.buffer, std::move(parts),
                                 intrinsic_.parts && k % run == 0));
      for (int64_t i = 0; i < kTileSums && whole; ++i) {
        const Expr at = PlaceOf(i, &values);
        const Expr sum = Load(sums_, stage_.op.dtype, {IntImm(number * kTileSums + i)});
        products.push_back(MakeStore(products_.buffer, at, Add(Load(products_.buffer, stage_.op.dtype, {at}), sum)));
      }
      for (size_t p = end_; p-- > products_.first && ++tile[p - products_.first] == extent_[stage_.order[p]];)
        tile[p - products_.first] = 0;
    }
    return products;
  }

  // Has the loops of tiles stand at one of them; their values.
  VarMap StandAt(const std::vector<int64_t>& tile) {
    StageValues& values = nest_.stages[products_.id];
    VarMap known;
    for (size_t p = products_.first; p < end_; ++p) {
      values.value[stage_.order[p]] = IntImm(tile[p - products_.first]);
      known[values.leaf[p].get()] = IntImm(tile[p - products_.first]);
    }
    return known;
  }

  // Of the lane's sum i of a tile, among the stage's own.
  Expr PlaceOf(int64_t i, VarMap* values) {
    const std::vector<Expr>& leaf = nest_.stages[products_.id].leaf;
    (*values)[leaf[end_ + 1].get()] = IntImm(i / 2);
    (*values)[leaf[end_ + 2].get()] = IntImm(i % 2);
    return nest_.analyzer.Simplify(Substitute(products_.place, *values));
  }

  void TakeLoads(int64_t k, std::vector<Stmt>* to) {
    const Expr lane_m = nest_.stages[stage_.lane_stage].value[stage_.lane_m];
    if (intrinsic_.factors_per_register() > 1)
      operands_[1].loads = InFours(std::move(operands_[1].loads), FloorDiv(lane_m, 4), &nest_.analyzer);
    for (int o = 0; o < 2; ++o) {
      Fragments& operand = operands_[o];
      to->insert(to->end(), operand.loads.begin(), operand.loads.end());
      if (k == 0) each_[o] = operand.elements;
      most_[o] = std::max(most_[o], operand.elements);
      operand.loads.clear();
      operand.known.clear();
      // Two sets of registers take turns.
      operand.elements = k / intrinsic_.depth() % 2 == 0 ? each_[o] : 0;
    }
  }

  void Declare(int buffer, const char* name, DType dtype, int64_t elements) {
    nest_.buffers.Declare({buffer, absl::StrCat(name, buffer), dtype, Scope::kLocal, elements, true, 0});
  }

  NestState& nest_;
  const TileProducts& products_;
  const StageState& stage_;
  const std::vector<int64_t>& extent_;
  const size_t end_;  // of the loops of tiles
  const TensorIntrinsic& intrinsic_;
  FragmentLoader loader_;
  int64_t tiles_ = 1;
  int sums_ = -1;  // of factors in parts: sums of a run of k
  std::array<Fragments, 2> operands_;
  std::array<int64_t, 2> each_{}, most_{};  // registers of an operand: for the first products, and at most
};

}  // namespace

Stmt EmitWarpProducts(NestParts& parts, const TileProducts& products) {
  const absl::StatusOr<Stmt> made = [&]() -> absl::StatusOr<Stmt> {
    RETURN_IF_ERROR(CheckProducts(parts.state.kernel, products));
    ASSIGN_OR_RETURN(const FragmentLoader::Factors factors, FragmentLoader(&parts, products.id).FindFactors());
    return WarpProducts(parts, products, factors).Emit();
  }();
  if (made.ok()) return *made;
  parts.state.Refuse(made.status());
  return nullptr;
}

}  // namespace diapason
