#include "compiler/lower/nest.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

Expr And(const std::vector<Expr>& conditions) {
  Expr result = IntImm(1, DType::kBool);
  for (const Expr& condition : conditions)
    result = IsInt(result, 1) ? condition : ::diapason::And(result, condition);
  return result;
}

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

// Other targets run the loops as they stand.
bool OnTensorCores(const StageState& stage, const Target& target) {
  return stage.tensor != TensorMode::kNone && target.kind == TargetKind::kCuda;
}

bool OnWarpgroups(const StageState& stage, const Target& target) {
  return OnTensorCores(stage, target) && stage.tensor == TensorMode::kGroupThreeTf32;
}

std::string Identifier(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

// Bytes of shared memory: of buffers side by side, of those in their place, and apart from both.
struct SharedBytes {
  int64_t plain = 0, overlay = 0, apart = 0;

  void Add(const Stmt& stmt) {
    if (!stmt) return;
    if (stmt->kind == StmtKind::kAlloc && stmt->decl.scope == Scope::kShared)
      (stmt->decl.apart ? apart : stmt->decl.overlay ? overlay : plain) += (stmt->decl.elements * BytesOf(stmt->decl.dtype) + 15) / 16 * 16;
    for (const Stmt& child : stmt->body) Add(child);
  }
  int64_t all() const { return std::max(plain, overlay) + apart; }
};

}  // namespace

NestBuilder::NestBuilder(const Skeleton& skeleton, const Bounds& bounds, const Target& target, const OutputPlace& place)
    : skeleton_(skeleton), state_(skeleton.state()), bounds_(bounds), target_(target), place_(place), context_(state_.size()),
      unrolled_(state_.size()), access_of_(state_.size()), arrivals_(state_.size(), -1), small_parts_(state_.size(), -1), write_slot_(state_.size()),
      read_slot_(state_.size()) {}

ForKind NestBuilder::KindOf(int id, size_t position) const {
  const StageState& stage = state_.stage(id);
  if (unrolled_[id][position]) return ForKind::kUnroll;
  switch (stage.loops[stage.order[position]].annotation) {
    case Annotation::kNone: return ForKind::kSerial;
    case Annotation::kUnroll: return ForKind::kUnroll;
    // Lanes run together: only an innermost loop can be a vector.
    case Annotation::kVectorize: return position + 1 == stage.order.size() ? ForKind::kVectorize : ForKind::kUnroll;
    case Annotation::kParallel: return ForKind::kParallel;
    case Annotation::kBlockX: return ForKind::kBlockX;
    case Annotation::kThreadX: return ForKind::kThreadX;
    case Annotation::kCluster:
    case Annotation::kThreadSet: return ForKind::kCluster;  // one iteration, whose number is known
  }
  return ForKind::kSerial;
}

// True for the innermost of the leading parallel, block and thread loops.
bool NestBuilder::EndsOuter(int id, size_t position) const {
  auto outer = [&](size_t p) {
    const ForKind kind = KindOf(id, p);
    return kind == ForKind::kParallel || kind == ForKind::kBlockX || kind == ForKind::kThreadX;
  };
  for (size_t p = 0; p <= position; ++p)
    if (!outer(p)) return false;
  return position + 1 == state_.stage(id).order.size() || !outer(position + 1);
}

void NestBuilder::MarkUnrolled(int id) {
  const StageState& stage = state_.stage(id);
  unrolled_[id].assign(stage.order.size(), 0);
  const int64_t limit = stage.unroll.Eval({});
  int64_t product = 1;
  for (size_t p = stage.order.size(); p-- > 0;) {
    const int loop = stage.order[p];
    const Annotation annotation = stage.loops[loop].annotation;
    if (annotation != Annotation::kNone && annotation != Annotation::kUnroll) continue;
    product *= bounds_.stages[id].extent[loop];
    if (product > limit) break;
    if (annotation == Annotation::kNone) unrolled_[id][p] = 1;
  }
}

Expr NestBuilder::AtomSum(const Terms& terms, int64_t divisor) const {
  Expr sum = IntImm(0);
  for (const Term& t : terms)
    sum = Add(sum, Mul(context_[t.stage].value[t.loop], IntImm(t.coefficient / divisor)));
  return sum;
}

// Row and column of the last two loops that a loop over blocks was made of, `group` rows at a time. Where there are fewer left
// a column of the group is shorter.
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
    if (stage.loops[loop].annotation == Annotation::kCluster) c.leaf[p] = rank_;
    else if (stage.loops[loop].annotation == Annotation::kThreadSet) c.leaf[p] = thread_set_;
    else analyzer_.Bind(c.leaf[p], b.extent[loop]);
    c.value[loop] = b.extent[loop] == 1 ? IntImm(0) : c.leaf[p];
  }
  for (size_t l = stage.loops.size(); l-- > 0;) {
    const struct Loop& loop = stage.loops[l];
    if (loop.annotation == Annotation::kBlockX && loop.is_leaf() && loop.group.Eval({}) > 1) GroupBlocks(id, loop, c.value[l]);
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
  Visit(stage.op.body, [&, next = size_t{0}](const ExprNode& e) mutable {
    if (e.kind == ExprKind::kLoad) access_of_[id][&e] = &skeleton_.accesses(id)[next++];
  });
  MarkUnrolled(id);
}

// The element of the larger tensor: dimensions inside a row count as they do in the part, those outside by the distance of
// rows, and one that goes across is cut.
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
  return Add(IntImm(place_.offset), Add(Mul(FloorDiv(flat, place_.row), IntImm(place_.stride)), FloorMod(flat, place_.row)));
}

Expr NestBuilder::FlatIndex(int id, const std::vector<Expr>& indices) const {
  if (IsPlaced(id)) return PlacedIndex(id, indices);
  const StageState& stage = state_.stage(id);
  const StageBounds& b = bounds_.stages[id];
  Expr flat = IntImm(0);
  if (b.core_matrices) {
    const size_t rank = indices.size();
    for (size_t d = 0; d + 2 < rank; ++d) flat = Add(Mul(flat, IntImm(b.buffer[d])), indices[d]);
    const Expr &row = indices[rank - 2], &k = indices[rank - 1];
    flat = Add(Mul(flat, IntImm((b.buffer.back() + 3) / 4)), FloorDiv(k, 4));
    return Add(Mul(flat, IntImm(b.core_stride())), Add(Mul(row, IntImm(4)), FloorMod(k, 4)));
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
    flat = Add(Mul(flat, IntImm(piece % 2 ? factor : outer)), piece % 2 ? FloorMod(index, factor) : FloorDiv(index, factor));
  }
  return flat;
}

Expr NestBuilder::CompactIndex(int id, const Access& access, int dim, const Expr& real) const {
  const Region& region = bounds_.stages[access.producer].region[dim];
  Terms outer, inner;
  int64_t constant = 0;
  if (region.full || !skeleton_.IndexTerms(bounds_, access, dim, &outer, &inner, &constant)) return real;
  if (region.levels.size() == 1) {
    const int64_t unit = region.levels[0].unit;
    return Add(AtomSum(inner, unit), IntImm((constant - region.constant_min) / unit));
  }
  Expr sum = IntImm(0);
  for (const Term& t : inner) {
    int64_t compact = 0;
    LevelOf(region, t.coefficient, &compact);
    sum = Add(sum, Mul(context_[t.stage].value[t.loop], IntImm(compact)));
  }
  return sum;
}

// True if a comparison follows from the ranges of variables, or from one comparison among the conditions of the branches
// around the expression that is lowered: both as "difference >= 0", the one wanted no smaller.
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

// Of the blocks of a cluster, or of the sets of threads where there is none. Each block begins with its own share, so that no two ask
// the same block at once: the order of the sum is that of the ranks, from a start that depends on the element alone.
Expr NestBuilder::SumOfParts(int buffer, DType dtype, const Expr& index) {
  Expr sum;
  const auto add = [&](std::vector<Expr> place) {
    const Expr part = Load(buffer, dtype, std::move(place));
    sum = sum ? Combine(state_.stage(split_.reduction).op.combiner, sum, part) : part;
  };
  for (int64_t i = 0; i < split_.blocks && split_.blocks > 1; ++i)
    add({index, analyzer_.Simplify(FloorMod(Add(rank_, IntImm(i)), split_.blocks))});
  for (int64_t i = 0; i < split_.thread_sets && split_.blocks == 1; ++i)
    add({analyzer_.Simplify(Add(index, IntImm(i * bounds_.stages[buffer].slot_stride())))});
  return sum;
}

// Before other blocks read a tile: the results of the block's sets of threads become one, in the place of the first, by vectors.
Stmt NestBuilder::SumOfThreadSets() {
  if (split_.thread_sets == 1) return nullptr;
  constexpr int64_t kLanes = 4;
  const DType dtype = state_.stage(split_.tile).op.dtype;
  const int64_t stride = bounds_.stages[split_.tile].slot_stride(), vectors = stride / kLanes;
  const int64_t rounds = (vectors + threads_ - 1) / threads_;
  const Expr thread = MakeVar("thread"), round = MakeVar("round"), lane = MakeVar("lane");
  for (const auto& [var, extent] : {std::pair(thread, threads_), {round, rounds}, {lane, kLanes}}) analyzer_.Bind(var, extent);
  const Expr vector = Add(Mul(round, IntImm(threads_)), thread);
  const Expr index = analyzer_.Simplify(Add(Mul(vector, IntImm(kLanes)), lane));
  const Combiner combiner = state_.stage(split_.reduction).op.combiner;
  Expr others;
  for (int64_t set = 1; set < split_.thread_sets; ++set) {
    const Expr part = Load(split_.tile, dtype, {Add(index, IntImm(set * stride))});
    others = others ? Combine(combiner, others, part) : part;
  }
  const Expr sum = Combine(combiner, Load(split_.tile, dtype, {index}), others);
  Stmt work = MakeFor(ForKind::kVectorize, lane, kLanes, MakeStore(split_.tile, index, sum));
  if (rounds * threads_ > vectors) work = MakeIf(analyzer_.Simplify(Lt(vector, IntImm(vectors))), work);
  work = MakeFor(ForKind::kThreadX, thread, threads_, MakeFor(ForKind::kSerial, round, rounds, work));
  return MakeSeq({MakeBarrier(), work});
}

Expr NestBuilder::StoreIndex(int id) {
  Expr flat = FlatIndex(id, context_[id].compact);
  if (const Expr& slot = write_slot_[id]) flat = Add(Mul(slot, IntImm(bounds_.stages[id].slot_stride())), flat);
  if (id == split_.tile && split_.thread_sets > 1)
    flat = Add(Mul(thread_set_, IntImm(bounds_.stages[id].slot_stride())), flat);
  return analyzer_.Simplify(flat);
}

// A sum of products in which every factor comes from memory that is zero where an axis runs past its end: iterations there
// add nothing. Holds if each reduce axis that is padded indexes, alone, a dimension of an attached copy.
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
    if (loop.pieces.empty()) continue;
    int64_t covered = 1;
    for (int piece : loop.pieces) covered *= b.extent[piece];
    if (covered > b.extent[l]) add(loop.reduce ? &guards.reduce : &guards.spatial, Lt(c.value[l], IntImm(b.extent[l])));
  }
  if (stage.attach == StageState::Attach::kAt || stage.image_of >= 0) {
    for (size_t a = 0; a < stage.op.axes.size(); ++a) {
      add(&guards.domain, Le(IntImm(0), c.axis[a]));
      add(&guards.domain, Lt(c.axis[a], IntImm(stage.op.axes[a].extent)));
    }
  }
  return guards;
}

Stmt NestBuilder::Loop(int id, size_t position, Stmt body) {
  const StageState& stage = state_.stage(id);
  const int64_t extent = bounds_.stages[id].extent[stage.order[position]];
  const ForKind kind = KindOf(id, position);
  const Expr& var = context_[id].leaf[position];
  if (!body || kind == ForKind::kCluster) return body;  // the block runs for its rank alone, a thread for its set
  if (kind == ForKind::kBlockX && split_.blocks > 1) body = MakeFor(ForKind::kCluster, rank_, split_.blocks, body);
  if (kind == ForKind::kThreadX && id == split_.tile && split_.thread_sets > 1) return OverThreadSets(var, extent, body);
  if (kind == ForKind::kThreadX) {
    if (extent > threads_) {
      status_ = absl::FailedPreconditionError(absl::StrCat("stage ", stage.op.name, " needs ", extent,
                                                           " threads in a block of ", threads_));
    }
    if (extent < threads_) body = MakeIf(Lt(var, IntImm(extent)), body);
  }
  for (const auto& [var, value] : context_[id].blocks)
    if (kind == ForKind::kBlockX) body = MakeLet(var, value, body);
  if (extent == 1 && kind != ForKind::kBlockX && kind != ForKind::kThreadX && kind != ForKind::kParallel) return body;
  return MakeFor(kind, var, extent, body);
}

// The threads of a block as sets of `extent`, one behind the other: `var` is a thread's number in its set.
Stmt NestBuilder::OverThreadSets(const Expr& var, int64_t extent, Stmt body) {
  if (extent * split_.thread_sets != threads_) {
    status_ = absl::InvalidArgumentError(absl::StrCat("stage ", state_.stage(split_.tile).op.name, ": ", split_.thread_sets,
                                                      " sets of ", extent, " threads are not the ", threads_, " of the block"));
    return nullptr;
  }
  const Expr thread = MakeVar("thread");
  analyzer_.Bind(thread, threads_);
  body = MakeLet(var, analyzer_.Simplify(FloorMod(thread, extent)), MakeLet(thread_set_, FloorDiv(thread, extent), body));
  return MakeFor(ForKind::kThreadX, thread, threads_, body);
}

Stmt NestBuilder::AttachedAt(int id, size_t position, bool shared) {
  std::vector<Stmt> all;
  for (int child : state_.topological()) {
    const StageState& stage = state_.stage(child);
    if (!stage.computes() || stage.attach != StageState::Attach::kAt || stage.attach_stage != id) continue;
    if (bounds_.stages[child].attach_position != static_cast<int>(position)) continue;
    if ((stage.memory == Memory::kShared) != shared || stage.bulk) continue;
    PrepareValues(child);
    all.push_back(EmitStage(child));
  }
  return MakeSeq(all);
}

Stmt NestBuilder::EmitAttached(int id, size_t position) {
  std::vector<Stmt> all;
  if (Stmt shared = MakeSeq({AttachedBulkOnce(id, position, false), AttachedAt(id, position, true)})) {
    if (serial_depth_ > 0) all.push_back(MakeBarrier());
    const bool tile = split_.blocks > 1 && id == root_ &&
                      bounds_.stages[split_.tile].attach_position == static_cast<int>(position);
    all.push_back(shared);
    all.push_back(AttachedSmallParts(id, position, IntImm(0), 1));
    if (tile) all.push_back(SumOfThreadSets());
    all.push_back(tile ? MakeClusterBarrier() : MakeBarrier());
    all.push_back(AttachedBulkOnce(id, position, true));
  }
  all.push_back(AttachedAt(id, position, false));
  return MakeSeq(all);
}

// Slots of the shared copies whose pipeline starts at a loop, 1 if none does; `last` is the loop at which they are computed.
int64_t NestBuilder::PipelineSlots(int id, size_t position, size_t* last) const {
  for (int child : skeleton_.backwards()) {
    const StageState& stage = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || b.slots == 1 || b.bulk) continue;
    if (skeleton_.PipelineStart(id, b.attach_position) != static_cast<int>(position)) continue;
    *last = b.attach_position;
    return b.slots;
  }
  return 1;
}

// Names the slots of the pipelined copies of a stage, before its body that reads them is lowered.
void NestBuilder::NameSlots(int id) {
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || b.slots == 1) continue;
    if (b.bulk) {
      read_slot_[child] = MakeVar("held");
      analyzer_.Bind(read_slot_[child], b.slots);
      continue;
    }
    if (!fill) {
      fill = MakeVar("fill");
      use = MakeVar("use");
      analyzer_.Bind(fill, b.slots);
      analyzer_.Bind(use, b.slots);
    }
    write_slot_[child] = fill;
    read_slot_[child] = use;
  }
}

// The loops [first, last] as one loop of iterations + slots - 1 steps: step t starts the copies of iteration t, into the slot
// that iteration t - slots has left, and multiplies those of iteration t - slots + 1. One barrier a step: behind it the copies that are
// waited for are visible, and nobody reads the slot that is filled next any more.
Stmt NestBuilder::EmitPipeline(int id, size_t first, size_t last, size_t end, int64_t slots,
                               const std::function<Stmt()>& inner) {
  const StageState& stage = state_.stage(id);
  int64_t iterations = 1;
  for (size_t p = first; p <= last; ++p) iterations *= bounds_.stages[id].extent[stage.order[p]];
  const Expr step = MakeVar("step_" + Identifier(stage.op.name));
  analyzer_.Bind(step, iterations + slots - 1);
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || copy.memory != Memory::kShared) continue;
    if (b.attach_position < static_cast<int>(first) || b.attach_position > static_cast<int>(last)) continue;
    if (b.attach_position != static_cast<int>(last) || (b.slots != slots && !b.bulk)) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage.op.name, ": all shared copies of a pipeline are computed at its innermost loop"));
      return nullptr;
    }
    if (b.bulk) continue;
    fill = write_slot_[child];
    use = read_slot_[child];
  }
  if (!fill) {
    status_ = absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": a pipeline needs shared copies"));
    return nullptr;
  }
  // The loop variables as digits of the iteration.
  auto at = [&](const Expr& iteration, Stmt body) {
    int64_t inside = 1;
    for (size_t p = last + 1; p-- > first;) {
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent == 1) continue;
      Expr digit = FloorDiv(iteration, inside);
      if (inside * extent < iterations) digit = FloorMod(digit, extent);
      body = MakeLet(context_[id].leaf[p], analyzer_.Simplify(digit), body);
      inside *= extent;
    }
    return body;
  };
  if (OnWarpgroups(stage, target_)) return EmitGroupPipeline(id, last, end, slots, iterations, step, fill, use, at, inner);
  const Expr ahead = IntImm(slots - 1);
  Stmt copies = at(Min(step, IntImm(iterations - 1)), AttachedAt(id, last, true));
  copies = MakeIf(Lt(step, IntImm(iterations)), MakeLet(fill, FloorMod(step, slots), copies));
  ++serial_depth_;
  Stmt work = MakeSeq({AttachedAt(id, last, false), EmitLoops(id, last + 1, end, inner)});
  --serial_depth_;
  const Expr iteration = Max(Sub(step, ahead), IntImm(0));
  work = at(iteration, HoldBulk(id, last, iteration, work));
  work = MakeIf(Le(ahead, step), MakeLet(use, FloorMod(Add(step, IntImm(1)), slots), work));
  const BulkPipeline bulk = EmitBulkPipeline(id, last, slots, iterations, step, at);
  Stmt body = MakeSeq({MakeWait(slots - 2), MakeBarrier(), copies, MakeCommit(), bulk.refill, work});
  return MakeSeq({bulk.start, MakeFor(ForKind::kSerial, step, iterations + slots - 1, body, 1)});
}

Stmt NestBuilder::EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) {
  const StageState& stage = state_.stage(id);
  if (position == end) return inner();
  size_t last = position;
  if (const int64_t slots = PipelineSlots(id, position, &last); slots > 1 && last < end)
    return EmitPipeline(id, position, last, end, slots, inner);
  const ForKind kind = KindOf(id, position);
  const bool serial = (kind == ForKind::kSerial || kind == ForKind::kUnroll) &&
                      bounds_.stages[id].extent[stage.order[position]] > 1;
  serial_depth_ += serial;
  Stmt attached = EmitAttached(id, position);
  // The tile takes the place of the operands: all threads must have read them.
  if (attached && id == split_.tile) attached = MakeSeq({attached, MakeBarrier()});
  Stmt rest = EmitLoops(id, position + 1, end, inner);
  serial_depth_ -= serial;
  Stmt body = attached ? MakeSeq({attached, rest}) : rest;
  if (id == root_ && position == 0 && split_.blocks > 1) body = MakeSeq({body, MakeClusterBarrier()});
  // Buffers live inside the innermost of the leading parallel, block and thread loops.
  if (id == root_ && EndsOuter(id, position)) body = WithAllocations(body);
  return Loop(id, position, body);
}

Stmt NestBuilder::WithAllocations(Stmt body) {
  for (auto it = temporaries_.rbegin(); it != temporaries_.rend(); ++it) body = MakeAlloc(*it, body);
  temporaries_.clear();
  return body;
}

// The spatial loops from a position on, with variables of their own, around a statement made for them.
Stmt NestBuilder::SpatialNest(int id, size_t first, const std::function<Stmt(const VarMap&)>& make) {
  const StageState& stage = state_.stage(id);
  VarMap fresh;
  std::vector<size_t> positions;
  for (size_t p = first; p < stage.order.size(); ++p) {
    if (stage.loops[stage.order[p]].reduce) continue;
    positions.push_back(p);
    const Expr& var = context_[id].leaf[p];
    const Expr copy = MakeVar(var->name + "_i");
    analyzer_.Bind(copy, bounds_.stages[id].extent[stage.order[p]]);
    fresh[var.get()] = copy;
  }
  Stmt stmt = make(fresh);
  for (size_t i = positions.size(); i-- > 0;) {
    const size_t p = positions[i];
    const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
    if (extent > 1 || KindOf(id, p) == ForKind::kThreadX)
      stmt = MakeFor(KindOf(id, p), fresh[context_[id].leaf[p].get()], extent, stmt);
  }
  return stmt;
}

// Position from which on all loops are reduce loops or unrolled: the elements that are updated there can stay in registers.
size_t NestBuilder::RegisterPosition(int id, size_t first) const {
  const StageState& stage = state_.stage(id);
  size_t position = stage.order.size();
  while (position > first) {
    const ForKind kind = KindOf(id, position - 1);
    const bool reduce = stage.loops[stage.order[position - 1]].reduce;
    const bool single = bounds_.stages[id].extent[stage.order[position - 1]] == 1;
    if (!reduce && !single && kind != ForKind::kUnroll && kind != ForKind::kVectorize) break;
    --position;
  }
  return position;
}

Stmt NestBuilder::EmitReduction(int id) {
  const StageState& stage = state_.stage(id);
  const bool root = stage.attach == StageState::Attach::kRoot;
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  for (size_t p = first; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].annotation == Annotation::kThreadX && stage.loops[stage.order[p]].reduce)
      return EmitCrossThread(id);
  NameSlots(id);
  const Expr index = StoreIndex(id);
  bool unsafe = false;
  const Expr value = LowerExpr(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(id);
  std::vector<Expr> update_guards;
  if (root || unsafe) update_guards = guards.spatial;
  if (unsafe) update_guards.insert(update_guards.end(), guards.domain.begin(), guards.domain.end());
  if (unsafe || !PaddingIsHarmless(id))
    update_guards.insert(update_guards.end(), guards.reduce.begin(), guards.reduce.end());
  const std::vector<Expr> stored = root ? guards.spatial : std::vector<Expr>{};
  const size_t held = RegisterPosition(id, first);
  const bool promote = (held > first || root) && HasReduction(id, held);
  int buffer = id;
  Expr place = index;
  if (promote) {
    buffer = (*next_buffer_)++;
    int64_t elements = 1;
    place = IntImm(0);
    for (size_t p = held; p < stage.order.size(); ++p) {
      if (stage.loops[stage.order[p]].reduce) continue;
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent > 1) place = Add(Mul(place, IntImm(extent)), context_[id].leaf[p]);
      elements *= extent;
    }
    place = analyzer_.Simplify(place);
    temporaries_.push_back({buffer, absl::StrCat("reg", buffer), stage.op.dtype, Scope::kLocal, elements, true,
                            target_.is_gpu() ? 16 : 64});
  }
  auto update = [&] {
    const Expr old = Load(buffer, stage.op.dtype, {place});
    return MakeIf(And(update_guards), MakeStore(buffer, place, Combine(stage.op.combiner, old, value)));
  };
  auto copy = [&](bool in) {
    return SpatialNest(id, held, [&](const VarMap& fresh) {
      const Expr outside = Substitute(index, fresh), inside = Substitute(place, fresh);
      std::vector<Expr> conditions;
      for (const Expr& guard : stored) conditions.push_back(Substitute(guard, fresh));
      return MakeIf(And(conditions), in ? MakeStore(buffer, inside, Load(id, stage.op.dtype, {outside}))
                                        : MakeStore(id, outside, Load(buffer, stage.op.dtype, {inside})));
    });
  };
  auto reduce = [&]() -> Stmt {
    Stmt loops;
    if (OnTensorCores(stage, target_)) {
      if (root || stage.memory != Memory::kLocal || !update_guards.empty() || held + 3 > stage.order.size()) {
        status_ = absl::InvalidArgumentError(absl::StrCat(
            "stage ", stage.op.name, ": a product on tensor cores has its sums in registers and no predicates"));
        return nullptr;
      }
      size_t tiles = stage.order.size() - 3;
      while (tiles > held && !stage.loops[stage.order[tiles - 1]].reduce) --tiles;
      loops = EmitLoops(id, held, tiles, [&] {
        return OnWarpgroups(stage, target_) ? EmitGroupProducts(id, tiles, buffer, place) : EmitProducts(id, tiles, buffer, place);
      });
    } else {
      loops = EmitLoops(id, held, stage.order.size(), update);
    }
    return promote ? MakeSeq({copy(true), loops, copy(false)}) : loops;
  };
  auto rest = [&]() -> Stmt {
    const Expr identity = IdentityOf(stage.op.combiner, stage.op.dtype);
    Stmt init = SpatialNest(id, first, [&](const VarMap& fresh) {
      std::vector<Expr> conditions;
      for (const Expr& guard : stored) conditions.push_back(Substitute(guard, fresh));
      return MakeIf(And(conditions), MakeStore(id, Substitute(index, fresh), identity));
    });
    return MakeSeq({init, EmitLoops(id, first, held, reduce)});
  };
  return EmitLoops(id, 0, first, rest);
}

bool NestBuilder::HasReduction(int id, size_t from) const {
  const StageState& stage = state_.stage(id);
  for (size_t p = from; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].reduce && bounds_.stages[id].extent[stage.order[p]] > 1) return true;
  return false;
}

// Each thread reduces its share into a register, the shares meet in shared memory as a tree, and every thread reads the
// result. REQUIRES: all spatial loops are outside all reduce loops, the thread loop is the innermost.
Stmt NestBuilder::EmitCrossThread(int id) {
  const StageState& stage = state_.stage(id);
  size_t first = 0;
  while (!stage.loops[stage.order[first]].reduce) ++first;
  const size_t last = stage.order.size() - 1;
  for (size_t p = first; p <= last; ++p) {
    const bool thread = stage.loops[stage.order[p]].annotation == Annotation::kThreadX;
    if (!stage.loops[stage.order[p]].reduce || thread != (p == last)) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage.op.name, ": a cross-thread reduction has its spatial loops outside and its thread loop innermost"));
      return nullptr;
    }
  }
  const int64_t width = bounds_.stages[id].extent[stage.order[last]];
  const DType dtype = stage.op.dtype;
  const int part = (*next_buffer_)++, tree = (*next_buffer_)++;
  temporaries_.push_back({part, absl::StrCat("part", part), dtype, Scope::kLocal, 1, true, 0});
  temporaries_.push_back({tree, absl::StrCat("tree", tree), dtype, Scope::kShared, width, true, 0});
  bool unsafe = false;
  const Expr value = LowerExpr(id, stage.op.body, &unsafe);
  const Guards guards = GuardsOf(id);
  std::vector<Expr> conditions = guards.spatial;
  conditions.insert(conditions.end(), guards.reduce.begin(), guards.reduce.end());
  if (unsafe) conditions.insert(conditions.end(), guards.domain.begin(), guards.domain.end());
  const Expr zero = IntImm(0), thread = context_[id].leaf[last];
  const Expr part_value = Load(part, dtype, {zero});

  Stmt share = MakeIf(And(conditions), MakeStore(part, zero, Combine(stage.op.combiner, part_value, value)));
  for (size_t p = last; p-- > first;) share = Loop(id, p, share);
  std::vector<Stmt> steps{MakeStore(part, zero, IdentityOf(stage.op.combiner, dtype)), share,
                          MakeStore(tree, thread, part_value)};
  int64_t half = 1;
  while (half * 2 < width) half *= 2;
  std::vector<Stmt> meet;
  for (; half >= 1 && width > 1; half /= 2) {
    Expr mine = Load(tree, dtype, {thread}), other = Load(tree, dtype, {Add(thread, IntImm(half))});
    std::vector<Expr> active{Lt(thread, IntImm(half))};
    if (!analyzer_.Proves(Lt(IntImm(2 * half - 1), IntImm(width)))) active.push_back(Lt(Add(thread, IntImm(half)), IntImm(width)));
    meet.push_back(MakeBarrier());
    meet.push_back(MakeFor(ForKind::kThreadX, thread, width,
                           MakeIf(And(active), MakeStore(tree, thread, Combine(stage.op.combiner, mine, other)))));
  }
  meet.push_back(MakeBarrier());
  const bool root = stage.attach == StageState::Attach::kRoot;
  Stmt result = MakeStore(id, StoreIndex(id), Load(tree, dtype, {zero}));
  std::vector<Expr> store_guards = guards.spatial;
  if (root) {
    result = MakeFor(ForKind::kThreadX, thread, width, MakeIf(Eq(thread, zero), result));
  }
  result = MakeIf(And(store_guards), result);
  Stmt work = MakeFor(ForKind::kThreadX, thread, width, MakeSeq(steps));
  if (width < threads_) {
    work = MakeFor(ForKind::kThreadX, thread, threads_, MakeIf(Lt(thread, IntImm(width)), MakeSeq(steps)));
    for (Stmt& s : meet)
      if (s->kind == StmtKind::kFor) s = MakeFor(ForKind::kThreadX, thread, threads_, s->body[0]);
  }
  std::vector<Stmt> all{work};
  all.insert(all.end(), meet.begin(), meet.end());
  all.push_back(result);
  all.push_back(MakeBarrier());
  Stmt inner = MakeSeq(all);
  return EmitLoops(id, 0, first, [&] { return inner; });
}

Stmt NestBuilder::EmitStage(int id) {
  const StageState& stage = state_.stage(id);
  if (stage.op.reduces()) return EmitReduction(id);
  auto statement = [&]() -> Stmt {
    bool unsafe = false;
    const Expr index = StoreIndex(id);
    Expr value = LowerExpr(id, stage.op.body, &unsafe);
    const Guards guards = GuardsOf(id);
    // Partial results beyond the tensor are never read.
    if (!guards.domain.empty() && id != split_.tile)
      value = Select(And(guards.domain), value, IdentityOf(Combiner::kSum, stage.op.dtype));
    return MakeIf(And(guards.spatial), MakeStore(id, index, value, write_slot_[id] != nullptr));
  };
  return EmitLoops(id, 0, stage.order.size(), statement);
}

int64_t StoredElements(const State& state, const Bounds& bounds, int id) {
  const StageState& stage = state.stage(id);
  if (stage.image_of >= 0) {
    const StageBounds& tile = bounds.stages[stage.image_of];
    int64_t elements = tile.slot_stride();
    for (size_t d = 0; d < tile.buffer.size(); ++d) elements *= bounds.stages[id].buffer[d] / tile.buffer[d];
    return elements;
  }
  if (stage.layout_factors.empty()) return stage.op.elements();
  int64_t elements = 1;
  for (size_t d = 0; d < stage.layout_factors.size(); ++d) {
    const int64_t factor = std::max<int64_t>(1, stage.layout_factors[d].Eval({}));
    elements *= (stage.op.axes[d].extent + factor - 1) / factor * factor;
  }
  return elements;
}

absl::StatusOr<KernelFunc> NestBuilder::Build(int root, int* next_buffer) {
  next_buffer_ = next_buffer;
  root_ = root;
  status_ = absl::OkStatus();
  KernelFunc kernel;
  const StageState& stage = state_.stage(root);
  threads_ = blocks_ = 1;
  ASSIGN_OR_RETURN(split_, FindClusterSplit(skeleton_, bounds_, root));
  rank_ = MakeVar("rank");
  analyzer_.Bind(rank_, split_.blocks);
  thread_set_ = MakeVar("thread_set");
  analyzer_.Bind(thread_set_, split_.thread_sets);
  for (int loop : stage.order) {
    const Annotation annotation = stage.loops[loop].annotation;
    const int64_t extent = bounds_.stages[root].extent[loop];
    if (annotation == Annotation::kThreadX) threads_ = extent;
    if (annotation == Annotation::kBlockX || annotation == Annotation::kParallel) blocks_ = extent;
  }
  // Stages inside may use threads where the root uses none: a reduction across threads into a block's single result.
  for (int id : skeleton_.backwards()) {
    if (skeleton_.root_of(id) != root) continue;
    for (int loop : state_.stage(id).order)
      if (state_.stage(id).loops[loop].annotation == Annotation::kThreadX && state_.stage(id).loops[loop].reduce)
        threads_ = std::max(threads_, bounds_.stages[id].extent[loop]);
  }
  std::set<int> globals;
  for (int id : state_.topological()) {
    if (skeleton_.root_of(id) != root) continue;
    const StageState& s = state_.stage(id);
    for (int producer : state_.Producers(id))
      if (skeleton_.root_of(producer) != root || producer == root) globals.insert(producer);
    if (s.attach == StageState::Attach::kAt) {
      const Scope scope = s.memory == Memory::kShared ? Scope::kShared : Scope::kLocal;
      temporaries_.push_back({id, Identifier(s.op.name) + "_", s.op.dtype, scope, bounds_.stages[id].stored(), true,
                              target_.is_gpu() ? 16 : 64, id == split_.tile});
      if (s.bulk) RETURN_IF_ERROR(CheckBulkCopy(id));
      if (s.bulk && target_.kind == TargetKind::kCuda) {
        arrivals_[id] = (*next_buffer_)++;
        temporaries_.push_back({arrivals_[id], Identifier(s.op.name) + "_arrival", DType::kInt64, scope, bounds_.stages[id].slots, true, 16,
                                false, true});
      }
      if (s.core_matrices && target_.kind == TargetKind::kCuda) {
        const StageBounds& b = bounds_.stages[id];
        small_parts_[id] = (*next_buffer_)++;
        temporaries_.push_back({small_parts_[id], Identifier(s.op.name) + "_small", s.op.dtype, scope, b.small_parts(), true, 16});
      }
    }
  }
  kernel.name = "k_" + Identifier(stage.op.name);
  globals.insert(root);
  PrepareValues(root);
  kernel.body = WithAllocations(EmitStage(root));
  if (!status_.ok()) return status_;
  for (int id : globals) {
    const StageState& s = state_.stage(id);
    kernel.params.push_back(
        {id, Identifier(s.op.name), s.op.dtype, Scope::kGlobal, IsPlaced(id) ? place_.elements : StoredElements(state_, bounds_, id), id == root, 0});
  }
  kernel.blocks = blocks_ * split_.blocks;
  kernel.cluster = split_.blocks;
  kernel.threads = threads_;
  SharedBytes shared;
  shared.Add(kernel.body);
  kernel.shared_bytes = shared.all();
  return kernel;
}

}  // namespace diapason
