#include "compiler/lower/loop_values.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace diapason {

Expr AtomSum(const NestState& nest, const Terms& terms, int64_t divisor) {
  Expr sum = IntImm(0);
  for (const Term& t : terms) sum = Add(sum, Mul(nest.stages[t.stage].value[t.loop], IntImm(t.coefficient / divisor)));
  return sum;
}

Expr ThreadOf(const NestState& nest, int id) {
  const State& state = nest.kernel.state;
  for (int up = id; up >= 0; up = state.stage(up).attach_stage) {
    const StageState& stage = state.stage(up);
    for (size_t p = 0; p < stage.order.size(); ++p)
      if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX) return nest.stages[up].leaf[p];
  }
  return nullptr;
}

void LoopValues::Prepare(int id) {
  const StageState& stage = nest_.kernel.state.stage(id);
  const StageBounds& b = nest_.kernel.bounds.stages[id];
  StageValues& c = nest_.stages[id];
  c.value.assign(stage.loops.size(), nullptr);
  c.leaf.assign(stage.order.size(), nullptr);
  c.blocks.clear();
  NameLeaves(id);
  if (stage.carry.is_carried() && stage.carry.target != id)
    c.value[stage.carry.loop] = nest_.stages[stage.carry.target].value[stage.carry.target_loop];
  for (size_t l = stage.loops.size(); l-- > 0;) {
    const struct Loop& loop = stage.loops[l];
    if (loop.annotation == Annotation::kBlockX && loop.is_leaf() && loop.group.Eval({}) > 1)
      GroupBlocks(id, loop, c.value[l]);
    if (!loop.pieces.empty())
      c.value[l] = ValueOfPieces(id, loop);
    else if (loop.fused_into >= 0 && c.value[l] == nullptr)
      c.value[l] = b.extent[l] == 1 ? IntImm(0) : ValueInFused(id, static_cast<int>(l));
  }
  PrepareAxes(id);
  NoteAccesses(id);
  MarkUnrolled(id);
}

void LoopValues::NameLeaves(int id) {
  const StageState& stage = nest_.kernel.state.stage(id);
  const StageBounds& b = nest_.kernel.bounds.stages[id];
  StageValues& c = nest_.stages[id];
  for (size_t p = 0; p < stage.order.size(); ++p) {
    const int loop = stage.order[p];
    c.leaf[p] = MakeVar(Identifier(absl::StrCat(stage.op.name, "_", stage.loops[loop].name)));
    if (stage.loops[loop].annotation == Annotation::kCluster)
      c.leaf[p] = nest_.rank;
    else if (stage.loops[loop].annotation == Annotation::kThreadSet)
      c.leaf[p] = nest_.thread_set;
    else
      nest_.analyzer.Bind(c.leaf[p], b.extent[loop]);
    c.value[loop] = b.extent[loop] == 1 ? IntImm(0) : c.leaf[p];
  }
}

// Row and column of the last two loops that a loop over blocks was made of, `group` rows at a time. Where there are
// fewer left a column of the group is shorter.
void LoopValues::GroupBlocks(int id, const struct Loop& loop, const Expr& block) {
  const StageState& stage = nest_.kernel.state.stage(id);
  const StageBounds& b = nest_.kernel.bounds.stages[id];
  StageValues& c = nest_.stages[id];
  const int row_loop = loop.fused[loop.fused.size() - 2], column_loop = loop.fused.back();
  const int64_t rows = b.extent[row_loop], columns = b.extent[column_loop];
  if (rows == 1 || columns == 1) return;
  const int64_t group = std::min(loop.group.Eval({}), rows), whole = rows / group, rest = rows % group;
  const Expr index = FloorMod(block, rows * columns);
  const Expr number = FloorDiv(index, group * columns), inside = FloorMod(index, group * columns);
  const auto place = [&](const Expr& in_whole, const Expr& in_rest) {
    return rest == 0 ? in_whole : Select(Lt(number, IntImm(whole)), in_whole, in_rest);
  };
  const int64_t last = std::max<int64_t>(rest, 1);
  const Expr row = Add(Mul(number, IntImm(group)), place(FloorMod(inside, group), FloorMod(inside, last)));
  const Expr column = place(FloorDiv(inside, group), FloorDiv(inside, last));
  for (const auto& [part, value, extent] : {std::tuple(row_loop, row, rows), {column_loop, column, columns}}) {
    c.value[part] = MakeVar(Identifier(absl::StrCat(stage.op.name, "_", stage.loops[part].name)));
    nest_.analyzer.Bind(c.value[part], extent);
    c.blocks.emplace_back(c.value[part], nest_.analyzer.Simplify(value));
  }
}

// Of a loop that was split.
Expr LoopValues::ValueOfPieces(int id, const struct Loop& loop) const {
  const StageValues& c = nest_.stages[id];
  Expr value = IntImm(0);
  int64_t stride = 1;
  for (size_t p = loop.pieces.size(); p-- > 0;) {
    value = Add(Mul(c.value[loop.pieces[p]], IntImm(stride)), value);
    stride *= nest_.kernel.bounds.stages[id].extent[loop.pieces[p]];
  }
  return nest_.analyzer.Simplify(value);
}

// Of a loop that was fused into another one.
Expr LoopValues::ValueInFused(int id, int loop) const {
  const StageState& stage = nest_.kernel.state.stage(id);
  const std::vector<int64_t>& extent = nest_.kernel.bounds.stages[id].extent;
  const int fused = stage.loops[loop].fused_into;
  const std::vector<int>& parts = stage.loops[fused].fused;
  int64_t inner = 1;
  for (size_t p = parts.size(); parts[p - 1] != loop; --p) inner *= extent[parts[p - 1]];
  // Nothing is outside the outermost part that moves at all.
  bool outermost = true;
  for (size_t p = 0; parts[p] != loop; ++p) outermost = outermost && extent[parts[p]] == 1;
  Expr value = FloorDiv(nest_.stages[id].value[fused], inner);
  if (!outermost) value = FloorMod(value, extent[loop]);
  return nest_.analyzer.Simplify(value);
}

void LoopValues::PrepareAxes(int id) {
  const StageState& stage = nest_.kernel.state.stage(id);
  const StageBounds& b = nest_.kernel.bounds.stages[id];
  StageValues& c = nest_.stages[id];
  c.axis.assign(stage.axis_count(), nullptr);
  c.compact.assign(stage.op.axes.size(), nullptr);
  for (int a = 0; a < stage.axis_count(); ++a) {
    c.axis[a] = c.value[a];
    if (!stage.is_spatial_axis(a)) continue;
    c.compact[a] = c.value[a];
    if (stage.attach != StageState::Attach::kAt || b.region[a].full) continue;
    const Region& region = b.region[a];
    Expr real = Add(AtomSum(nest_, region.outer, 1), IntImm(region.constant_min));
    if (region.levels.size() == 1) {
      real = Add(real, Mul(c.value[a], IntImm(region.levels[0].unit)));
    } else {
      int64_t compact = 1;
      for (const Level& level : region.levels) {
        Expr digit = FloorDiv(c.value[a], compact);
        if (&level != &region.levels.back()) digit = FloorMod(digit, level.extent);
        real = Add(real, Mul(digit, IntImm(level.unit)));
        compact *= level.extent;
      }
    }
    c.axis[a] = nest_.analyzer.Simplify(real);
  }
}

void LoopValues::NoteAccesses(int id) {
  const StageState& stage = nest_.kernel.state.stage(id);
  size_t next = 0;
  const auto know = [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad) nest_.stages[id].access_of[&e] = &nest_.kernel.skeleton.accesses(id)[next++];
  };
  Visit(stage.op.body, know);
  if (stage.carry.maximum_load) Visit(stage.carry.maximum_load, know);
}

// Serial inner loops, as many steps as the stage's limit allows.
void LoopValues::MarkUnrolled(int id) {
  const StageState& stage = nest_.kernel.state.stage(id);
  std::vector<uint8_t>& unrolled = nest_.stages[id].unrolled;
  unrolled.assign(stage.order.size(), 0);
  const int64_t limit = stage.unroll.Eval({});
  int64_t product = 1;
  for (size_t p = stage.order.size(); p-- > 0;) {
    const Annotation annotation = stage.loops[stage.order[p]].annotation;
    if (annotation != Annotation::kNone && annotation != Annotation::kUnroll) continue;
    product *= nest_.kernel.extent(id, p);
    if (product > limit) break;
    if (annotation == Annotation::kNone) unrolled[p] = 1;
  }
}

}  // namespace diapason
