// The functions of CUDA C that do matrix products on tensor cores, in inline PTX. Each defines its function among the
// helpers of the source, unless it is there, and gives the name.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/expr_printer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// A product by a warp, of a kMma: sums, row factors and column factors as registers.
std::string WarpMmaFunction(const StmtNode& mma, Helpers& helpers);
// A register of factors from values: two floats, or four integers.
std::string PackFunction(DType dtype, Helpers& helpers);

// A product by a warpgroup, of a kGroupMma in parts of TF32 (3xTF32) with so many columns: the sums lie in an array.
std::string Tf32GroupMmaFunction(int64_t columns, Helpers& helpers);
// A product by a warpgroup, of a kGroupMma of packed factors, whose sums lie anywhere.
std::string GroupMmaFunction(const StmtNode& mma, Helpers& helpers);
// Waits until no more than `unfinished` groups of products are under way. The sums are operands, so that nothing reads
// them before.
std::string GroupWaitFunction(int64_t sums, int64_t unfinished, DType dtype, Helpers& helpers);

}  // namespace diapason
