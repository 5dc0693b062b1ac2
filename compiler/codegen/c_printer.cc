#include "compiler/codegen/c_printer.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/codegen/byte_dots.h"
#include "compiler/codegen/c_vectors.h"
#include "compiler/codegen/passes.h"
#include "compiler/codegen/slots.h"

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

class CKernelPrinter : public CVectorPrinter {
 public:
  CKernelPrinter(const KernelFunc& kernel, int vector_bytes, int64_t max_unrolled_stores, Helpers& helpers)
      : CVectorPrinter(helpers),
        kernel_(kernel),
        vector_bytes_(vector_bytes),
        max_unrolled_stores_(max_unrolled_stores) {}

  std::string Print() {
    for (const BufferDecl& param : kernel_.params) Declare(param);
    const Stmt body = Prepare();
    out_ += "void " + kernel_.name + "(void* const* args, int64 begin, int64 end) {\n";
    depth_ = 1;
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const BufferDecl& param = kernel_.params[i];
      const std::string type = (param.written ? "" : "const ") + StorageType(param.dtype) + "* restrict ";
      Line(type + NameOf(param.id) + " = args[" + std::to_string(i) + "];");
    }
    const bool parallel = body != nullptr && Contains(body, [](const StmtNode& s) {
                            return s.kind == StmtKind::kFor && s.for_kind == ForKind::kParallel;
                          });
    if (!parallel) Line("if (begin > 0 || end <= 0) return;");
    if (body != nullptr) PrintStmt(body);
    out_ += "}\n";
    return std::move(out_);
  }

 private:
  Stmt Prepare() {
    Stmt body = kernel_.body;
    if (body == nullptr) return nullptr;
    BindVars(body);
    body = NormalizeVectorLoops(body, analyzer_);
    body = ExpandUnrolled(KeepByteDots(body, analyzer_), analyzer_, max_unrolled_stores_);
    auto max_lanes = [this](const Stmt& inner) { return vector_bytes_ / WidestElement(inner); };
    body = SplitVectorLoops(body, analyzer_, max_lanes);
    body = GatherGuards(UnifyLaneConditions(body, analyzer_));
    return SplitWholeTiles(body, analyzer_);
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

  void PrintStmt(const Stmt& stmt) override {
    switch (stmt->kind) {
      case StmtKind::kFor: return PrintFor(*stmt);
      case StmtKind::kSeq: return PrintSequence(*stmt);
      case StmtKind::kStore: return Line(StoreText(*stmt));
      case StmtKind::kIf: return Block("if (" + Text(stmt->condition) + ")", stmt->body[0]);
      case StmtKind::kAlloc: return PrintAlloc(*stmt);
      case StmtKind::kMma:
      case StmtKind::kLoadMatrix:
      case StmtKind::kShuffle:
      case StmtKind::kPack:
      case StmtKind::kSmallParts:
      case StmtKind::kGroupMma:
      case StmtKind::kGroupSync: DIAPASON_CHECK_MSG(false, "no tensor cores on processors"); return;
      case StmtKind::kBulkCopy:
      case StmtKind::kMbarrier: DIAPASON_CHECK_MSG(false, "no shared memory on processors"); return;
      case StmtKind::kBarrier:
      case StmtKind::kCommit:
      case StmtKind::kLaunchDependents:
      case StmtKind::kWait:
      case StmtKind::kClusterBarrier: return;  // one thread
      case StmtKind::kLet:
        Open("");
        Line("const int64 " + VarName(stmt->var) + " = " + Text(stmt->value) + ";");
        PrintStmt(stmt->body[0]);
        return Close();
      case StmtKind::kComment: return PrintComment(stmt->text);
    }
  }

  void PrintFor(const StmtNode& loop) {
    if (loop.for_kind == ForKind::kVectorize) return PrintVectorLoop(loop);
    if (HoldsByteDots(loop, analyzer_)) return PrintByteDots(loop.var, loop.body[0]);
    const std::string var = VarName(loop.var);
    const bool parallel = loop.for_kind == ForKind::kParallel;
    if (loop.unroll > 0) Line("#pragma GCC unroll " + std::to_string(loop.unroll));
    shared_.Written(loop);  // by the iterations before
    const std::string from = parallel ? "begin" : "0", to = parallel ? "end" : std::to_string(loop.extent);
    Block("for (int64 " + var + " = " + from + "; " + var + " < " + to + "; ++" + var + ")", loop.body[0]);
  }

  void PrintAlloc(const StmtNode& alloc) {
    const BufferDecl& decl = alloc.decl;
    const bool vectors = VectorElementOf(decl.dtype) != nullptr;
    const std::optional<Slots> slots = FindSlots(decl, alloc.body[0], vectors, analyzer_);
    Declare(decl);
    Open("");
    const std::string type = ValueType(decl.dtype), name = NameOf(decl.id);
    const int64_t bytes = decl.elements * ElementBytes(decl);
    if (slots) {
      slots_[decl.id] = *slots;
      for (const auto& [start, lanes] : *slots)
        Line((lanes == 1 ? type : VectorType(decl.dtype, lanes)) + " " + SlotName(decl.id, start) + ";");
    } else if (bytes <= kMaxStackBytes) {
      Line(type + " " + name + "[" + std::to_string(decl.elements) + "] __attribute__((aligned(64)));");
    } else {
      const std::string rounded = std::to_string((bytes + 63) / 64 * 64);
      helpers_.DefineType("aligned_alloc", "void* aligned_alloc(unsigned long, unsigned long);\nvoid free(void*);");
      Line(type + "* restrict " + name + " = aligned_alloc(64, " + rounded + ");");
      Line("if (!" + name + ") __builtin_trap();");
    }
    PrintStmt(alloc.body[0]);
    if (!slots && bytes > kMaxStackBytes) Line("free(" + name + ");");
    Close();
    slots_.erase(decl.id);
  }

  static int64_t ElementBytes(const BufferDecl& decl) { return IsNarrowFloat(decl.dtype) ? 4 : BytesOf(decl.dtype); }

  const KernelFunc& kernel_;
  const int vector_bytes_;
  const int64_t max_unrolled_stores_;
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
