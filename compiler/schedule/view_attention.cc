#include "compiler/schedule/view_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/view_parts.h"

namespace diapason {
namespace {

absl::Status No(const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("no attention view: ", why)); }

// A factor without a conversion to the type of the sum.
const Expr& Unconverted(const Expr& factor) { return factor->kind == ExprKind::kCast ? factor->args[0] : factor; }

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

class AttentionRewriter {
 public:
  explicit AttentionRewriter(const ComputeDag& dag) : dag_(dag), new_id_(dag.size(), -1), reduced_(dag.size(), false) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(FindProducts());
    for (int id = 0; id < dag_.size(); ++id) {
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
      if (computed == 2 || *place >= 0) return No("there are more than two products");
      *place = id;
    }
    if (scores_ < 0 || values_ < 0) return No("there are no two products, one of what the other gives");
    const std::vector<Expr>& factors = dag_.stage(values_).body->args;
    weights_ = Unconverted(factors[Behind(Unconverted(factors[0])) ? 0 : 1])->buffer;
    if (dag_.stage(weights_).reduces() || dag_.consumers(weights_) != std::vector<int>{values_} ||
        dag_.is_output(weights_))
      return No("its weights are read elsewhere");
    return absl::OkStatus();
  }

  bool Behind(const Expr& load) const { return reduced_[load->buffer] || dag_.stage(load->buffer).reduces(); }

  void Copy(int id) {
    Stage stage = dag_.stage(id);
    if (stage.body != nullptr) stage.body = Renumbered(stage.body, new_id_);
    new_id_[id] = AddStage(std::move(stage));
  }

  void EmitProduct(int id) {
    Stage stage = dag_.stage(id);
    Expr factors[2];
    for (int i : {0, 1}) {
      const Expr &load = Unconverted(stage.body->args[i]), &other = Unconverted(stage.body->args[1 - i]);
      factors[i] = Cast(stage.dtype, Behind(load) ? WeightsAs(other->dtype, load) : Operand(stage, load, other));
    }
    stage.body = Mul(factors[0], factors[1]);
    new_id_[id] = AddStage(std::move(stage));
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
    copy.dtype = load->dtype;
    copy.body = Load(new_id_[load->buffer], load->dtype, std::move(indices));
    return Load(AddStage(std::move(copy)), load->dtype, std::move(point));
  }

  Expr WeightsAs(DType type, const Expr& load) {
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

  const ComputeDag& dag_;
  int scores_ = -1, values_ = -1, weights_ = -1;
  std::vector<int> new_id_;
  std::vector<bool> reduced_;  // by stage: it reads, through others or not, what a reduction gives
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> AttentionView(const ComputeDag& dag) { return AttentionRewriter(dag).Run(); }

}  // namespace diapason
