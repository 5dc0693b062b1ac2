// Expressions of a GPU kernel as CUDA C or OpenCL C: values, and accesses to buffers by elements and by vectors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/buffer_names.h"
#include "compiler/codegen/expr_printer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class GpuAccessPrinter : public ExprPrinter {
 public:
  // `kernel` must outlive this; it is named where it asks for what the dialect has not.
  GpuAccessPrinter(const KernelFunc& kernel, Dialect dialect, Helpers& helpers)
      : ExprPrinter(dialect, helpers), kernel_(kernel), cuda_(dialect == Dialect::kCuda) {}

  bool cuda() const { return cuda_; }
  // Our bug if it is OpenCL: `what`, as "waits at mbarriers, which OpenCL C does not have".
  void RequireCuda(const char* what) const;
  Analyzer& analyzer() { return analyzer_; }
  using ExprPrinter::BindVars;
  using ExprPrinter::ChooseIndexType;
  using ExprPrinter::IndexType;
  using ExprPrinter::is_wide;
  using ExprPrinter::kSumLevel;
  using ExprPrinter::Narrowed;
  using ExprPrinter::StorageType;
  using ExprPrinter::Text;
  using ExprPrinter::ValueType;
  using ExprPrinter::VarName;
  using ExprPrinter::Widened;
  std::string UniqueName(const std::string& wanted) { return names_.Unique(wanted); }
  // The head of a loop over its variable.
  std::string ForText(const StmtNode& loop);
  // Expressions with commas between.
  std::string Texts(const std::vector<Expr>& all);

  // From here on the buffer is known.
  void Declare(const BufferDecl& decl) { buffers_.Declare(decl, names_); }
  const BufferDecl& decl(int buffer) const { return buffers_.decl(buffer); }
  const std::string& NameOf(int buffer) const { return buffers_.name(buffer); }

  // The address space of pointers to the buffer, with a blank; nothing in CUDA C.
  std::string Space(const BufferDecl& decl) const;
  // Of elements as they lie in memory: OpenCL C has pointers to half, but no arrays of it.
  std::string ArrayType(DType dtype) const { return IsOpenClHalf(dtype) ? "ushort" : StorageType(dtype); }
  // OpenCL C converts halves only where they lie in memory.
  bool IsOpenClHalf(DType dtype) const { return !cuda_ && dtype == DType::kFloat16; }

  // The start of the buffer of the block of that rank in the cluster (null: of the block itself).
  std::string StartText(int buffer, const Expr& rank);
  // That of the buffer that a load reads.
  std::string BaseText(const ExprNode& load);
  // A store of one element, with its semicolon.
  std::string StoreText(const StmtNode& store, std::string value);
  // A pointer to an element of a buffer that is not swizzled, or to the first of its swizzle's pattern.
  std::string AddressText(int buffer, const Expr& index);
  // A pointer to an element, wherever the swizzle puts it.
  std::string SwizzledAddressText(const BufferDecl& decl, const Expr& index);
  // The elements from `at` on as one vector of the type, in the buffer that begins at `base`.
  std::string VectorText(const BufferDecl& decl, const std::string& base, const std::string& type, const Expr& at,
                         bool is_const);

  // From here on, until all are forgotten, loads of this element are printed as the text: part of a vector already
  // loaded.
  void AddLoaded(Expr load, std::string text) { loaded_.emplace_back(std::move(load), std::move(text)); }
  void ForgetLoaded() { loaded_.clear(); }

 private:
  std::string LoadText(const ExprNode& load) override;
  // An index as a term of a sum.
  std::string PlaceText(const BufferDecl& decl, const Expr& index, int level = kSumLevel);
  bool IsNarrowInMemory(const BufferDecl& decl) const;
  // OpenCL C: the buffer as a pointer to half.
  std::string HalfPointer(const BufferDecl& decl, bool is_const) const;

  const KernelFunc& kernel_;
  const bool cuda_;
  BufferNames buffers_;
  std::vector<std::pair<Expr, std::string>> loaded_;
};

}  // namespace diapason
