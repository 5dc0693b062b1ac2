#include "scheduler/sketch/rules/tensor_tile.h"

#include <algorithm>
#include <utility>

namespace diapason {
namespace {

// The two loads that a product multiplies, perhaps cast to the type of the sum; null where they are not that.
const Expr* LoadsOfProduct(const Expr& body, Expr loads[2]) {
  if (body->kind != ExprKind::kMul) return nullptr;
  for (int i : {0, 1}) {
    loads[i] = body->args[i]->kind == ExprKind::kCast ? body->args[i]->args[0] : body->args[i];
    if (loads[i]->kind != ExprKind::kLoad) return nullptr;
  }
  return loads;
}

bool MayUse(const TensorIntrinsic& intrinsic, const SketchContext& context) {
  if (context.target.kind != TargetKind::kCuda) return true;
  if (context.target.strict_fp32 && intrinsic.parts) return false;
  if (intrinsic.groups && context.facts.arch != "sm_90") return false;  // later ones have other instructions
  return CudaArchNumber(context.facts.arch) >= intrinsic.first_arch;
}

// Those up to 16.
std::vector<int32_t> Divisors(int64_t extent) {
  std::vector<int32_t> divisors;
  for (int32_t d = 1; d <= 16; ++d)
    if (extent % d == 0) divisors.push_back(d);
  return divisors;
}

struct ReduceTile {
  Factor mid, inner;
};

ReduceTile MakeReduceTile(Draft* draft, int stage, int axis, bool groups) {
  const int64_t extent = draft->state().stage(stage).axis(axis).extent;
  const auto depth = static_cast<int32_t>(IntrinsicFor(*draft, stage, groups)->depth());
  const std::string name = AxisName(draft->state(), stage, axis);
  ReduceTile tile;
  if (groups) {
    std::vector<int32_t> depths;
    for (int32_t many : {depth, 2 * depth, 4 * depth, 8 * depth})
      if (extent % many == 0 || (EndsInZeros(*draft, stage) && many < 2 * extent)) depths.push_back(many);
    tile.mid = Factor::Of(1);
    tile.inner = draft->OptionParameter(name + ".r2", depths, 4 * depth);
    return tile;
  }
  if (EndsInZeros(*draft, stage)) {
    tile.mid = draft->TileParameter(name + ".r1", (extent + depth - 1) / depth, 16, 2);
    std::vector<int32_t> depths{depth, 2 * depth, 4 * depth};
    if (extent > 2 * depth && extent <= 3 * depth) depths.back() = 3 * depth;  // the whole of it
    tile.inner = draft->OptionParameter(name + ".r2", depths, depth);
    return tile;
  }
  tile.mid = draft->OptionParameter(name + ".r1", Divisors(extent / depth), 2);
  tile.inner = Factor::Of(depth);
  return tile;
}

struct TensorReduceLoops {
  std::vector<int> cluster, r0, sets, r1;
  int k = -1;
};

// The last axis in the depths of products; of the others, a window, a block takes some at once (that divide it:
// products have no predicates).
TensorReduceLoops SplitReduce(Draft* draft, int stage, const ClusterAxis& cluster, bool groups, ReduceTiles* made) {
  TensorReduceLoops loops;
  const std::vector<int> axes = ReduceAxes(draft->state(), stage);
  for (int axis : axes) {
    const int64_t extent = draft->state().stage(stage).axis(axis).extent;
    const bool split = cluster.axis == axis, k = axis == axes.back();
    std::vector<Factor> factors;
    if (k) {
      const ReduceTile tile = MakeReduceTile(draft, stage, axis, groups);
      factors = {tile.mid, tile.inner};
    } else {
      const std::vector<int32_t> divisors = Divisors(extent);
      factors = {draft->OptionParameter(AxisName(draft->state(), stage, axis) + ".r1", divisors, divisors.back())};
    }
    made->axes.push_back({axis, factors[0], factors.size() > 1 ? factors[1] : Factor{}});
    if (split) factors.insert(factors.begin(), {cluster.blocks, cluster.thread_sets});
    Factor all;
    for (const Factor& factor : factors) all = all * factor;
    draft->parameters().BoundPadding(extent, all);
    const std::vector<int> pieces = draft->Split(stage, axis, factors);
    loops.r0.push_back(pieces[0]);
    if (split) loops.cluster.push_back(pieces[1]);
    if (split) loops.sets.push_back(pieces[2]);
    loops.r1.push_back(pieces[split ? 3 : 1]);
    if (k) loops.k = pieces.back();
  }
  return loops;
}

// Axes along which blocks take more than one element.
std::vector<int> TiledAxes(const Draft& draft, int stage, const std::vector<bool>& batch) {
  std::vector<int> tiled;
  for (int axis : SpatialAxes(draft.state(), stage))
    if (!batch[axis] && draft.state().stage(stage).axis(axis).extent > 1) tiled.push_back(axis);
  return tiled;
}

struct LaneAxes {
  int rows, columns;
};

// REQUIRES: two axes or more.
LaneAxes LanesOf(const std::vector<int>& tiled) {
  if (tiled.size() == 2) return {tiled[0], tiled[1]};
  return {tiled.back(), tiled[tiled.size() - 2]};
}

// True if the reduction is also over a window, whose places share what they read.
bool IsWindow(const Draft& draft, int stage) {
  const std::vector<int> axes = ReduceAxes(draft.state(), stage);
  int64_t window = 1;
  for (int axis : axes)
    if (axis != axes.back()) window *= draft.state().stage(stage).axis(axis).extent;
  return window > 1;
}

// True if two variables are the two innermost indices of a load, and of no other.
bool IsMatrix(const Expr& load, const Expr& a, const Expr& b) {
  const size_t rank = load->args.size();
  if (rank < 2) return false;
  const Expr &last = load->args[rank - 1], &before = load->args[rank - 2];
  if (!(last == a && before == b) && !(last == b && before == a)) return false;
  for (size_t d = 0; d + 2 < rank; ++d)
    if (UsesVar(load->args[d], a.get()) || UsesVar(load->args[d], b.get())) return false;
  return true;
}

}  // namespace

const TensorIntrinsic* IntrinsicFor(const Draft& draft, int stage, bool groups) {
  const Stage& op = draft.state().stage(stage).op;
  Expr loads[2];
  if (op.combiner != Combiner::kSum || LoadsOfProduct(op.body, loads) == nullptr) return nullptr;
  for (const TensorIntrinsic& intrinsic : TensorIntrinsics())
    if (intrinsic.groups == groups && intrinsic.sum == op.dtype && intrinsic.FindFactor(loads[0]->dtype) &&
        intrinsic.FindFactor(loads[1]->dtype) && MayUse(intrinsic, draft.context()) &&
        (intrinsic.factors[0].dtype != DType::kFloat32 || intrinsic.rounds_factors() == draft.traits().rounds_factors))
      return &intrinsic;
  return nullptr;
}

const char* NameOfProducts(const Draft& draft, bool groups) {
  if (draft.traits().rounds_factors) return groups ? "tf32_wgmma" : "tf32";
  return groups ? "wgmma" : "tensor";
}

bool MayRoundFactors(const Draft& draft, int stage) {
  const State& state = draft.state();
  const StageState& s = state.stage(stage);
  Expr loads[2];
  constexpr double kLeastError = 0x1p-12;  // rounding factors to 10 bits of fraction costs more wherever it is done
  if (draft.context().target.tf32 < kLeastError || s.op.dtype != DType::kFloat32 ||
      LoadsOfProduct(s.op.body, loads) == nullptr)
    return false;
  // The transforms of Winograd's algorithm, whose loops are unrolled by these axes, make errors of factors larger.
  return std::all_of(std::begin(loads), std::end(loads), [&](const Expr& load) {
    return load->dtype == DType::kFloat32 && state.stage(load->buffer).op.unroll_axes.empty();
  });
}

bool EndsInZeros(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  const Expr& var = s.axis(ReduceAxes(draft.state(), stage).back()).var;
  bool alone = false;
  Expr loads[2];
  if (LoadsOfProduct(s.op.body, loads) == nullptr) return false;
  for (const Expr& operand : loads)
    for (const Expr& index : operand->args) alone |= index == var;
  return alone;
}

bool FitsTensorCores(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  const TensorIntrinsic* intrinsic = IntrinsicFor(draft, stage, /*groups=*/false);
  if (intrinsic == nullptr) return false;
  bool gemm_like = false;
  const std::vector<bool> batch = BatchAxes(draft.state(), stage, &gemm_like);
  if (!gemm_like) return false;
  const std::vector<int> tiled = TiledAxes(draft, stage, batch), reduce = ReduceAxes(draft.state(), stage);
  if (reduce.empty() || (IsWindow(draft, stage) ? tiled.size() < 3 : tiled.size() != 2 || reduce.size() != 1))
    return false;
  const LaneAxes lanes = LanesOf(tiled);
  const int64_t k = s.axis(reduce.back()).extent;
  // Of few channels: where the window's rows hold whole depths of channels, the gemm rewrite copies them as well.
  if (tiled.size() > 2 && (!IsRowOfWindow(draft.state(), stage, reduce.back()) || !EndsInZeros(draft, stage)))
    return false;
  return s.axis(lanes.rows).extent >= 12 && s.axis(lanes.columns).extent >= (tiled.size() == 2 ? 8 : 7) && k >= 8 &&
         (k % intrinsic->depth() == 0 || EndsInZeros(draft, stage));
}

bool FitsTensorCores(const Draft& draft, int stage, int rows, int columns) {
  constexpr int64_t kFewColumns = 8, kFewTerms = 8;
  const StageState& s = draft.state().stage(stage);
  const std::vector<int> reduce = ReduceAxes(draft.state(), stage);
  if (IntrinsicFor(draft, stage, /*groups=*/false) == nullptr || reduce.size() != 1 || !EndsInZeros(draft, stage) ||
      s.axis(columns).extent < kFewColumns || s.axis(reduce[0]).extent < kFewTerms)
    return false;
  Expr loads[2];
  LoadsOfProduct(s.op.body, loads);
  const auto reads = [&](const Expr& load, int axis) {
    return std::any_of(load->args.begin(), load->args.end(),
                       [&](const Expr& index) { return UsesVar(index, s.axis(axis).var.get()); });
  };
  if (reads(loads[0], columns) == reads(loads[1], columns)) return false;
  const Expr &of_rows = loads[reads(loads[0], columns) ? 1 : 0], &of_columns = loads[reads(loads[0], columns) ? 0 : 1];
  for (int axis : SpatialAxes(draft.state(), stage)) {
    if (s.axis(axis).extent == 1 || axis == columns) continue;
    if (!reads(of_rows, axis) || (axis == rows && reads(of_columns, axis))) return false;
  }
  return true;
}

// Both operands of a product read from shared memory, by these rows and columns; no form where they do not fit.
static GroupForm FormOfCopies(const Draft& draft, int stage, int rows, int columns) {
  const TensorIntrinsic& intrinsic = *IntrinsicFor(draft, stage, /*groups=*/true);
  const StageState& s = draft.state().stage(stage);
  if (intrinsic.parts || intrinsic.rounds_factors() || s.axis(rows).extent < 64) return {};
  Expr loads[2];
  LoadsOfProduct(s.op.body, loads);
  const Expr& k = s.axis(ReduceAxes(draft.state(), stage)[0]).var;
  for (int i : {0, 1}) {
    const Expr &columns_load = loads[i], &rows_load = loads[1 - i];
    if (!IsMatrix(columns_load, k, s.axis(columns).var) || !IsMatrix(rows_load, k, s.axis(rows).var)) continue;
    const std::vector<bool> along_k = {columns_load->args.back() == k, rows_load->args.back() == k};
    if (intrinsic.transposes() || (along_k[0] && along_k[1]))
      return {rows, columns, {columns_load->buffer, rows_load->buffer}, along_k};
  }
  return {};
}

std::vector<GroupForm> FindGroupForms(const Draft& draft, int stage, int32_t blocks) {
  std::vector<GroupForm> forms;
  forms.push_back(FindGroupForm(draft, stage, blocks));
  if (forms[0].rows < 0) return {};
  const int64_t rows = draft.state().stage(stage).axis(forms[0].rows).extent, tiles = (rows + 63) / 64;
  const bool wastes = 64 * tiles * 8 >= rows * 9;
  if (!wastes || !forms[0].rows_copied() || forms[0].rows > forms[0].columns) return forms;
  GroupForm turned = FormOfCopies(draft, stage, forms[0].columns, forms[0].rows);
  if (turned.rows < 0) return forms;
  turned.turned = true;
  forms.push_back(std::move(turned));
  return forms;
}

GroupForm FindGroupForm(const Draft& draft, int stage, int32_t blocks) {
  if (!FitsTensorCores(draft, stage) || IntrinsicFor(draft, stage, /*groups=*/true) == nullptr) return {};
  const TensorIntrinsic& intrinsic = *IntrinsicFor(draft, stage, /*groups=*/true);
  const StageState& s = draft.state().stage(stage);
  Expr loads[2];
  LoadsOfProduct(s.op.body, loads);
  bool gemm_like = false;
  const std::vector<int> tiled = TiledAxes(draft, stage, BatchAxes(draft.state(), stage, &gemm_like)),
                         reduce = ReduceAxes(draft.state(), stage);
  if (tiled.size() != 2 || reduce.size() != 1 || loads[0]->buffer == loads[1]->buffer) return {};
  // Tiles of 64 rows that fill the device: products in parts need wide ones, to be worth more than those of warps.
  const double columns_of_tile = intrinsic.parts ? 16 : 8;
  if (static_cast<double>(s.op.elements()) * blocks < 64 * columns_of_tile * draft.context().facts.num_cores) return {};
  const Expr& k = s.axis(reduce[0]).var;
  // Pairs of narrow results are neighbours if the last axis makes the columns.
  for (int last : {1, 0}) {
    const GroupForm form = FormOfCopies(draft, stage, tiled[1 - last], tiled[last]);
    if (form.rows >= 0) return form;
  }
  // Of two operands with k innermost the first axis' makes the columns: the results of eight lanes are then neighbours.
  GroupForm found;
  for (int first : {0, 1}) {
    const int columns = tiled[first], rows = tiled[1 - first];
    if (s.axis(rows).extent < 64) continue;
    const Expr& column = s.axis(columns).var;
    for (const Expr& operand : loads) {
      const size_t rank = operand->args.size();
      if (rank < 2 || operand->args[rank - 1] != k || !UsesVar(operand->args[rank - 2], column.get())) continue;
      const bool better = intrinsic.rounds_factors() && draft.state().stage(operand->buffer).prologue;
      if (found.rows >= 0 && !better) continue;
      found = {rows, columns, {operand->buffer}, {}};
      if (!intrinsic.parts) found.along_k = {true};
    }
  }
  return found;
}

GroupForm RoundColumns(Draft* draft, int stage, GroupForm groups) {
  const TensorIntrinsic* intrinsic = IntrinsicFor(*draft, stage, /*groups=*/true);
  if (groups.rows < 0 || !intrinsic->rounds_factors()) return groups;
  const StageState& constant = draft->state().stage(groups.copied[0]);
  if (!constant.prologue || constant.op.reduces() || constant.rounded ||
      draft->state().Consumers(groups.copied[0]).size() != 1)
    return groups;
  const bool computed = constant.computes();
  draft->Do({StepKind::kRoundFactors, groups.copied[0], {}, {}, -1, {}});
  if (!computed) groups.copied[0] = draft->state().size() - 1;
  return groups;
}

std::vector<TensorTile> MakeTensorTiles(Draft* draft, int stage, const std::vector<bool>& batch,
                                        const GroupForm& groups) {
  std::vector<TensorTile> tiles(SpatialAxes(draft->state(), stage).size());
  const std::vector<int> tiled = TiledAxes(*draft, stage, batch);
  const LaneAxes lanes = groups.rows >= 0 ? LaneAxes{groups.rows, groups.columns} : LanesOf(tiled);
  const size_t inner = std::min<size_t>(tiled.size(), 3);  // images of a batch are blocks
  for (size_t t = tiled.size() - inner; t < tiled.size(); ++t) {
    const int axis = tiled[t];
    const int64_t extent = draft->state().stage(stage).axis(axis).extent;
    const std::string name = AxisName(draft->state(), stage, axis);
    TensorTile& tile = tiles[axis];
    tile.unit = axis == lanes.rows ? 16 : axis == lanes.columns ? 8 : 1;
    // Windows of neighbouring columns overlap in the banks of shared memory, those of every second less.
    tile.apart =
        axis == lanes.columns && IsRowOfWindow(draft->state(), stage, ReduceAxes(draft->state(), stage).back());
    const int64_t units = (extent + tile.unit - 1) / tile.unit;
    if (groups.rows < 0) {
      tile.warps = draft->TileParameter(name + ".warps", units, 8, 2);
      tile.tiles = draft->TileParameter(name + ".tiles", units, 8, tile.rows() ? 1 : 2);
    } else if (tile.rows()) {
      tile.by_groups = groups.rows_copied();
      tile.warps = Factor::Of(4) * draft->TileParameter(name + ".groups", (units + 3) / 4, 4, 2);
      tile.tiles = draft->TileParameter(name + ".tiles", units, 4, 1);
    } else {
      tile.warps = draft->TileParameter(name + ".groups", units, 4, 1);
      const int32_t preferred = groups.has_parts() ? 8 : 16;
      // Turned forms are for rows that no usual tile divides well, and columns in parts may be such rows.
      tile.tiles = groups.turned || groups.has_parts()
                       ? draft->parameters().EvenTile(name + ".tiles", units, 32, preferred)
                       : draft->TileParameter(name + ".tiles", units, 32, preferred);
    }
    draft->parameters().BoundPadding(extent, tile.all());
  }
  return tiles;
}

Factor ThreadsOf(const std::vector<TensorTile>& tiles) {
  Factor threads;
  for (const TensorTile& tile : tiles)
    if (tile.tiled()) threads = threads * tile.warps * (tile.has_lanes() ? tile.lanes() : Factor{});
  return threads;
}

std::vector<int> TensorLoops::threads() const {
  std::vector<int> all = warp;
  Append(&all, lane);
  return all;
}

TensorLoops SplitForLanes(Draft* draft, int stage, const std::vector<TensorTile>& tiles, const GroupForm& groups) {
  TensorLoops loops;
  loops.stage = stage;
  for (int axis : SpatialAxes(draft->state(), stage)) {
    const TensorTile& tile = tiles[axis];
    if (!tile.tiled()) {
      loops.outer.push_back(axis);
      continue;
    }
    std::vector<Factor> factors{tile.warps};
    if (!tile.apart) factors.insert(tile.by_groups ? factors.begin() : factors.end(), tile.tiles);
    const size_t unit = factors.size() + 1;  // where the two loops of a product's unit are among the pieces
    if (tile.has_lanes()) {
      factors.push_back(tile.rows() ? Factor::Of(2) : tile.lanes());
      factors.push_back(tile.rows() ? tile.lanes() : Factor::Of(2));
    }
    if (tile.apart) factors.push_back(tile.tiles);
    const std::vector<int> pieces = draft->Split(stage, axis, factors);
    loops.outer.push_back(pieces[0]);
    loops.warp.push_back(pieces[tile.by_groups ? 2 : 1]);
    loops.tile.push_back(tile.apart ? pieces.back() : pieces[tile.by_groups ? 1 : 2]);
    if (!tile.has_lanes()) continue;
    const auto place = [&](std::vector<int>* to) { return tile.rows() ? to->begin() : to->end(); };
    loops.lane.insert(place(&loops.lane), pieces[tile.rows() ? unit + 1 : unit]);
    loops.pair.insert(place(&loops.pair), pieces[tile.rows() ? unit : unit + 1]);
  }
  if (groups.rows >= 0 && groups.rows < groups.columns) std::swap(loops.warp[0], loops.warp[1]);
  return loops;
}

void OrderTiles(Draft* draft, int stage, const TensorLoops& loops, const std::vector<int>& outer) {
  std::vector<int> order = outer;
  for (const std::vector<int>& level : {loops.threads(), loops.tile, loops.pair}) Append(&order, level);
  draft->Reorder(stage, order);
  for (const auto* level : {&loops.tile, &loops.pair})
    for (int loop : *level) draft->Annotate(stage, loop, Annotation::kUnroll);
  draft->Annotate(stage, loops.pair.back(), Annotation::kVectorize);
}

std::vector<std::pair<int, Factor>> CoreMatricesOf(const GroupForm& groups, const std::vector<TensorTile>& tiles,
                                                   const ReduceTiles& reduce) {
  std::vector<std::pair<int, Factor>> operands;
  for (size_t i = 0; i < groups.copied.size(); ++i) {
    Factor runs;
    if (!groups.has_parts() && groups.along_k[i])
      runs = reduce.axes.back().r2;
    else if (groups.rows_copied())
      runs = i == 0 ? tiles[groups.columns].tiles * Factor::Of(tiles[groups.columns].unit) : Factor::Of(64);
    operands.push_back({groups.copied[i], runs});
  }
  return operands;
}

TensorReduction TileTensorReduction(Draft* draft, int stage, const std::vector<TensorTile>& tiles,
                                    const TensorLoops& lanes, const ReductionForm& form) {
  const GroupForm& groups = form.groups;
  TensorReduction made;
  const bool by_groups = groups.rows >= 0;
  std::vector<int> outer, tile, pair;
  for (int axis : SpatialAxes(draft->state(), stage)) {
    if (!tiles[axis].has_lanes()) {
      (tiles[axis].tiled() ? tile : outer).push_back(axis);
      continue;
    }
    const bool apart = tiles[axis].apart;
    const std::vector<int> pieces = draft->Split(stage, axis, {apart ? tiles[axis].tiles : Factor::Of(2)});
    tile.push_back(pieces[apart ? 1 : 0]);
    pair.insert(tiles[axis].rows() ? pair.begin() : pair.end(), pieces[apart ? 0 : 1]);
  }
  const TensorReduceLoops reduce = SplitReduce(draft, stage, form.cluster, by_groups, &made.tiles);
  std::vector<int> unrolled = outer, order;
  for (const std::vector<int>& level : {tile, {reduce.k}, pair}) Append(&unrolled, level);
  for (const std::vector<int>& level : {reduce.cluster, reduce.r0, reduce.sets, reduce.r1, unrolled})
    Append(&order, level);
  draft->Reorder(stage, order);
  for (int loop : reduce.cluster) draft->Annotate(stage, loop, Annotation::kCluster);
  for (int loop : reduce.sets) draft->Annotate(stage, loop, Annotation::kThreadSet);
  for (int loop : unrolled) draft->Annotate(stage, loop, Annotation::kUnroll);
  draft->Do({StepKind::kTensorize,
             stage,
             {reduce.k, pair[0], pair[1]},
             {},
             lanes.stage,
             {static_cast<int32_t>(IntrinsicFor(*draft, stage, by_groups)->mode), lanes.lane[0], lanes.lane[1]}});
  if (!by_groups) {
    const Factor unroll = draft->OptionParameter("unroll", {0, 64, 256}, 0);
    draft->Do({StepKind::kUnroll, stage, {}, {unroll}, -1, {}});
  }
  Factor stages;
  if (groups.rows_copied())
    stages = draft->OptionParameter("stages", {2, 3, 4, 6, 8, 12}, 4);
  else if (by_groups && !groups.has_parts())
    stages = draft->OptionParameter("stages", {2, 3, 4, 6, 8}, 4);
  else if (by_groups)
    stages = draft->OptionParameter("stages", {2, 3, 4}, 3);
  else
    stages = draft->OptionParameter("stages", {1, 2, 3, 4, 6}, 2);
  made.tiles.stages = stages;
  made.loop = reduce.r0.back();
  draft->Do({StepKind::kPipeline, stage, {}, {stages}, -1, {}});
  return made;
}

}  // namespace diapason
