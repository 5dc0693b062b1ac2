// Operands of products on tensor cores, as the lanes of a warp hold them: for products by warps (warp_products.h) and
// by warpgroups (group_products.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/lower/nest_parts.h"

namespace diapason {

inline constexpr int64_t kTileSums = 4;        // sums of 16 x 8 that a lane holds
inline constexpr int64_t kLongestRunOfK = 32;  // that the tensor cores sum, before float32 adds

// The products of a stage with TensorMode: its loops from position `first` on, written out. The last three are k and
// the lane's 2 x 2 elements of a tile, those before them go over tiles. Sums are in `buffer`, at `place` in terms of
// the stage's loop variables.
struct TileProducts {
  int id;
  size_t first;
  int buffer;
  Expr place;
};

// The load that a factor is, perhaps cast to the type of the sum.
inline const Expr& LoadOfFactor(const Expr& factor) {
  return factor->kind == ExprKind::kCast ? factor->args[0] : factor;
}

// Registers that hold one operand: those of each tile once, however many products use them.
struct Fragments {
  Expr load;          // of the operand, in the stage's body
  bool rows = false;  // the operand with rows of the result; else with columns
  int buffer = -1;
  int64_t elements = 0;                           // of the buffer: registers
  std::vector<std::pair<Expr, int64_t>> known{};  // load of the first element, where it lies in the buffer
  std::vector<Stmt> loads{};
};

// InvalidArgument for what the layout of the instruction takes for granted and the stage has not, FailedPrecondition
// where its products would be too many to be written out.
absl::Status CheckProducts(const KernelContext& kernel, const TileProducts& products);

// The operands of one stage. REQUIRES, but for Factors: CheckProducts; the stage and the one with its lanes are
// prepared (LoopValues). The tile is the one at which StageValues::value stands.
class FragmentLoader {
 public:
  FragmentLoader(NestParts* parts, int id);

  // The loads of the stage's two factors: those of rows, and of columns. InvalidArgument unless one moves with the rows
  // alone.
  struct Factors {
    Expr rows, columns;
  };
  absl::StatusOr<Factors> FindFactors() const;
  // Whether a load of the stage's body moves with a loop over lanes. InvalidArgument if it is no affine copy.
  absl::StatusOr<bool> MovesWithLane(const Expr& load, int lane) const;

  // The load of an operand with element k of its tile, by a lane that stands for row or column `line` of it (columns of
  // rows: half 0 or 1 and lane; of columns: lane and pair).
  Expr LoadOf(const Fragments& operand, const Expr& k, const Expr& line, const Expr& half);
  // Where the registers begin that hold an operand's tile from k on; adds their loads if no product did before: as
  // whole matrices where the operand lies so, else element by element.
  int64_t RegistersAt(Fragments* operand, int64_t k);

 private:
  Expr ElementOf(const Fragments& operand, int64_t k, int64_t half, int64_t word, int64_t factor);
  // Loads whole matrices, whose lines are rows along k or, transposed, rows or columns of the result; null if the
  // operand lies in neither.
  Stmt MatricesOf(const Fragments& operand, int64_t k, int64_t at, int64_t count);
  bool IsRowOfMatrix(const Expr& load);
  bool LinesAreNeighbours(const Fragments& operand, int64_t k);

  NestParts& parts_;
  NestState& nest_;
  const int id_;
  const StageState& stage_;
  const TensorIntrinsic& intrinsic_;
  const bool held_in_pairs_;
};

}  // namespace diapason
