#include "compiler/lower/recurrent_nest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/schedule/recurrent_products.h"

namespace diapason {

RecurrentNest::RecurrentNest(const RecurrentKernelContext& context, int* next_buffer)
    : context(context),
      dag(context.schedule.dag),
      r(context.schedule.recurrence),
      tiles(context.tiles),
      gpu(context.target.is_gpu()),
      cuda(context.target.kind == TargetKind::kCuda),
      exchanged(context.schedule.Exchanged()),
      step(MakeVar("step")),
      each(MakeVar("u")),
      block(MakeVar("units")),
      thread(MakeVar("thread")),
      rank(MakeVar("rank")),
      next_buffer_(*next_buffer),
      unit_(MakeVar("unit")),
      row_(MakeVar("row")) {
  analyzer_.Bind(step, r.steps);
  analyzer_.Bind(r.step, r.steps);
  analyzer_.Bind(unit_, r.units);
  analyzer_.Bind(row_, r.RowsOf(dag.stage(r.body.front())));
  const Expr units = IntImm(tiles.units);
  if (gpu) {
    const int64_t of_block = context.schedule.UnitsOfBlock(tiles);
    const Expr number = FloorDiv(thread, tiles.lanes);  // among the threads that do not share sums
    const Expr first = Add(Mul(tiles.cluster > 1 ? rank : IntImm(0), IntImm(of_block)), Mul(number, units));
    lane = FloorMod(thread, tiles.lanes);
    own_first_ = Min(first, IntImm(r.units - tiles.units));
    active = And(Lt(first, IntImm(r.units)), Lt(number, IntImm(of_block / tiles.units)));
  } else {
    own_first_ = Mul(block, units);
  }
  for (const auto* stages : {&r.start, &r.body})
    for (int id : *stages) DeclareLocal(id, id, dag.stage(id).name);
  for (size_t c = 0; c < r.carried.size(); ++c) {
    const int source = r.carried[c].source;
    DeclareLocal(Recurrence::BufferOf(static_cast<int>(c)), source, dag.stage(source).name + "_before");
  }
  for (const ExchangedStage& e : exchanged) {
    if (tiles.fragments()) break;  // RecurrentProducts
    const Stage& stage = dag.stage(e.stage);
    shared_[e.stage] = Declare(stage.name + "_shared", stage.dtype, gpu ? Scope::kShared : Scope::kLocal,
                               stage.elements() * e.slots());
  }
}

int RecurrentNest::Declare(const std::string& name, DType dtype, Scope scope, int64_t elements, bool packed) {
  const int id = next_buffer_++;
  buffers_.push_back({id, Identifier(absl::StrCat(name, "_", id)), dtype, scope, elements, true, gpu ? 16 : 64});
  buffers_.back().packed = packed;
  return id;
}

void RecurrentNest::DeclareLocal(int key, int id, const std::string& name) {
  const Stage& stage = dag.stage(id);
  const int64_t units = r.IsUniform(stage) ? 1 : gpu ? tiles.units : r.units;
  locals_[key] = Declare(name, stage.dtype, Scope::kLocal,
                         context.schedule.RowsOfThread(tiles, stage) * r.GroupsOf(stage) * units);
}

Expr RecurrentNest::LocalIndex(const Stage& stage, RowAndGroup at) const {
  if (r.IsUniform(stage)) return IntImm(at.row);
  const int64_t column = at.row * r.GroupsOf(stage) + at.group;
  return gpu ? Add(IntImm(column * tiles.units), each) : Add(IntImm(column * r.units), OwnUnit());
}

Expr RecurrentNest::Row(int64_t of_thread) const {
  if (!tiles.fragments()) return IntImm(of_thread);
  const int64_t rows = r.RowsOf(dag.stage(r.body.front()));
  const int64_t first = of_thread / kRowsOfLane * kRowsOfProduct + of_thread % kRowsOfLane;
  const Expr row = Add(Mul(lane, IntImm(kRowsOfLane)), IntImm(first));
  return first + kRowsOfProduct - kRowsOfLane < rows ? row : Min(row, IntImm(rows - 1));
}

Expr RecurrentNest::HasRow(int64_t row) const {
  return tiles.fragments() ? Eq(lane, IntImm(row % kRowsOfProduct / kRowsOfLane)) : nullptr;
}

Expr RecurrentNest::ElementIndex(const Stage& stage, RowAndGroup at) const {
  const Expr first = IntImm(at.row * stage.axes.back().extent + at.group * r.units);
  return r.IsUniform(stage) ? first : Add(first, OwnUnit());
}

Stmt RecurrentNest::ForEach(Stmt body) const {
  if (!body) return nullptr;
  return MakeFor(gpu ? ForKind::kUnroll : ForKind::kVectorize, each, tiles.units, std::move(body));
}

Stmt RecurrentNest::OverUnits(Stmt body) const {
  if (gpu || !body) return body;
  return MakeFor(ForKind::kSerial, block, r.units / tiles.units, std::move(body));
}

Stmt RecurrentNest::OverElements(const Stage& stage, const OfElement& make) const {
  std::vector<Stmt> all;
  for (int64_t row = 0, rows = context.schedule.RowsOfThread(tiles, stage); row < rows; ++row)
    for (int64_t group = 0; group < r.GroupsOf(stage); ++group) all.push_back(make({row, group}));
  return MakeSeq(std::move(all));
}

Stmt RecurrentNest::Barrier(Stmt meanwhile) const {
  if (tiles.cluster > 1) return MakeClusterBarrier(std::move(meanwhile));
  return gpu ? MakeBarrier() : nullptr;
}

Expr RecurrentNest::FlatIndex(const Stage& stage, const std::vector<Expr>& indices) {
  Expr flat = IntImm(0);
  for (size_t d = 0; d < indices.size(); ++d) flat = Add(Mul(flat, IntImm(stage.axes[d].extent)), indices[d]);
  return analyzer_.Simplify(flat);
}

Expr RecurrentNest::GlobalLoad(const ExprNode& load) {
  Reads(load.buffer);
  return Load(load.buffer, load.dtype, {FlatIndex(dag.stage(load.buffer), load.args)});
}

Expr RecurrentNest::Value(const Expr& body, const Stage& stage, RowAndGroup at, bool ahead) {
  // Rows that threads divide among them are apart (CheckRecurrentProducts): a variable stands for the row's number
  // among all.
  const Expr row = tiles.fragments() ? row_ : IntImm(at.row);
  const VarMap own_row = {{row_.get(), Row(at.row)}}, any_row = {{row_.get(), IntImm(0)}};
  const Expr bare = analyzer_.Simplify(Substitute(body, AxesAt(r, stage, row, at.group, unit_)));
  const Expr lowered = Rewrite(bare, [&](const Expr& e) -> Expr {
    if (e->kind != ExprKind::kLoad) return e;
    if (IsGlobal(e->buffer)) {
      const Expr load = Substitute(GlobalLoad(*e), own_row);
      return ahead && gpu ? LoadAhead(load) : load;
    }
    const Stage& from = dag.stage(r.SourceOf(e->buffer));
    std::vector<Expr> indices;
    for (const Expr& index : e->args) indices.push_back(Substitute(index, any_row));
    RowAndGroup own = *OwnElement(r, from, indices, unit_, analyzer_);
    if (tiles.fragments()) own.row = at.row;
    return Load(LocalOf(e->buffer), e->dtype, {LocalIndex(from, own)});
  });
  return Substitute(analyzer_.Simplify(lowered),
                    {{unit_.get(), OwnUnit()}, {row_.get(), Row(at.row)}, {r.step.get(), step}});
}

Expr RecurrentNest::LoadAhead(const Expr& load) {
  auto found = std::find_if(ahead_.begin(), ahead_.end(), [&](const auto& known) { return Equal(known.first, load); });
  if (found == ahead_.end()) {
    const int buffer = Declare(dag.stage(load->buffer).name + "_ahead", load->dtype, Scope::kLocal, tiles.units);
    found = ahead_.insert(ahead_.end(), {load, buffer});
  }
  return Load(found->second, load->dtype, {each});
}

Stmt RecurrentNest::Ahead(const Expr& now, bool first) const {
  std::vector<Stmt> loads;
  for (const auto& [load, buffer] : ahead_)
    if (first || UsesVar(load, r.step.get()))
      loads.push_back(MakeStore(buffer, each, Substitute(load, {{unit_.get(), OwnUnit()}, {r.step.get(), now}})));
  return loads.empty() ? nullptr : ForEach(MakeSeq(std::move(loads)));
}

Expr RecurrentNest::WithTerm(const Expr& e, const Stage& stage, RowAndGroup at, const Expr& term) {
  VarMap axes = AxesAt(r, stage, at, unit_);
  axes[stage.reduce_axes[0].var.get()] = term;
  const Expr lowered = Rewrite(Substitute(e, axes), [&](const Expr& load) -> Expr {
    if (load->kind != ExprKind::kLoad || load->buffer >= dag.size()) return load;
    return IsGlobal(load->buffer) ? GlobalLoad(*load) : SharedLoad(*load);
  });
  return Substitute(lowered, {{unit_.get(), OwnUnit()}, {r.step.get(), step}});
}

Expr RecurrentNest::SharedLoad(const ExprNode& load) {
  const int id = r.SourceOf(load.buffer);
  const Stage& from = dag.stage(id);
  const auto e = std::find_if(exchanged.begin(), exchanged.end(), [&](const auto& x) { return x.stage == id; });
  const Expr slot = SlotRead(*e, load.buffer, step);
  return Load(SharedOf(id), load.dtype, {Add(Mul(slot, IntImm(from.elements())), FlatIndex(from, load.args))});
}

Expr SlotRead(const ExchangedStage& exchanged, int buffer, const Expr& step) {
  if (!exchanged.carried) return IntImm(0);
  return FloorMod(Recurrence::CarriedIn(buffer) < 0 ? Add(step, IntImm(1)) : step, 2);
}

}  // namespace diapason
