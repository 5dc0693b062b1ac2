#include "scheduler/sketch/stage_facts.h"

#include <cstdint>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/tree_size.h"

namespace diapason {
namespace {

// Whether an index of a load in the expression is, or depends on, an element of the stage.
bool ReadsAtPlace(const Expr& body, int stage) {
  bool reads = false;
  Visit(body, [&](const ExprNode& load) {
    if (load.kind != ExprKind::kLoad) return;
    for (const Expr& index : load.args)
      Visit(index, [&](const ExprNode& e) { reads |= e.kind == ExprKind::kLoad && e.buffer == stage; });
  });
  return reads;
}

}  // namespace

std::vector<int> SpatialAxes(const State& state, int stage) {
  std::vector<int> axes;
  for (size_t a = 0; a < state.stage(stage).op.axes.size(); ++a) axes.push_back(static_cast<int>(a));
  return axes;
}

std::vector<int> ReduceAxes(const State& state, int stage) {
  std::vector<int> axes;
  const Stage& op = state.stage(stage).op;
  for (size_t a = 0; a < op.reduce_axes.size(); ++a) axes.push_back(static_cast<int>(op.axes.size() + a));
  return axes;
}

int LongestReduceAxis(const State& state, int stage) {
  const StageState& s = state.stage(stage);
  int longest = -1;
  for (int axis : ReduceAxes(state, stage))
    if (longest < 0 || s.axis(axis).extent > s.axis(longest).extent) longest = axis;
  return longest;
}

const std::string& AxisName(const State& state, int stage, int axis) { return state.stage(stage).axis(axis).var->name; }

int LastLoop(const State& state, int stage) { return static_cast<int>(state.stage(stage).loops.size()) - 1; }

bool NeedsTiling(const State& state, int id) {
  const StageState& stage = state.stage(id);
  if (!stage.computes() || !stage.op.unroll_axes.empty()) return false;
  int producers_with_reuse = 0;
  for (int producer : state.Producers(id)) {
    bool reuse = false;
    for (const Axis& axis : stage.op.axes) {
      if (axis.extent <= 1) continue;
      bool used = false;
      Visit(stage.op.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || e.buffer != producer) return;
        for (const Expr& index : e.args) used |= UsesVar(index, axis.var.get());
      });
      reuse |= !used;
    }
    producers_with_reuse += reuse;
  }
  return producers_with_reuse >= 2 || (producers_with_reuse >= 1 && stage.op.reduces());
}

bool IsInjective(const State& state, int stage) {
  const StageState& s = state.stage(stage);
  return s.computes() && !s.op.reduces();
}

int DimensionAlongMemory(const State& state, int stage) {
  const StageState& s = state.stage(stage);
  const int last = static_cast<int>(s.op.axes.size()) - 1;
  if (!IsInjective(state, stage) || s.prologue) return last;
  Expr load = s.op.body;
  while (load->kind == ExprKind::kSelect) load = load->args[1];
  if (load->kind != ExprKind::kLoad || load->args.empty()) return last;
  const Affine along = ToAffine(load->args[DimensionAlongMemory(state, load->buffer)]);
  for (int d = 0; d <= last; ++d)
    if (along.CoefficientOf(s.op.axes[d].var.get()) == 1) return d;
  return last;
}

bool IsExpensive(const State& state, int stage) {
  bool expensive = false;
  Visit(state.stage(stage).op.body, [&](const ExprNode& e) {
    expensive |= e.kind == ExprKind::kCall || e.kind == ExprKind::kSelect || e.kind == ExprKind::kFloorDiv;
  });
  return expensive;
}

bool IsLongPlace(const State& state, int stage) {
  // A place of fewer nodes (a negative index that counts from the end) costs less than the kernel that it would be; one
  // that is read less often, too.
  static constexpr int64_t kLong = 64, kOften = 16;
  const Stage& own = state.stage(stage).op;
  if (TreeSizeOf(own.body).nodes <= kLong) return false;
  for (int consumer : state.Consumers(stage)) {
    const Stage& reader = state.stage(consumer).op;
    if (reader.elements() * reader.terms() >= kOften * own.elements() && ReadsAtPlace(reader.body, stage)) return true;
  }
  return false;
}

bool IsBound(const State& state, int stage) {
  for (int loop : state.stage(stage).order) {
    const Annotation a = state.stage(stage).loops[loop].annotation;
    if (a == Annotation::kBlockX || a == Annotation::kThreadX || a == Annotation::kParallel) return true;
  }
  return false;
}

bool IsRowOfWindow(const State& state, int stage, int axis) {
  const StageState& s = state.stage(stage);
  bool slides = false;
  Visit(s.op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.args.empty()) return;
    const Affine place = ToAffine(e.args.back());
    slides |= place.terms.size() > 1 && place.CoefficientOf(s.axis(axis).var.get()) != 0;
  });
  return slides;
}

std::vector<bool> BatchAxes(const State& state, int id, bool* gemm_like) {
  const Stage& op = state.stage(id).op;
  std::vector<bool> in_all(op.axes.size(), true);
  int reused_operands = 0;
  for (int producer : state.Producers(id)) {
    bool reused = false;
    for (size_t a = 0; a < op.axes.size(); ++a) {
      bool used = op.axes[a].extent == 1;
      Visit(op.body, [&](const ExprNode& e) {
        if (e.kind != ExprKind::kLoad || e.buffer != producer) return;
        for (const Expr& index : e.args) used |= UsesVar(index, op.axes[a].var.get());
      });
      if (!used) in_all[a] = false;
      reused |= !used;
    }
    reused_operands += reused;
  }
  *gemm_like = reused_operands >= 2;
  if (!*gemm_like) in_all.assign(op.axes.size(), false);
  return in_all;
}

int ElementwiseConsumer(const State& state, int id) {
  if (state.is_output(id)) return -1;
  const std::vector<int> consumers = state.Consumers(id);
  if (consumers.size() != 1) return -1;
  const StageState& consumer = state.stage(consumers[0]);
  const StageState& stage = state.stage(id);
  if (consumer.op.reduces() || consumer.op.axes.size() != stage.op.axes.size()) return -1;
  if (consumer.prologue != stage.prologue) return -1;
  if (consumer.attach != StageState::Attach::kRoot || IsBound(state, consumers[0])) return -1;
  bool match = true;
  for (size_t a = 0; a < stage.op.axes.size(); ++a) match &= consumer.op.axes[a].extent == stage.op.axes[a].extent;
  Visit(consumer.op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != id) return;
    for (size_t a = 0; a < e.args.size(); ++a) {
      const bool same = e.args[a] == consumer.op.axes[a].var || (IsInt(e.args[a], 0) && stage.op.axes[a].extent == 1);
      match &= same;
    }
  });
  return match ? consumers[0] : -1;
}

}  // namespace diapason
