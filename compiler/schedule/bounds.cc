#include "compiler/schedule/bounds.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "compiler/schedule/tensor_of_copy.h"
#include "compiler/tensor/simplify.h"

namespace diapason {
namespace {

void AddTerm(Terms* terms, const Term& term) {
  if (term.coefficient == 0) return;
  for (Term& have : *terms) {
    if (have.stage == term.stage && have.loop == term.loop) {
      have.coefficient += term.coefficient;
      return;
    }
  }
  terms->push_back(term);
}

// The axis of the reader that a term is; -1: none.
int AxisOf(const StageState& reader, const Expr& term) {
  for (int a = 0; a < reader.axis_count(); ++a)
    if (reader.axis(a).var.get() == term.get()) return a;
  return -1;
}

bool IsSumOfAxes(const StageState& reader, const Affine& index) {
  return std::all_of(index.terms.begin(), index.terms.end(),
                     [&](const auto& term) { return AxisOf(reader, term.first) >= 0; });
}

// Places in a reshaped tensor are written with quotients and remainders, which often cancel.
Affine SimplestIndex(const StageState& reader, const Expr& index) {
  Affine affine = ToAffine(index);
  if (IsSumOfAxes(reader, affine)) return affine;
  Analyzer analyzer;
  for (int a = 0; a < reader.axis_count(); ++a) analyzer.Bind(reader.axis(a).var, reader.axis(a).extent);
  Affine simpler = ToAffine(analyzer.Simplify(index));
  return IsSumOfAxes(reader, simpler) ? simpler : affine;
}

}  // namespace

Access::Dim AffineDim(const StageState& reader, const Expr& index) {
  Access::Dim dim;
  const Affine affine = SimplestIndex(reader, index);
  dim.constant = affine.constant;
  for (const auto& [term, coefficient] : affine.terms) {
    const int axis = AxisOf(reader, term);
    if (axis < 0) {
      dim.affine = false;
      for (int a = 0; a < reader.axis_count(); ++a)
        if (UsesVar(index, reader.axis(a).var.get())) dim.moved_by.push_back(a);
      return dim;
    }
    dim.axes.emplace_back(axis, coefficient);
  }
  return dim;
}

namespace {

// Coordinates of whole tiles, as regions that a copy asks for, from 0 on: up to the end of a dimension and of the loops
// over it.
int64_t ReachOf(const Region& tile, int64_t extent, const Bounds& all) {
  int64_t last = tile.full ? 0 : tile.constant_min;
  if (!tile.full)
    for (const Term& t : tile.outer) last += t.coefficient * (all.stages[t.stage].extent[t.loop] - 1);
  return CeilDiv(std::max(extent, last + tile.extent), tile.extent) * tile.extent;
}

// What is missing of a row to the next odd number of units; 0 without units.
int64_t ToOddNumber(int64_t row, int64_t unit) { return unit <= 0 ? 0 : (CeilDiv(row, unit) | 1) * unit - row; }

// Core matrices get the widest runs, of up to eight times `run` elements, that divide `width` and what there is.
void WidenCoreMatrices(int64_t run, int64_t width, StageBounds* b) {
  if (b->buffer[b->buffer.size() - 2] % 8 != 0) return;
  for (int64_t wide = 8 * run; wide > run && !b->swizzled; wide /= 2) {
    if (width % wide != 0 || b->buffer.back() % wide != 0) continue;
    b->core_row = wide;
    b->swizzled = true;
  }
}

}  // namespace

int64_t StageBounds::elements() const {
  int64_t product = 1;
  if (core_row > 0) {
    for (size_t d = 0; d + 2 < buffer.size(); ++d) product *= buffer[d];
    return product * CeilDiv(buffer.back(), core_row) * core_stride();
  }
  for (size_t d = 0; d < buffer.size(); ++d) product *= buffer[d] + (d + 1 == buffer.size() ? row_padding : 0);
  return product;
}

int64_t ElementsOfThread(const StageState& stage, const StageBounds& bounds) {
  int64_t elements = 1;
  for (int loop : stage.order)
    if (!stage.loops[loop].reduce && stage.loops[loop].annotation != Annotation::kThreadX)
      elements *= bounds.extent[loop];
  return elements;
}

Skeleton::Skeleton(State state) : state_(std::move(state)) {
  const int n = state_.size();
  accesses_.resize(n);
  position_.resize(n);
  outermost_.resize(n);
  thread_sets_.resize(n);
  channels_.resize(n);
  root_.assign(n, -1);
  for (int id : state_.topological()) {
    const StageState& stage = state_.stage(id);
    position_[id].assign(stage.loops.size(), -1);
    for (size_t p = 0; p < stage.order.size(); ++p) position_[id][stage.order[p]] = static_cast<int>(p);
    for (int l = static_cast<int>(stage.loops.size()) - 1; l >= 0; --l)
      if (stage.loops[l].fused_into >= 0) position_[id][l] = position_[id][stage.loops[l].fused_into];
    outermost_[id] = position_[id];
    for (int l = static_cast<int>(stage.loops.size()) - 1; l >= 0; --l) {
      const Loop& loop = stage.loops[l];
      if (loop.fused_into >= 0) outermost_[id][l] = outermost_[id][loop.fused_into];
      if (loop.pieces.empty()) continue;
      int& first = outermost_[id][l] = static_cast<int>(stage.order.size());
      for (int piece : loop.pieces) first = std::min(first, outermost_[id][piece]);
    }
    if (!stage.computes()) continue;
    if (stage.tensor_copy)
      if (const std::optional<TensorBox> tensor = TensorOfCopy(state_, id); tensor && !tensor->windows.empty())
        channels_[id] = tensor->extents[0];
    for (int loop : stage.order)
      if (stage.loops[loop].annotation == Annotation::kThreadSet && stage.attach == StageState::Attach::kAt)
        thread_sets_[stage.attach_stage] = stage.loops[loop].factor;
    int up = id;
    while (state_.stage(up).attach == StageState::Attach::kAt) up = state_.stage(up).attach_stage;
    root_[id] = up;
    const auto add_access = [&](const ExprNode& e) {
      if (e.kind != ExprKind::kLoad) return;
      Access access;
      access.reader = id;
      access.producer = e.buffer;
      for (const Expr& index : e.args) access.dims.push_back(AffineDim(stage, index));
      accesses_[id].push_back(std::move(access));
    };
    Visit(stage.op.body, add_access);
    if (stage.carry.maximum_load) Visit(stage.carry.maximum_load, add_access);
  }
  for (auto it = state_.topological().rbegin(); it != state_.topological().rend(); ++it)
    if (state_.stage(*it).computes()) backwards_.push_back(*it);
  kernel_backwards_.resize(n);
  for (int id : backwards_) kernel_backwards_[root_[id]].push_back(id);
}

bool Skeleton::is_thread(int stage, int loop) const {
  const StageState& s = state_.stage(stage);
  const int position = position_[stage][loop];
  return position >= 0 && s.loops[s.order[position]].annotation == Annotation::kThreadX;
}

void Skeleton::InferLoops(int id, absl::Span<const int32_t> configuration, StageBounds* out) const {
  const StageState& stage = state_.stage(id);
  out->extent.assign(stage.loops.size(), 1);
  for (size_t l = 0; l < stage.loops.size(); ++l) {
    const Loop& loop = stage.loops[l];
    if (loop.origin == Loop::Origin::kAxis) {
      out->extent[l] = stage.is_spatial_axis(loop.axis) ? out->buffer[loop.axis] : stage.axis(loop.axis).extent;
    } else if (loop.origin == Loop::Origin::kReplica) {
      out->extent[l] = std::max<int64_t>(1, loop.factor.Eval(configuration));
    } else if (loop.origin == Loop::Origin::kFuse) {
      int64_t product = 1;
      for (int part : loop.fused) product *= out->extent[part];
      out->extent[l] = product;
    }
    if (loop.pieces.empty()) continue;
    int64_t inner = 1;
    for (size_t p = 1; p < loop.pieces.size(); ++p) {
      const int64_t factor = std::max<int64_t>(1, stage.loops[loop.pieces[p]].factor.Eval(configuration));
      out->extent[loop.pieces[p]] = factor;
      inner *= factor;
    }
    out->extent[loop.pieces[0]] = CeilDiv(out->extent[l], inner);
  }
  if (stage.carry.is_carried() && stage.carry.target != id) {
    out->steps = out->extent[stage.carry.loop];
    out->extent[stage.carry.loop] = 1;
  }
}

void Skeleton::LocalTerms(int id, int loop, int64_t coefficient, const Bounds& all, Terms* terms) const {
  const StageState& stage = state_.stage(id);
  if (stage.carry.loop == loop && stage.carry.target != id)
    return LocalTerms(stage.carry.target, stage.carry.target_loop, coefficient, all, terms);
  const Loop& l = stage.loops[loop];
  const StageBounds& bounds = all.stages[id];
  if (l.pieces.empty()) {
    if (bounds.extent[loop] > 1) terms->push_back({id, loop, coefficient});
    return;
  }
  int64_t stride = coefficient;
  for (size_t p = l.pieces.size(); p-- > 0;) {
    LocalTerms(id, l.pieces[p], stride, all, terms);
    stride *= bounds.extent[l.pieces[p]];
  }
}

void Skeleton::InferAxisTerms(int id, Bounds* all) const {
  const StageState& stage = state_.stage(id);
  StageBounds& b = all->stages[id];
  const int axes = stage.axis_count();
  b.axis_terms.resize(axes);
  b.axis_constant.assign(axes, 0);
  b.axis_affine.assign(axes, 1);
  Terms local;
  for (int a = 0; a < axes; ++a) {
    Terms& terms = b.axis_terms[a];
    terms.clear();
    local.clear();
    LocalTerms(id, a, 1, *all, &local);
    if (stage.attach != StageState::Attach::kAt || !stage.is_spatial_axis(a) || b.region[a].full) {
      for (const Term& t : local) terms.push_back(t);
      continue;
    }
    const Region& region = b.region[a];
    b.axis_constant[a] = region.constant_min;
    for (const Term& t : region.outer) terms.push_back(t);
    for (const Term& t : local) {
      const int64_t step = region.CoordinateStep(t.coefficient, b.extent[t.loop]);
      if (step == 0) b.axis_affine[a] = 0;
      if (step != 0) terms.push_back({t.stage, t.loop, step});
    }
  }
}

// The loop inside which a stage's elements are needed, and live: that at which it is computed, or, of one that is
// carried by a loop, that at which the loop's stage is.
Skeleton::Place Skeleton::PlaceOf(int producer, const Bounds& all) const {
  const Carry& carry = state_.stage(producer).carry;
  if (carry.is_carried() && carry.target != producer) return PlaceOf(carry.target, all);
  return {state_.stage(producer).attach_stage, all.stages[producer].attach_position};
}

bool Skeleton::Inside(const Term& term, int producer, const Bounds& all) const {
  const StageState& p = state_.stage(producer);
  if (IsOfBlock(p.memory) && is_thread(term.stage, term.loop)) return true;
  const Place place = PlaceOf(producer, all);
  if (term.stage == place.stage) return outermost_[term.stage][term.loop] > place.position;
  // A stage computed inside the attach stage's loop: is the attach stage above it?
  for (int up = term.stage; up >= 0; up = state_.stage(up).attach_stage)
    if (up == place.stage) return true;
  return false;
}

// A fused loop that was split again may move partly outside and partly inside the attach point: its parts are then no
// sum over loops inside. Harmless if the pieces inside have one iteration.
bool Skeleton::CutByAttachPoint(const Term& term, int producer, const Bounds& all) const {
  const StageState& stage = state_.stage(term.stage);
  const Place place = PlaceOf(producer, all);
  if (position_[term.stage][term.loop] >= 0 || place.stage != term.stage) return false;
  if (outermost_[term.stage][term.loop] > place.position) return false;
  const std::vector<int>& pieces = stage.loops[stage.loops[term.loop].fused_into].pieces;
  for (int piece : pieces) {
    const bool inside = position_[term.stage][piece] > place.position || position_[term.stage][piece] < 0;
    if (inside && all.stages[term.stage].extent[piece] > 1) return true;
  }
  return false;
}

bool Skeleton::SplitIndex(const Bounds& all, const Access& access, int dim, IndexTerms* terms) const {
  terms->outer.clear();
  terms->inner.clear();
  const Access::Dim& index = access.dims[dim];
  const StageBounds& reader = all.stages[access.reader];
  terms->constant = index.constant;
  if (!index.affine) return false;
  const auto place = [&](const Term& t) {
    if (t.coefficient == 0) return true;
    if (CutByAttachPoint(t, access.producer, all)) return false;
    (Inside(t, access.producer, all) ? terms->inner : terms->outer).push_back(t);
    return true;
  };
  if (index.axes.size() == 1) {  // the terms of one axis differ in their loops: nothing to add up
    const auto& [axis, coefficient] = index.axes[0];
    if (!reader.axis_affine[axis]) return false;
    terms->constant += coefficient * reader.axis_constant[axis];
    for (const Term& t : reader.axis_terms[axis])
      if (!place({t.stage, t.loop, t.coefficient * coefficient})) return false;
    return true;
  }
  Terms sum;
  for (const auto& [axis, coefficient] : index.axes) {
    if (!reader.axis_affine[axis]) return false;
    terms->constant += coefficient * reader.axis_constant[axis];
    for (const Term& t : reader.axis_terms[axis]) AddTerm(&sum, {t.stage, t.loop, t.coefficient * coefficient});
  }
  for (const Term& t : sum)
    if (!place(t)) return false;
  return true;
}

void Skeleton::PushRegions(int reader, Bounds* all) const {
  IndexTerms terms;
  for (const Access& access : accesses_[reader]) {
    if (state_.stage(access.producer).attach != StageState::Attach::kAt) continue;
    StageBounds& producer = all->stages[access.producer];
    for (size_t d = 0; d < access.dims.size(); ++d) {
      Region& region = producer.region[d];
      if (region.full) continue;
      if (!SplitIndex(*all, access, static_cast<int>(d), &terms)) {
        region.full = true;
        continue;
      }
      int64_t span = 1;
      for (const Term& t : terms.inner) span += t.coefficient * (all->stages[t.stage].extent[t.loop] - 1);
      region.Include(terms, span);
    }
  }
}

void Skeleton::FinishRegion(int id, Bounds* all) const {
  const StageState& stage = state_.stage(id);
  StageBounds& b = all->stages[id];
  for (size_t d = 0; d < b.region.size(); ++d) {
    Region& region = b.region[d];
    ShortList<Level, 10> steps;
    for (const Term& t : region.inner) steps.push_back({t.coefficient, all->stages[t.stage].extent[t.loop]});
    region.Finish(stage.op.axes[d].extent, steps);
    if (d + 1 == b.region.size()) region.Align(b.row_alignment);
    b.buffer[d] = region.extent;
  }
}

int Skeleton::PipelineStart(int id, int position) const {
  const StageState& stage = state_.stage(id);
  auto serial = [&](int p) {
    const Loop& loop = stage.loops[stage.order[p]];
    return loop.reduce && loop.annotation == Annotation::kNone;
  };
  int first = position + 1;
  while (first > 0 && serial(first - 1)) --first;
  return first <= position ? first : -1;
}

bool Skeleton::IsCopyOfMemory(int id) const {
  return std::all_of(accesses_[id].begin(), accesses_[id].end(), [&](const Access& access) {
    return state_.stage(access.producer).attach == StageState::Attach::kRoot;
  });
}

int64_t Skeleton::SlotsOf(int id, absl::Span<const int32_t> configuration, const Bounds& all) const {
  const StageBounds& b = all.stages[id];
  const int parent = state_.stage(id).attach_stage;
  // Where reductions are carried, only copies of what is in memory come ahead.
  if (state_.stage(parent).carry.is_carried_by(parent) && !IsCopyOfMemory(id)) return 1;
  const int64_t wanted = state_.stage(parent).pipeline.Eval(configuration);
  const int first = wanted > 1 ? PipelineStart(parent, b.attach_position) : -1;
  if (first < 0) return 1;
  int64_t iterations = 1;
  for (int p = first; p <= b.attach_position; ++p)
    iterations *= all.stages[parent].extent[state_.stage(parent).order[p]];
  if (state_.stage(id).bulk)
    return std::min(std::max(wanted, state_.stage(id).bulk_tiles.Eval(configuration)), iterations);
  return std::min(wanted, iterations);
}

void Skeleton::Infer(absl::Span<const int32_t> configuration, Bounds* all) const {
  InferStages(backwards_, configuration, all);
}

void Skeleton::InferKernel(int root, absl::Span<const int32_t> configuration, Bounds* all) const {
  InferStages(kernel_backwards_[root], configuration, all);
}

void Skeleton::InferStages(const std::vector<int>& stages, absl::Span<const int32_t> configuration, Bounds* all) const {
  // Never fewer: what a larger skeleton allocated stays.
  if (all->stages.size() < static_cast<size_t>(state_.size())) all->stages.resize(state_.size());
  for (int id : stages) {
    const StageState& stage = state_.stage(id);
    StageBounds& b = all->stages[id];
    const size_t rank = stage.op.axes.size();
    b.buffer.resize(rank);
    b.attach_loop = b.attach_position = -1;
    b.core_row = stage.core_matrices ? 16 / BytesOf(stage.op.dtype) : 0;
    b.swizzled = false;
    b.bulk = stage.bulk;
    b.producer = stage.producer.Eval(configuration) != 0;
    b.row_padding = 0;
    b.row_alignment = stage.align_rows.Eval(configuration);
    b.slots = b.steps = 1;
    b.thread_sets = std::max<int64_t>(1, thread_sets_[id].Eval(configuration));
    if (stage.attach == StageState::Attach::kAt) {
      const int64_t choice = stage.attach_choice.Eval(configuration);
      b.attach_loop =
          stage.attach_loops[std::clamp<int64_t>(choice, 0, static_cast<int64_t>(stage.attach_loops.size()) - 1)];
      b.attach_position = position_[stage.attach_stage][b.attach_loop];
      b.region.resize(rank);
      for (Region& region : b.region) region.Clear();
    }
  }
  for (int id : stages) {
    const StageState& stage = state_.stage(id);
    StageBounds& b = all->stages[id];
    if (stage.attach == StageState::Attach::kAt) {
      FinishRegion(id, all);
      if (b.core_row == 0 && !b.buffer.empty())
        b.row_padding =
            stage.pad_rows.Eval(configuration) + ToOddNumber(b.buffer.back(), stage.odd_rows.Eval(configuration));
      if (stage.core_matrices)
        // A run of windows lies within the channels of one element. A greatest common divisor with 0 is the number.
        WidenCoreMatrices(16 / BytesOf(stage.op.dtype),
                          std::gcd(static_cast<int64_t>(stage.core_width.Eval(configuration)), channels_[id]), &b);
      if (stage.memory == Memory::kShared) b.slots = SlotsOf(id, configuration, *all);
    } else {
      for (size_t d = 0; d < b.buffer.size(); ++d) {
        b.buffer[d] = stage.op.axes[d].extent;
        if (stage.image_of >= 0) b.buffer[d] = ReachOf(all->stages[stage.image_of].region[d], b.buffer[d], *all);
      }
    }
    InferLoops(id, configuration, &b);
    InferAxisTerms(id, all);
    PushRegions(id, all);
  }
}

}  // namespace diapason
