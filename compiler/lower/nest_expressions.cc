// Expressions of a nest: what loops say of axes, where elements lie, what is loaded, and what must hold where a
// statement runs.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/nest.h"

namespace diapason {
namespace {

bool IsTrue(const Expr& e) { return e->kind == ExprKind::kIntImm && e->value != 0; }

// True for loads, and products and casts of loads.
bool IsProductOfLoads(const Expr& e) {
  if (e->kind == ExprKind::kLoad) return true;
  if (e->kind == ExprKind::kCast) return IsProductOfLoads(e->args[0]);
  if (e->kind == ExprKind::kMul) return IsProductOfLoads(e->args[0]) && IsProductOfLoads(e->args[1]);
  return false;
}

// The expression that is not negative exactly when an integer comparison holds; null for anything else.
Expr Slack(const Expr& comparison) {
  const bool less = comparison->kind == ExprKind::kLt, less_equal = comparison->kind == ExprKind::kLe;
  if ((!less && !less_equal) || comparison->args[0]->dtype != DType::kInt64) return nullptr;
  return Sub(Sub(comparison->args[1], comparison->args[0]), IntImm(less ? 1 : 0));
}

}  // namespace

Expr NestBuilder::AtomSum(const Terms& terms, int64_t divisor) const {
  Expr sum = IntImm(0);
  for (const Term& t : terms) sum = Add(sum, Mul(context_[t.stage].value[t.loop], IntImm(t.coefficient / divisor)));
  return sum;
}

// Row and column of the last two loops that a loop over blocks was made of, `group` rows at a time. Where there are
// fewer left a column of the group is shorter.
void NestBuilder::GroupBlocks(int id, const struct Loop& loop, const Expr& block) {
  StageContext& c = context_[id];
  const int row_loop = loop.fused[loop.fused.size() - 2], column_loop = loop.fused.back();
  const int64_t rows = bounds_.stages[id].extent[row_loop], columns = bounds_.stages[id].extent[column_loop];
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
    c.value[part] = MakeVar(Identifier(absl::StrCat(state_.stage(id).op.name, "_", state_.stage(id).loops[part].name)));
    analyzer_.Bind(c.value[part], extent);
    c.blocks.emplace_back(c.value[part], analyzer_.Simplify(value));
  }
}

void NestBuilder::PrepareValues(int id) {
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  StageContext& c = context_[id];
  c.value.assign(stage.loops.size(), nullptr);
  c.leaf.assign(stage.order.size(), nullptr);
  c.blocks.clear();
  for (size_t p = 0; p < stage.order.size(); ++p) {
    const int loop = stage.order[p];
    c.leaf[p] = MakeVar(Identifier(absl::StrCat(stage.op.name, "_", stage.loops[loop].name)));
    if (stage.loops[loop].annotation == Annotation::kCluster)
      c.leaf[p] = rank_;
    else if (stage.loops[loop].annotation == Annotation::kThreadSet)
      c.leaf[p] = thread_set_;
    else
      analyzer_.Bind(c.leaf[p], b.extent[loop]);
    c.value[loop] = b.extent[loop] == 1 ? IntImm(0) : c.leaf[p];
  }
  if (stage.carry.is_carried() && stage.carry.target != id)
    c.value[stage.carry.loop] = context_[stage.carry.target].value[stage.carry.target_loop];
  for (size_t l = stage.loops.size(); l-- > 0;) {
    const struct Loop& loop = stage.loops[l];
    if (loop.annotation == Annotation::kBlockX && loop.is_leaf() && loop.group.Eval({}) > 1)
      GroupBlocks(id, loop, c.value[l]);
    if (!loop.pieces.empty()) {
      Expr value = IntImm(0);
      int64_t stride = 1;
      for (size_t p = loop.pieces.size(); p-- > 0;) {
        value = Add(Mul(c.value[loop.pieces[p]], IntImm(stride)), value);
        stride *= b.extent[loop.pieces[p]];
      }
      c.value[l] = analyzer_.Simplify(value);
    } else if (loop.fused_into >= 0 && c.value[l] == nullptr) {
      const std::vector<int>& parts = stage.loops[loop.fused_into].fused;
      int64_t inner = 1;
      for (size_t p = parts.size(); parts[p - 1] != static_cast<int>(l); --p) inner *= b.extent[parts[p - 1]];
      // Nothing is outside the outermost part that moves at all.
      bool outermost = true;
      for (size_t p = 0; parts[p] != static_cast<int>(l); ++p) outermost = outermost && b.extent[parts[p]] == 1;
      Expr value = FloorDiv(c.value[loop.fused_into], inner);
      if (!outermost) value = FloorMod(value, b.extent[l]);
      c.value[l] = b.extent[l] == 1 ? IntImm(0) : analyzer_.Simplify(value);
    }
  }
  c.axis.assign(stage.axis_count(), nullptr);
  c.compact.assign(stage.op.axes.size(), nullptr);
  for (int a = 0; a < stage.axis_count(); ++a) {
    c.axis[a] = c.value[a];
    if (!stage.is_spatial_axis(a)) continue;
    c.compact[a] = c.value[a];
    if (stage.attach != StageState::Attach::kAt || b.region[a].full) continue;
    const Region& region = b.region[a];
    Expr real = Add(AtomSum(region.outer, 1), IntImm(region.constant_min));
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
    c.axis[a] = analyzer_.Simplify(real);
  }
  size_t next = 0;
  const auto know = [&](const ExprNode& e) {
    if (e.kind == ExprKind::kLoad) access_of_[id][&e] = &skeleton_.accesses(id)[next++];
  };
  Visit(stage.op.body, know);
  if (stage.carry.maximum_load) Visit(stage.carry.maximum_load, know);
  MarkUnrolled(id);
}

// The element of the larger tensor: dimensions inside a row count as they do in the part, those outside by the distance
// of rows, and one that goes across is cut.
Expr NestBuilder::PlacedIndex(int id, const std::vector<Expr>& indices) const {
  const StageState& stage = state_.stage(id);
  Expr place = IntImm(place_.offset), flat = IntImm(0);
  int64_t inner = stage.op.elements();
  bool even = true;  // rows end where indices of one dimension do
  for (size_t d = 0; d < indices.size(); ++d) {
    const int64_t extent = stage.op.axes[d].extent;
    inner /= extent;
    flat = Add(Mul(flat, IntImm(extent)), indices[d]);
    if (extent == 1) continue;
    if (inner * extent <= place_.row) {
      place = Add(place, Mul(indices[d], IntImm(inner)));
    } else if (inner % place_.row == 0) {
      place = Add(place, Mul(indices[d], IntImm(inner / place_.row * place_.stride)));
    } else if (place_.row % inner == 0) {
      place = Add(place, Mul(FloorDiv(indices[d], place_.row / inner), IntImm(place_.stride)));
      place = Add(place, Mul(FloorMod(indices[d], place_.row / inner), IntImm(inner)));
    } else {
      even = false;
    }
  }
  if (even) return place;
  return Add(IntImm(place_.offset),
             Add(Mul(FloorDiv(flat, place_.row), IntImm(place_.stride)), FloorMod(flat, place_.row)));
}

Expr NestBuilder::FlatIndex(int id, const std::vector<Expr>& indices) const {
  if (IsPlaced(id)) return PlacedIndex(id, indices);
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  Expr flat = IntImm(0);
  if (b.core_row > 0) {
    const size_t rank = indices.size();
    for (size_t d = 0; d + 2 < rank; ++d) flat = Add(Mul(flat, IntImm(b.buffer[d])), indices[d]);
    const Expr &row = indices[rank - 2], &k = indices[rank - 1];
    flat = Add(Mul(flat, IntImm((b.buffer.back() + b.core_row - 1) / b.core_row)), FloorDiv(k, b.core_row));
    return Add(Mul(flat, IntImm(b.core_stride())), Add(Mul(row, IntImm(b.core_row)), FloorMod(k, b.core_row)));
  }
  if (stage.image_of >= 0) {
    std::vector<Expr> inside;
    for (size_t d = 0; d < indices.size(); ++d) {
      const int64_t tile = bounds_.stages[stage.image_of].buffer[d];
      flat = Add(Mul(flat, IntImm(b.buffer[d] / tile)), FloorDiv(indices[d], tile));
      inside.push_back(FloorMod(indices[d], tile));
    }
    return Add(Mul(flat, IntImm(bounds_.stages[stage.image_of].slot_stride())), FlatIndex(stage.image_of, inside));
  }
  if (stage.layout_factors.empty()) {
    for (size_t d = 0; d < indices.size(); ++d) {
      const int64_t extent = stage.op.placeholder ? stage.op.axes[d].extent : b.buffer[d];
      const int64_t padding = !stage.op.placeholder && d + 1 == indices.size() ? b.row_padding : 0;
      flat = Add(Mul(flat, IntImm(extent + padding)), indices[d]);
    }
    return flat;
  }
  for (int piece : stage.layout_order) {
    const int64_t factor = std::max<int64_t>(1, stage.layout_factors[piece / 2].Eval({}));
    const int64_t outer = (stage.op.axes[piece / 2].extent + factor - 1) / factor;
    const Expr& index = indices[piece / 2];
    flat = Add(Mul(flat, IntImm(piece % 2 ? factor : outer)),
               piece % 2 ? FloorMod(index, factor) : FloorDiv(index, factor));
  }
  return flat;
}

Expr NestBuilder::CompactIndex(int id, const Access& access, int dim, const Expr& real) const {
  const Region& region = bounds_.stages[access.producer].region[dim];
  IndexTerms terms;
  if (region.full || !skeleton_.SplitIndex(bounds_, access, dim, &terms)) return real;
  if (region.levels.size() == 1) {
    const int64_t unit = region.levels[0].unit;
    return Add(AtomSum(terms.inner, unit), IntImm((terms.constant - region.constant_min) / unit));
  }
  Expr sum = IntImm(0);
  for (const Term& t : terms.inner) {
    int64_t compact = 0;
    LevelOf(region, t.coefficient, &compact);
    sum = Add(sum, Mul(context_[t.stage].value[t.loop], IntImm(compact)));
  }
  return sum;
}

// True if a comparison follows from the ranges of variables, or from one comparison among the conditions of the
// branches around the expression that is lowered: both as "difference >= 0", the one wanted no smaller.
bool NestBuilder::Holds(const Expr& comparison) {
  if (analyzer_.Proves(comparison)) return true;
  const Expr wanted = Slack(comparison);
  if (!wanted) return false;  // it has folded to a literal
  std::function<bool(const Expr&)> implies = [&](const Expr& condition) {
    if (condition->kind == ExprKind::kAnd) return implies(condition->args[0]) || implies(condition->args[1]);
    const Expr given = Slack(condition);
    if (!given) return IsInt(condition, 0);
    const Expr rest = analyzer_.Simplify(Sub(wanted, given));
    return analyzer_.Proves(Le(IntImm(0), rest));
  };
  return std::any_of(conditions_.begin(), conditions_.end(), implies);
}

Expr NestBuilder::LowerLoad(int id, const Expr& load, bool* unsafe) {
  const Access& access = *access_of_[id].at(load.get());
  const StageState& producer = state_.stage(load->buffer);
  const bool attached = producer.attach == StageState::Attach::kAt;
  std::vector<Expr> indices;
  for (size_t d = 0; d < load->args.size(); ++d) {
    Expr real = analyzer_.Simplify(LowerExpr(id, load->args[d], unsafe));
    const bool full = attached && bounds_.stages[load->buffer].region[d].full;
    if (attached) real = analyzer_.Simplify(CompactIndex(id, access, static_cast<int>(d), real));
    if (!attached || full) {
      int64_t extent = producer.op.axes[d].extent;
      if (!producer.layout_factors.empty()) {
        const int64_t factor = std::max<int64_t>(1, producer.layout_factors[d].Eval({}));
        extent = (extent + factor - 1) / factor * factor;
      }
      if (!Holds(Lt(real, IntImm(extent))) || !Holds(Le(IntImm(0), real))) *unsafe = true;
    }
    indices.push_back(real);
  }
  if (IsHeldByLanes(load->buffer)) return LoadFromLanes(id, load, indices);
  Expr flat = FlatIndex(load->buffer, indices);
  if (const Expr& slot = read_slot_[load->buffer])
    flat = Add(Mul(slot, IntImm(bounds_.stages[load->buffer].slot_stride())), flat);
  flat = analyzer_.Simplify(flat);
  if (load->buffer == split_.tile && split_.parts() > 1) return SumOfParts(load->buffer, load->dtype, flat);
  return Load(load->buffer, load->dtype, {flat});
}

Expr NestBuilder::LowerExpr(int id, const Expr& e, bool* unsafe) {
  const StageState& stage = state_.stage(id);
  if (e->kind == ExprKind::kVar) {
    for (int a = 0; a < stage.axis_count(); ++a)
      if (stage.axis(a).var == e) return context_[id].axis[a];
    return e;
  }
  if (e->kind == ExprKind::kLoad) return LowerLoad(id, e, unsafe);
  if (e->args.empty()) return e;
  if (e->kind == ExprKind::kSelect) {
    // Loads of a branch happen only where its condition holds.
    const Expr condition = analyzer_.Simplify(LowerExpr(id, e->args[0], unsafe));
    conditions_.push_back(condition);
    const Expr then_value = LowerExpr(id, e->args[1], unsafe);
    conditions_.back() = Not(condition);
    const Expr else_value = LowerExpr(id, e->args[2], unsafe);
    conditions_.pop_back();
    return Select(condition, then_value, else_value);
  }
  std::vector<Expr> args;
  for (const Expr& arg : e->args) args.push_back(LowerExpr(id, arg, unsafe));
  return Rebuild(e, args);
}

Expr NestBuilder::StoreIndex(int id) {
  if (IsHeldByLanes(id)) return RegisterOf(id, context_[id].value);
  Expr flat = FlatIndex(id, context_[id].compact);
  if (const Expr& slot = write_slot_[id]) flat = Add(Mul(slot, IntImm(bounds_.stages[id].slot_stride())), flat);
  if (id == split_.tile && split_.thread_sets > 1)
    flat = Add(Mul(thread_set_, IntImm(bounds_.stages[id].slot_stride())), flat);
  return analyzer_.Simplify(flat);
}

// A sum of products in which every factor comes from memory that is zero where an axis runs past its end: iterations
// there add nothing. Holds if each reduce axis that is padded indexes, alone, a dimension of an attached copy.
bool NestBuilder::PaddingIsHarmless(int id) const {
  const StageState& stage = state_.stage(id);
  if (stage.op.combiner != Combiner::kSum || !IsProductOfLoads(stage.op.body)) return false;
  for (const Access& access : skeleton_.accesses(id))
    if (state_.stage(access.producer).attach != StageState::Attach::kAt) return false;
  for (int a = static_cast<int>(stage.op.axes.size()); a < stage.axis_count(); ++a) {
    bool filled = false;
    for (const Access& access : skeleton_.accesses(id)) {
      const StageState& producer = state_.stage(access.producer);
      if (producer.op.reduces()) continue;
      for (size_t d = 0; d < access.dims.size(); ++d) {
        const Access::Dim& dim = access.dims[d];
        filled |= dim.affine && dim.constant == 0 && dim.axes.size() == 1 && dim.axes[0].first == a &&
                  dim.axes[0].second == 1 && producer.op.axes[d].extent == stage.axis(a).extent;
      }
    }
    if (!filled) return false;
  }
  return true;
}

// Whether all that a stage reads is computed inside the kernel as well, or one number: then it may be computed for
// elements that the tensor does not have.
bool NestBuilder::ReadsBlockAlone(int id) const {
  const std::vector<int> producers = state_.Producers(id);
  return std::all_of(producers.begin(), producers.end(), [&](int producer) {
    const StageState& read = state_.stage(producer);
    return read.attach == StageState::Attach::kAt || read.op.elements() == 1;
  });
}

// Whether elements of a stage along an axis are terms of a reduction: those which the tensor does not have must add
// nothing. Elsewhere they make elements of other stages that these do not have either.
bool NestBuilder::IsReducedAlong(int id, size_t axis) const {
  for (int reader : state_.Consumers(id)) {
    const auto spatial = static_cast<int>(state_.stage(reader).op.axes.size());
    for (const Access& access : skeleton_.accesses(reader)) {
      if (access.producer != id) continue;
      const Access::Dim& dim = access.dims[axis];
      const auto reduces = [&](const auto& term) { return term.first >= spatial; };
      if (!dim.affine || std::any_of(dim.axes.begin(), dim.axes.end(), reduces)) return true;
    }
  }
  return false;
}

NestBuilder::Guards NestBuilder::GuardsOf(int id) {
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  const StageContext& c = context_[id];
  Guards guards;
  auto add = [&](std::vector<Expr>* to, const Expr& condition) {
    const Expr simple = analyzer_.Simplify(condition);
    if (!IsTrue(simple)) to->push_back(simple);
  };
  for (size_t l = 0; l < stage.loops.size(); ++l) {
    const struct Loop& loop = stage.loops[l];
    if (loop.origin == Loop::Origin::kReplica && !IsHeldByLanes(id)) add(&guards.spatial, Eq(c.value[l], IntImm(0)));
    if (loop.pieces.empty()) continue;
    int64_t covered = 1;
    for (int piece : loop.pieces)
      covered *= piece == stage.carry.loop && stage.carry.target != id ? b.steps : b.extent[piece];
    if (covered > b.extent[l]) add(loop.reduce ? &guards.reduce : &guards.spatial, Lt(c.value[l], IntImm(b.extent[l])));
  }
  if (stage.attach == StageState::Attach::kAt || stage.image_of >= 0) {
    for (size_t a = 0; a < stage.op.axes.size(); ++a) {
      if (IsHeldByLanes(id) && ReadsBlockAlone(id) && !IsReducedAlong(id, a)) continue;
      add(&guards.domain, Le(IntImm(0), c.axis[a]));
      add(&guards.domain, Lt(c.axis[a], IntImm(stage.op.axes[a].extent)));
    }
  }
  return guards;
}

}  // namespace diapason
