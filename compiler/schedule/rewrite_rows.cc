#include "compiler/schedule/rewrite_rows.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/library_parts.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

constexpr int64_t kVector = 4;       // elements of a copy of 16 bytes
constexpr int64_t kFewChannels = 7;  // more channels, or 4, are vectors by themselves

absl::Status NoRows(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no rows rewrite: ", why));
}

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class RowsRewriter {
 public:
  explicit RowsRewriter(const ComputeDag& dag) : dag_(dag), new_id_(dag.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(FindConvolution());
    Measure();
    for (int id = 0; id < dag_.size(); ++id) Emit(id);
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  const Stage& conv() const { return dag_.stage(conv_); }
  int64_t channels() const { return channel_->extent; }
  int64_t window() const { return column_->extent * channels(); }  // elements of a row of it

  // ---- What the dag is --------------------------------------------------------------------------------------------

  absl::Status FindConvolution() {
    std::vector<const Stage*> stages;
    for (const Stage& stage : dag_.stages()) stages.push_back(&stage);
    auto parts = LibraryParts::Create(stages, dag_.outputs());
    if (!parts.ok()) return NoRows("there is not one sum of products in float32");
    conv_ = parts->anchor();
    if (conv().axes.size() != 4 || conv().reduce_axes.size() != 3) return NoRows("the reduction is no 2-D convolution");
    if (!MatchInput(*parts)) {
      parts = parts->Swapped();
      if (!MatchInput(*parts)) return NoRows("it is no convolution in NHWC without dilation along its rows");
    }
    weights_ = parts->b();
    if (input_->dtype != DType::kFloat32 || weights_->dtype != DType::kFloat32)
      return NoRows("its factors are not float32");
    if (const char* wrong = WrongWithWeights(*weights_, conv())) return NoRows(wrong);
    if (channels() > kFewChannels || channels() % kVector == 0 || column_->extent == 1)
      return NoRows("a row of its window is no run of a few channels");
    source_ = input_->buffer;
    const Stage& read = dag_.stage(source_);
    const auto padding = parts->PaddingOf(source_);
    if (padding && dag_.consumers(source_).size() == 1 && !dag_.is_output(source_) && !dag_.is_prologue(source_) &&
        padding->before[0] == 0 && padding->before[3] == 0 &&
        read.axes[3].extent == dag_.stage(padding->source).axes[3].extent) {
      padded_ = source_;
      source_ = padding->source;
      above_ = padding->before[1];
      left_ = padding->before[2];
    }
    return absl::OkStatus();
  }

  // input[n, sh*y + r, sw*x + s + constant, ci]
  bool MatchInput(const LibraryParts& parts) {
    input_ = parts.a();
    if (input_->args.size() != 4 || !parts.IsAxis(input_->args[0], conv().axes[0])) return false;
    row_ = column_ = channel_ = nullptr;
    const Affine y = ToAffine(input_->args[1]), x = ToAffine(input_->args[2]);
    for (const Axis& axis : conv().reduce_axes) {
      if (y.CoefficientOf(axis.var.get()) > 0) row_ = &axis;
      if (x.CoefficientOf(axis.var.get()) == 1) column_ = &axis;
      if (input_->args[3] == axis.var) channel_ = &axis;
    }
    if (!row_ || !column_ || !channel_ || row_ == column_ || row_ == channel_ || column_ == channel_) return false;
    stride_ = x.CoefficientOf(conv().axes[2].var.get());
    start_ = x.constant;
    return y.terms.size() == 2 && y.CoefficientOf(conv().axes[1].var.get()) > 0 && y.constant >= 0 &&
           x.terms.size() == 2 && stride_ > 0 && start_ >= 0 &&
           channel_->extent == dag_.stage(input_->buffer).axes[3].extent;
  }

  // ---- Where elements lie -----------------------------------------------------------------------------------------

  void Measure() {
    const Stage& source = dag_.stage(source_);
    lead_ = RoundUp(left_ * channels(), kVector);
    first_ = lead_ - left_ * channels() + start_ * channels();
    const int64_t last = (conv().axes[2].extent - 1) * stride_ * channels() + first_ + window();
    const int64_t whole = source.axes[2].extent * channels();
    own_stage_ = padded_ >= 0 || last > whole || !CanReshape(source_);
    width_ = own_stage_ ? RoundUp(std::max(last, lead_ + whole), kVector) : whole;
  }

  // A placeholder that nobody else reads may have another shape.
  bool CanReshape(int id) const {
    return dag_.stage(id).placeholder && !dag_.is_output(id) && dag_.consumers(id).size() == 1;
  }

  // ---- What becomes of it -----------------------------------------------------------------------------------------

  void Emit(int id) {
    if (id == padded_) return;
    if (id == conv_) return EmitConvolution();
    Stage stage = dag_.stage(id);
    if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
    if (id == source_ && CanReshape(id))
      stage.axes = {stage.axes[0], stage.axes[1], {MakeVar("p"), stage.axes[2].extent * channels()}};
    if (id == weights_->buffer && KeepsOrder()) stage.axes = {stage.axes[0], {MakeVar("j"), window()}, stage.axes[3]};
    new_id_[id] = AddStage(std::move(stage));
  }

  // The weights lie in memory in the order of the sum.
  bool KeepsOrder() const {
    const std::vector<Expr>& indices = weights_->args;
    return CanReshape(weights_->buffer) && indices[0] == row_->var && indices[1] == column_->var &&
           indices[2] == channel_->var;
  }

  void EmitConvolution() {
    const int input = own_stage_ ? EmitInput() : new_id_[source_];
    const int weights = KeepsOrder() ? new_id_[weights_->buffer] : EmitWeights();
    Stage stage = conv();
    const Axis j{MakeVar("j"), window()};
    const Expr x = Add(Mul(stage.axes[2].var, IntImm(stride_ * channels())), Add(j.var, IntImm(first_)));
    stage.body = Mul(Load(input, DType::kFloat32, {input_->args[0], input_->args[1], x}),
                     Load(weights, DType::kFloat32, {row_->var, j.var, stage.axes[3].var}));
    stage.reduce_axes = {*row_, j};
    new_id_[conv_] = AddStage(std::move(stage));
  }

  int EmitInput() {
    const Stage& source = dag_.stage(source_);
    const Stage& read = dag_.stage(input_->buffer);
    const Axis n{MakeVar("n"), read.axes[0].extent}, y{MakeVar("y"), read.axes[1].extent}, p{MakeVar("p"), width_};
    Analyzer analyzer;
    for (const Axis& axis : {n, y, p}) analyzer.Bind(axis.var, axis.extent);
    const Expr row = Sub(y.var, IntImm(above_)), place = Sub(p.var, IntImm(lead_));
    std::vector<Expr> indices{n.var, row, place};
    if (!CanReshape(source_)) {
      indices.back() = FloorDiv(place, channels());
      indices.push_back(FloorMod(place, channels()));
    }
    const Expr rows = And(Le(IntImm(above_), y.var), Lt(y.var, IntImm(above_ + source.axes[1].extent)));
    const Expr columns = And(Le(IntImm(lead_), p.var), Lt(p.var, IntImm(lead_ + source.axes[2].extent * channels())));
    Stage stage;
    stage.name = absl::StrCat(source.name, ".rows");
    stage.axes = {n, y, p};
    stage.body = analyzer.Simplify(
        Select(And(rows, columns), Load(new_id_[source_], DType::kFloat32, std::move(indices)), FloatImm(0)));
    return AddStage(std::move(stage));
  }

  int EmitWeights() {
    const Axis r{MakeVar("r"), row_->extent}, j{MakeVar("j"), window()}, co{MakeVar("co"), conv().axes[3].extent};
    const VarMap map = {{row_->var.get(), r.var},
                        {column_->var.get(), FloorDiv(j.var, channels())},
                        {channel_->var.get(), FloorMod(j.var, channels())},
                        {conv().axes[3].var.get(), co.var}};
    std::vector<Expr> indices;
    for (const Expr& index : weights_->args) indices.push_back(Substitute(index, map));
    Stage stage;
    stage.name = absl::StrCat(dag_.stage(weights_->buffer).name, ".rows");
    stage.axes = {r, j, co};
    stage.body = Load(new_id_[weights_->buffer], DType::kFloat32, std::move(indices));
    return AddStage(std::move(stage));
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  const ComputeDag& dag_;
  int conv_ = -1;
  const ExprNode* input_ = nullptr;  // loads of the convolution's body
  const ExprNode* weights_ = nullptr;
  const Axis* row_ = nullptr;  // its reduce axes
  const Axis* column_ = nullptr;
  const Axis* channel_ = nullptr;
  int64_t stride_ = 1, start_ = 0;  // of the window, in columns
  int source_ = -1;                 // the input without its padding
  int padded_ = -1;                 // the stage that pads it, which goes; -1: none does
  int64_t above_ = 0, left_ = 0;    // rows and columns of padding in front
  bool own_stage_ = false;          // X' is not the source itself
  int64_t lead_ = 0;                // elements of a row of X' in front of the source's
  int64_t first_ = 0;               // of the window of the first column, in a row of X'
  int64_t width_ = 0;               // elements of a row of X'
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> RowsRewrite(const ComputeDag& dag) { return RowsRewriter(dag).Run(); }

}  // namespace diapason
