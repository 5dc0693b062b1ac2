// Statements of a vector loop in C, as operations on vectors.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "compiler/codegen/byte_dots.h"
#include "compiler/codegen/c/access_printer.h"
#include "compiler/codegen/c/vector_expr_printer.h"
#include "compiler/codegen/c/vector_lanes.h"
#include "compiler/codegen/c/vector_library.h"
#include "compiler/codegen/passes.h"
#include "compiler/codegen/source_writer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// For one vector loop, whose lanes are a power of two that fits a vector. What has no vector form is done lane by lane:
// always correct, and as fast as a scalar loop.
class CVectorStmtPrinter {
 public:
  using PrintScalar = std::function<void(const Stmt&)>;

  // `print` prints a statement outside of vector loops. All others must outlive this.
  CVectorStmtPrinter(CVectorExprPrinter& values, CAccessPrinter& access, CVectorLibrary& library, SourceWriter& out,
                     PrintScalar print)
      : lanes_(values.lanes()),
        values_(values),
        access_(access),
        library_(library),
        out_(out),
        print_(std::move(print)) {}

  void Print(const Stmt& stmt);
  // A dot product of bytes (FindByteDot) of these lanes, as instructions.
  void PrintByteDot(const ByteDot& dot);

 private:
  void PrintBlock(const std::string& head, const Stmt& body);
  void PrintIf(const StmtNode& s);
  void PrintStore(const StmtNode& store);
  // REQUIRES: the value has a form in lanes of int, and the elements are neighbours in memory.
  void PrintByteStore(const StmtNode& store, const Stride& stride);
  void WriteVector(const StmtNode& store, const Stride& stride, const std::string& value);
  // if (all lanes) the store with the branch taken; else if (none) with the other; else lane by lane.
  void PrintSplitStore(const StmtNode& store, const Expr& condition);
  void PrintLaneByLane(const Stmt& stmt);
  bool TouchesSlots(const Stmt& stmt) const;

  const VectorLanes& lanes_;
  CVectorExprPrinter& values_;
  CAccessPrinter& access_;
  CVectorLibrary& library_;
  SourceWriter& out_;
  const PrintScalar print_;
  int splits_ = 0;  // of the store that is printed
};

}  // namespace diapason
