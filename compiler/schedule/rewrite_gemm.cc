#include "compiler/schedule/rewrite_gemm.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/gemm_axis.h"
#include "compiler/schedule/rewrite_parts.h"
#include "compiler/tensor/run_sums.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

absl::Status NoGemmRewrite(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no gemm rewrite: ", why));
}

// The load under casts; null if it is anything else.
const ExprNode* LoadUnderCasts(const Expr& e) {
  const ExprNode* node = e.get();
  while (node->kind == ExprKind::kCast) node = node->args[0].get();
  return node->kind == ExprKind::kLoad ? node : nullptr;
}

class GemmRewriter {
 public:
  GemmRewriter(const ComputeDag& dag, bool k_innermost)
      : dag_(dag), k_innermost_(k_innermost), new_id_(dag.size(), -1) {}

  absl::StatusOr<ComputeDag> Run() {
    RETURN_IF_ERROR(FindAnchor());
    RETURN_IF_ERROR(Classify());
    RETURN_IF_ERROR(CheckEpilogue());
    if (k_innermost_ && !dag_.is_prologue(load_[1]->buffer)) return NoGemmRewrite("the columns are no constants");
    for (int id = 0; id < dag_.size(); ++id) RETURN_IF_ERROR(Emit(id));
    return Rewritten(dag_, std::move(stages_), new_id_);
  }

 private:
  absl::Status FindAnchor() {
    for (int id = 0; id < dag_.size(); ++id) {
      const Stage& stage = dag_.stage(id);
      if (!stage.reduces() || dag_.is_prologue(id) || IsRunSums(id) || IsTotals(id)) continue;
      if (anchor_ >= 0) return NoGemmRewrite("more than one stage reduces");
      anchor_ = id;
    }
    if (anchor_ < 0) return NoGemmRewrite("no stage reduces");
    const Stage& c = dag_.stage(anchor_);
    if (c.combiner != Combiner::kSum || c.body->kind != ExprKind::kMul || !c.unroll_axes.empty())
      return NoGemmRewrite("the reduction is no sum of products");
    for (int side = 0; side < 2; ++side) {
      const ExprNode* load = LoadUnderCasts(c.body->args[side]);
      if (!load) return NoGemmRewrite("a factor of the product is no tensor element");
      operand_[side] = c.body->args[side];
      load_[side] = load;
    }
    if (load_[0]->buffer == load_[1]->buffer) return NoGemmRewrite("both factors are the same tensor");
    return absl::OkStatus();
  }

  absl::Status Classify() {
    const Stage& c = dag_.stage(anchor_);
    auto used = [&](int side, const Axis& axis) {
      for (const Expr& index : load_[side]->args)
        if (UsesVar(index, axis.var.get())) return true;
      return false;
    };
    // The operand that has the last axis of the output is B.
    for (size_t a = c.axes.size(); a-- > 0;) {
      if (c.axes[a].extent == 1) continue;
      if (used(0, c.axes[a]) && !used(1, c.axes[a])) {
        std::swap(operand_[0], operand_[1]);
        std::swap(load_[0], load_[1]);
      }
      break;
    }
    int last = kBatch;
    for (const Axis& axis : c.axes) {
      if (axis.extent == 1) continue;
      const bool in_a = used(0, axis), in_b = used(1, axis);
      if (!in_a && !in_b) return NoGemmRewrite("an axis of the output is in neither factor");
      const int type = in_a && in_b ? kBatch : in_a ? kM : kN;
      if (type < last) return NoGemmRewrite("the output's axes are not in the order batch, rows, columns");
      last = type;
      members_[type].push_back(axis);
    }
    for (const Axis& axis : c.reduce_axes) {
      if (axis.extent == 1) continue;
      if (!used(0, axis) || !used(1, axis)) return NoGemmRewrite("a reduce axis is missing from a factor");
      members_[kK].push_back(axis);
    }
    if (members_[kM].empty() || members_[kN].empty() || members_[kK].empty())
      return NoGemmRewrite("rows, columns or reduction are empty");
    // The reduce axis along A's memory comes innermost.
    const Expr& contiguous = load_[0]->args.back();
    std::stable_partition(members_[kK].begin(), members_[kK].end(),
                          [&](const Axis& axis) { return !UsesVar(contiguous, axis.var.get()); });
    for (int type = 0; type < 4; ++type)
      for (const Axis& axis : members_[type]) extent_[type] *= axis.extent;
    return absl::OkStatus();
  }

  // Sums of runs of what comes from the product.
  bool IsRunSums(int id) const {
    return RunSumsOf(dag_.stage(id), [this](int of) -> const Stage& { return dag_.stage(of); }).has_value();
  }

  // Of rows, for what comes behind the product.
  bool IsTotals(int id) const {
    return IsRowTotals(dag_.stage(id), [this](int of) -> const Stage& { return dag_.stage(of); });
  }

  // Stages after the anchor must be element-wise over its shape, or sums of runs.
  absl::Status CheckEpilogue() {
    after_.assign(dag_.size(), false);
    after_[anchor_] = true;
    const std::vector<int64_t> shape = dag_.stage(anchor_).shape();
    for (int id = anchor_ + 1; id < dag_.size(); ++id) {
      for (int producer : dag_.producers(id))
        if (after_[producer]) after_[id] = true;
      if (!after_[id]) continue;
      const Stage& stage = dag_.stage(id);
      if (IsRunSums(id)) {
        if (!dag_.consumers(id).empty()) return NoGemmRewrite("sums of a part of the result are read");
        continue;
      }
      if (stage.shape() != shape) return NoGemmRewrite("a later stage has another shape");
      bool identity = true;
      Visit(stage.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || !after_[e.buffer]) return;
        for (size_t d = 0; d < e.args.size(); ++d)
          identity &= e.args[d] == stage.axes[d].var || (shape[d] == 1 && IsInt(e.args[d], 0));
      });
      if (!identity) return NoGemmRewrite("a later stage is not element-wise");
    }
    for (int id : dag_.outputs())
      if (!after_[id]) return NoGemmRewrite("an output does not come from the product");
    return absl::OkStatus();
  }

  // Old variables of the anchor-shaped axes (and reduce axes) as functions of fused ones.
  void Decompose(const std::vector<Axis>& members, const Expr& fused, VarMap* map) const {
    int64_t inner = 1;
    for (size_t i = members.size(); i-- > 0;) {
      Expr value = FloorDiv(fused, inner);
      if (i > 0) value = FloorMod(value, members[i].extent);
      (*map)[members[i].var.get()] = value;
      inner *= members[i].extent;
    }
  }

  // Fresh [b,] m, n axes for a stage whose old axes are `axes` (the anchor's shape), and the map to them.
  std::vector<Axis> FusedAxes(const std::vector<Axis>& axes, VarMap* map) const {
    std::vector<Axis> fused;
    std::map<int, Expr> var;
    static constexpr std::array<const char*, 3> kNames{"b", "m", "n"};
    for (int type : {kBatch, kM, kN}) {
      if (members_[type].empty()) continue;
      var[type] = MakeVar(kNames[type]);
      fused.push_back({var[type], extent_[type]});
    }
    for (int type : {kBatch, kM, kN}) {
      if (members_[type].empty()) continue;
      std::vector<Axis> own;
      for (const Axis& member : members_[type]) own.push_back(axes[IndexInAnchor(member)]);
      Decompose(own, var[type], map);
    }
    for (const Axis& axis : axes)
      if (axis.extent == 1) (*map)[axis.var.get()] = IntImm(0);
    return fused;
  }

  size_t IndexInAnchor(const Axis& axis) const {
    const std::vector<Axis>& axes = dag_.stage(anchor_).axes;
    for (size_t a = 0; a < axes.size(); ++a)
      if (axes[a].var == axis.var) return a;
    DIAPASON_CHECK_MSG(false, "the axis is not the anchor's");
  }

  int Add(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int>(stages_.size()) - 1;
  }

  // If the flat index of a load equals the flat index over `axes`, and nobody has asked for another shape, the
  // placeholder gets that shape.
  bool Reshape(int old_id, const std::vector<Expr>& indices, const std::vector<Axis>& axes) {
    const Stage& old = dag_.stage(old_id);
    if (!old.placeholder || dag_.is_output(old_id) || dag_.consumers(old_id).size() != 1) return false;
    Analyzer analyzer;
    Expr flat = IntImm(0), wanted = IntImm(0);
    int64_t elements = 1;
    for (const Axis& axis : axes) {
      analyzer.Bind(axis.var, axis.extent);
      wanted = diapason::Add(Mul(wanted, IntImm(axis.extent)), axis.var);
      elements *= axis.extent;
    }
    if (elements != old.elements()) return false;
    for (size_t d = 0; d < indices.size(); ++d) flat = diapason::Add(Mul(flat, IntImm(old.axes[d].extent)), indices[d]);
    if (!IsInt(analyzer.Simplify(Sub(analyzer.Simplify(flat), wanted)), 0)) return false;
    Stage& stage = stages_[new_id_[old_id]];
    stage.axes.clear();
    for (const Axis& axis : axes) stage.axes.push_back({MakeVar(axis.var->name), axis.extent});
    return true;
  }

  // The operand as a matrix [b,] rows, columns (of B: [b,] columns, k where k is to be innermost): the placeholder
  // itself reshaped, or a stage of its own.
  int EmitOperand(int side) {
    const int first = side == 0 ? kM : k_innermost_ ? kN : kK, second = side == 0 || k_innermost_ ? kK : kN;
    static constexpr std::array<const char*, 4> kNames{"b", "m", "n", "k"};
    std::vector<Axis> axes;
    VarMap map;
    const Stage& c = dag_.stage(anchor_);
    for (const Axis& axis : c.axes)
      if (axis.extent == 1) map[axis.var.get()] = IntImm(0);
    for (const Axis& axis : c.reduce_axes)
      if (axis.extent == 1) map[axis.var.get()] = IntImm(0);
    Analyzer analyzer;
    for (int type : {static_cast<int>(kBatch), first, second}) {
      if (members_[type].empty()) continue;
      axes.push_back({MakeVar(kNames[type]), extent_[type]});
      analyzer.Bind(axes.back().var, extent_[type]);
      Decompose(members_[type], axes.back().var, &map);
    }
    std::vector<Expr> indices;
    for (const Expr& index : load_[side]->args) indices.push_back(analyzer.Simplify(Substitute(index, map)));
    const int source = load_[side]->buffer;
    if (Reshape(source, indices, axes)) return new_id_[source];
    Stage stage;
    stage.name = absl::StrCat(dag_.stage(source).name, side == 0 ? ".rows" : ".columns");
    stage.dtype = dag_.stage(source).dtype;
    stage.axes = axes;
    if (Inlined(source)) {
      VarMap inner;
      const Stage& producer = dag_.stage(source);
      for (size_t d = 0; d < indices.size(); ++d) inner[producer.axes[d].var.get()] = indices[d];
      stage.body = analyzer.Simplify(Renumbered(Substitute(producer.body, inner), new_id_));
    } else {
      stage.body = Load(new_id_[source], stage.dtype, indices);
    }
    return Add(std::move(stage));
  }

  bool Inlined(int id) const {
    const Stage& stage = dag_.stage(id);
    return !stage.placeholder && !stage.reduces() && !dag_.is_prologue(id) && !dag_.is_output(id) && !after_[id] &&
           dag_.consumers(id).size() == 1 && (load_[0]->buffer == id || load_[1]->buffer == id);
  }

  void EmitAnchor() {
    const Stage& c = dag_.stage(anchor_);
    const int a = EmitOperand(0), b = EmitOperand(1);
    Stage stage;
    stage.name = c.name;
    stage.dtype = c.dtype;
    stage.combiner = Combiner::kSum;
    VarMap unused;
    stage.axes = FusedAxes(c.axes, &unused);
    stage.reduce_axes = {{MakeVar("k"), extent_[kK]}};
    std::vector<Expr> row, column;
    size_t next = 0;
    if (!members_[kBatch].empty()) {
      row.push_back(stage.axes[0].var);
      column.push_back(stage.axes[0].var);
      next = 1;
    }
    const Expr k = stage.reduce_axes[0].var;
    row.insert(row.end(), {stage.axes[next].var, k});
    const Expr n = stage.axes[next + 1].var;
    column.insert(column.end(), {k_innermost_ ? n : k, k_innermost_ ? k : n});
    // Casts around the factors stay.
    auto factor = [&](int side, int id, const std::vector<Expr>& indices) {
      return Rewrite(operand_[side],
                     [&](const Expr& e) { return e->kind == ExprKind::kLoad ? Load(id, e->dtype, indices) : e; });
    };
    stage.body = Mul(factor(0, a, row), factor(1, b, column));
    new_id_[anchor_] = Add(std::move(stage));
  }

  void EmitEpilogue(int id) {
    const Stage& old = dag_.stage(id);
    Stage stage;
    stage.name = old.name;
    stage.dtype = old.dtype;
    VarMap map;
    stage.axes = FusedAxes(old.axes, &map);
    Analyzer analyzer;
    std::vector<Expr> vars;
    for (const Axis& axis : stage.axes) {
      analyzer.Bind(axis.var, axis.extent);
      vars.push_back(axis.var);
    }
    const Expr body = Substitute(old.body, map);
    stage.body = Rewrite(body, [&](const Expr& e) -> Expr {
      if (e->kind != ExprKind::kLoad) return e;
      if (after_[e->buffer]) return Load(new_id_[e->buffer], e->dtype, vars);
      std::vector<Expr> indices;
      for (const Expr& index : e->args) indices.push_back(analyzer.Simplify(index));
      if (Reshape(e->buffer, indices, stage.axes)) return Load(new_id_[e->buffer], e->dtype, vars);
      return Load(new_id_[e->buffer], e->dtype, indices);
    });
    new_id_[id] = Add(std::move(stage));
  }

  // The same sums of the rewritten stage.
  void EmitRunSums(int id) {
    Stage stage = dag_.stage(id);
    Analyzer analyzer;
    for (const auto* axes : {&stage.axes, &stage.reduce_axes})
      for (const Axis& axis : *axes) analyzer.Bind(axis.var, axis.extent);
    stage.body = Rewrite(stage.body, [&](const Expr& e) -> Expr {
      if (e->kind != ExprKind::kLoad) return e;
      std::vector<Expr> indices;
      for (int type : {kBatch, kM, kN}) {
        if (members_[type].empty()) continue;
        Expr index = IntImm(0);
        for (const Axis& member : members_[type])
          index = diapason::Add(Mul(index, IntImm(member.extent)), e->args[IndexInAnchor(member)]);
        indices.push_back(analyzer.Simplify(index));
      }
      return Load(new_id_[e->buffer], e->dtype, std::move(indices));
    });
    new_id_[id] = Add(std::move(stage));
  }

  absl::Status Emit(int id) {
    const Stage& old = dag_.stage(id);
    if (id == anchor_) {
      EmitAnchor();
    } else if (after_[id] && IsRunSums(id)) {
      EmitRunSums(id);
    } else if (after_[id]) {
      EmitEpilogue(id);
    } else if (!Inlined(id)) {
      Stage stage = old;
      if (stage.body) stage.body = Renumbered(stage.body, new_id_);
      new_id_[id] = Add(std::move(stage));
    }
    return absl::OkStatus();
  }

  const ComputeDag& dag_;
  const bool k_innermost_;  // of B
  int anchor_ = -1;
  std::array<Expr, 2> operand_;
  std::array<const ExprNode*, 2> load_{};
  std::array<std::vector<Axis>, 4> members_;
  std::array<int64_t, 4> extent_{1, 1, 1, 1};
  std::vector<bool> after_;
  std::vector<int> new_id_;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ComputeDag> GemmRewrite(const ComputeDag& dag, bool k_innermost) {
  return GemmRewriter(dag, k_innermost).Run();
}

}  // namespace diapason
