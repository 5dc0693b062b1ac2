// Loop nests built by hand, for the tests of the printers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/program.h"

namespace diapason::testing {

inline BufferDecl Global(int id, std::string name, int64_t elements, bool written = false,
                         DType dtype = DType::kFloat32) {
  BufferDecl decl;
  decl.id = id;
  decl.name = std::move(name);
  decl.dtype = dtype;
  decl.elements = elements;
  decl.written = written;
  return decl;
}

inline BufferDecl Scoped(int id, std::string name, int64_t elements, Scope scope, DType dtype = DType::kFloat32) {
  BufferDecl decl = Global(id, std::move(name), elements, true, dtype);
  decl.scope = scope;
  return decl;
}

inline Expr F(double value) { return FloatImm(value); }
inline Expr I(int64_t value) { return IntImm(value); }
inline Expr At(int buffer, Expr index, DType dtype = DType::kFloat32) {
  return Load(buffer, dtype, {std::move(index)});
}
// a * factor + b
inline Expr Mad(Expr a, int64_t factor, Expr b) { return Add(Mul(std::move(a), I(factor)), std::move(b)); }

inline Stmt Serial(const Expr& var, int64_t extent, Stmt body, int unroll = 0) {
  return MakeFor(ForKind::kSerial, var, extent, std::move(body), unroll);
}
inline Stmt Unroll(const Expr& var, int64_t extent, Stmt body) {
  return MakeFor(ForKind::kUnroll, var, extent, std::move(body));
}
inline Stmt Vectorize(const Expr& var, int64_t extent, Stmt body) {
  return MakeFor(ForKind::kVectorize, var, extent, std::move(body));
}

// A program of one kernel; the parameters' roles are input or, where written, output.
inline LoweredProgram ProgramOf(KernelFunc kernel) {
  LoweredProgram program;
  for (const BufferDecl& param : kernel.params) {
    LoweredProgram::Buffer buffer;
    buffer.decl = param;
    buffer.role = static_cast<int>(param.written ? BufferRole::kOutput : BufferRole::kInput);
    buffer.stage = param.id;
    program.buffers[param.id] = buffer;
  }
  program.kernels.push_back(std::move(kernel));
  return program;
}

inline KernelFunc KernelOf(std::string name, std::vector<BufferDecl> params, Stmt body, int64_t blocks = 1,
                           int64_t threads = 1) {
  KernelFunc kernel;
  kernel.name = std::move(name);
  kernel.params = std::move(params);
  kernel.body = std::move(body);
  kernel.blocks = blocks;
  kernel.threads = threads;
  return kernel;
}

// C[blocks * rows, lanes * vectors] = A[blocks * rows, depth] * B[depth, lanes * vectors] with the accumulators of a
// block in registers: the heart of every dense cpu kernel.
inline KernelFunc MicroKernel(int64_t blocks, int64_t rows, int64_t vectors, int64_t lanes, int64_t depth) {
  const int64_t width = vectors * lanes;
  const Expr block = MakeVar("block"), k = MakeVar("k"), i = MakeVar("i"), j = MakeVar("j"), l = MakeVar("l");
  auto column = [&] { return Mad(j, lanes, l); };
  auto tile = [&](Stmt body) { return Unroll(i, rows, Unroll(j, vectors, Vectorize(l, lanes, std::move(body)))); };
  const Expr row = Mad(block, rows, i), at = Mad(i, width, column());
  const Stmt clear = tile(MakeStore(9, at, F(0)));
  const Stmt product =
      tile(MakeStore(9, at, Add(At(9, at), Mul(At(0, Mad(row, depth, k)), At(1, Mad(k, width, column()))))));
  const Stmt write = tile(MakeStore(2, Mad(row, width, column()), Max(At(9, at), F(0))));
  const Stmt body = MakeSeq({clear, Serial(k, depth, product), write});
  const Stmt local = MakeAlloc(Scoped(9, "acc", rows * width, Scope::kLocal), body);
  return KernelOf("gemm",
                  {Global(0, "A", blocks * rows * depth), Global(1, "B", depth * width),
                   Global(2, "C", blocks * rows * width, true)},
                  MakeFor(ForKind::kParallel, block, blocks, local), blocks);
}

}  // namespace diapason::testing
