// Expressions of a vector loop in C: the values of all lanes as one vector.
#pragma once

#include <string>

#include "compiler/codegen/c/access_printer.h"
#include "compiler/codegen/c/byte_lanes.h"
#include "compiler/codegen/c/vector_lanes.h"
#include "compiler/codegen/c/vector_library.h"
#include "compiler/codegen/shared_values.h"
#include "compiler/codegen/source_writer.h"

namespace diapason {

// For one vector loop.
class CVectorExprPrinter {
 public:
  // All of these must outlive this.
  CVectorExprPrinter(const VectorLanes& lanes, CAccessPrinter& access, CVectorLibrary& library, SharedValues& shared,
                     SourceWriter& out)
      : lanes_(lanes), access_(access), library_(library), shared_(shared), out_(out), bytes_(lanes, access) {}

  // The expression as a vector. What has no vector form is computed lane by lane: always correct, and as fast as a
  // scalar loop. A shared value becomes a variable where it is first printed (a line of its own), unless that is inside
  // a branch. Integers of 8 bits are lanes of int. REQUIRES: the type is held in vectors, or has 8 bits.
  std::string Text(const Expr& e);
  // The same as lanes of int: towards zero, as a cast.
  std::string IntText(const Expr& e);
  const VectorLanes& lanes() const { return lanes_; }
  const ByteLanes& bytes() const { return bytes_; }

 private:
  std::string UnsharedText(const Expr& e);
  std::string Operand(const Expr& e);
  std::string Infix(const Expr& e, const char* op);
  std::string Load(const Expr& e);
  std::string Select(const Expr& e);
  std::string Cast(const Expr& e);
  std::string Call(const Expr& e);
  std::string Extremum(const Expr& e);
  std::string PerLane(const Expr& e);
  std::string Broadcast(const std::string& scalar, DType dtype);
  // A vector of all ones or zeros a lane; empty when the condition has no such form for lanes of `width` bytes.
  std::string MaskText(const Expr& condition, int width);
  // All loads of the branch are performed on every lane in any case: they are local, the same for all lanes of a select
  // whose condition loads them too, or they are in the condition.
  bool SafeOnAllLanes(const Expr& branch, const Expr& condition) const;
  std::string VectorType(DType dtype) { return library_.Type(dtype, lanes_.count()); }

  const VectorLanes& lanes_;
  CAccessPrinter& access_;
  CVectorLibrary& library_;
  SharedValues& shared_;
  SourceWriter& out_;
  const ByteLanes bytes_;
  int conditional_ = 0;  // branches around the expression that is printed
};

}  // namespace diapason
