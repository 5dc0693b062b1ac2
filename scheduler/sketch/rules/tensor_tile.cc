#include "scheduler/sketch/rules/tensor_tile.h"

#include <cstdlib>

namespace diapason {
namespace {

std::string AxisName(const Draft& draft, int stage, int axis) { return draft.state().stage(stage).axis(axis).var->name; }

void Append(std::vector<int>* to, const std::vector<int>& from) { to->insert(to->end(), from.begin(), from.end()); }

bool IsProductOfFloats(const Expr& body) {
  if (body->kind != ExprKind::kMul) return false;
  for (const Expr& operand : body->args)
    if (operand->kind != ExprKind::kLoad || operand->dtype != DType::kFloat32) return false;
  return true;
}

bool MayUseTensorCores(const SketchContext& context) {
  if (context.target.kind != TargetKind::kCuda) return true;
  if (context.target.strict_fp32) return false;
  const std::string& arch = context.facts.arch;
  return arch.rfind("sm_", 0) == 0 && std::atoi(arch.c_str() + 3) >= 80;
}

struct ReduceTile {
  Factor mid, inner;
};

ReduceTile MakeReduceTile(Draft* draft, int stage, int axis) {
  const int64_t extent = draft->state().stage(stage).axis(axis).extent;
  const std::string name = AxisName(*draft, stage, axis);
  ReduceTile tile;
  if (EndsInZeros(*draft, stage)) {
    tile.mid = draft->TileHole(name + ".r1", (extent + 7) / 8, 16, 2);
    tile.inner = draft->OptionHole(name + ".r2", {8, 16, 32}, 8);
    return tile;
  }
  std::vector<int32_t> divisors;
  for (int32_t d = 1; d <= 16; ++d)
    if (extent / 8 % d == 0) divisors.push_back(d);
  tile.mid = draft->OptionHole(name + ".r1", divisors, 2);
  tile.inner = Factor::Of(8);
  return tile;
}

}  // namespace

bool EndsInZeros(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  const Expr& var = s.axis(draft.ReduceAxes(stage)[0]).var;
  bool alone = false;
  for (const Expr& operand : s.op.body->args)
    for (const Expr& index : operand->args) alone |= index == var;
  return alone;
}

bool FitsTensorCores(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  if (s.op.combiner != Combiner::kSum || s.op.dtype != DType::kFloat32 || !IsProductOfFloats(s.op.body)) return false;
  if (!MayUseTensorCores(draft.context())) return false;
  bool gemm_like = false;
  const std::vector<bool> batch = draft.BatchAxes(stage, &gemm_like);
  std::vector<int> tiled;
  for (int axis : draft.SpatialAxes(stage))
    if (!batch[axis] && s.axis(axis).extent > 1) tiled.push_back(axis);
  const std::vector<int> reduce = draft.ReduceAxes(stage);
  if (!gemm_like || tiled.size() != 2 || reduce.size() != 1) return false;
  const int64_t k = s.axis(reduce[0]).extent;
  return s.axis(tiled[0]).extent >= 12 && s.axis(tiled[1]).extent >= 8 && k >= 8 &&
         (k % 8 == 0 || EndsInZeros(draft, stage));
}

std::vector<TensorTile> MakeTensorTiles(Draft* draft, int stage, const std::vector<bool>& batch) {
  std::vector<TensorTile> tiles;
  bool rows = true;
  for (int axis : draft->SpatialAxes(stage)) {
    const int64_t extent = draft->state().stage(stage).axis(axis).extent;
    TensorTile tile;
    if (!batch[axis] && extent > 1) {
      const std::string name = AxisName(*draft, stage, axis);
      tile.unit = rows ? 16 : 8;
      const int64_t units = (extent + tile.unit - 1) / tile.unit;
      tile.warps = draft->TileHole(name + ".warps", units, 8, 2);
      tile.tiles = draft->TileHole(name + ".tiles", units, 8, rows ? 1 : 2);
      draft->Tile(extent, tile.all());
      rows = false;
    }
    tiles.push_back(tile);
  }
  return tiles;
}

Factor ThreadsOf(const std::vector<TensorTile>& tiles) {
  Factor threads;
  for (const TensorTile& tile : tiles)
    if (tile.tiled()) threads = threads * tile.warps * tile.lanes();
  return threads;
}

std::vector<int> TensorLoops::threads() const {
  std::vector<int> all = warp;
  Append(&all, lane);
  return all;
}

TensorLoops SplitForLanes(Draft* draft, int stage, const std::vector<TensorTile>& tiles) {
  TensorLoops loops;
  loops.stage = stage;
  for (int axis : draft->SpatialAxes(stage)) {
    const TensorTile& tile = tiles[axis];
    if (!tile.tiled()) {
      loops.outer.push_back(axis);
      continue;
    }
    const Factor two = Factor::Of(2);
    const std::vector<int> pieces = draft->Split(
        stage, axis, {tile.warps, tile.tiles, tile.rows() ? two : tile.lanes(), tile.rows() ? tile.lanes() : two});
    loops.outer.push_back(pieces[0]);
    loops.warp.push_back(pieces[1]);
    loops.tile.push_back(pieces[2]);
    loops.lane.push_back(pieces[tile.rows() ? 4 : 3]);
    loops.pair.push_back(pieces[tile.rows() ? 3 : 4]);
  }
  return loops;
}

int TileTensorReduction(Draft* draft, int stage, const std::vector<TensorTile>& tiles, const TensorLoops& lanes,
                        const ClusterAxis& cluster) {
  std::vector<int> outer, tile, pair;
  for (int axis : draft->SpatialAxes(stage)) {
    if (!tiles[axis].tiled()) {
      outer.push_back(axis);
      continue;
    }
    const std::vector<int> pieces = draft->Split(stage, axis, {Factor::Of(2)});
    tile.push_back(pieces[0]);
    pair.push_back(pieces[1]);
  }
  const int axis = draft->ReduceAxes(stage)[0];
  const ReduceTile k = MakeReduceTile(draft, stage, axis);
  const bool split = cluster.axis == axis;
  std::vector<Factor> factors{k.mid, k.inner};
  if (split) factors.insert(factors.begin(), cluster.blocks);
  draft->Tile(draft->state().stage(stage).axis(axis).extent, split ? cluster.blocks * k.mid * k.inner : k.mid * k.inner);
  std::vector<int> reduce = draft->Split(stage, axis, factors), order;
  if (split) {
    draft->Annotate(stage, reduce[1], Annotation::kCluster);
    order.push_back(reduce[1]);
    reduce.erase(reduce.begin() + 1);
  }
  Append(&order, {reduce[0], reduce[1]});
  std::vector<int> unrolled = outer;
  for (const std::vector<int>& level : {tile, {reduce[2]}, pair}) Append(&unrolled, level);
  Append(&order, unrolled);
  draft->Reorder(stage, order);
  for (int loop : unrolled) draft->Annotate(stage, loop, Annotation::kUnroll);
  draft->Do({StepKind::kTensorize, stage, {reduce[2], pair[0], pair[1]}, {}, lanes.stage,
             {static_cast<int32_t>(TensorMode::kThreeTf32), lanes.lane[0], lanes.lane[1]}});
  const Factor unroll = draft->OptionHole("unroll", {0, 64, 256}, 0);
  draft->Do({StepKind::kUnroll, stage, {}, {unroll}, -1, {}});
  const Factor stages = draft->OptionHole("stages", {1, 2, 3, 4, 6}, 2);
  draft->Do({StepKind::kPipeline, stage, {}, {stages}, -1, {}});
  return reduce[0];
}

}  // namespace diapason
