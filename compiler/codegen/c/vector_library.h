// Types and functions of vectors in C (GCC's vector extensions). Each function here defines what it names among the
// helpers of the source, unless it is there, and gives the name.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/expr_printer.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

class CVectorLibrary {
 public:
  explicit CVectorLibrary(Helpers& helpers) : helpers_(helpers) {}

  // Whether values of a type are held in vectors as they are stored. Narrow floats are computed in float.
  static bool Holds(DType dtype);
  // Whether vectors of both types are the same one. False where neither is held in vectors.
  static bool HoldsAlike(DType a, DType b);
  // REQUIRES, here and below: Holds, or integers of 8 bits, which are computed as lanes of int that hold their values.
  static int ElementBytes(DType dtype);

  // "f32x16".
  std::string Type(DType dtype, int64_t lanes);
  // The type of masks for elements of so many bytes: all ones or zeros a lane.
  std::string MaskType(int bytes, int64_t lanes);

  // A vector of one scalar.
  std::string Set(DType dtype, int64_t lanes);
  // (a, b)
  std::string Extremum(bool is_min, DType dtype, int64_t lanes);
  // (mask, a, b)
  std::string Select(DType dtype, int64_t lanes);
  // exp, sigmoid, tanh or erf within 2 units in the last place; empty for other functions and types.
  std::string MathFunction(const std::string& name, DType dtype, int64_t lanes);
  // round, floor, ceil or sqrt by the processor's instruction, which gives what the scalar `function` does; where there
  // is none, that is called. Empty for other functions and types.
  std::string InstructionFunction(const std::string& name, const std::string& function, DType dtype, int64_t lanes);
  // Vector `name` of one or two arguments, which calls the scalar `function` for each lane.
  std::string CallEachLane(const std::string& name, const std::string& function, size_t arguments, DType dtype,
                           int64_t lanes);
  // Loads (pointer), or stores (pointer, vector), lanes of a narrow float.
  std::string NarrowAccess(DType dtype, int64_t lanes, bool load);
  // Loads integers of 8 bits as a vector of int (pointer).
  std::string ByteLoad(bool is_signed, int64_t lanes);
  // Stores the low bytes of a vector of int (pointer to unsigned char, vector).
  std::string ByteStore(int64_t lanes);
  // Dot products of four bytes (sums, left bytes as an int, pointer to the right ones), and the load of the left bytes
  // (pointer).
  std::string ByteDots(bool left_signed, bool right_signed, int64_t lanes);
  std::string LoadFourBytes();

 private:
  void DefineByteTypes(int64_t lanes);

  Helpers& helpers_;
};

}  // namespace diapason
