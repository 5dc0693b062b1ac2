#include "compiler/lower/group_products.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

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

// The products of one stage. REQUIRES: CheckProducts.
class GroupProducts {
 public:
  GroupProducts(NestParts& parts, const TileProducts& products, GroupHandover& handover)
      : nest_(parts.state),
        kernel_(nest_.kernel),
        handover_(handover),
        id_(products.id),
        first_(products.first),
        buffer_(products.buffer),
        place_(products.place),
        stage_(kernel_.state.stage(id_)),
        bounds_(kernel_.bounds.stages[id_]),
        end_(stage_.order.size() - 3),
        intrinsic_(TensorIntrinsicOf(stage_.tensor)),
        depth_(intrinsic_.depth()),
        values_(nest_.stages[id_].value),
        loader_(&parts, id_) {}

  // What the layout of the instruction takes for granted.
  absl::Status Check() {
    const Expr& body = stage_.op.body;
    ASSIGN_OR_RETURN(const bool moves, loader_.MovesWithLane(LoadOfFactor(body->args[0]), stage_.lane_m));
    const bool swapped = !moves;
    rows_.load = LoadOfFactor(body->args[swapped ? 1 : 0]);
    columns_.load = LoadOfFactor(body->args[swapped ? 0 : 1]);
    const StageState& lanes = kernel_.state.stage(stage_.lane_stage);
    if (!kernel_.state.stage(copy()).core_matrices) return Refusal("columns from a copy in core matrices");
    const std::vector<int>& parts = lanes.loops[lanes.loops[stage_.lane_n].fused_into].fused;
    if (parts.size() < 3 || kernel_.bounds.stages[stage_.lane_stage].extent[parts[parts.size() - 3]] % 4 != 0)
      return Refusal("four warps in a row");
    ASSIGN_OR_RETURN(const bool with_warp, loader_.MovesWithLane(columns_.load, parts[parts.size() - 3]));
    ASSIGN_OR_RETURN(const bool with_row, loader_.MovesWithLane(columns_.load, stage_.lane_m));
    if (with_warp || with_row) return Refusal("the same columns in four warps");
    warp_ = parts[parts.size() - 3];
    rows_shared_ = kernel_.state.stage(rows_.load->buffer).core_matrices;
    if (rows_shared_ && intrinsic_.parts) return Refusal("rows with low parts from registers");
    return absl::OkStatus();
  }

  // REQUIRES: Check. The handover says what is left to the pipeline.
  absl::StatusOr<Stmt> Emit() {
    rows_.rows = true;
    rows_.buffer = nest_.buffers.NewId();
    if (intrinsic_.parts) low_ = nest_.buffers.NewId();
    if (intrinsic_.parts) sums_ = nest_.buffers.NewId();
    const std::vector<Expr> before = values_;
    const int64_t extent = bounds_.extent[stage_.tensor_k];
    const bool in_turns = handover_.in_turns;
    const int64_t half = (extent / depth_ + 1) / 2 * depth_;
    const int64_t longest = intrinsic_.parts ? kLongestRunOfK : in_turns ? half : extent;
    std::vector<Stmt> all, later;
    absl::Status found;
    for (int64_t k = 0; k < extent && found.ok(); k += longest) {
      const int64_t k_end = std::min(extent, k + longest);
      std::vector<RowGroup> groups;
      found = FindGroups(k, k_end, in_turns ? most_factors_ : 0, &groups);
      std::vector<Stmt> sums;
      if (handover_.defer == GroupHandover::Defer::kProducts) {
        if (found.ok() && (intrinsic_.parts || groups.size() != 1 || k_end != extent))
          found = Refusal("the same rows for all columns, where they start later");
        if (!found.ok()) continue;
        all.insert(all.end(), groups[0].loads.begin(), groups[0].loads.end());
        groups[0].loads.clear();
      }
      std::vector<Stmt>* const to = handover_.defer == GroupHandover::Defer::kProducts ? &later : &all;
      for (size_t g = 0; g < groups.size() && found.ok(); ++g) {
        // Rows that are loaded are on their way while the products of those before are made.
        if (g == 0 || !rows_shared_) Begin(groups[g], to);
        AddProducts(groups[g], k, k_end, to);
        if (g + 1 == groups.size() || !(rows_shared_ || in_turns)) to->push_back(MakeGroupSync(GroupSync::kCommit));
        if (intrinsic_.parts) Finish(groups[g], static_cast<int64_t>(groups.size() - 1 - g), &sums);
      }
      if (in_turns && k_end < extent) {
        all.push_back(MakeGroupSync(GroupSync::kWait, 1));  // of the step before, whose registers are loaded next
        continue;
      }
      if (!intrinsic_.parts && found.ok()) {
        const Stmt behind = k_end == extent ? std::exchange(handover_.behind, nullptr) : nullptr;
        if (behind) all.push_back(behind);
        sums.push_back(MakeGroupWait(behind ? 1 : 0, buffer_, PlacesOf(groups)));
        if (k_end == extent) sums.push_back(std::exchange(handover_.after, nullptr));
      }
      if (handover_.defer != GroupHandover::Defer::kNothing && k_end == extent) {
        handover_.products = MakeSeq(later);
        handover_.end = MakeSeq(sums);
        handover_.defer = GroupHandover::Defer::kNothing;
      } else {
        all.insert(all.end(), sums.begin(), sums.end());
      }
    }
    values_ = before;
    RETURN_IF_ERROR(found);
    if (intrinsic_.parts) Declare(sums_, "sums", stage_.op.dtype, sums_used_);
    if (rows_shared_) return MakeSeq(all);
    Declare(rows_.buffer, "rows", intrinsic_.register_type(), most_factors_);
    if (intrinsic_.parts) Declare(low_, "low", stage_.op.dtype, most_factors_);
    return MakeSeq(all);
  }

 private:
  int copy() const { return columns_.load->buffer; }
  FactorTypes types() const { return {rows_.load->dtype, columns_.load->dtype}; }

  absl::Status Refusal(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage_.op.name, ": warpgroups take ", what));
  }

  void Declare(int buffer, const char* name, DType dtype, int64_t elements) {
    nest_.buffers.Declare({buffer, absl::StrCat(name, buffer), dtype, Scope::kLocal, elements, true, 0});
  }

  // Has the loops of tiles stand at tile `number`, and notes where in `values`.
  void Select(int64_t number, VarMap* values = nullptr) {
    for (size_t p = end_; p-- > first_;) {
      const int64_t extent = bounds_.extent[stage_.order[p]];
      values_[stage_.order[p]] = IntImm(number % extent);
      if (values) (*values)[nest_.stages[id_].leaf[p].get()] = IntImm(number % extent);
      number /= extent;
    }
  }

  // The selected tile's first column, or one behind it, at element k of it, in the copy or among its low parts.
  Expr Column(int64_t k, bool of_low, int64_t line = 0) {
    Expr& read = nest_.stages[copy()].read_slot;
    const Expr slot = read;
    if (of_low && slot) read = FloorMod(handover_.iteration, 2);
    const Expr load = loader_.LoadOf(columns_, IntImm(k), IntImm(line), IntImm(0));
    read = slot;
    return Load(of_low ? nest_.buffers.low_parts(copy()) : copy(), load->dtype, {load->args[0]});
  }

  // The selected tile's first row at element k of it, of those of this lane's warpgroup; or a row and warp behind it.
  Expr Row(int64_t k, int64_t half = 0, int64_t line = 0, int64_t warp = 0) {
    Expr& place = nest_.stages[stage_.lane_stage].value[warp_];
    const Expr own = place;
    place = nest_.analyzer.Simplify(Add(Mul(FloorDiv(own, 4), IntImm(4)), IntImm(warp)));
    const Expr load = loader_.LoadOf(rows_, IntImm(k), IntImm(line), IntImm(half));
    place = own;
    return Load(rows_.load->buffer, load->dtype, {load->args[0]});
  }

  // Whether products can begin there: where 16 bytes begin, and in swizzled runs with the first of eight of them.
  bool Begins(const CoreMatrices& matrices, const Expr& first) {
    const int64_t run = intrinsic_.row(), eight = 8 * matrices.width;
    if (nest_.analyzer.KnownDivisor(first->args[0]) % run != 0) return false;
    if (matrices.width == run) return true;
    const auto inside = nest_.analyzer.Bounds(nest_.analyzer.Simplify(FloorMod(first->args[0], eight)));
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
    const StageBounds& b = kernel_.bounds.stages[buffer];
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
    const Expr distance = nest_.analyzer.Simplify(Sub(to->args[0], from->args[0]));
    return distance->kind == ExprKind::kIntImm ? distance->value : -1;
  }

  // All tiles of a run of k, by their rows, whose registers begin with `first`, with places for their sums.
  absl::Status FindGroups(int64_t k_begin, int64_t k_end, int64_t first, std::vector<RowGroup>* groups) {
    rows_.elements = first;
    rows_.known.clear();
    int64_t tiles = 1;
    for (size_t p = first_; p < end_; ++p) tiles *= bounds_.extent[stage_.order[p]];  // CheckProducts: no overflow
    for (int64_t number = 0; number < tiles; ++number) {
      Select(number);
      RowGroup rows;
      RETURN_IF_ERROR(FindMatrices(k_begin));
      if (rows_shared_) rows.first = Row(k_begin);
      for (int64_t k = k_begin; k < k_end && !rows_shared_; k += depth_)
        rows.factors.push_back(loader_.RegistersAt(&rows_, k));
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
    if (columns + 8 > TensorIntrinsic::kMostColumns) return false;
    Select(run.tiles.front());
    return Distance(Column(k, false), column) == column_matrices_.At(columns, 0);
  }

  void Begin(const RowGroup& group, std::vector<Stmt>* to) {
    to->insert(to->end(), group.loads.begin(), group.loads.end());
    for (int64_t at : group.factors) {
      const Expr first = Register(rows_.buffer, at);
      if (intrinsic_.parts) to->push_back(MakeFactorParts(FactorPart::kLow, low_, IntImm(at), kTileSums, first));
      if (intrinsic_.rounds_factors())
        to->push_back(MakeFactorParts(FactorPart::kRounded, rows_.buffer, IntImm(at), kTileSums, first));
    }
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
        for (int64_t i = 0; i < kTileSums && intrinsic_.parts; ++i) operands.push_back(Register(low_, at + i));
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
        values[nest_.stages[id_].leaf[end_ + 1].get()] = IntImm(i / 2);
        values[nest_.stages[id_].leaf[end_ + 2].get()] = IntImm(i % 2);
        places.push_back(nest_.analyzer.Simplify(Substitute(place_, values)));
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

  NestState& nest_;
  const KernelContext& kernel_;
  GroupHandover& handover_;
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
  FragmentLoader loader_;
  Fragments rows_, columns_;
  bool rows_shared_ = false;  // rows come from shared memory as well
  int warp_ = -1;             // the lanes' loop over warps with rows of their own
  CoreMatrices column_matrices_, row_matrices_;
  int low_ = -1, sums_ = -1;  // registers: low parts of the rows' factors, and sums of a run of k
  int64_t most_factors_ = 0, sums_used_ = 0;
};

}  // namespace

Stmt EmitGroupProducts(NestParts& parts, const TileProducts& products, GroupHandover& handover) {
  const absl::StatusOr<Stmt> made = [&]() -> absl::StatusOr<Stmt> {
    RETURN_IF_ERROR(CheckProducts(parts.state.kernel, products));
    GroupProducts all(parts, products, handover);
    RETURN_IF_ERROR(all.Check());
    return all.Emit();
  }();
  if (made.ok()) return *made;
  parts.state.Refuse(made.status());
  return nullptr;
}

}  // namespace diapason
