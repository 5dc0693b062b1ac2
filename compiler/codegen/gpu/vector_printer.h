// Vector loops of GPU kernels: stores that run along memory, aligned, become accesses of up to 16 bytes; the others a
// loop that the compiler unrolls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/gpu/access_printer.h"
#include "compiler/codegen/gpu/copy_printer.h"
#include "compiler/codegen/source_writer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class GpuVectorPrinter {
 public:
  // `print` prints a statement of a scalar loop. The others must outlive this.
  GpuVectorPrinter(GpuAccessPrinter& access, GpuCopyPrinter& copies, SourceWriter& out,
                   std::function<void(const Stmt&)> print)
      : access_(access), copies_(copies), out_(out), print_(std::move(print)) {}

  // REQUIRES: a kVectorize loop as NormalizeVectorLoops leaves it.
  void Print(const StmtNode& loop);

 private:
  void PrintStmt(const Stmt& stmt);
  // False: the store has no vector form.
  bool PrintStore(const StmtNode& store);
  // to[...] = from[...], or choices between such loads and zeros that are the same for all lanes: one access a chunk on
  // each side that is in memory. The zero is put in first and the loads predicated, so that several such copies have
  // their loads in flight together.
  bool PrintCopy(const StmtNode& store, const Expr& base);
  // Whether elements of one buffer can be copied to the other as they are, or are widened on the way.
  bool MayCopy(const BufferDecl& from, const BufferDecl& to) const;
  void PrintChunk(const BufferElement& to, const CopySources& sources, int64_t chunk);
  void Take(const CopySource& source, int64_t chunk);
  void Put(const BufferElement& to, int64_t chunk);
  // Element `i` of a loaded vector of `chunk` elements, as local buffers hold it: narrow floats as float32, unless the
  // buffer is packed.
  std::string ComponentOf(const BufferDecl& to, int64_t i, int64_t chunk) const;
  // A store of floats or integers to memory of anything computed: the lanes one by one, the memory accesses that all
  // lanes perform as vectors of at most four.
  bool PrintComputed(const StmtNode& store, const Expr& base);
  // Loads that every lane performs, along memory and aligned, each once.
  void CollectLoads(const Expr& e, int64_t chunk, std::vector<Expr>& out);
  // Loads a chunk, of which the loads of the single lanes are printed as parts from there on.
  void LoadChunk(const Expr& load, size_t number, int64_t start, int64_t chunk);

  // Lanes that one access of the buffer can have from `base` on: a power of two, at most 16 bytes; 1 for local buffers
  // and where the alignment is not certain.
  int64_t ChunkOf(const BufferDecl& decl, const Expr& base);
  bool IsComputable(DType dtype) const;
  std::string Access(const BufferElement& element, const std::string& type, bool is_const);
  std::string Zero(DType dtype, int64_t chunk) const;
  bool UsesLane(const Expr& e) const { return UsesVar(e, lane_.get()); }
  Expr AtLane(const Expr& e, int64_t i);
  Expr Offset(const Expr& base, int64_t offset);

  GpuAccessPrinter& access_;
  GpuCopyPrinter& copies_;
  SourceWriter& out_;
  const std::function<void(const Stmt&)> print_;
  Expr lane_;  // of the loop that is being printed
  int64_t lanes_ = 1;
};

}  // namespace diapason
