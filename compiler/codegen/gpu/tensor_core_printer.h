// Statements of tensor cores in CUDA C: matrix products by warps and warpgroups, and what brings their factors.
#pragma once

#include <string>

#include "compiler/codegen/gpu/access_printer.h"
#include "compiler/codegen/source_writer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class TensorCorePrinter {
 public:
  // All of these must outlive this.
  TensorCorePrinter(GpuAccessPrinter& access, Helpers& helpers, SourceWriter& out)
      : access_(access), helpers_(helpers), out_(out) {}

  // REQUIRES: CUDA C.
  void PrintMma(const StmtNode& mma);
  void PrintLoadMatrix(const StmtNode& load);
  void PrintQuadStore(const StmtNode& store);
  void PrintPack(const StmtNode& pack);
  void PrintFactorParts(const StmtNode& parts);
  void PrintGroupMma(const StmtNode& mma);
  void PrintGroupSync(const StmtNode& sync);

 private:
  void RequireTensorCores() const { access_.RequireCuda("uses tensor cores, which OpenCL C does not have"); }
  std::string Element(int buffer, const Expr& index);
  std::string SumsOf(const StmtNode& s);
  // The descriptor of rows or columns in shared memory (PTX, "Matrix descriptor format"): bytes between core matrices
  // in both directions, in 16s, and how they are swizzled. In swizzled runs along k there is no second direction.
  std::string CoreMatricesText(const ExprNode& first, const CoreMatrices& matrices);

  GpuAccessPrinter& access_;
  Helpers& helpers_;
  SourceWriter& out_;
};

}  // namespace diapason
