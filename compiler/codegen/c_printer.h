// Kernels as C with the vector extensions of GCC and Clang.
#pragma once

#include <string>

#include "compiler/codegen/expr_printer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// One kernel as a function of the cpu calling convention (compiler/tensor/program.h). Vectors are at most
// `vector_bytes` long. Local buffers that are only accessed at constant places become variables, so that the compiler
// keeps them in registers: accumulators of a micro-kernel are vector variables. Loops that are to be unrolled stay
// loops where their copies would be more text than compilers take in seconds.
std::string PrintCKernel(const KernelFunc& kernel, int vector_bytes, Helpers& helpers);

// What stands before the kernels: the types they use.
std::string CPrelude();

}  // namespace diapason
