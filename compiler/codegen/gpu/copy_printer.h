// Copies to shared memory that the hardware does while threads continue (CUDA C: cp.async, cp.async.bulk), and waits
// for them. In OpenCL C, which has neither, threads copy at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/codegen/gpu/access_printer.h"
#include "compiler/codegen/source_writer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

// An element of a buffer.
struct BufferElement {
  const BufferDecl& buffer;
  const Expr& index;
  Expr rank{};  // of the block of the cluster that has the buffer; null: the block's own
};

// One element that a copy may be of, and where it is (null: everywhere).
struct GuardedValue {
  Expr condition, value;
};
// The loads that a value chooses from, at most four; no two of their conditions hold at once. It is zero where `any`,
// that one of them holds, does not (null: it always does). No loads if the value is anything else.
struct Choices {
  std::vector<GuardedValue> loads;
  Expr any;
};
Choices SplitChoices(const Expr& value);

// A copy of one of some elements, each with the condition under which it is that one, or of zero.
struct CopySource {
  BufferElement from;
  Expr condition;
};
struct CopySources {
  std::vector<CopySource> all;
  Expr any;  // as Choices has it
};

class GpuCopyPrinter {
 public:
  // Bulk copies without an mbarrier are made by so many threads of a block. The others must outlive this.
  GpuCopyPrinter(int64_t threads, GpuAccessPrinter& access, Helpers& helpers, SourceWriter& out)
      : threads_(threads), access_(access), helpers_(helpers), out_(out) {}

  // Whether so many elements of the store are a copy that is left to the hardware.
  bool IsAsync(const StmtNode& store, const BufferDecl& to, const BufferDecl& from, int64_t elements) const;
  // That copy, of one of the sources or zeros.
  void PrintAsync(const BufferElement& to, const CopySources& sources, int64_t elements);
  // The address of the source whose condition holds.
  std::string ChosenAddress(const CopySources& sources);
  // A store outside of vector loops. False: it is no such copy.
  bool PrintAsyncStore(const StmtNode& store);
  void PrintCommit();
  void PrintWait(const StmtNode& wait);

  void PrintBulkCopy(const StmtNode& copy);
  // Declarations of the tensor maps of a kernel, its last parameters. Before the copies that they are of are printed.
  std::vector<std::string> TensorMapParameters(const Stmt& body);
  // REQUIRES: CUDA C.
  void PrintTensorCopy(const StmtNode& copy);
  // REQUIRES: CUDA C.
  void PrintMbarrier(const StmtNode& sync);

 private:
  std::string WithoutBranches(const Expr& condition);

  struct NamedTensor {
    MappedTensor tensor;
    std::string name;
  };

  const int64_t threads_;
  std::vector<NamedTensor> maps_;
  GpuAccessPrinter& access_;
  Helpers& helpers_;
  SourceWriter& out_;
};

}  // namespace diapason
