#include "compiler/lower/element_index.h"

#include <algorithm>

namespace diapason {
namespace {

// The element of the larger tensor: dimensions inside a row count as they do in the part, those outside by the distance
// of rows, and one that goes across is cut.
Expr PlacedIndex(const StageState& stage, const OutputPlace& to, const std::vector<Expr>& indices) {
  Expr place = IntImm(to.offset), flat = IntImm(0);
  int64_t inner = stage.op.elements();
  bool even = true;  // rows end where indices of one dimension do
  for (size_t d = 0; d < indices.size(); ++d) {
    const int64_t extent = stage.op.axes[d].extent;
    inner /= extent;
    flat = Add(Mul(flat, IntImm(extent)), indices[d]);
    if (extent == 1) continue;
    if (inner * extent <= to.row) {
      place = Add(place, Mul(indices[d], IntImm(inner)));
    } else if (inner % to.row == 0) {
      place = Add(place, Mul(indices[d], IntImm(inner / to.row * to.stride)));
    } else if (to.row % inner == 0) {
      place = Add(place, Mul(FloorDiv(indices[d], to.row / inner), IntImm(to.stride)));
      place = Add(place, Mul(FloorMod(indices[d], to.row / inner), IntImm(inner)));
    } else {
      even = false;
    }
  }
  return even ? place : PlaceOf(to, flat);
}

// Runs of core_row elements of the last dimension, k, are outermost.
Expr CoreMatrixIndex(const StageBounds& b, const std::vector<Expr>& indices) {
  Expr flat = IntImm(0);
  const size_t rank = indices.size();
  for (size_t d = 0; d + 2 < rank; ++d) flat = Add(Mul(flat, IntImm(b.buffer[d])), indices[d]);
  const Expr &row = indices[rank - 2], &k = indices[rank - 1];
  flat = Add(Mul(flat, IntImm((b.buffer.back() + b.core_row - 1) / b.core_row)), FloorDiv(k, b.core_row));
  return Add(Mul(flat, IntImm(b.core_stride())), Add(Mul(row, IntImm(b.core_row)), FloorMod(k, b.core_row)));
}

// Of a constant that is laid out as images of a copy's buffer, tile by tile.
Expr ImageIndex(const KernelContext& kernel, int id, const std::vector<Expr>& indices) {
  const int copy = kernel.state.stage(id).image_of;
  const StageBounds &b = kernel.bounds.stages[id], &image = kernel.bounds.stages[copy];
  Expr flat = IntImm(0);
  std::vector<Expr> inside;
  for (size_t d = 0; d < indices.size(); ++d) {
    const int64_t tile = image.buffer[d];
    flat = Add(Mul(flat, IntImm(b.buffer[d] / tile)), FloorDiv(indices[d], tile));
    inside.push_back(FloorMod(indices[d], tile));
  }
  return Add(Mul(flat, IntImm(image.slot_stride())), FlatIndex(kernel, copy, inside));
}

Expr PackedIndex(const StageState& stage, const std::vector<Expr>& indices) {
  Expr flat = IntImm(0);
  for (int piece : stage.layout_order) {
    const int64_t factor = std::max<int64_t>(1, stage.layout_factors[piece / 2].Eval({}));
    const int64_t outer = (stage.op.axes[piece / 2].extent + factor - 1) / factor;
    const Expr& index = indices[piece / 2];
    flat = Add(Mul(flat, IntImm(piece % 2 ? factor : outer)),
               piece % 2 ? FloorMod(index, factor) : FloorDiv(index, factor));
  }
  return flat;
}

}  // namespace

Expr PlaceOf(const OutputPlace& place, const Expr& flat) {
  if (place.whole()) return flat;
  return Add(IntImm(place.offset),
             Add(Mul(FloorDiv(flat, place.row), IntImm(place.stride)), FloorMod(flat, place.row)));
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

Expr FlatIndex(const KernelContext& kernel, int id, const std::vector<Expr>& indices) {
  const StageState& stage = kernel.state.stage(id);
  if (kernel.IsPlaced(id)) return PlacedIndex(stage, kernel.place, indices);
  const StageBounds& b = kernel.bounds.stages[id];
  if (b.core_row > 0) return CoreMatrixIndex(b, indices);
  if (stage.image_of >= 0) return ImageIndex(kernel, id, indices);
  if (!stage.layout_factors.empty()) return PackedIndex(stage, indices);
  Expr flat = IntImm(0);
  for (size_t d = 0; d < indices.size(); ++d) {
    const int64_t extent = stage.op.placeholder ? stage.op.axes[d].extent : b.buffer[d];
    const int64_t padding = !stage.op.placeholder && d + 1 == indices.size() ? b.row_padding : 0;
    flat = Add(Mul(flat, IntImm(extent + padding)), indices[d]);
  }
  return flat;
}

}  // namespace diapason
