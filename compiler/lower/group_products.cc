// Products on tensor cores by warpgroups (wgmma): of four warps each makes 16 rows, whose factors it holds in
// registers as for mma.sync; all columns of the group come straight from shared memory, where a copy holds them
// as core matrices and a second one their small parts. Factors without small parts may have their rows in such a copy
// too, and those of 16 bits rows or columns innermost there in place of k. The products run on their own: a pipeline
// prepares the next step beside them, and where no registers have to be loaded anew, starts its products before these
// are done.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/element_index.h"
#include "compiler/lower/fragments.h"
#include "compiler/lower/guards.h"

namespace diapason {
namespace {

constexpr int64_t kMostColumns = 256;  // of one product

// Tiles of 8 columns, one after the other in shared memory, that one product makes for the same rows.
struct Run {
  std::vector<int64_t> tiles;
  int64_t sum = 0;  // where its sums begin
};

// What the same rows are multiplied with.
struct RowGroup {
  std::vector<int64_t> factors;  // where they lie in registers, by product along k
  std::vector<Stmt> loads;       // of them
  Expr first;                    // or the first factor of them in shared memory
  std::vector<Run> runs;
};

bool SameRows(const RowGroup& a, const RowGroup& b) {
  return a.first ? Equal(a.first, b.first) : a.factors == b.factors;
}

// What stores zeros in place of all values where the condition does not hold: without branches, if the stores are
// copies by hardware.
Stmt StoresIf(const Expr& condition, const Stmt& stmt) {
  if (!stmt) return stmt;
  StmtNode node = *stmt;
  if (node.kind == StmtKind::kStore) {
    const Expr value = node.value, zero = IdentityOf(Combiner::kSum, value->dtype);
    const bool guarded = value->kind == ExprKind::kSelect && Equal(value->args[2], zero);
    node.value =
        guarded ? Select(And(condition, value->args[0]), value->args[1], zero) : Select(condition, value, zero);
  }
  for (Stmt& child : node.body) child = StoresIf(condition, child);
  return std::make_shared<const StmtNode>(std::move(node));
}

}  // namespace

// The products of one stage: the tiles of its loops from position `first` on, written out.
class NestBuilder::GroupEmitter {
 public:
  GroupEmitter(NestBuilder& nest, int id, size_t first, int buffer, const Expr& place)
      : builder_(nest),
        id_(id),
        first_(first),
        buffer_(buffer),
        place_(place),
        stage_(nest.state_.stage(id)),
        bounds_(nest.bounds_.stages[id]),
        end_(stage_.order.size() - 3),
        intrinsic_(TensorIntrinsicOf(stage_.tensor)),
        depth_(intrinsic_.depth()),
        values_(nest.nest_.stages[id].value) {}

  // What the layout of the instruction takes for granted.
  absl::Status Check() {
    RETURN_IF_ERROR(builder_.CheckProducts(id_, first_));
    const Expr& body = stage_.op.body;
    const bool swapped = !builder_.MovesWithLane(id_, LoadOfFactor(body->args[0]), stage_.lane_m);
    rows_.load = LoadOfFactor(body->args[swapped ? 1 : 0]);
    columns_.load = LoadOfFactor(body->args[swapped ? 0 : 1]);
    const StageState& lanes = builder_.state_.stage(stage_.lane_stage);
    if (!builder_.state_.stage(copy()).core_matrices) return Refusal("columns from a copy in core matrices");
    const std::vector<int>& parts = lanes.loops[lanes.loops[stage_.lane_n].fused_into].fused;
    if (parts.size() < 3 || builder_.bounds_.stages[stage_.lane_stage].extent[parts[parts.size() - 3]] % 4 != 0)
      return Refusal("four warps in a row");
    if (builder_.MovesWithLane(id_, columns_.load, parts[parts.size() - 3]) ||
        builder_.MovesWithLane(id_, columns_.load, stage_.lane_m))
      return Refusal("the same columns in four warps");
    warp_ = parts[parts.size() - 3];
    rows_shared_ = builder_.state_.stage(rows_.load->buffer).core_matrices;
    if (rows_shared_ && intrinsic_.parts) return Refusal("rows with small parts from registers");
    return absl::OkStatus();
  }

  // REQUIRES: Check. defer_group_ says what is left to the pipeline.
  absl::StatusOr<Stmt> Emit() {
    rows_.rows = true;
    rows_.buffer = builder_.nest_.buffers.NewId();
    if (intrinsic_.parts) small_ = builder_.nest_.buffers.NewId();
    if (intrinsic_.parts) sums_ = builder_.nest_.buffers.NewId();
    const std::vector<Expr> before = values_;
    const int64_t extent = bounds_.extent[stage_.tensor_k];
    const int64_t longest = intrinsic_.parts ? kLongestRunOfK : extent;
    std::vector<Stmt> all, later;
    absl::Status found;
    for (int64_t k = 0; k < extent && found.ok(); k += longest) {
      const int64_t k_end = std::min(extent, k + longest);
      std::vector<RowGroup> groups;
      found = FindGroups(k, k_end, &groups);
      std::vector<Stmt> sums;
      if (builder_.defer_group_ == Defer::kProducts) {
        if (found.ok() && (intrinsic_.parts || groups.size() != 1 || k_end != extent))
          found = Refusal("the same rows for all columns, where they start later");
        if (!found.ok()) continue;
        all.insert(all.end(), groups[0].loads.begin(), groups[0].loads.end());
        groups[0].loads.clear();
      }
      std::vector<Stmt>* const to = builder_.defer_group_ == Defer::kProducts ? &later : &all;
      for (size_t g = 0; g < groups.size() && found.ok(); ++g) {
        // Rows that are loaded are on their way while the products of those before are made.
        if (g == 0 || !rows_shared_) Begin(groups[g], to);
        AddProducts(groups[g], k, k_end, to);
        if (g + 1 == groups.size() || !rows_shared_) to->push_back(MakeGroupSync(GroupSync::kCommit));
        if (intrinsic_.parts) Finish(groups[g], static_cast<int64_t>(groups.size() - 1 - g), &sums);
      }
      if (!intrinsic_.parts && found.ok()) {
        const Stmt behind = k_end == extent ? std::exchange(builder_.group_behind_, nullptr) : nullptr;
        if (behind) all.push_back(behind);
        sums.push_back(MakeGroupWait(behind ? 1 : 0, buffer_, PlacesOf(groups)));
        if (k_end == extent) sums.push_back(std::exchange(builder_.group_after_, nullptr));
      }
      if (builder_.defer_group_ != Defer::kNothing && k_end == extent) {
        builder_.group_products_ = MakeSeq(later);
        builder_.group_end_ = MakeSeq(sums);
        builder_.defer_group_ = Defer::kNothing;
      } else {
        all.insert(all.end(), sums.begin(), sums.end());
      }
    }
    values_ = before;
    RETURN_IF_ERROR(found);
    if (intrinsic_.parts) Declare(sums_, "sums", stage_.op.dtype, sums_used_);
    if (rows_shared_) return MakeSeq(all);
    Declare(rows_.buffer, "rows", intrinsic_.register_type(), most_factors_);
    if (intrinsic_.parts) Declare(small_, "small", stage_.op.dtype, most_factors_);
    return MakeSeq(all);
  }

 private:
  int copy() const { return columns_.load->buffer; }
  FactorTypes types() const { return {rows_.load->dtype, columns_.load->dtype}; }

  absl::Status Refusal(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage_.op.name, ": warpgroups take ", what));
  }

  void Declare(int buffer, const char* name, DType dtype, int64_t elements) {
    builder_.nest_.buffers.Declare({buffer, absl::StrCat(name, buffer), dtype, Scope::kLocal, elements, true, 0});
  }

  // Has the loops of tiles stand at tile `number`, and notes where in `values`.
  void Select(int64_t number, VarMap* values = nullptr) {
    for (size_t p = end_; p-- > first_;) {
      const int64_t extent = bounds_.extent[stage_.order[p]];
      values_[stage_.order[p]] = IntImm(number % extent);
      if (values) (*values)[builder_.nest_.stages[id_].leaf[p].get()] = IntImm(number % extent);
      number /= extent;
    }
  }

  // The selected tile's first column, or one behind it, at element k of it, in the copy or among its small parts.
  Expr Column(int64_t k, bool of_small, int64_t line = 0) {
    Expr& read = builder_.nest_.stages[copy()].read_slot;
    const Expr slot = read;
    if (of_small && slot) read = FloorMod(builder_.group_iteration_, 2);
    const Expr load = builder_.OperandLoad(id_, columns_, IntImm(k), IntImm(line), IntImm(0));
    read = slot;
    return Load(of_small ? builder_.nest_.buffers.small_parts(copy()) : copy(), load->dtype, {load->args[0]});
  }

  // The selected tile's first row at element k of it, of those of this lane's warpgroup; or a row and warp behind it.
  Expr Row(int64_t k, int64_t half = 0, int64_t line = 0, int64_t warp = 0) {
    Expr& place = builder_.nest_.stages[stage_.lane_stage].value[warp_];
    const Expr own = place;
    place = builder_.analyzer_.Simplify(Add(Mul(FloorDiv(own, 4), IntImm(4)), IntImm(warp)));
    const Expr load = builder_.OperandLoad(id_, rows_, IntImm(k), IntImm(line), IntImm(half));
    place = own;
    return Load(rows_.load->buffer, load->dtype, {load->args[0]});
  }

  // Whether products can begin there: where 16 bytes begin, and in swizzled runs with the first of eight of them.
  bool Begins(const CoreMatrices& matrices, const Expr& first) {
    const int64_t run = intrinsic_.row(), eight = 8 * matrices.width;
    if (builder_.analyzer_.KnownDivisor(first->args[0]) % run != 0) return false;
    if (matrices.width == run) return true;
    const auto inside = builder_.analyzer_.Bounds(builder_.analyzer_.Simplify(FloorMod(first->args[0], eight)));
    return inside && inside->min >= 0 && inside->max < (matrices.along_k ? matrices.width : 1);
  }

  // Whether the row or column behind the first one, and the next k, lie as core matrices say.
  bool LiesSo(const CoreMatrices& matrices, const Expr& first, const Expr& next_line, const Expr& next_k,
              const Expr& run_of_k) {
    return Distance(first, next_line) == matrices.At(1, 0) && Distance(first, next_k) == matrices.At(0, 1) &&
           Distance(first, run_of_k) == matrices.At(0, intrinsic_.row());
  }

  // How a copy lies whose elements of k are so far apart.
  CoreMatrices MatricesOf(int buffer, int64_t distance) const {
    const StageBounds& b = builder_.bounds_.stages[buffer];
    return {.width = b.core_row, .stride = b.core_stride(), .along_k = distance == 1};
  }

  // How the selected tile's columns and rows lie.
  absl::Status FindMatrices(int64_t k) {
    const int64_t run = intrinsic_.row();
    const Expr column = Column(k, false);
    column_matrices_ = MatricesOf(copy(), Distance(column, Column(k + 1, false)));
    if (!LiesSo(column_matrices_, column, Column(k, false, 1), Column(k + 1, false), Column(k + run, false)) ||
        (!column_matrices_.along_k && !intrinsic_.transposes()))
      return Refusal(absl::StrCat("k in runs of ", run, " of a copy"));
    if (!rows_shared_) return absl::OkStatus();
    const Expr row = Row(k);
    row_matrices_ = MatricesOf(rows_.load->buffer, Distance(row, Row(k + 1)));
    bool so = (row_matrices_.along_k || intrinsic_.transposes()) && Begins(row_matrices_, row) &&
              LiesSo(row_matrices_, row, Row(k, 0, 1), Row(k + 1), Row(k + run)) &&
              Distance(row, Row(k, 1)) == row_matrices_.At(8, 0);
    for (int64_t warp = 1; warp < 4; ++warp) so &= Distance(row, Row(k, 0, 0, warp)) == row_matrices_.At(16 * warp, 0);
    return so ? absl::OkStatus() : Refusal("64 rows in a row of a copy");
  }

  int64_t Distance(const Expr& from, const Expr& to) {
    const Expr distance = builder_.analyzer_.Simplify(Sub(to->args[0], from->args[0]));
    return distance->kind == ExprKind::kIntImm ? distance->value : -1;
  }

  // All tiles of a run of k, by their rows, with places for their sums.
  absl::Status FindGroups(int64_t k_begin, int64_t k_end, std::vector<RowGroup>* groups) {
    rows_.elements = 0;
    rows_.known.clear();
    int64_t tiles = 1;
    for (size_t p = first_; p < end_; ++p) tiles *= bounds_.extent[stage_.order[p]];  // CheckProducts: no overflow
    for (int64_t number = 0; number < tiles; ++number) {
      Select(number);
      RowGroup rows;
      RETURN_IF_ERROR(FindMatrices(k_begin));
      if (rows_shared_) rows.first = Row(k_begin);
      for (int64_t k = k_begin; k < k_end && !rows_shared_; k += depth_)
        rows.factors.push_back(builder_.FragmentAt(id_, &rows_, k));
      rows.loads = std::exchange(rows_.loads, {});
      auto group = std::find_if(groups->begin(), groups->end(), [&](const RowGroup& g) { return SameRows(g, rows); });
      if (group == groups->end()) group = groups->insert(group, std::move(rows));
      const Expr column = Column(k_begin, false);
      if (group->runs.empty() || !Follows(group->runs.back(), column, k_begin)) {
        if (!Begins(column_matrices_, column)) return Refusal("columns from the start of core matrices on");
        group->runs.emplace_back();
      }
      group->runs.back().tiles.push_back(number);
    }
    most_factors_ = std::max(most_factors_, rows_.elements);
    sums_used_ = 0;
    for (RowGroup& group : *groups) {
      SplitRuns(&group.runs);
      for (Run& run : group.runs) {
        run.sum = sums_used_;
        sums_used_ += kTileSums * static_cast<int64_t>(run.tiles.size());
      }
    }
    return absl::OkStatus();
  }

  // Where no product has a run's number of columns, the last eight are left to one of their own.
  void SplitRuns(std::vector<Run>* runs) const {
    for (size_t r = 0; r < runs->size(); ++r) {
      std::vector<int64_t>& tiles = (*runs)[r].tiles;
      if (intrinsic_.HasColumns(8 * static_cast<int64_t>(tiles.size()))) continue;
      const int64_t last = tiles.back();
      tiles.pop_back();
      runs->insert(runs->begin() + static_cast<int64_t>(r) + 1, Run{{last}});
    }
  }

  // True if the columns from `column` on are the next of the run.
  bool Follows(const Run& run, const Expr& column, int64_t k) {
    const int64_t columns = 8 * static_cast<int64_t>(run.tiles.size());
    if (columns + 8 > kMostColumns) return false;
    Select(run.tiles.front());
    return Distance(Column(k, false), column) == column_matrices_.At(columns, 0);
  }

  void Begin(const RowGroup& group, std::vector<Stmt>* to) {
    to->insert(to->end(), group.loads.begin(), group.loads.end());
    for (int64_t at : group.factors)
      if (intrinsic_.parts) to->push_back(MakeSmallParts(small_, IntImm(at), kTileSums, Register(rows_.buffer, at)));
    to->push_back(MakeGroupSync(GroupSync::kBegin));
  }

  void AddProducts(const RowGroup& group, int64_t k_begin, int64_t k_end, std::vector<Stmt>* to) {
    for (int64_t k = k_begin; k < k_end; k += depth_) {
      const int64_t at = rows_shared_ ? 0 : group.factors[(k - k_begin) / depth_];
      for (const Run& run : group.runs) {
        Select(run.tiles.front());
        std::vector<Expr> operands;  // made before PlacesOf, which selects other tiles
        if (rows_shared_) {
          operands = {Row(k), Column(k, false)};
          to->push_back(MakeGroupMma({.tensor = stage_.tensor,
                                      .factors = types(),
                                      .buffer = buffer_,
                                      .sums = PlacesOf(run),
                                      .operands = std::move(operands),
                                      .column_matrices = column_matrices_,
                                      .row_matrices = row_matrices_}));
          continue;
        }
        for (int64_t i = 0; i < kTileSums; ++i)
          operands.push_back(Load(rows_.buffer, intrinsic_.register_type(), {IntImm(at + i)}));
        for (int64_t i = 0; i < kTileSums && intrinsic_.parts; ++i) operands.push_back(Register(small_, at + i));
        operands.push_back(Column(k, false));
        if (!intrinsic_.parts) {
          to->push_back(MakeGroupMma({.tensor = stage_.tensor,
                                      .factors = types(),
                                      .buffer = buffer_,
                                      .sums = PlacesOf(run),
                                      .operands = std::move(operands),
                                      .column_matrices = column_matrices_}));
          continue;
        }
        operands.push_back(Column(k, true));
        to->push_back(MakeGroupMma({.tensor = stage_.tensor,
                                    .buffer = sums_,
                                    .index = IntImm(run.sum),
                                    .columns = 8 * static_cast<int64_t>(run.tiles.size()),
                                    .from_zero = k == k_begin,
                                    .operands = std::move(operands),
                                    .column_matrices = column_matrices_}));
      }
    }
  }

  // Where a lane's sums of a run lie among the stage's own, in order of the instruction.
  std::vector<Expr> PlacesOf(const Run& run) {
    std::vector<Expr> places;
    for (const int64_t tile : run.tiles) {
      VarMap values;
      Select(tile, &values);
      for (int64_t i = 0; i < kTileSums; ++i) {
        values[builder_.nest_.stages[id_].leaf[end_ + 1].get()] = IntImm(i / 2);
        values[builder_.nest_.stages[id_].leaf[end_ + 2].get()] = IntImm(i % 2);
        places.push_back(builder_.analyzer_.Simplify(Substitute(place_, values)));
      }
    }
    return places;
  }

  std::vector<Expr> PlacesOf(const std::vector<RowGroup>& groups) {
    std::vector<Expr> all;
    for (const RowGroup& group : groups)
      for (const Run& run : group.runs) {
        const std::vector<Expr> places = PlacesOf(run);
        all.insert(all.end(), places.begin(), places.end());
      }
    return all;
  }

  // Waits for a group, of which `later` have been started since, and adds its sums to the stage's.
  void Finish(const RowGroup& group, int64_t later, std::vector<Stmt>* to) {
    to->push_back(MakeGroupSync(GroupSync::kWait, later));
    for (const Run& run : group.runs) {
      const std::vector<Expr> places = PlacesOf(run);
      for (size_t i = 0; i < places.size(); ++i) {
        const Expr sum = Register(sums_, run.sum + static_cast<int64_t>(i));
        to->push_back(MakeStore(buffer_, places[i], Add(Load(buffer_, stage_.op.dtype, {places[i]}), sum)));
      }
    }
  }

  Expr Register(int buffer, int64_t at) const { return Load(buffer, stage_.op.dtype, {IntImm(at)}); }

  NestBuilder& builder_;
  const int id_;
  const size_t first_;
  const int buffer_;  // of the stage's sums, which lie at place_
  const Expr place_;
  const StageState& stage_;
  const StageBounds& bounds_;
  const size_t end_;  // of the loops of tiles
  const TensorIntrinsic& intrinsic_;
  const int64_t depth_;  // of a product
  std::vector<Expr>& values_;
  Fragments rows_, columns_;
  bool rows_shared_ = false;  // rows come from shared memory as well
  int warp_ = -1;             // the lanes' loop over warps with rows of their own
  CoreMatrices column_matrices_, row_matrices_;
  int small_ = -1, sums_ = -1;  // registers: small parts of the rows' factors, and sums of a run of k
  int64_t most_factors_ = 0, sums_used_ = 0;
};

Stmt NestBuilder::EmitGroupProducts(int id, size_t first, int buffer, const Expr& place) {
  GroupEmitter emitter(*this, id, first, buffer, place);
  Stmt products;
  const absl::Status made = [&] {
    RETURN_IF_ERROR(emitter.Check());
    ASSIGN_OR_RETURN(products, emitter.Emit());
    return absl::OkStatus();
  }();
  if (!made.ok()) nest_.Refuse(made);
  return products;
}

// The small parts of what this thread has copied at an iteration: its own stores are all it has to wait for.
Stmt NestBuilder::EmitSmallParts(int copy, const Expr& iteration, int64_t slots) {
  parts_.values.Prepare(copy);
  const StageState& stage = state_.stage(copy);
  const StageBounds& b = bounds_.stages[copy];
  size_t end = stage.order.size();
  int64_t elements = 1;
  VarMap first;
  if (end > 0 && parts_.loops.KindOf(copy, end - 1) == ForKind::kVectorize) {
    --end;
    elements = b.extent[stage.order[end]];
    first[nest_.stages[copy].leaf[end].get()] = IntImm(0);
  }
  return EmitLoops(copy, 0, end, [&]() -> Stmt {
    const Expr at = Substitute(FlatIndex(kernel_, copy, nest_.stages[copy].compact), first);
    auto in_slot = [&](int64_t count) {
      if (slots == 1) return analyzer_.Simplify(at);
      return analyzer_.Simplify(Add(Mul(FloorMod(iteration, count), IntImm(b.slot_stride())), at));
    };
    Stmt store = MakeSmallParts(nest_.buffers.small_parts(copy), in_slot(2), elements,
                                Load(copy, stage.op.dtype, {in_slot(slots)}));
    std::vector<Expr> inside;
    for (const Expr& guard : GuardsOf(nest_, copy).spatial)
      inside.push_back(analyzer_.Simplify(Substitute(guard, first)));
    for (size_t i = inside.size(); i-- > 0;) store = MakeIf(inside[i], store);
    return store;
  });
}

// What products by warpgroups need of the copies in core matrices that were made at a loop: small parts, of those that
// have them, and all of them published, so that products behind the next barrier see them. Null if there are none.
Stmt NestBuilder::FinishCoreMatrices(int id, size_t position, const Expr& iteration, int64_t slots) {
  std::vector<Stmt> all;
  bool publish = false;
  for (int child : state_.topological()) {
    const StageState& stage = state_.stage(child);
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || !stage.core_matrices) continue;
    if (bounds_.stages[child].attach_position != static_cast<int>(position)) continue;
    if (nest_.buffers.small_parts(child) >= 0) all.push_back(EmitSmallParts(child, iteration, slots));
    publish = publish || kernel_.IsPublished(child);
  }
  if (publish) all.push_back(MakeGroupSync(GroupSync::kPublish));
  return MakeSeq(all);
}

// A pipeline as EmitPipeline's, whose steps start the products of iteration t and beside them cut what iteration t + 1
// needs in two and start the copies of iteration t + slots - 1. A thread cuts what it has copied itself, so one barrier
// a step is enough. `at` binds the loops of an iteration. Where both factors lie in shared memory and there are more
// than two slots, the products of iteration t - 1 may be under way still when those of t start: the copies that start
// then are of iteration t + slots - 2, into the slot of t - 2. Nothing branches between the start of products and their
// wait: ptxas would make them wait for each other (C7514).
Stmt NestBuilder::EmitGroupPipeline(const Pipeline& p) {
  const int id = p.id;
  const size_t last = p.last;
  const int64_t slots = p.slots, iterations = p.iterations;
  const Expr& step = p.step;
  bool once = true;  // a step makes products once
  for (size_t l = last + 1; l < p.end; ++l) once &= bounds_.stages[id].extent[state_.stage(id).order[l]] == 1;
  const bool flying = once && slots > 2 && state_.reads_core_matrices(id);
  const int64_t distance = slots - (flying ? 2 : 1);
  const Expr ahead = MakeVar("ahead");
  analyzer_.Bind(ahead, distance);
  analyzer_.Bind(step, iterations);
  auto copies = [&](const Expr& iteration) {
    Stmt body = p.at(Min(iteration, IntImm(iterations - 1)), AttachedAt(id, last, true));
    return MakeLet(p.fill, analyzer_.Simplify(FloorMod(iteration, slots)), body);
  };
  auto small = [&](const Expr& iteration) { return FinishCoreMatrices(id, last, iteration, slots); };
  auto before = [&](const Expr& iteration, Stmt body) {
    return MakeIf(analyzer_.Simplify(Lt(iteration, IntImm(iterations))), body);
  };

  const Stmt first = MakeFor(ForKind::kSerial, ahead, distance, MakeSeq({copies(ahead), MakeCommit()}), 1);
  std::vector<Stmt> body{MakeBarrier()};
  ++nest_.serial_depth;
  group_iteration_ = step;
  defer_group_ = once ? Defer::kEnd : Defer::kNothing;
  group_end_ = nullptr;
  Stmt products = MakeSeq({AttachedAt(id, last, false), EmitLoops(id, last + 1, p.end, p.inner)});
  const Stmt sums = group_end_;
  defer_group_ = Defer::kNothing;
  group_end_ = nullptr;
  --nest_.serial_depth;
  auto in_use = [&](Stmt part) { return MakeLet(p.use, FloorMod(step, slots), p.at(step, part)); };
  body.push_back(in_use(products));
  const Expr next = Add(step, IntImm(1)), later = Add(step, IntImm(distance));
  const Stmt start_copies = MakeSeq({before(later, copies(later)), MakeCommit()});
  if (flying) {
    const Stmt copies_if = StoresIf(analyzer_.Simplify(Lt(later, IntImm(iterations))), copies(later));
    body.insert(body.end(),
                {copies_if, MakeCommit(), MakeWait(slots - 3), small(next), MakeGroupSync(GroupSync::kWait, 1)});
    return MakeSeq({first, MakeWait(slots - 3), small(IntImm(0)),
                    MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1), sums});
  }
  if (slots > 2) {
    body.insert(body.end(), {MakeWait(slots - 3), before(next, small(next)), start_copies});
  } else {
    body.insert(body.end(), {start_copies, MakeWait(0), before(next, small(next))});
  }
  body.push_back(sums ? in_use(sums) : nullptr);
  return MakeSeq(
      {first, MakeWait(slots - 2), small(IntImm(0)), MakeFor(ForKind::kSerial, step, iterations, MakeSeq(body), 1)});
}

// A pipeline whose loop carries reductions (StepKind::kCarry), with more than two slots: the products of a step, by
// rows that were made in it, start behind the first products of the next one and run beside all that is computed from
// these (Shah et al. 2024, "Intra-warpgroup overlap"). A step reads its own copies and, of the products' columns, those
// of the step before, so copies are started slots - 2 iterations ahead.
//
// With more than three slots the warpgroups need not begin a step together, so that one computes while the products of
// another are made: a thread arrives at a barrier once its first products of a step are done and its copies for the
// next one are there, and waits at the beginning of that for the others to have arrived. They may then still read what
// the step before the last one has left, so copies are started slots - 3 iterations ahead.
Stmt NestBuilder::EmitCarriedGroupPipeline(const Pipeline& p, const CarriedStep& carried) {
  const bool apart = p.slots > 3;
  const int64_t distance = p.slots - (apart ? 3 : 2);
  const Expr ahead = MakeVar("ahead"), now = Add(p.step, IntImm(1));
  analyzer_.Bind(ahead, distance);
  analyzer_.Bind(p.step, p.iterations - 1);
  Stmt init, arrive, await;
  if (apart) {
    const int buffer = nest_.buffers.NewId();
    nest_.buffers.Declare({buffer, "steps_begun", DType::kInt64, Scope::kShared, 1, true, 16, false, true});
    const Expr barrier = Load(buffer, DType::kInt64, {IntImm(0)});
    init = MakeIf(Eq(ThreadOf(nest_, p.id), IntImm(0)), MakeMbarrierInit(barrier, 1, kernel_.threads));
    arrive = MakeSeq({MakeWait(distance - 1), MakeGroupSync(GroupSync::kPublish), MakeMbarrierArrive(barrier)});
    await = MakeMbarrierWait(barrier, analyzer_.Simplify(FloorMod(p.step, 2)));
  }
  const auto copies = [&](const Expr& iteration) {
    const Expr exists = analyzer_.Simplify(Lt(iteration, IntImm(p.iterations)));
    return MakeSeq({MakeIf(exists, carried.copies(iteration)), MakeCommit()});
  };
  const auto in_use = [&](const Expr& iteration, Stmt part) {
    return MakeLet(p.use, analyzer_.Simplify(FloorMod(iteration, p.slots)), p.at(iteration, std::move(part)));
  };
  // Waits for the copies of a step.
  const auto together = [&](const Expr& iteration) {
    return MakeSeq({MakeWait(distance - 1), FinishCoreMatrices(p.id, p.last, iteration, p.slots), MakeBarrier()});
  };
  const auto made = [&](Stmt behind) {
    group_behind_ = std::move(behind);
    group_after_ = arrive;
    const Stmt all = EmitInTurn(carried.made, /*after_barrier=*/true);
    group_after_ = nullptr;
    if (std::exchange(group_behind_, nullptr))
      nest_.Refuse(absl::InvalidArgumentError("a step of keys by warpgroups has products of its own"));
    return all;
  };
  ++nest_.serial_depth;
  const Stmt first = made(nullptr);
  defer_group_ = Defer::kProducts;
  const Stmt rows = EmitLoops(p.id, p.last + 1, p.end, p.inner);
  defer_group_ = Defer::kNothing;
  const Stmt products = std::exchange(group_products_, nullptr), end = std::exchange(group_end_, nullptr);
  const Stmt next = made(in_use(p.step, products));
  --nest_.serial_depth;
  const Stmt loop = MakeSeq(
      {apart ? await : together(now), copies(Add(now, IntImm(distance))), in_use(now, MakeSeq({next, end, rows}))});
  return MakeSeq({init, MakeFor(ForKind::kSerial, ahead, distance, copies(ahead), 1), together(IntImm(0)),
                  copies(IntImm(distance)), in_use(IntImm(0), MakeSeq({first, rows})),
                  MakeFor(ForKind::kSerial, p.step, p.iterations - 1, loop, 1),
                  in_use(IntImm(p.iterations - 1), products), end});
}

}  // namespace diapason
