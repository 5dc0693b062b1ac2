#include "compiler/codegen/c_printer.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/codegen/byte_dots.h"
#include "compiler/codegen/c/access_printer.h"
#include "compiler/codegen/c/vector_expr_printer.h"
#include "compiler/codegen/c/vector_lanes.h"
#include "compiler/codegen/c/vector_library.h"
#include "compiler/codegen/c/vector_stmt_printer.h"
#include "compiler/codegen/passes.h"
#include "compiler/codegen/shared_values.h"
#include "compiler/codegen/slots.h"
#include "compiler/codegen/source_writer.h"

namespace diapason {
namespace {

// Copies of unrolled loops beyond this make no faster code, and the compiler slow: 896 predicated multiply-adds of a 14
// x 2 tile take gcc 12 a second, 1,792 take 3.6.
constexpr int64_t kMaxUnrolledStores = 1024;
// A kernel whose text is longer is printed with fewer copies, as long as that makes it shorter. Lanes that have no
// vector form are a statement each, and a statement may be long, of which the number of stores says nothing: gcc 12
// takes two minutes for 3,840 choices between integers (670 KB) and 46 s for 896 guarded reads at computed places (660
// KB), in loops 0.3 s each. Kernels of real networks' convolutions and products have up to 75 KB.
constexpr size_t kMaxText = 256 << 10;
constexpr int64_t kLeastUnrolledStores = 16;
// Local arrays up to this size are on the stack; larger ones are allocated.
constexpr int64_t kMaxStackBytes = 256 << 10;

// The kernel and its scalar statements; vector loops are left to the printers of c/.
class CKernelPrinter {
 public:
  CKernelPrinter(const KernelFunc& kernel, int vector_bytes, int64_t max_unrolled_stores, Helpers& helpers)
      : kernel_(kernel),
        vector_bytes_(vector_bytes),
        max_unrolled_stores_(max_unrolled_stores),
        helpers_(helpers),
        access_(helpers),
        library_(helpers) {}

  std::string Print() {
    for (const BufferDecl& param : kernel_.params) access_.Declare(param);
    const Stmt body = Prepare();
    out_.Open("void " + kernel_.name + "(void* const* args, int64 begin, int64 end)");
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const BufferDecl& param = kernel_.params[i];
      const std::string type = (param.written ? "" : "const ") + access_.StorageType(param.dtype) + "* restrict ";
      out_.Line(type + access_.NameOf(param.id) + " = args[" + std::to_string(i) + "];");
    }
    const bool parallel = body != nullptr && Contains(body, [](const StmtNode& s) {
                            return s.kind == StmtKind::kFor && s.for_kind == ForKind::kParallel;
                          });
    if (!parallel) out_.Line("if (begin > 0 || end <= 0) return;");
    if (body != nullptr) PrintStmt(body);
    out_.Close();
    return out_.Take();
  }

 private:
  Stmt Prepare() {
    Stmt body = kernel_.body;
    if (body == nullptr) return nullptr;
    Analyzer& analyzer = access_.analyzer();
    access_.BindVars(body);
    body = NormalizeVectorLoops(body, analyzer);
    body = ExpandUnrolled(KeepByteDots(body, analyzer), analyzer, max_unrolled_stores_);
    auto max_lanes = [this](const Stmt& inner) { return vector_bytes_ / WidestElement(inner); };
    body = SplitVectorLoops(body, analyzer, max_lanes);
    body = GatherGuards(UnifyLaneConditions(body, analyzer));
    return SplitWholeTiles(body, analyzer);
  }

  // Whether all that is stored are integers of 8 bits as they are in memory, which are copied without being computed.
  static bool CopiesBytes(const Stmt& stmt) {
    if (stmt->kind == StmtKind::kStore && !IsByteCopy(stmt->value)) return false;
    return std::all_of(stmt->body.begin(), stmt->body.end(), CopiesBytes);
  }
  static bool IsByteCopy(const Expr& e) {
    if (!IsByte(e->dtype)) return false;
    if (e->kind == ExprKind::kSelect) return IsByteCopy(e->args[1]) && IsByteCopy(e->args[2]);
    return e->kind == ExprKind::kLoad || e->kind == ExprKind::kIntImm;
  }

  // Bytes of the widest element that a vector of the loop's values has.
  static int64_t WidestElement(const Stmt& stmt) {
    int64_t widest = CopiesBytes(stmt) ? 1 : 4;
    auto look = [&](const ExprNode& e) {
      if (e.dtype == DType::kFloat64) widest = 8;
    };
    for (const Expr* e : {&stmt->value, &stmt->condition})
      if (*e != nullptr) Visit(*e, look);
    for (const Stmt& child : stmt->body) widest = std::max(widest, WidestElement(child));
    return widest;
  }

  void Block(const std::string& head, const Stmt& body) {
    out_.Open(head);
    PrintStmt(body);
    out_.Close();
  }

  void PrintStmt(const Stmt& stmt) {
    switch (stmt->kind) {
      case StmtKind::kFor: return PrintFor(*stmt);
      case StmtKind::kSeq: return PrintSequence(*stmt);
      case StmtKind::kStore: return out_.Line(access_.StoreText(*stmt));
      case StmtKind::kIf: return Block("if (" + access_.Text(stmt->condition) + ")", stmt->body[0]);
      case StmtKind::kAlloc: return PrintAlloc(*stmt);
      case StmtKind::kMma:
      case StmtKind::kLoadMatrix:
      case StmtKind::kShuffle:
      case StmtKind::kQuadStore:
      case StmtKind::kPack:
      case StmtKind::kFactorParts:
      case StmtKind::kGroupMma:
      case StmtKind::kGroupSync: DIAPASON_CHECK_MSG(false, "no tensor cores on processors"); return;
      case StmtKind::kBulkCopy:
      case StmtKind::kTensorCopy:
      case StmtKind::kMbarrier: DIAPASON_CHECK_MSG(false, "no shared memory on processors"); return;
      case StmtKind::kBarrier:
      case StmtKind::kSetRegisters:
      case StmtKind::kCommit:
      case StmtKind::kLaunchDependents:
      case StmtKind::kWait:
      case StmtKind::kClusterBarrier:
      case StmtKind::kClusterEnd: return;  // one thread
      case StmtKind::kLet:
        out_.Open();
        out_.Line("const int64 " + access_.VarName(stmt->var) + " = " + access_.Text(stmt->value) + ";");
        PrintStmt(stmt->body[0]);
        return out_.Close();
      case StmtKind::kComment: return out_.Comment(stmt->text);
    }
  }

  // Statements one after the other: vector values that several of them compute become variables.
  void PrintSequence(const StmtNode& sequence) {
    shared_.Enter(sequence, out_.depth(), [this](const ExprNode& load) { return access_.HasSlots(load.buffer); });
    for (const Stmt& child : sequence.body) {
      PrintStmt(child);
      shared_.Written(*child);
    }
    shared_.Leave();
  }

  void PrintFor(const StmtNode& loop) {
    Analyzer& analyzer = access_.analyzer();
    if (loop.for_kind == ForKind::kVectorize)
      return InVectors(loop, [&](CVectorStmtPrinter& vectors) { vectors.Print(loop.body[0]); });
    if (HoldsByteDots(loop, analyzer)) return PrintByteDots(loop.var, loop.body[0]);
    const std::string var = access_.VarName(loop.var);
    const bool parallel = loop.for_kind == ForKind::kParallel;
    if (loop.unroll > 0) out_.Line("#pragma GCC unroll " + std::to_string(loop.unroll));
    shared_.Written(loop);  // by the iterations before
    const std::string from = parallel ? "begin" : "0", to = parallel ? "end" : std::to_string(loop.extent);
    Block("for (int64 " + var + " = " + from + "; " + var + " < " + to + "; ++" + var + ")", loop.body[0]);
  }

  // Calls `print` with a printer for the lanes of the loop.
  template <typename Print>
  void InVectors(const StmtNode& loop, const Print& print) {
    const VectorLanes lanes(loop.var, loop.extent, access_.analyzer());
    CVectorExprPrinter values(lanes, access_, library_, shared_, out_);
    CVectorStmtPrinter vectors(values, access_, library_, out_, [this](const Stmt& stmt) { PrintStmt(stmt); });
    print(vectors);
  }

  // A loop over the bytes of dot products (HoldsByteDots), as instructions.
  void PrintByteDots(const Expr& byte, const Stmt& body) {
    switch (body->kind) {
      case StmtKind::kIf:
        out_.Open("if (" + access_.Text(body->condition) + ")");
        PrintByteDots(byte, body->body[0]);
        return out_.Close();
      case StmtKind::kSeq:
        for (const Stmt& child : body->body) PrintByteDots(byte, child);
        return;
      default:
        return InVectors(*body, [&](CVectorStmtPrinter& vectors) {
          vectors.PrintByteDot(*FindByteDot(byte, *body, access_.analyzer()));
        });
    }
  }

  void PrintAlloc(const StmtNode& alloc) {
    const BufferDecl& decl = alloc.decl;
    const std::optional<Slots> slots =
        FindSlots(decl, alloc.body[0], CVectorLibrary::Holds(decl.dtype), access_.analyzer());
    access_.Declare(decl);
    out_.Open();
    const std::string type = access_.ValueType(decl.dtype), name = access_.NameOf(decl.id);
    const int64_t bytes = decl.elements * ElementBytes(decl);
    if (slots) {
      access_.BeginSlots(decl.id, *slots);
      for (const auto& [start, lanes] : *slots)
        out_.Line((lanes == 1 ? type : library_.Type(decl.dtype, lanes)) + " " + access_.SlotName(decl.id, start) +
                  ";");
    } else if (bytes <= kMaxStackBytes) {
      out_.Line(type + " " + name + "[" + std::to_string(decl.elements) + "] __attribute__((aligned(64)));");
    } else {
      const std::string rounded = std::to_string((bytes + 63) / 64 * 64);
      helpers_.DefineType("aligned_alloc", "void* aligned_alloc(unsigned long, unsigned long);\nvoid free(void*);");
      out_.Line(type + "* restrict " + name + " = aligned_alloc(64, " + rounded + ");");
      out_.Line("if (!" + name + ") __builtin_trap();");
    }
    PrintStmt(alloc.body[0]);
    if (!slots && bytes > kMaxStackBytes) out_.Line("free(" + name + ");");
    out_.Close();
    access_.EndSlots(decl.id);
  }

  static int64_t ElementBytes(const BufferDecl& decl) { return IsNarrowFloat(decl.dtype) ? 4 : BytesOf(decl.dtype); }

  const KernelFunc& kernel_;
  const int vector_bytes_;
  const int64_t max_unrolled_stores_;
  Helpers& helpers_;
  SourceWriter out_;
  CAccessPrinter access_;
  CVectorLibrary library_;
  SharedValues shared_;
};

}  // namespace

std::string CPrelude() { return "typedef long long int64;\n"; }

std::string PrintCKernel(const KernelFunc& kernel, int vector_bytes, Helpers& helpers) {
  std::string text = CKernelPrinter(kernel, vector_bytes, kMaxUnrolledStores, helpers).Print();
  for (int64_t stores = kMaxUnrolledStores / 4; text.size() > kMaxText && stores >= kLeastUnrolledStores; stores /= 4) {
    std::string shorter = CKernelPrinter(kernel, vector_bytes, stores, helpers).Print();
    if (shorter.size() < text.size()) text = std::move(shorter);
  }
  return text;
}

}  // namespace diapason
