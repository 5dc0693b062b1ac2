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

// A 3x3 convolution of stride 1 in NHWC with element-wise stages behind it.
struct WinogradConvolution {
  int stage = -1;
  const ExprNode* input = nullptr;  // loads of its body
  const ExprNode* weights = nullptr;
  const Axis* row = nullptr;  // its reduce axes
  const Axis* column = nullptr;
  const Axis* channel = nullptr;
  std::vector<bool> after;  // by stage: the convolution and what depends on it
};

// Finds that convolution in a dag, which is to hold nothing else.
class WinogradMatcher {
 public:
  explicit WinogradMatcher(const ComputeDag& dag) : dag_(dag) {}

  // What it finds refers to the dag. InvalidArgument says what else the dag is.
  absl::StatusOr<WinogradConvolution> Match() {
    RETURN_IF_ERROR(FindConvolution());
    RETURN_IF_ERROR(CheckWeights());
    RETURN_IF_ERROR(CheckInput());
    RETURN_IF_ERROR(CheckEpilogue());
    return std::move(found_);
  }

 private:
  const Stage& convolution() const { return dag_.stage(found_.stage); }

  absl::Status FindConvolution() {
    for (int id = 0; id < dag_.size(); ++id) {
      if (!dag_.stage(id).reduces() || dag_.is_prologue(id)) continue;
      if (found_.stage >= 0) return NoWinograd("more than one stage reduces");
      found_.stage = id;
    }
    if (found_.stage < 0) return NoWinograd("no stage reduces");
    const Stage& c = convolution();
    if (c.dtype != DType::kFloat32) return NoWinograd("it is not in float32");
    if (c.combiner != Combiner::kSum || c.axes.size() != 4 || c.reduce_axes.size() != 3 ||
        c.body->kind != ExprKind::kMul || c.body->args[0]->kind != ExprKind::kLoad ||
        c.body->args[1]->kind != ExprKind::kLoad)
      return NoWinograd("the reduction is no 2-D convolution");
    found_.input = c.body->args[0].get();
    found_.weights = c.body->args[1].get();
    return absl::OkStatus();
  }

  // weights[..] indexed by the three reduce axes and the last axis of the output, in any order.
  absl::Status CheckWeights() {
    if (!dag_.is_prologue(found_.weights->buffer)) return NoWinograd("the weights are not constant");
    if (const char* wrong = WrongWithWeights(*found_.weights, convolution())) return NoWinograd(wrong);
    return absl::OkStatus();
  }

  // input[n, h + rh, w + rw, rc] for the three reduce axes in any order.
  absl::Status CheckInput() {
    if (found_.input->args.size() != 4) return NoWinograd("the input has no 4 dimensions");
    found_.row = WindowAxis(1);
    found_.column = WindowAxis(2);
    found_.channel = nullptr;
    for (const Axis& axis : convolution().reduce_axes)
      if (axis.var == found_.input->args[3]) found_.channel = &axis;
    if (!found_.row || !found_.column || !found_.channel || found_.row == found_.column ||
        found_.row == found_.channel || found_.column == found_.channel)
      return NoWinograd("it is no dense convolution of stride and dilation 1 in NHWC");
    if (found_.row->extent != 3 || found_.column->extent != 3) return NoWinograd("the window is not 3x3");
    const Axis& n = convolution().axes[0];
    if (found_.input->args[0] != n.var && !(n.extent == 1 && IsInt(found_.input->args[0], 0)))
      return NoWinograd("the batch is moved");
    return absl::OkStatus();
  }

  // The reduce axis r if the input's index in dimension d is (axis d) + r.
  const Axis* WindowAxis(size_t d) const {
    const Affine index = ToAffine(found_.input->args[d]);
    if (index.constant != 0 || index.terms.size() != 2 || index.CoefficientOf(convolution().axes[d].var.get()) != 1)
      return nullptr;
    for (const Axis& axis : convolution().reduce_axes)
      if (index.CoefficientOf(axis.var.get()) == 1) return &axis;
    return nullptr;
  }

  // Stages after the convolution are element-wise over its shape, and the outputs are among them.
  absl::Status CheckEpilogue() {
    found_.after.assign(dag_.size(), false);
    found_.after[found_.stage] = true;
    for (int id = found_.stage + 1; id < dag_.size(); ++id) {
      for (int producer : dag_.producers(id)) found_.after[id] = found_.after[id] || found_.after[producer];
      if (!found_.after[id]) continue;
      const Stage& stage = dag_.stage(id);
      if (stage.shape() != convolution().shape()) return NoWinograd("a later stage has another shape");
      bool element_wise = true;
      Visit(stage.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || !found_.after[e.buffer]) return;
        for (size_t d = 0; d < e.args.size(); ++d)
          element_wise &= e.args[d] == stage.axes[d].var || (stage.axes[d].extent == 1 && IsInt(e.args[d], 0));
      });
      if (!element_wise) return NoWinograd("a later stage is not element-wise");
    }
    for (int id : dag_.outputs())
      if (!found_.after[id]) return NoWinograd("an output does not come from the convolution");
    return absl::OkStatus();
  }

  const ComputeDag& dag_;
  WinogradConvolution found_;
};

// Makes the dag of the rewritten convolution. Used once.
class WinogradRewriter {
 public:
  // `convolution` is of the dag; tiles of the output are m x m.
  WinogradRewriter(const ComputeDag& dag, const WinogradConvolution& convolution, int64_t m, bool k_innermost)
      : dag_(dag), matched_(convolution), m_(m), k_innermost_(k_innermost), new_id_(dag.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    for (int id = 0; id < dag_.size(); ++id) Emit(id);
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  int64_t tile() const { return m_ + 2; }
  const Stage& conv() const { return dag_.stage(matched_.stage); }
  int64_t tiles_down() const { return CeilDiv(conv().axes[1].extent, m_); }
  int64_t tiles_across() const { return CeilDiv(conv().axes[2].extent, m_); }
  int64_t tiles() const { return conv().axes[0].extent * tiles_down() * tiles_across(); }
  int64_t channels_in() const { return matched_.channel->extent; }
  int64_t channels_out() const { return conv().axes[3].extent; }
  bool divides() const { return conv().axes[1].extent % m_ == 0 && conv().axes[2].extent % m_ == 0; }

  void Emit(int id) {
    if (id == matched_.stage) return EmitConvolution();
    if (matched_.after[id]) return EmitEpilogue(id);
    if (id == matched_.input->buffer && IsInlined(id)) return;
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
    new_id_[matched_.stage] = divides() ? inverse : EmitCrop(inverse);
  }

  int EmitWeights() {
    const Axis t = MakeAxis("t", tile() * tile()), ci = MakeAxis("ci", channels_in()),
               co = MakeAxis("co", channels_out());
    const Axis column = MakeAxis("rw", 3);
    const Matrix& g = TransformsOf(m_).g;
    Expr sum = AbsentTerm();
    for (int64_t row = 0; row < 3; ++row) {
      const VarMap map = {{matched_.row->var.get(), IntImm(row)},
                          {matched_.column->var.get(), column.var},
                          {matched_.channel->var.get(), ci.var},
                          {conv().axes[3].var.get(), co.var}};
      std::vector<Expr> indices;
      for (const Expr& index : matched_.weights->args) indices.push_back(Substitute(index, map));
      sum = Add(sum, TimesEntry(g, FloorDiv(t.var, tile()), static_cast<size_t>(row),
                                Load(new_id_[matched_.weights->buffer], DType::kFloat32, std::move(indices))));
    }
    Stage stage = SumOver(dag_.stage(matched_.weights->buffer).name + ".winograd",
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
    const Stage& source = dag_.stage(matched_.input->buffer);
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
    if (!IsInlined(matched_.input->buffer)) return Load(new_id_[matched_.input->buffer], DType::kFloat32, indices);
    const Stage& pad = dag_.stage(matched_.input->buffer);
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
    Stage stage = SumOver(dag_.stage(matched_.input->buffer).name + ".winograd", {t, p, ci}, x,
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
    new_id_[id] = AddStage(OverAxes(stage, axes, map, new_id_, matched_.after));
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  const ComputeDag& dag_;
  const WinogradConvolution& matched_;
  const int64_t m_;
  const bool k_innermost_;  // of the transformed weights
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> WinogradRewrite(const ComputeDag& dag, int64_t m, bool k_innermost) {
  if (m != 2 && m != 4) return NoWinograd(absl::StrCat("tiles are of 2 or 4, not ", m));
  ASSIGN_OR_RETURN(const WinogradConvolution convolution, WinogradMatcher(dag).Match());
  return WinogradRewriter(dag, convolution, m, k_innermost).Run();
}

}  // namespace diapason
