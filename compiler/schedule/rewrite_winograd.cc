#include "compiler/schedule/rewrite_winograd.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/bounds.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

// The matrices of F(m, 3): y = A^T [(G g) * (B^T d)], from the interpolation points 0, 1, -1 (and 2, -1/2 for m = 4).
// With the usual 2 and -2 the largest errors of m = 4 would be up to four times as large, and the mean ones 1.6 times;
// that the points include the negative reciprocal of each is from Barabasz et al., "Error Analysis and Improving the
// Accuracy of Winograd Convolution for Deep Neural Networks" (2020).
struct Transforms {
  Matrix bt;  // (m+2) x (m+2)
  Matrix g;   // (m+2) x 3
  Matrix at;  // m x (m+2)
};

const Transforms& TransformsOf(int64_t m) {
  static const auto& two = *new Transforms{
      {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
      {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
      {{1, 1, 1, 0}, {0, 1, -1, -1}},
  };
  static const auto& four = *new Transforms{
      {{1, 1.5, -2, -1.5, 1, 0},
       {0, -1, -2.5, -0.5, 1, 0},
       {0, 1, 0.5, -2.5, 1, 0},
       {0, -0.5, -1, 0.5, 1, 0},
       {0, 2, -1, -2, 1, 0},
       {0, 1, 1.5, -2, -1.5, 1}},
      {{1, 0, 0},
       {-1.0 / 3, -1.0 / 3, -1.0 / 3},
       {1.0 / 3, -1.0 / 3, 1.0 / 3},
       {1.0 / 15, 2.0 / 15, 4.0 / 15},
       {-16.0 / 15, 8.0 / 15, -4.0 / 15},
       {0, 0, 1}},
      {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -0.5, 0}, {0, 1, 1, 4, 0.25, 0}, {0, 1, -1, 8, -0.125, 1}},
  };
  return m == 2 ? two : four;
}

absl::Status NoWinograd(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no winograd rewrite: ", why));
}

class WinogradRewriter {
 public:
  WinogradRewriter(const ComputeDag& dag, int64_t m, bool k_innermost)
      : dag_(dag), m_(m), k_innermost_(k_innermost), new_id_(dag.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    if (m_ != 2 && m_ != 4) return NoWinograd(absl::StrCat("tiles are of 2 or 4, not ", m_));
    RETURN_IF_ERROR(FindConvolution());
    RETURN_IF_ERROR(CheckWeights());
    RETURN_IF_ERROR(CheckInput());
    RETURN_IF_ERROR(CheckEpilogue());
    for (int id = 0; id < dag_.size(); ++id) Emit(id);
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  int64_t tile() const { return m_ + 2; }
  const Stage& conv() const { return dag_.stage(conv_); }
  int64_t tiles_down() const { return CeilDiv(conv().axes[1].extent, m_); }
  int64_t tiles_across() const { return CeilDiv(conv().axes[2].extent, m_); }
  int64_t tiles() const { return conv().axes[0].extent * tiles_down() * tiles_across(); }
  int64_t channels_in() const { return channel_->extent; }
  int64_t channels_out() const { return conv().axes[3].extent; }
  bool divides() const { return conv().axes[1].extent % m_ == 0 && conv().axes[2].extent % m_ == 0; }

  // ---- What the dag is --------------------------------------------------------------------------------------------

  absl::Status FindConvolution() {
    for (int id = 0; id < dag_.size(); ++id) {
      if (!dag_.stage(id).reduces() || dag_.is_prologue(id)) continue;
      if (conv_ >= 0) return NoWinograd("more than one stage reduces");
      conv_ = id;
    }
    if (conv_ < 0) return NoWinograd("no stage reduces");
    const Stage& c = conv();
    if (c.dtype != DType::kFloat32) return NoWinograd("it is not in float32");
    if (c.combiner != Combiner::kSum || c.axes.size() != 4 || c.reduce_axes.size() != 3 ||
        c.body->kind != ExprKind::kMul || c.body->args[0]->kind != ExprKind::kLoad ||
        c.body->args[1]->kind != ExprKind::kLoad)
      return NoWinograd("the reduction is no 2-D convolution");
    input_ = c.body->args[0].get();
    weights_ = c.body->args[1].get();
    return absl::OkStatus();
  }

  // weights[..] indexed by the three reduce axes and the last axis of the output, in any order.
  absl::Status CheckWeights() {
    if (!dag_.is_prologue(weights_->buffer)) return NoWinograd("the weights are not constant");
    if (const char* wrong = WrongWithWeights(*weights_, conv())) return NoWinograd(wrong);
    return absl::OkStatus();
  }

  // input[n, h + rh, w + rw, rc] for the three reduce axes in any order.
  absl::Status CheckInput() {
    if (input_->args.size() != 4) return NoWinograd("the input has no 4 dimensions");
    row_ = WindowAxis(1);
    column_ = WindowAxis(2);
    channel_ = nullptr;
    for (const Axis& axis : conv().reduce_axes)
      if (axis.var == input_->args[3]) channel_ = &axis;
    if (!row_ || !column_ || !channel_ || row_ == column_ || row_ == channel_ || column_ == channel_)
      return NoWinograd("it is no dense convolution of stride and dilation 1 in NHWC");
    if (row_->extent != 3 || column_->extent != 3) return NoWinograd("the window is not 3x3");
    const Axis& n = conv().axes[0];
    if (input_->args[0] != n.var && !(n.extent == 1 && IsInt(input_->args[0], 0)))
      return NoWinograd("the batch is moved");
    return absl::OkStatus();
  }

  // The reduce axis r if the input's index in dimension d is (axis d) + r.
  const Axis* WindowAxis(size_t d) const {
    const Affine index = ToAffine(input_->args[d]);
    if (index.constant != 0 || index.terms.size() != 2 || index.CoefficientOf(conv().axes[d].var.get()) != 1)
      return nullptr;
    for (const Axis& axis : conv().reduce_axes)
      if (index.CoefficientOf(axis.var.get()) == 1) return &axis;
    return nullptr;
  }

  // Stages after the convolution are element-wise over its shape, and the outputs are among them.
  absl::Status CheckEpilogue() {
    after_.assign(dag_.size(), false);
    after_[conv_] = true;
    for (int id = conv_ + 1; id < dag_.size(); ++id) {
      for (int producer : dag_.producers(id)) after_[id] = after_[id] || after_[producer];
      if (!after_[id]) continue;
      const Stage& stage = dag_.stage(id);
      if (stage.shape() != conv().shape()) return NoWinograd("a later stage has another shape");
      bool element_wise = true;
      Visit(stage.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || !after_[e.buffer]) return;
        for (size_t d = 0; d < e.args.size(); ++d)
          element_wise &= e.args[d] == stage.axes[d].var || (stage.axes[d].extent == 1 && IsInt(e.args[d], 0));
      });
      if (!element_wise) return NoWinograd("a later stage is not element-wise");
    }
    for (int id : dag_.outputs())
      if (!after_[id]) return NoWinograd("an output does not come from the convolution");
    return absl::OkStatus();
  }

  // ---- What becomes of it -----------------------------------------------------------------------------------------

  void Emit(int id) {
    if (id == conv_) return EmitConvolution();
    if (after_[id]) return EmitEpilogue(id);
    if (id == input_->buffer && IsInlined(id)) return;
    Stage stage = dag_.stage(id);
    if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
    new_id_[id] = AddStage(std::move(stage));
  }

  // Padding is computed where tiles are gathered.
  bool IsInlined(int id) const {
    const Stage& stage = dag_.stage(id);
    return !stage.placeholder && !stage.reduces() && !dag_.is_output(id) && dag_.consumers(id).size() == 1;
  }

  void EmitConvolution() {
    const int weights = EmitWeights();
    const int input = EmitInput(EmitTiles());
    const int inverse = EmitInverse(EmitProduct(input, weights));
    new_id_[conv_] = divides() ? inverse : EmitCrop(inverse);
  }

  int EmitWeights() {
    const Axis t = MakeAxis("t", tile() * tile()), ci = MakeAxis("ci", channels_in()),
               co = MakeAxis("co", channels_out());
    const Axis column = MakeAxis("rw", 3);
    const Matrix& g = TransformsOf(m_).g;
    Expr sum = AbsentTerm();
    for (int64_t row = 0; row < 3; ++row) {
      const VarMap map = {{row_->var.get(), IntImm(row)},
                          {column_->var.get(), column.var},
                          {channel_->var.get(), ci.var},
                          {conv().axes[3].var.get(), co.var}};
      std::vector<Expr> indices;
      for (const Expr& index : weights_->args) indices.push_back(Substitute(index, map));
      sum = Add(sum, TimesEntry(g, FloorDiv(t.var, tile()), static_cast<size_t>(row),
                                Load(new_id_[weights_->buffer], DType::kFloat32, std::move(indices))));
    }
    Stage stage = SumOver(dag_.stage(weights_->buffer).name + ".winograd",
                          k_innermost_ ? std::vector<Axis>{t, co, ci} : std::vector<Axis>{t, ci, co}, column,
                          TimesEntry(g, FloorMod(t.var, tile()), column.var, sum));
    stage.unroll_axes = {t.var->name, column.var->name};
    return AddStage(std::move(stage));
  }

  int EmitTiles() {
    const Axis p = MakeAxis("p", tiles()), y = MakeAxis("y", tile()), x = MakeAxis("x", tile());
    const Axis ci = MakeAxis("ci", channels_in());
    Analyzer analyzer;
    for (const Axis& axis : {p, y, x, ci}) analyzer.Bind(axis.var, axis.extent);
    const Expr row = FloorMod(FloorDiv(p.var, tiles_across()), tiles_down());
    const Expr column = FloorMod(p.var, tiles_across());
    std::vector<Expr> indices = {FloorDiv(p.var, tiles_down() * tiles_across()), Add(Mul(row, IntImm(m_)), y.var),
                                 Add(Mul(column, IntImm(m_)), x.var), ci.var};
    for (Expr& index : indices) index = analyzer.Simplify(index);
    const Stage& source = dag_.stage(input_->buffer);
    Stage stage;
    stage.name = source.name + ".tiles";
    stage.axes = {p, y, x, ci};
    // The last tiles may reach beyond the (padded) input.
    const Expr inside =
        And(Lt(indices[1], IntImm(conv().axes[1].extent + 2)), Lt(indices[2], IntImm(conv().axes[2].extent + 2)));
    stage.body = analyzer.Simplify(Select(inside, InputAt(indices), FloatImm(0)));
    return AddStage(std::move(stage));
  }

  Expr InputAt(const std::vector<Expr>& indices) const {
    if (!IsInlined(input_->buffer)) return Load(new_id_[input_->buffer], DType::kFloat32, indices);
    const Stage& pad = dag_.stage(input_->buffer);
    VarMap map;
    for (size_t d = 0; d < indices.size(); ++d) map[pad.axes[d].var.get()] = indices[d];
    return Renumbered(Substitute(pad.body, map), new_id_);
  }

  int EmitInput(int tiles_id) {
    const Axis t = MakeAxis("t", tile() * tile()), p = MakeAxis("p", tiles()), ci = MakeAxis("ci", channels_in());
    const Axis x = MakeAxis("x", tile());
    const Matrix& bt = TransformsOf(m_).bt;
    // The sum over rows is written out: it is the same for all columns of the result, and compilers compute it once.
    Expr sum = AbsentTerm();
    for (int64_t y = 0; y < tile(); ++y)
      sum = Add(sum, TimesEntry(bt, FloorDiv(t.var, tile()), static_cast<size_t>(y),
                                Load(tiles_id, DType::kFloat32, {p.var, IntImm(y), x.var, ci.var})));
    Stage stage = SumOver(dag_.stage(input_->buffer).name + ".winograd", {t, p, ci}, x,
                          TimesEntry(bt, FloorMod(t.var, tile()), x.var, sum));
    stage.unroll_axes = {t.var->name, x.var->name};
    return AddStage(std::move(stage));
  }

  int EmitProduct(int input, int weights) {
    const Axis t = MakeAxis("t", tile() * tile()), p = MakeAxis("p", tiles()), co = MakeAxis("co", channels_out());
    const Axis ci = MakeAxis("ci", channels_in());
    return AddStage(SumOver(
        conv().name, {t, p, co}, ci,
        Mul(Load(input, DType::kFloat32, {t.var, p.var, ci.var}),
            Load(weights, DType::kFloat32, {t.var, k_innermost_ ? co.var : ci.var, k_innermost_ ? ci.var : co.var}))));
  }

  // Axes of a stage over the output cut into tiles, and the original axes as functions of them.
  std::vector<Axis> TiledAxes(const std::vector<Axis>& original, VarMap* map) const {
    const Axis n = MakeAxis("n", original[0].extent), co = MakeAxis("co", original[3].extent);
    const Axis h = MakeAxis("h", tiles_down()), i = MakeAxis("i", m_);
    const Axis w = MakeAxis("w", tiles_across()), j = MakeAxis("j", m_);
    (*map)[original[0].var.get()] = n.extent == 1 ? IntImm(0) : n.var;
    (*map)[original[1].var.get()] = Add(Mul(h.var, IntImm(m_)), i.var);
    (*map)[original[2].var.get()] = Add(Mul(w.var, IntImm(m_)), j.var);
    (*map)[original[3].var.get()] = co.var;
    if (n.extent == 1) return {h, i, w, j, co};
    return {n, h, i, w, j, co};
  }

  int EmitInverse(int product) {
    VarMap unused;
    const std::vector<Axis> axes = TiledAxes(conv().axes, &unused);
    const size_t first = axes.size() - 5;  // of h, i, w, j, co
    const Axis x = MakeAxis("x", tile());
    Expr p = Add(Mul(axes[first].var, IntImm(tiles_across())), axes[first + 2].var);
    if (first > 0) p = Add(Mul(axes[0].var, IntImm(tiles_down() * tiles_across())), p);
    const Matrix& at = TransformsOf(m_).at;
    Expr sum = AbsentTerm();
    for (int64_t y = 0; y < tile(); ++y)
      sum = Add(sum,
                TimesEntry(at, axes[first + 1].var, static_cast<size_t>(y),
                           Load(product, DType::kFloat32, {Add(x.var, IntImm(y * tile())), p, axes[first + 4].var})));
    Stage stage = SumOver(conv().name + ".inverse", axes, x, TimesEntry(at, axes[first + 3].var, x.var, sum));
    stage.unroll_axes = {axes[first + 1].var->name, axes[first + 3].var->name, x.var->name};
    return AddStage(std::move(stage));
  }

  // The output in its own shape where tiles stick out of it.
  int EmitCrop(int inverse) {
    Stage stage;
    stage.name = conv().name + ".crop";
    static constexpr const char* kNames[] = {"n", "h", "w", "co"};
    std::vector<Expr> indices;
    for (size_t d = 0; d < 4; ++d) {
      stage.axes.push_back(MakeAxis(kNames[d], conv().axes[d].extent));
      const Expr& var = stage.axes[d].var;
      if (d == 0 && conv().axes[0].extent == 1) continue;
      const bool tiled = d == 1 || d == 2;
      indices.push_back(tiled ? FloorDiv(var, m_) : var);
      if (tiled) indices.push_back(FloorMod(var, m_));
    }
    stage.body = Load(inverse, DType::kFloat32, std::move(indices));
    return AddStage(std::move(stage));
  }

  void EmitEpilogue(int id) {
    Stage stage = dag_.stage(id);
    if (!divides()) {
      stage.body = Renumbered(stage.body, new_id_);
      new_id_[id] = AddStage(std::move(stage));
      return;
    }
    VarMap map;
    const std::vector<Axis> axes = TiledAxes(stage.axes, &map);
    new_id_[id] = AddStage(OverAxes(stage, axes, map, new_id_, after_));
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  const ComputeDag& dag_;
  const int64_t m_;
  const bool k_innermost_;  // of the transformed weights
  int conv_ = -1;
  const ExprNode* input_ = nullptr;  // loads of the convolution's body
  const ExprNode* weights_ = nullptr;
  const Axis* row_ = nullptr;  // its reduce axes
  const Axis* column_ = nullptr;
  const Axis* channel_ = nullptr;
  std::vector<bool> after_;  // by old id: the convolution and what depends on it
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> WinogradRewrite(const ComputeDag& dag, int64_t m, bool k_innermost) {
  return WinogradRewriter(dag, m, k_innermost).Run();
}

}  // namespace diapason
