#include "compiler/schedule/rewrite_strassen.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/rewrite_gemm.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

// Rows are products, columns the blocks 11, 12, 21, 22 of an operand.
const Matrix& LeftSums() {
  static const auto& matrix =
      *new Matrix{{1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}};
  return matrix;
}

const Matrix& RightSums() {
  static const auto& matrix =
      *new Matrix{{1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}};
  return matrix;
}

// Rows are the blocks of the result, columns products.
const Matrix& ResultSums() {
  static const auto& matrix =
      *new Matrix{{1, 0, 0, 1, -1, 0, 1}, {0, 0, 1, 0, 1, 0, 0}, {0, 1, 0, 1, 0, 0, 0}, {1, -1, 1, 0, 0, 1, 0}};
  return matrix;
}

constexpr int64_t kProducts = 7, kBlocks = 4;

int64_t Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent-- > 0) result *= base;
  return result;
}

absl::Status No(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no strassen rewrite: ", why));
}

// A block by its number (0 to 3) at each level, the outer one first: row and column of it among 2^levels x 2^levels.
struct Block {
  Expr row, column;
};
Block BlockAt(const std::vector<Expr>& by_level) {
  Block at{IntImm(0), IntImm(0)};
  for (const Expr& block : by_level) {
    at.row = Add(Mul(at.row, IntImm(2)), FloorDiv(block, 2));
    at.column = Add(Mul(at.column, IntImm(2)), FloorMod(block, 2));
  }
  return at;
}

class StrassenRewriter {
 public:
  StrassenRewriter(const ComputeDag& gemm, int64_t levels)
      : dag_(gemm), product_(gemm), levels_(levels), new_id_(gemm.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(CheckProduct());
    for (int id = 0; id < dag_.size(); ++id) Emit(id);
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  int64_t halves() const { return Power(2, levels_); }
  int64_t products() const { return Power(kProducts, levels_); }
  const Stage& product() const { return product_.stage(); }
  int64_t rows() const { return product().axes[0].extent / halves(); }
  int64_t columns() const { return product().axes[1].extent / halves(); }
  int64_t terms() const { return product().reduce_axes[0].extent / halves(); }

  absl::Status CheckProduct() {
    if (product().axes.size() != 2) return No("the product has a batch");
    const Expr& body = product().body;
    for (const Expr& factor : body->args)
      if (factor->kind != ExprKind::kLoad || factor->dtype != DType::kFloat32) return No("a factor is not in float32");
    if (product().dtype != DType::kFloat32) return No("the product is not in float32");
    for (const Axis* axis : {&product().axes[0], &product().axes[1], &product().reduce_axes[0]})
      if (axis->extent % halves() != 0)
        return No(absl::StrCat(halves(), " does not divide its ", axis->var->name, " of ", axis->extent));
    after_.assign(dag_.size(), false);
    for (int id = product_.id(); id < dag_.size(); ++id) {
      after_[id] = id == product_.id();
      for (int producer : dag_.producers(id)) after_[id] = after_[id] || after_[producer];
    }
    return absl::OkStatus();
  }

  void Emit(int id) {
    const Stage& old = dag_.stage(id);
    if (id == product_.id()) return EmitProduct();
    if (after_[id]) return EmitEpilogue(id);
    if (product_.IsInlined(id)) return;
    Stage stage = old;
    if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
    new_id_[id] = AddStage(std::move(stage));
  }

  // An operand that is computed (im2col) is computed where blocks are gathered.
  Expr OperandAt(int id, std::vector<Expr> indices, Analyzer* analyzer) const {
    return analyzer->Simplify(product_.OperandAt(id, std::move(indices), new_id_));
  }

  // sum over blocks of matrix[p][block] * block, for all products p: [P, rows, columns] of an operand of 2^levels times
  // that shape.
  int EmitSums(int id, const Matrix& matrix, std::pair<const char*, int64_t> row,
               std::pair<const char*, int64_t> column) {
    const Axis p = MakeAxis("p", products()), q = MakeAxis("q", kBlocks);
    const Axis y = MakeAxis(row.first, row.second), x = MakeAxis(column.first, column.second);
    // Constants' sums are made once: what they cost does not matter.
    const int blocks = dag_.is_prologue(id) ? -1 : EmitBlocks(id, row, column);
    Analyzer analyzer;
    for (const Axis& axis : {p, q, y, x}) analyzer.Bind(axis.var, axis.extent);
    auto block_at = [&](const std::vector<Expr>& by_level) -> Expr {
      const Block at = BlockAt(by_level);
      if (blocks >= 0)
        return Load(blocks, DType::kFloat32, {analyzer.Simplify(at.row), analyzer.Simplify(at.column), y.var, x.var});
      return OperandAt(id, {Add(Mul(at.row, IntImm(y.extent)), y.var), Add(Mul(at.column, IntImm(x.extent)), x.var)},
                       &analyzer);
    };
    Stage stage = SumOver(dag_.stage(id).name + ".strassen", {p, y, x}, q,
                          levels_ == 1 ? TimesEntry(matrix, p.var, q.var, block_at({q.var}))
                                       : TimesEntry(matrix, FloorMod(p.var, kProducts), q.var,
                                                    OuterSum(matrix, p.var, [&](int64_t outer) {
                                                      return block_at({IntImm(outer), q.var});
                                                    })));
    stage.unroll_axes = {p.var->name, q.var->name};
    return AddStage(std::move(stage));
  }

  // The sum of the outer level, written out: it is the same for all products of the inner one, and compilers compute it
  // once.
  template <typename BlockOf>
  static Expr OuterSum(const Matrix& matrix, const Expr& p, const BlockOf& block) {
    Expr sum = AbsentTerm();
    for (int64_t outer = 0; outer < kBlocks; ++outer)
      sum = Add(sum, TimesEntry(matrix, FloorDiv(p, kProducts), static_cast<size_t>(outer), block(outer)));
    return sum;
  }

  int EmitBlocks(int id, std::pair<const char*, int64_t> row, std::pair<const char*, int64_t> column) {
    std::vector<Axis> axes = {MakeAxis("i", halves()), MakeAxis("j", halves()), MakeAxis(row.first, row.second),
                              MakeAxis(column.first, column.second)};
    Analyzer analyzer;
    for (const Axis& axis : axes) analyzer.Bind(axis.var, axis.extent);
    auto index = [&](int block, int within) {
      return Add(Mul(axes[block].var, IntImm(axes[within].extent)), axes[within].var);
    };
    Stage stage;
    stage.name = dag_.stage(id).name + ".blocks";
    stage.body = OperandAt(id, {index(0, 2), index(1, 3)}, &analyzer);
    stage.axes = std::move(axes);
    return AddStage(std::move(stage));
  }

  void EmitProduct() {
    const Expr& body = product().body;
    // The gemm rewrite writes rows times columns.
    const int left = EmitSums(body->args[0]->buffer, LeftSums(), {"m", rows()}, {"k", terms()});
    const int right = EmitSums(body->args[1]->buffer, RightSums(), {"k", terms()}, {"n", columns()});
    const Axis p = MakeAxis("p", products()), m = MakeAxis("m", rows()), n = MakeAxis("n", columns()),
               k = MakeAxis("k", terms());
    const int products = AddStage(SumOver(
        product().name, {p, m, n}, k,
        Mul(Load(left, DType::kFloat32, {p.var, m.var, k.var}), Load(right, DType::kFloat32, {p.var, k.var, n.var}))));
    new_id_[product_.id()] = EmitCombined(products);
  }

  std::vector<Axis> BlockedAxes() const {
    return {MakeAxis("i", halves()), MakeAxis("m", rows()), MakeAxis("j", halves()), MakeAxis("n", columns())};
  }

  int EmitCombined(int products) {
    const std::vector<Axis> axes = BlockedAxes();
    const Expr &i = axes[0].var, &m = axes[1].var, &j = axes[2].var, &n = axes[3].var;
    const Axis p = MakeAxis("p", kProducts);
    auto product_at = [&](const Expr& index) { return Load(products, DType::kFloat32, {index, m, n}); };
    auto block = [](const Expr& row, const Expr& column) { return Add(Mul(row, IntImm(2)), column); };
    Expr value = product_at(p.var), inner = block(i, j);
    if (levels_ == 2) {
      value = AbsentTerm();
      inner = block(FloorMod(i, 2), FloorMod(j, 2));
      for (int64_t outer = 0; outer < kProducts; ++outer)
        value = Add(value, TimesEntry(ResultSums(), block(FloorDiv(i, 2), FloorDiv(j, 2)), static_cast<size_t>(outer),
                                      product_at(Add(p.var, IntImm(outer * kProducts)))));
    }
    Stage stage = SumOver(product().name + ".combined", axes, p, TimesEntry(ResultSums(), inner, p.var, value));
    stage.unroll_axes = {i->name, j->name, p.var->name};
    return AddStage(std::move(stage));
  }

  void EmitEpilogue(int id) {
    const Stage& stage = dag_.stage(id);
    const std::vector<Axis> axes = BlockedAxes();
    const VarMap map = {{stage.axes[0].var.get(), Add(Mul(axes[0].var, IntImm(rows())), axes[1].var)},
                        {stage.axes[1].var.get(), Add(Mul(axes[2].var, IntImm(columns())), axes[3].var)}};
    new_id_[id] = AddStage(OverAxes(stage, axes, map, new_id_, after_));
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  const ComputeDag& dag_;  // the gemm rewrite
  const GemmProduct product_;
  const int64_t levels_;
  std::vector<bool> after_;  // by old id: the product and what depends on it
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> StrassenRewrite(const ComputeDag& dag, int64_t levels) {
  if (levels != 1 && levels != 2) return No(absl::StrCat("levels are 1 or 2, not ", levels));
  absl::StatusOr<ComputeDag> gemm = GemmRewrite(dag);
  if (!gemm.ok()) return No(std::string(gemm.status().message()));
  return StrassenRewriter(*gemm, levels).Run();
}

bool StrassenMayPay(const ComputeDag& dag, int64_t levels, double operations_per_byte) {
  const absl::StatusOr<ComputeDag> rewrite = StrassenRewrite(dag, levels);
  if (!rewrite.ok()) return false;
  double operations = 0, elements = 0;  // of one block of each matrix
  for (int id = 0; id < rewrite->size(); ++id) {
    const Stage& product = rewrite->stage(id);
    if (!product.reduces() || !product.unroll_axes.empty() || rewrite->is_prologue(id)) continue;
    const double m = static_cast<double>(product.axes[1].extent), n = static_cast<double>(product.axes[2].extent);
    const double k = static_cast<double>(product.terms());
    const bool constant = rewrite->is_prologue(product.body->args[1]->buffer);
    operations = 2 * m * n * k * static_cast<double>(Power(8, levels) - Power(kProducts, levels));
    elements = m * k + (constant ? 0 : k * n) + m * n;
  }
  // Of each matrix its blocks and what they are made into (or made of).
  const double bytes = 4 * elements * static_cast<double>(Power(kBlocks, levels) + Power(kProducts, levels));
  return operations >= operations_per_byte * bytes;
}

}  // namespace diapason
