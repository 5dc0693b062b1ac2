#include "compiler/schedule/rewrite_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/invariant.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/schedule/state.h"

namespace diapason {
namespace {

absl::Status NoAttention(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no attention rewrite: ", why));
}

// True for a sum over one axis of products of two loads.
bool IsProduct(const Stage& stage) {
  return !stage.placeholder && stage.reduce_axes.size() == 1 && stage.combiner == Combiner::kSum &&
         stage.body->kind == ExprKind::kMul && Unconverted(stage.body->args[0])->kind == ExprKind::kLoad &&
         Unconverted(stage.body->args[1])->kind == ExprKind::kLoad;
}

bool IsReadBy(const Expr& load, const Axis& axis) {
  return std::any_of(load->args.begin(), load->args.end(),
                     [&](const Expr& index) { return UsesVar(index, axis.var.get()); });
}

// Stages that read the one element of another along a dimension read it by their own axis there, if that has one
// element too: a single query is then a row that can be followed through all stages.
absl::StatusOr<ComputeDag> WithRowsOfOne(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (Stage& stage : stages) {
    if (stage.placeholder) continue;
    stage.body = Rewrite(stage.body, [&](const Expr& e) -> Expr {
      if (e->kind != ExprKind::kLoad || e->args.size() != stage.axes.size() || dag.stage(e->buffer).placeholder)
        return e;
      std::vector<Expr> point = e->args;
      for (size_t d = 0; d < point.size(); ++d)
        if (IsInt(point[d], 0) && stage.axes[d].extent == 1) point[d] = stage.axes[d].var;
      return Load(e->buffer, e->dtype, std::move(point));
    });
  }
  return ComputeDag::Create(std::move(stages), dag.outputs());
}

class AttentionRewriter {
 public:
  AttentionRewriter(const ComputeDag& dag, ScoreScale scale)
      : dag_(dag), scale_(scale), new_id_(dag.size(), -1), reduced_(dag.size(), false) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(FindProducts());
    if (HasOneQuery()) {
      ASSIGN_OR_RETURN(dag_, WithRowsOfOne(dag_));
    }
    FindQuotient();
    if (scale_ == ScoreScale::kInExponents) RETURN_IF_ERROR(FindFactor());
    // The rows of queries read the factor, which may stand behind them.
    for (int id = 0; factor_ && id < dag_.size(); ++id)
      if (dag_.stage(id).placeholder) Copy(id);
    for (int id = 0; id < dag_.size(); ++id) {
      if (std::count(left_out_.begin(), left_out_.end(), id) > 0 || new_id_[id] >= 0) continue;
      if (id == scores_ || id == values_)
        EmitProduct(id);
      else
        Copy(id);
    }
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  absl::Status FindProducts() {
    for (int id = 0; id < dag_.size(); ++id) {
      const Stage& stage = dag_.stage(id);
      for (int producer : dag_.producers(id))
        reduced_[id] = reduced_[id] || reduced_[producer] || dag_.stage(producer).reduces();
      if (!IsProduct(stage)) continue;
      int computed = 0;  // operands that another reduction is behind
      for (const Expr& factor : stage.body->args) computed += Behind(Unconverted(factor));
      int* const place = computed == 0 ? &scores_ : &values_;
      if (computed == 2 || *place >= 0) return NoAttention("there are more than two products");
      *place = id;
    }
    if (scores_ < 0 || values_ < 0) return NoAttention("there are no two products, one of what the other gives");
    weights_ = WeightsLoad()->buffer;
    if (dag_.stage(weights_).reduces() || dag_.consumers(weights_) != std::vector<int>{values_} ||
        dag_.is_output(weights_))
      return NoAttention("its weights are read elsewhere");
    return absl::OkStatus();
  }

  // Whether no axis of several elements is read by the weights alone.
  bool HasOneQuery() const {
    const Stage& product = dag_.stage(values_);
    return std::all_of(product.axes.begin(), product.axes.end(), [&](const Axis& axis) {
      return axis.extent == 1 || !IsReadBy(WeightsLoad(), axis) || IsReadBy(ValuesLoad(), axis);
    });
  }

  // The weights as exponentials and the sum of each row of these: exp / sum, through stages that only convert it.
  void FindQuotient() {
    std::vector<int> chain{weights_};
    const Expr* body = &Unconverted(dag_.stage(weights_).body);
    while ((*body)->kind == ExprKind::kLoad && IsOfPoint(chain.back(), **body) &&
           IsReadOnlyBy(chain.back(), (*body)->buffer)) {
      chain.push_back((*body)->buffer);
      if (dag_.stage(chain.back()).placeholder || dag_.stage(chain.back()).reduces()) return;
      body = &Unconverted(dag_.stage(chain.back()).body);
    }
    if ((*body)->kind != ExprKind::kDiv) return;
    const Expr &power = Unconverted((*body)->args[0]), &sum = Unconverted((*body)->args[1]);
    if (power->kind != ExprKind::kLoad || sum->kind != ExprKind::kLoad || !IsOfPoint(chain.back(), *power)) return;
    const Stage &powers = dag_.stage(power->buffer), &sums = dag_.stage(sum->buffer);
    if (powers.placeholder || powers.reduces() || dag_.is_output(power->buffer) || dag_.is_output(sum->buffer)) return;
    for (int reader : dag_.consumers(power->buffer))
      if (reader != chain.back() && reader != sum->buffer) return;
    if (dag_.consumers(sum->buffer) != std::vector<int>{chain.back()} || !IsSumOfRow(sums, *power, *sum, chain.back()))
      return;
    for (size_t a = 0; a < sum->args.size(); ++a) {
      VarMap to_weights;
      for (size_t d = 0; d < powers.axes.size(); ++d)
        to_weights[dag_.stage(chain.back()).axes[d].var.get()] = dag_.stage(weights_).axes[d].var;
      row_.push_back(Substitute(sum->args[a], to_weights));
    }
    powers_ = power->buffer;
    sums_ = sum->buffer;
    left_out_ = chain;
  }

  // Exponentials of differences of scores that are the product by a factor, and what these are.
  absl::Status FindFactor() {
    const absl::Status none = NoAttention("its scores are not scaled by a factor alone");
    const Expr* power = powers_ < 0 ? nullptr : &Unconverted(dag_.stage(powers_).body);
    if (power == nullptr || (*power)->kind != ExprKind::kCall || (*power)->name != "exp" ||
        (*power)->args[0]->kind != ExprKind::kSub)
      return none;
    const Expr &score = (*power)->args[0]->args[0], &top = (*power)->args[0]->args[1];
    if (score->kind != ExprKind::kLoad || top->kind != ExprKind::kLoad) return none;
    const int scaled = score->buffer, maximum = top->buffer;
    const Stage& tops = dag_.stage(maximum);
    const std::vector<int> readers = dag_.consumers(scaled);
    const bool read_by_both = readers.size() == 2 && std::count(readers.begin(), readers.end(), powers_) == 1 &&
                              std::count(readers.begin(), readers.end(), maximum) == 1;
    if (!read_by_both || !tops.reduces() || tops.combiner != Combiner::kMax || dag_.is_output(scaled) ||
        dag_.consumers(scores_) != std::vector<int>{scaled} || dag_.is_output(scores_))
      return none;
    const Stage& stage = dag_.stage(scaled);
    if (stage.body->kind != ExprKind::kMul || stage.dtype != DType::kFloat32) return none;
    for (int i : {0, 1}) {
      const Expr &product = stage.body->args[i], &factor = stage.body->args[1 - i];
      if (product->kind != ExprKind::kLoad || product->buffer != scores_ ||
          !IsInvariant(factor, [&](int id) -> const Stage& { return dag_.stage(id); }))
        continue;
      scaled_ = scaled;
      unscaled_ = product;
      maximum_ = maximum;
      factor_ = factor;
      left_out_.push_back(scaled);
      return absl::OkStatus();
    }
    return none;
  }

  // The axis of scores over whose elements the maximum is taken.
  const Expr& KeyOfScores() const {
    const Stage &scores = dag_.stage(scores_), &tops = dag_.stage(maximum_);
    const std::vector<Expr>& read = Unconverted(tops.body)->args;
    const std::vector<Axis>& axes = dag_.stage(scaled_).axes;
    for (size_t d = 0; d < axes.size(); ++d)
      if (read[d] == tops.reduce_axes[0].var)
        for (size_t a = 0; a < scores.axes.size(); ++a)
          if (unscaled_->args[a] == axes[d].var) return scores.axes[a].var;
    return scores.axes.back().var;
  }

  // A body that reads products where it read them scaled.
  Expr OfProducts(const Expr& body) const {
    return Rewrite(body, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad || e->buffer != scaled_) return e;
      VarMap point;
      const std::vector<Axis>& axes = dag_.stage(scaled_).axes;
      for (size_t d = 0; d < axes.size(); ++d) point[axes[d].var.get()] = e->args[d];
      return Substitute(unscaled_, point);
    });
  }

  // Whether a load is of the same point as the stage's.
  bool IsOfPoint(int id, const ExprNode& load) const {
    const std::vector<Axis>& axes = dag_.stage(id).axes;
    bool same = load.args.size() == axes.size();
    for (size_t d = 0; same && d < axes.size(); ++d)
      same = load.args[d] == axes[d].var || (axes[d].extent == 1 && IsInt(load.args[d], 0));
    return same;
  }

  bool IsReadOnlyBy(int reader, int id) const {
    return dag_.consumers(id) == std::vector<int>{reader} && !dag_.is_output(id);
  }

  // Whether `sum` at the stage's point is that of all powers of a row, over the axis that the product sums.
  bool IsSumOfRow(const Stage& sums, const ExprNode& power, const ExprNode& sum, int stage) const {
    const Expr* load = sums.reduces() ? &Unconverted(sums.body) : nullptr;
    if (load == nullptr || sums.combiner != Combiner::kSum || sums.reduce_axes.size() != 1 ||
        (*load)->kind != ExprKind::kLoad || (*load)->buffer != power.buffer)
      return false;
    VarMap at;
    for (size_t a = 0; a < sums.axes.size(); ++a) at[sums.axes[a].var.get()] = sum.args[a];
    const std::vector<Axis>& axes = dag_.stage(stage).axes;
    const Expr &key = dag_.stage(values_).reduce_axes[0].var, &summed = sums.reduce_axes[0].var;
    for (size_t d = 0; d < axes.size(); ++d) {
      if (WeightsLoad()->args[d] == key) {
        if ((*load)->args[d] != summed || sums.reduce_axes[0].extent != axes[d].extent) return false;
      } else if (axes[d].extent > 1 && Substitute((*load)->args[d], at) != axes[d].var) {
        return false;
      }
    }
    return true;
  }

  // The product's load of the weights.
  const Expr& WeightsLoad() const {
    const std::vector<Expr>& factors = dag_.stage(values_).body->args;
    return Unconverted(factors[Behind(Unconverted(factors[0])) ? 0 : 1]);
  }

  const Expr& ValuesLoad() const {
    const std::vector<Expr>& factors = dag_.stage(values_).body->args;
    return Unconverted(factors[Behind(Unconverted(factors[0])) ? 1 : 0]);
  }

  bool Behind(const Expr& load) const { return reduced_[load->buffer] || dag_.stage(load->buffer).reduces(); }

  void Copy(int id) {
    Stage stage = dag_.stage(id);
    if (factor_ && id == maximum_) stage.body = OfProducts(stage.body);
    if (factor_ && id == powers_) {
      const Expr difference = OfProducts(Unconverted(stage.body)->args[0]);
      stage.body = Call("exp", {Mul(Call("abs", {factor_}), difference)});
    }
    if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
    if (id == powers_) {
      stage.dtype = ValuesType();
      stage.body = Cast(stage.dtype, stage.body);
    } else if (id == sums_) {
      const Expr& load = Unconverted(stage.body);
      stage.body = Cast(stage.dtype, Load(load->buffer, ValuesType(), load->args));
    }
    new_id_[id] = AddStage(std::move(stage));
  }

  DType ValuesType() const { return ValuesLoad()->dtype; }

  void EmitProduct(int id) {
    Stage stage = dag_.stage(id);
    Expr factors[2];
    for (int i : {0, 1}) {
      const Expr &load = Unconverted(stage.body->args[i]), &other = Unconverted(stage.body->args[1 - i]);
      factors[i] = Cast(stage.dtype, Behind(load) ? WeightsAs(other->dtype, load) : Operand(stage, load, other));
    }
    stage.body = Mul(factors[0], factors[1]);
    new_id_[id] = AddStage(std::move(stage));
    if (id == values_ && powers_ >= 0) EmitQuotient(id);
  }

  // What is left of the softmax: the product's rows divided by the sums of theirs.
  void EmitQuotient(int id) {
    const Stage& product = dag_.stage(id);
    Stage quotient;
    VarMap fresh, of_weights;
    std::vector<Expr> point, row;
    for (const Axis& axis : product.axes) {
      quotient.axes.push_back(MakeAxis(axis.var->name.c_str(), axis.extent));
      point.push_back(quotient.axes.back().var);
      fresh[axis.var.get()] = point.back();
    }
    for (size_t d = 0; d < WeightsLoad()->args.size(); ++d)
      of_weights[dag_.stage(weights_).axes[d].var.get()] = Substitute(WeightsLoad()->args[d], fresh);
    for (const Expr& index : row_) row.push_back(Substitute(index, of_weights));
    quotient.name = Unique(absl::StrCat(product.name, ".quotient"));
    quotient.dtype = product.dtype;
    quotient.body = Div(Load(new_id_[id], product.dtype, std::move(point)),
                        Cast(product.dtype, Load(new_id_[sums_], dag_.stage(sums_).dtype, std::move(row))));
    new_id_[id] = AddStage(std::move(quotient));
  }

  // The operand by axes that it shares with the other one, its own, and the product's: of scores the reduced one is
  // innermost, of values it is not.
  Expr Operand(const Stage& product, const Expr& load, const Expr& other) {
    std::vector<const Axis*> order, own;
    for (const Axis& axis : product.axes)
      if (IsReadBy(load, axis)) (IsReadBy(other, axis) ? order : own).push_back(&axis);
    const bool reduced_last = !Behind(other);
    if (!reduced_last) order.push_back(&product.reduce_axes[0]);
    order.insert(order.end(), own.begin(), own.end());
    if (reduced_last) order.push_back(&product.reduce_axes[0]);
    Stage copy;
    VarMap map;
    std::vector<Expr> point;
    for (const Axis* axis : order) {
      copy.axes.push_back(MakeAxis(axis->var->name.c_str(), axis->extent));
      map[axis->var.get()] = copy.axes.back().var;
      point.push_back(axis->var);
    }
    std::vector<Expr> indices;
    for (const Expr& index : load->args) indices.push_back(Substitute(index, map));
    copy.name = Unique(absl::StrCat(dag_.stage(load->buffer).name, ".rows"));
    copy.dtype = TypeOfRows(load);
    copy.body = Cast(copy.dtype, Load(new_id_[load->buffer], load->dtype, std::move(indices)));
    if (factor_ && reduced_last && !UsesAxis(load, KeyOfScores())) copy.body = WithSign(copy.body);
    const DType dtype = copy.dtype;
    return Load(AddStage(std::move(copy)), dtype, std::move(point));
  }

  static bool UsesAxis(const Expr& load, const Expr& axis) {
    return std::any_of(load->args.begin(), load->args.end(),
                       [&](const Expr& index) { return UsesVar(index, axis.get()); });
  }

  // The value times the sign of the factor.
  Expr WithSign(const Expr& value) const {
    const Expr minus = FloatImm(-1, value->dtype);
    if (factor_->kind == ExprKind::kFloatImm) return factor_->fvalue < 0 ? Mul(value, minus) : value;
    const Expr negative = Lt(Renumbered(factor_, new_id_), FloatImm(0, factor_->dtype));
    return Mul(value, Select(negative, minus, FloatImm(1, value->dtype)));
  }

  // Of queries and keys that are computed in the kernel (by a rotary embedding) in float32, that of the values where
  // these are narrower: what they are rounded to where a kernel of their own stores them.
  DType TypeOfRows(const Expr& load) const {
    const DType values = ValuesType();
    const bool rounds =
        load->dtype == DType::kFloat32 && IsNarrowFloat(values) && !dag_.stage(load->buffer).placeholder;
    return rounds ? values : load->dtype;
  }

  Expr WeightsAs(DType type, const Expr& load) {
    if (powers_ >= 0) return Load(new_id_[powers_], type, load->args);
    if (load->dtype == type) return Load(new_id_[weights_], type, load->args);
    const Stage& weights = dag_.stage(weights_);
    Stage rounded;
    std::vector<Expr> point;
    for (const Axis& axis : weights.axes) {
      rounded.axes.push_back(MakeAxis(axis.var->name.c_str(), axis.extent));
      point.push_back(rounded.axes.back().var);
    }
    rounded.name = Unique(absl::StrCat(weights.name, ".rounded"));
    rounded.dtype = type;
    rounded.body = Cast(type, Load(new_id_[weights_], load->dtype, std::move(point)));
    return Load(AddStage(std::move(rounded)), type, load->args);
  }

  std::string Unique(const std::string& wanted) const {
    std::string name = wanted;
    const auto taken = [&] {
      const auto same = [&](const Stage& stage) { return stage.name == name; };
      return std::any_of(stages_.begin(), stages_.end(), same) ||
             std::any_of(dag_.stages().begin(), dag_.stages().end(), same);
    };
    for (int i = 1; taken(); ++i) name = absl::StrCat(wanted, i);
    return name;
  }

  int AddStage(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  ComputeDag dag_;
  const ScoreScale scale_;
  int scores_ = -1, values_ = -1, weights_ = -1;
  int powers_ = -1, sums_ = -1;  // of a softmax: its exponentials, and their sums; -1: the weights are no quotient
  // Where exponentials scale differences: what the dag scales scores by, where, and what the maximum is of.
  Expr factor_, unscaled_;
  int scaled_ = -1, maximum_ = -1;
  std::vector<Expr> row_;      // where the sum of the weights' row is, by their axes
  std::vector<int> left_out_;  // stages that give the quotient
  std::vector<int> new_id_;
  std::vector<bool> reduced_;  // by stage: it reads, through others or not, what a reduction gives
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> AttentionRewrite(const ComputeDag& dag, ScoreScale scale) {
  return AttentionRewriter(dag, scale).Run();
}

}  // namespace diapason
