// The tiles of a product on tensor cores (mma.sync, wgmma): what the rules that tile have in common.
#pragma once

#include <utility>
#include <vector>

#include "compiler/tensor/tensor_intrinsic.h"
#include "scheduler/sketch/draft.h"
#include "scheduler/sketch/rules/gpu_tile.h"

namespace diapason {

// True if tensor cores can take a reduction: a product of two operands of a type that they have (tensor_intrinsic.h)
// over one row axis, one column axis and one reduce axis; other axes are batches. Or a convolution of few channels in
// the rows rewrite: the last two axes, channels and columns of the image, are rows and columns of the product (8
// columns fit images better than 16 would), a row of the window is its k, and the window moves over what lies in shared
// memory. On cuda from Ampere on; OpenCL runs the same loops without them.
bool FitsTensorCores(const Draft& draft, int stage);
// The same for rows and columns that are named, of which there may be any number of rows: a product that a kernel with
// other work has, so that idle rows of a tile cost less than a kernel of its own. Further axes of rows (heads that
// share keys and values) are blocks as batches are.
bool FitsTensorCores(const Draft& draft, int stage, int rows, int columns);
// What makes the stage's products on tensor cores, by warps or by warpgroups; null where nothing does.
const TensorIntrinsic* IntrinsicFor(const Draft& draft, int stage, bool groups);
// Of a sketch: "tensor" or "wgmma", of rounded factors "tf32" or "tf32_wgmma".
const char* NameOfProducts(const Draft& draft, bool groups);
// Whether the target allows the stage's factors to be rounded to TensorFloat-32 (SketchTraits::rounds_factors). Not
// behind the transforms of Winograd's algorithm.
bool MayRoundFactors(const Draft& draft, int stage);
// True if copies of the operands hold zeros where the stage's last reduce axis runs past its end: it indexes a
// dimension alone. A slice of a longer reduction runs into the next slice.
bool EndsInZeros(const Draft& draft, int stage);

// How warpgroups share out a product (wgmma): the operand that has k innermost is read from shared memory, its axis
// makes the columns; the other's, the rows, come through registers. Of factors without low parts both are read from
// there where one of the two innermost dimensions is k, the other the axis; of 8 bits, where both have k innermost.
// Factors that are rounded to TensorFloat-32 have their rows in registers, where that takes no memory, and of two
// operands with k innermost a constant makes the columns: it is rounded at build time.
struct GroupForm {
  int rows = -1, columns = -1;  // spatial axes; -1: warpgroups do not fit
  std::vector<int> copied{};    // the stages that products read from shared memory: the columns', and perhaps the rows'
  std::vector<bool> along_k{};  // of factors without low parts: whether k is innermost in each of these
  bool turned = false;          // rows and columns are those of the usual form exchanged
  bool rows_copied() const { return copied.size() > 1; }
  bool has_parts() const { return along_k.empty(); }
};

// On cuda for sm_90. Only for products that fill the device with tiles of 64 x 16, or, of factors that have no parts,
// 64 x 8: smaller ones are better off with warps. `blocks`: the most that share the reduction of a tile.
GroupForm FindGroupForm(const Draft& draft, int stage, int32_t blocks = 1);
// That form, if there is one, and, where an eighth of its rows or more would be beyond the output, one with the last
// axis as rows: tiles have a multiple of 64 rows but any multiple of 8 columns.
std::vector<GroupForm> FindGroupForms(const Draft& draft, int stage, int32_t blocks = 1);

// Has a constant that makes the columns of rounded factors rounded at build time; the form with the stage that then
// holds it.
GroupForm RoundColumns(Draft* draft, int stage, GroupForm groups);

// Tile sizes of one spatial axis within a block, as parameters. The order of an axis is block, warps, tiles, and within
// the unit of a product half and lane (2 x 8 rows) or lane and pair (4 x 2 columns); or block, warps, lane, pair,
// tiles; or block, tiles, warps, half, lane.
struct TensorTile {
  // 16: rows, 8: columns, 1: each element by products of its own (rows of an image), 0: the axis is not tiled
  int32_t unit = 0;
  // Columns of a product are `tiles` elements apart, not neighbours: the tile is the innermost part of the axis.
  bool apart = false;
  bool by_groups = false;  // rows of four warps are neighbours: the tile is the outermost part within a block
  Factor warps, tiles;
  bool tiled() const { return unit > 0; }
  bool has_lanes() const { return unit > 1; }
  bool rows() const { return unit == 16; }
  Factor lanes() const { return Factor::Of(unit / 2); }  // REQUIRES: has_lanes()
  Factor all() const { return warps * tiles * Factor::Of(unit > 0 ? unit : 1); }
};

// Makes the parameters of every spatial axis of a stage. REQUIRES: FitsTensorCores.
std::vector<TensorTile> MakeTensorTiles(Draft* draft, int stage, const std::vector<bool>& batch,
                                        const GroupForm& groups = {});
// Threads of a block: all lanes of all warps.
Factor ThreadsOf(const std::vector<TensorTile>& tiles);

// The loops of a stage over tiles: of lanes and pairs, rows first; of warps, those of a group's rows last.
struct TensorLoops {
  int stage = -1;
  std::vector<int> outer;  // blocks, and axes that are not tiled
  std::vector<int> warp, lane, tile, pair;
  std::vector<int> threads() const;
};
TensorLoops SplitForLanes(Draft* draft, int stage, const std::vector<TensorTile>& tiles, const GroupForm& groups = {});
// Orders them: outer, threads, then tiles and pairs, which are unrolled; neighbouring columns are stored as a vector.
void OrderTiles(Draft* draft, int stage, const TensorLoops& loops, const std::vector<int>& outer);

// TileInfo::core_matrices: the copied operands with what their runs have to divide, so that each product finds its rows
// or columns at the start of one: its elements of k, the columns of a group, or 64 rows. 1: runs of 16 bytes.
std::vector<std::pair<int, Factor>> CoreMatricesOf(const GroupForm& groups, const std::vector<TensorTile>& tiles,
                                                   const ReduceTiles& reduce);

// Splits and orders the loops of a reduction that is computed for one lane's elements (R0 R1, tiles of a warp, and in
// them k and the 2x2 elements of a product; the cluster's loop outside all, that over sets of threads behind R0), with
// parameters for the reduce axes and the stages of its pipeline. `lanes` are those of the stage with the threads.
// Returns R0 and the parameters.
struct TensorReduction {
  int loop = -1;  // R0, where operands are copied into shared memory
  ReduceTiles tiles;
};
struct ReductionForm {
  ClusterAxis cluster;
  GroupForm groups;
};
TensorReduction TileTensorReduction(Draft* draft, int stage, const std::vector<TensorTile>& tiles,
                                    const TensorLoops& lanes, const ReductionForm& form = {});

}  // namespace diapason
