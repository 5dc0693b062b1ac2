#include "compiler/codegen/gpu_printer.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "compiler/codegen/passes.h"
#include "compiler/lower/early_start.h"
#include "compiler/tensor/program.h"

namespace diapason {
namespace {

// Copies that a loop is expanded to at most; beyond, the compiler unrolls it.
constexpr int64_t kMaxExpandedStores = 4096;

bool ChoosesBy(const Expr& e, const ExprNode* var) {
  bool found = false;
  Visit(e, [&](const ExprNode& node) { found |= node.kind == ExprKind::kSelect && UsesVar(node.args[0], var); });
  return found;
}

// Expands the unrolled loops by whose variable a value chooses (a constant matrix written as a choice among its
// entries): folded here, the entries cost nothing; left to the compiler, chains of choices take it minutes.
Stmt ExpandChoices(const Stmt& stmt, Analyzer& analyzer) {
  if (stmt == nullptr) return nullptr;
  if (stmt->kind == StmtKind::kFor && stmt->for_kind == ForKind::kUnroll) {
    const bool chooses = Contains(stmt, [&](const StmtNode& node) {
      return node.kind == StmtKind::kStore && ChoosesBy(node.value, stmt->var.get());
    });
    if (chooses) return ExpandUnrolled(stmt, analyzer, kMaxExpandedStores);
  }
  auto copy = std::make_shared<StmtNode>(*stmt);
  std::vector<Stmt> children;
  for (const Stmt& child : stmt->body)
    if (Stmt expanded = ExpandChoices(child, analyzer)) children.push_back(expanded);
  if (children.empty() && !stmt->body.empty()) return nullptr;
  copy->body = std::move(children);
  return copy;
}

constexpr int64_t kMaxVectorBytes = 16;
constexpr char kComponents[] = "xyzw";

// Each shared buffer starts at a multiple of 16 bytes, for vector accesses, or at what it asks for.
int64_t AlignmentOf(const BufferDecl& decl) {
  if (decl.scope == Scope::kLocal) return BytesOf(decl.dtype);
  return std::max<int64_t>(decl.alignment, decl.scope == Scope::kGlobal ? kParameterAlignment : 16);
}

void CollectShared(const Stmt& stmt, std::map<int, BufferDecl>& out) {
  if (stmt == nullptr) return;
  if (stmt->kind == StmtKind::kAlloc && stmt->decl.scope == Scope::kShared) out.emplace(stmt->decl.id, stmt->decl);
  for (const Stmt& child : stmt->body) CollectShared(child, out);
}

struct SharedLayout {
  std::vector<std::pair<BufferDecl, int64_t>> offsets;
  int64_t bytes = 0;
  int64_t alignment = 128;
  bool overlaid = false;  // buffers share their places: they are parts of one array
};

SharedLayout LayOut(const Stmt& body) {
  std::map<int, BufferDecl> buffers;
  CollectShared(body, buffers);
  SharedLayout layout;
  int64_t end = 0, overlay_end = 0;
  const auto place = [&](const BufferDecl& decl, int64_t* bytes) {
    const int64_t alignment = AlignmentOf(decl);
    const int64_t offset = (*bytes + alignment - 1) / alignment * alignment;
    layout.offsets.emplace_back(decl, offset);
    *bytes = offset + decl.elements * BytesOf(decl.dtype);
    layout.overlaid |= decl.overlay;
    layout.alignment = std::max(layout.alignment, alignment);
  };
  // Swizzled buffers, whose sizes are multiples of their alignments, come first, so that nothing is lost between
  // buffers.
  for (const int swizzle : {128, 64, 32})
    for (const auto& [id, decl] : buffers)
      if (decl.swizzle == swizzle) place(decl, &end);
  for (const auto& [id, decl] : buffers)
    if (!decl.apart && decl.swizzle == 0) place(decl, decl.overlay ? &overlay_end : &end);
  layout.bytes = std::max(end, overlay_end);
  for (const auto& [id, decl] : buffers)
    if (decl.apart) place(decl, &layout.bytes);
  return layout;
}

class GpuKernelPrinter : public ExprPrinter {
 public:
  GpuKernelPrinter(const KernelFunc& kernel, Dialect dialect, Helpers& helpers)
      : ExprPrinter(dialect, helpers), kernel_(kernel), cuda_(dialect == Dialect::kCuda) {}

  std::string Print() {
    for (const BufferDecl& param : kernel_.params) Declare(param);
    BindVars(kernel_.body);
    Stmt body = NormalizeVectorLoops(kernel_.body, analyzer_);
    body = ExpandChoices(body, analyzer_);
    body = UnifyLaneConditions(SimplifyAll(body, analyzer_), analyzer_);
    KernelFunc simplified = kernel_;
    simplified.body = body;
    ChooseIndexType(simplified);
    PrintHead();
    depth_ = 1;
    PrintShared();
    waits_ = overlaps();
    if (body != nullptr) PrintStmt(body);
    if (waits_) PrintWait();
    return out_ + "}\n";
  }

 private:
  void Line(const std::string& text) { out_.append(2 * depth_, ' ').append(text).append("\n"); }
  void Open(const std::string& head) {
    Line(head.empty() ? "{" : head + " {");
    ++depth_;
  }
  void Close() {
    --depth_;
    Line("}");
  }
  void Block(const std::string& head, const Stmt& body) {
    Open(head);
    PrintStmt(body);
    Close();
  }

  void Declare(const BufferDecl& decl) {
    buffers_[decl.id] = decl;
    if (buffer_names_.count(decl.id) == 0) buffer_names_[decl.id] = names_.Unique(decl.name);
  }
  const std::string& NameOf(int buffer) const { return buffer_names_.at(buffer); }

  // An index as a term of a sum.
  std::string PlaceText(const BufferDecl& decl, const Expr& index, int level = kSumLevel) {
    if (decl.swizzle == 0 || !cuda_) return Text(index, level);
    const int64_t bytes = BytesOf(decl.dtype);
    return helpers_.Use("swizzled") + "<3, " + std::to_string((decl.swizzle - 16) / bytes) + ">(" + Text(index) + ")";
  }

  void PrintHead() {
    std::string params;
    for (const BufferDecl& param : kernel_.params) {
      const std::string type = (param.written ? "" : "const ") + StorageType(param.dtype) + "* ";
      const std::string pointer =
          cuda_ ? type + (IsAwaited(param.id) ? "" : "__restrict__ ") : "__global " + type + "restrict ";
      params += (params.empty() ? "" : ", ") + pointer + NameOf(param.id);
    }
    const std::string threads = std::to_string(kernel_.threads);
    out_ += (cuda_ ? "extern \"C\" __global__ void __launch_bounds__(" + threads + ") "
                   : "__kernel __attribute__((reqd_work_group_size(" + threads + ", 1, 1))) void ") +
            kernel_.name + "(" + params + ") {\n";
  }

  void PrintShared() {
    const SharedLayout layout = LayOut(kernel_.body);
    const bool dynamic = cuda_ && layout.bytes > kMaxStaticSharedBytes;
    const bool one_array = dynamic || (cuda_ && layout.overlaid);
    if (dynamic) {
      Line("extern __shared__ __align__(" + std::to_string(layout.alignment) + ") unsigned char shared_memory[];");
    } else if (one_array) {
      Line("__shared__ __align__(" + std::to_string(layout.alignment) + ") unsigned char shared_memory[" +
           std::to_string(layout.bytes) + "];");
    }
    for (const auto& [decl, offset] : layout.offsets) {
      Declare(decl);
      const std::string name = NameOf(decl.id), size = "[" + std::to_string(decl.elements) + "]";
      const std::string alignment = std::to_string(AlignmentOf(decl));
      const std::string type = ArrayType(decl.dtype);
      if (one_array) {
        Line(type + "* const " + name + " = (" + type + "*)(shared_memory + " + std::to_string(offset) + ");");
      } else if (cuda_) {
        Line("__shared__ __align__(" + alignment + ") " + type + " " + name + size + ";");
      } else {
        Line("__local " + type + " " + name + size + " __attribute__((aligned(" + alignment + ")));");
      }
    }
  }

  bool overlaps() const { return cuda_ && kernel_.overlap; }

  // Programmatic dependent launch: whether another kernel may use the buffer at the same time, before the wait. Such a
  // parameter has no __restrict__: with it compilers take the contents as unchanging, move loads over the wait, and
  // read through a cache that is not coherent (ld.global.nc).
  bool IsAwaited(int buffer) const {
    const auto found = buffers_.find(buffer);
    return overlaps() && found != buffers_.end() && diapason::IsAwaited(found->second);
  }

  bool TouchesAwaited(const Expr& e) const {
    return LoadsFrom(e, [this](int buffer) { return IsAwaited(buffer); });
  }

  bool TouchesAwaited(const Stmt& stmt) const {
    return Contains(stmt, [this](const StmtNode& s) {
      return IsAwaited(s.buffer) || TouchesAwaited(s.index) || TouchesAwaited(s.value) || TouchesAwaited(s.condition) ||
             std::any_of(s.operands.begin(), s.operands.end(), [this](const Expr& e) { return TouchesAwaited(e); });
    });
  }

  bool RunsBodyOnce(const StmtNode& s) const {
    return diapason::RunsBodyOnce(s, [this](int buffer) { return IsAwaited(buffer); });
  }

  void PrintWait() {
    Line(helpers_.Use("wait_for_previous") + "();");
    waits_ = false;
  }

  // The wait for the kernel in front stands before the first statement that touches what that kernel may, among those
  // that every thread runs once: so every thread waits, and copies of constants, as well as barriers, come before it.
  void PrintStmt(const Stmt& stmt) {
    if (waits_ && !RunsBodyOnce(*stmt) && TouchesAwaited(stmt)) PrintWait();
    switch (stmt->kind) {
      case StmtKind::kFor: return PrintFor(stmt);
      case StmtKind::kSeq:
        for (const Stmt& child : stmt->body) PrintStmt(child);
        return;
      case StmtKind::kStore:
        if (PrintAsyncStore(*stmt)) return;
        return Line(StoreText(stmt->buffer, stmt->index, Text(stmt->value)));
      case StmtKind::kIf: return Block("if (" + Text(stmt->condition) + ")", stmt->body[0]);
      case StmtKind::kAlloc: return PrintAlloc(*stmt);
      case StmtKind::kBarrier: return Line(cuda_ ? "__syncthreads();" : "barrier(CLK_LOCAL_MEM_FENCE);");
      case StmtKind::kMma: return PrintMma(*stmt);
      case StmtKind::kLoadMatrix: return PrintLoadMatrix(*stmt);
      case StmtKind::kShuffle:
        DIAPASON_CHECK_MSG(cuda_, "registers of lanes are of cuda");
        return Line(NameOf(stmt->buffer) + "[" + Text(stmt->index) + "] = __shfl_sync(0xffffffffu, " +
                    Text(stmt->value) + ", " + Text(stmt->operands[0]) + ");");
      case StmtKind::kPack:
        CheckTensorCores();
        return Line(NameOf(stmt->buffer) + "[" + Text(stmt->index) + "] = " + PackFunction(stmt->operands[0]->dtype) +
                    "(" + Texts(stmt->operands) + ");");
      case StmtKind::kSmallParts: return PrintSmallParts(*stmt);
      case StmtKind::kGroupMma: return PrintGroupMma(*stmt);
      case StmtKind::kGroupSync: return PrintGroupSync(*stmt);
      case StmtKind::kBulkCopy: return PrintBulkCopy(*stmt);
      case StmtKind::kMbarrier: return PrintMbarrier(*stmt);
      case StmtKind::kLaunchDependents:
        if (cuda_) Line(helpers_.Use("launch_dependents") + "();");
        return;
      case StmtKind::kCommit:
        if (cuda_) Line(helpers_.Use("async_commit") + "();");
        return;
      case StmtKind::kWait:
        if (cuda_) Line(helpers_.Use("async_wait") + "<" + std::to_string(stmt->extent) + ">();");
        return;
      case StmtKind::kClusterBarrier:
        DIAPASON_CHECK_MSG(cuda_, kernel_.name + " has clusters, which OpenCL C has not");
        return Line(helpers_.Use("cluster_barrier") + "();");
      case StmtKind::kLet:
        Open("");
        Line("const " + (is_wide(stmt->value) ? "int64" : IndexType()) + " " + VarName(stmt->var) + " = " +
             Text(stmt->value) + ";");
        PrintStmt(stmt->body[0]);
        return Close();
      case StmtKind::kComment: {
        std::string line = stmt->text;
        std::replace_if(
            line.begin(), line.end(), [](char c) { return c == '\n' || c == '\\'; }, ' ');
        return Line("// " + line);
      }
    }
  }

  void CheckTensorCores() const {
    DIAPASON_CHECK_MSG(cuda_, kernel_.name + " uses tensor cores, which OpenCL C has not");
  }

  // The function of a product by a warp.
  std::string ProductFunction(const StmtNode& mma) {
    const TensorIntrinsic& intrinsic = TensorIntrinsicOf(mma.tensor);
    DIAPASON_CHECK_MSG(!intrinsic.groups, "no product by a warp");
    if (intrinsic.parts) {
      helpers_.Use("small_part");
      return helpers_.Use("add_three_tf32");
    }
    if (intrinsic.rounds_factors()) return helpers_.Use("add_rounded_tf32");
    const std::string rows = PtxName(mma.factors.rows), columns = PtxName(mma.factors.columns);
    const std::string name = "add_" + OnceOrBoth(rows, columns), k = std::to_string(intrinsic.depth());
    const SumsText sums = TextOfSums(4, intrinsic.sum);
    helpers_.DefineFunction(name, "// c += a * b, a 16x" + k + " and b " + k + "x8 in " +
                                      (intrinsic.transposes() ? "pairs" : "fours") +
                                      ".\n"
                                      "static __device__ __forceinline__ void " +
                                      name + "(" + sums.parameters +
                                      ", int a0, int a1, int a2, int a3, int b0, int b1) {\n"
                                      "  asm(\"mma.sync.aligned.m16n8k" +
                                      k + ".row.col." + sums.type + "." + rows + "." + columns + "." + sums.type +
                                      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
                                      "      : " +
                                      sums.constraints +
                                      "\n"
                                      "      : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n"
                                      "}");
    return name;
  }

  std::string PackFunction(DType dtype) {
    if (!IsFloat(dtype)) return helpers_.Use("pack_bytes");
    const std::string type = PtxName(dtype), name = "pack_" + type;
    helpers_.DefineFunction(name, "static __device__ __forceinline__ int " + name +
                                      "(float low, float high) {\n  int pair;\n  asm(\"cvt.rn." + type +
                                      "x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(high), \"f\"(low));\n"
                                      "  return pair;\n}");
    return name;
  }

  // Of factors.
  static std::string PtxName(DType dtype) {
    for (const TensorIntrinsic& intrinsic : TensorIntrinsics())
      if (const FactorType* type = intrinsic.FindFactor(dtype)) return type->ptx;
    DIAPASON_CHECK_MSG(false, diapason::NameOf(dtype));
    return "";
  }

  static std::string OnceOrBoth(const std::string& rows, const std::string& columns) {
    return rows == columns ? rows : rows + "_" + columns;
  }

  std::string Texts(const std::vector<Expr>& all) {
    std::string text;
    for (const Expr& e : all) text += (text.empty() ? "" : ", ") + Text(e);
    return text;
  }

  void PrintMma(const StmtNode& mma) {
    CheckTensorCores();
    std::string text, sums[4];
    for (size_t i = 0; i < mma.operands.size(); ++i) {
      const std::string operand = Text(mma.operands[i]);
      if (i < 4) sums[i] = NameOf(mma.buffer) + "[" + operand + "]";
      text += (i == 0 ? "" : ", ") + (i < 4 ? sums[i] : operand);
    }
    if (mma.from_zero) Line(sums[0] + " = " + sums[1] + " = " + sums[2] + " = " + sums[3] + " = 0.0f;");
    Line(ProductFunction(mma) + "(" + text + ");");
  }

  void PrintSmallParts(const StmtNode& parts) {
    CheckTensorCores();
    const std::string& cut = helpers_.Use("small_part");
    const std::string &to = NameOf(parts.buffer), &from = NameOf(parts.value->buffer);
    const Expr& first = parts.value->args[0];
    const bool together = parts.extent == 4 && buffers_.at(parts.buffer).scope == Scope::kShared &&
                          analyzer_.KnownDivisor(parts.index) % 4 == 0 && analyzer_.KnownDivisor(first) % 4 == 0;
    if (together)
      return Line(helpers_.Use("small_parts_4") + "(" + to + " + " + Text(parts.index, kSumLevel) + ", " + from +
                  " + " + Text(first, kSumLevel) + ");");
    for (int64_t i = 0; i < parts.extent; ++i) {
      const auto at = [&](const Expr& e) { return "[" + Text(analyzer_.Simplify(Add(e, IntImm(i)))) + "]"; };
      Line(to + at(parts.index) + " = __uint_as_float(" + cut + "(" + from + at(first) + "));");
    }
  }

  // One function for each number of columns: the sums are registers of the instruction.
  std::string GroupFunction(int64_t columns) {
    const std::string name = "group_mma_" + std::to_string(columns);
    const int64_t sums = columns / 2;
    std::string registers, constraints;
    for (int64_t i = 0; i < sums; ++i) {
      registers += (i == 0 ? "%" : ", %") + std::to_string(i);
      constraints += std::string(i == 0 ? "" : ", ") + "\"+f\"(c[" + std::to_string(i) + "])";
    }
    std::string factor_constraints;
    for (const char* factor : {"a0", "a1", "a2", "a3", "s0", "s1", "s2", "s3"})
      factor_constraints +=
          std::string(factor_constraints.empty() ? "" : ", ") + "\"r\"(__float_as_uint(" + factor + "))";
    const auto operand = [&](int64_t i) { return "%" + std::to_string(sums + i); };
    const auto factors = [&](int64_t i) {
      return "{" + operand(i) + ", " + operand(i + 1) + ", " + operand(i + 2) + ", " + operand(i + 3) + "}";
    };
    const auto product = [&](int64_t rows, int64_t column, const std::string& add) {
      return "    \"wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k8.f32.tf32.tf32 {" + registers +
             "}, " + factors(rows) + ", " + operand(column) + ", " + add + ", 1, 1;\\n\"\n";
    };
    helpers_.DefineFunction(
        name,
        "// c += (a + s) * (b + t) without s * t, or c = that first: a and s in registers, core matrices b and t.\n"
        "static __device__ __forceinline__ void " +
            name +
            "(float* c, float a0, float a1, float a2, float a3, float s0, float s1, float s2, float s3,\n"
            "    unsigned long long b, unsigned long long t, int first) {\n"
            "  asm volatile(\"{\\n.reg .pred add, true_;\\nsetp.eq.s32 add, " +
            operand(10) + ", 0;\\nsetp.eq.s32 true_, 0, 0;\\n\"\n" + product(4, 8, "add") + product(0, 9, "true_") +
            product(0, 8, "true_") + "    \"}\"\n    : " + constraints + "\n    : " + factor_constraints +
            ", \"l\"(b), \"l\"(t), \"r\"(first));\n"
            "}");
    return name;
  }

  // Sums that lie anywhere, as parameters and operands.
  struct SumsText {
    std::string type, parameters, registers, constraints;
  };
  // `dtype`: float32 or int32.
  static SumsText TextOfSums(int64_t sums, DType dtype) {
    const bool is_float = IsFloat(dtype);
    SumsText text;
    text.type = is_float ? "f32" : "s32";
    for (int64_t i = 0; i < sums; ++i) {
      const std::string c = "c" + std::to_string(i), comma = i == 0 ? "" : ", ";
      text.parameters += comma + (is_float ? "float& " : "int& ") + c;
      text.registers += comma + "%" + std::to_string(i);
      text.constraints += comma + (is_float ? "\"+f\"(" : "\"+r\"(") + c + ")";
    }
    return text;
  }

  std::string GroupFunctionOfPacked(const StmtNode& mma) {
    const TensorIntrinsic& intrinsic = TensorIntrinsicOf(mma.tensor);
    const auto sums = static_cast<int64_t>(mma.sums.size());
    const bool shared = mma.rows.stride > 0;
    const std::string across = std::string(mma.rows.along_k ? "" : "_rows") + (mma.columns.along_k ? "" : "_columns");
    const std::string row_type = PtxName(mma.factors.rows), column_type = PtxName(mma.factors.columns);
    const std::string k = std::to_string(intrinsic.depth());
    const std::string name = "group_" + OnceOrBoth(row_type, column_type) + (shared ? "_shared_" : "_") +
                             std::to_string(2 * sums) + (across.empty() ? "" : across + "_across");
    const SumsText text = TextOfSums(sums, intrinsic.sum);
    const auto operand = [&](int64_t i) { return "%" + std::to_string(sums + i); };
    const std::string rows =
        shared ? operand(0) : "{" + operand(0) + ", " + operand(1) + ", " + operand(2) + ", " + operand(3) + "}";
    // Signs of the factors, and whether they lie across: not to be chosen for integers.
    std::string order = IsFloat(intrinsic.sum) ? ", 1, 1" : "";
    if (intrinsic.transposes())
      order += (shared ? (mma.rows.along_k ? ", 0" : ", 1") : std::string()) + (mma.columns.along_k ? ", 0" : ", 1");
    helpers_.DefineFunction(
        name, std::string("// c += a * b: a, ") +
                  (shared ? "64x" + k + " of the group, and b"
                          : "16x" + k + " of each warp in " + (intrinsic.transposes() ? "pairs" : "fours") +
                                ", in registers, b") +
                  " in core matrices.\n"
                  "static __device__ __forceinline__ void " +
                  name + "(" + text.parameters +
                  (shared ? ", unsigned long long a" : ",\n    int a0, int a1, int a2, int a3") +
                  ", unsigned long long b) {\n"
                  "  asm volatile(\"{\\n.reg .pred add;\\nsetp.eq.s32 add, 0, 0;\\n\"\n"
                  "    \"wgmma.mma_async.sync.aligned.m64n" +
                  std::to_string(2 * sums) + "k" + k + "." + text.type + "." + row_type + "." + column_type + " {" +
                  text.registers + "}, " + rows + ", " + operand(shared ? 1 : 4) + ", add" + order + ";\\n}\"\n    : " +
                  text.constraints + "\n    : " + (shared ? "\"l\"(a)" : "\"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3)") +
                  ", \"l\"(b));\n"
                  "}");
    return name;
  }

  // The sums are operands, so that nothing reads them before.
  std::string GroupWaitFunction(int64_t sums, int64_t unfinished, DType dtype) {
    const SumsText text = TextOfSums(sums, dtype);
    const std::string name = "group_wait_" + (IsFloat(dtype) ? "" : text.type + "_") + std::to_string(sums) + "_" +
                             std::to_string(unfinished);
    helpers_.DefineFunction(
        name, "static __device__ __forceinline__ void " + name + "(" + text.parameters +
                  ") {\n  asm volatile(\"wgmma.wait_group.sync.aligned " + std::to_string(unfinished) +
                  ";\" ::: \"memory\");\n  asm volatile(\"\"\n    : " + text.constraints + "\n    :: \"memory\");\n}");
    return name;
  }

  std::string SumsOf(const StmtNode& s) {
    std::string text;
    for (const Expr& sum : s.sums) text += (text.empty() ? "" : ", ") + NameOf(s.buffer) + "[" + Text(sum) + "]";
    return text;
  }

  // The descriptor of rows or columns in shared memory (PTX, "Matrix descriptor format"): bytes between core matrices
  // in both directions, in 16s, and how they are swizzled. In swizzled runs along k there is no second direction.
  std::string CoreMatricesText(const ExprNode& first, const CoreMatrices& matrices) {
    const int64_t bytes = BytesOf(first.dtype), run = matrices.width * bytes, next_8 = 8 * run,
                  next_run = matrices.stride * bytes;
    int64_t leading = next_run, stride = next_8;
    if (run == 16 && !matrices.along_k) std::swap(leading, stride);
    if (run > 16 && matrices.along_k) leading = 16;
    const uint64_t swizzle = run == 128 ? 1 : run == 64 ? 2 : run == 32 ? 3 : 0;
    const uint64_t layout =
        static_cast<uint64_t>(leading / 16) << 16 | static_cast<uint64_t>(stride / 16) << 32 | swizzle << 62;
    Expr place = first.args[0];
    int64_t steps = 0;
    const Expr* const last = place->kind == ExprKind::kAdd ? &place->args[1] : &place;
    if ((*last)->kind == ExprKind::kIntImm && (*last)->value * bytes % 16 == 0) {
      steps = (*last)->value * bytes / 16;
      place = last == &place ? IntImm(0) : place->args[0];
    }
    return helpers_.Use("core_matrices") + "(" + NameOf(first.buffer) + ", " +
           Text(analyzer_.Simplify(Mul(place, IntImm(bytes)))) + ", " + std::to_string(steps) + ", " +
           std::to_string(layout) + "ull)";
  }

  void PrintGroupMmaOfPacked(const StmtNode& mma) {
    std::string text = GroupFunctionOfPacked(mma) + "(" + SumsOf(mma);
    const bool shared = mma.rows.stride > 0;
    for (size_t i = 0; i < 4 && !shared; ++i) text += ", " + Text(mma.operands[i]);
    if (shared) text += ", " + CoreMatricesText(*mma.operands[0], mma.rows);
    Line(text + ", " + CoreMatricesText(*mma.operands.back(), mma.columns) + ");");
  }

  void PrintGroupMma(const StmtNode& mma) {
    CheckTensorCores();
    if (!mma.sums.empty()) return PrintGroupMmaOfPacked(mma);
    std::string text = GroupFunction(mma.extent) + "(" + NameOf(mma.buffer) + " + " + Text(mma.index, kSumLevel);
    for (size_t i = 0; i < 8; ++i) text += ", " + Text(mma.operands[i]);
    for (size_t i = 8; i < 10; ++i) text += ", " + CoreMatricesText(*mma.operands[i], mma.columns);
    Line(text + ", " + (mma.from_zero ? "1" : "0") + ");");
  }

  void PrintGroupSync(const StmtNode& sync) {
    CheckTensorCores();
    switch (sync.sync) {
      case GroupSync::kBegin: return Line(helpers_.Use("group_begin") + "();");
      case GroupSync::kCommit: return Line(helpers_.Use("group_commit") + "();");
      case GroupSync::kWait:
        if (!sync.sums.empty())
          return Line(
              GroupWaitFunction(static_cast<int64_t>(sync.sums.size()), sync.extent, buffers_.at(sync.buffer).dtype) +
              "(" + SumsOf(sync) + ");");
        return Line(helpers_.Use("group_wait") + "<" + std::to_string(sync.extent) + ">();");
      case GroupSync::kPublish: return Line(helpers_.Use("group_publish") + "();");
    }
  }

  void PrintBulkCopy(const StmtNode& copy) {
    const BufferDecl &to = buffers_.at(copy.buffer), &from = buffers_.at(copy.value->buffer);
    const std::string target = NameOf(to.id) + " + " + Text(copy.index, kSumLevel);
    const std::string source = NameOf(from.id) + " + " + Text(copy.value->args[0], kSumLevel);
    if (!copy.operands.empty()) {
      DIAPASON_CHECK_MSG(cuda_, kernel_.name + " copies in bulk, which OpenCL C does not");
      return Line(helpers_.Use("bulk_copy") + "(" + target + ", " + source + ", " +
                  std::to_string(copy.extent * BytesOf(to.dtype)) + ", &" + Text(copy.operands[0]) + ");");
    }
    const std::string at = names_.Unique("at"), thread = cuda_ ? "threadIdx.x" : "get_local_id(0)";
    Open("for (int " + at + " = " + thread + "; " + at + " < " + std::to_string(copy.extent) + "; " + at +
         " += " + std::to_string(kernel_.threads) + ")");
    // OpenCL C has no assignment of halves; arrays of them are ushort there.
    const bool as_bits = IsOpenClHalf(from.dtype);
    const std::string elements = as_bits ? "((" + Space(from) + "const ushort*)(" + source + "))" : "(" + source + ")";
    Line("(" + target + ")[" + at + "] = " + elements + "[" + at + "];");
    Close();
  }

  void PrintMbarrier(const StmtNode& sync) {
    DIAPASON_CHECK_MSG(cuda_, kernel_.name + " waits at mbarriers, which OpenCL C has not");
    const std::string barrier = "(&" + Text(sync.operands[0]);
    switch (sync.mbarrier) {
      case MbarrierOp::kInit:
        return Line(helpers_.Use("mbarrier_init") + barrier + ", " + std::to_string(sync.extent) + ", " +
                    Text(sync.value) + ");");
      case MbarrierOp::kWait: return Line(helpers_.Use("mbarrier_wait") + barrier + ", " + Text(sync.value) + ");");
      case MbarrierOp::kArrive: return Line(helpers_.Use("mbarrier_arrive") + barrier + ");");
    }
  }

  void PrintLoadMatrix(const StmtNode& load) {
    DIAPASON_CHECK_MSG(cuda_, kernel_.name + " loads matrices, which OpenCL C does not");
    const std::string name = NameOf(load.buffer);
    std::string helper = load.extent == 4 ? "load_matrix_4" : "load_matrix_2";
    if (TensorIntrinsicOf(load.tensor).factors_per_register() > 1) helper += load.transposed ? "_transposed" : "_pairs";
    std::string text = helpers_.Use(helper) + "(";
    for (int64_t i = 0; i < load.extent; ++i)
      text += name + "[" + Text(analyzer_.Simplify(Add(load.index, IntImm(i)))) + "], ";
    Line(text + NameOf(load.value->buffer) + " + " + Text(load.value->args[0], kSumLevel) + ");");
  }

  void PrintAlloc(const StmtNode& alloc) {
    if (alloc.decl.scope == Scope::kShared) return PrintStmt(alloc.body[0]);
    Declare(alloc.decl);
    Open("");
    const std::string type = alloc.decl.packed ? ArrayType(alloc.decl.dtype) : ValueType(alloc.decl.dtype);
    Line(type + " " + NameOf(alloc.decl.id) + "[" + std::to_string(alloc.decl.elements) + "];");
    PrintStmt(alloc.body[0]);
    Close();
  }

  void PrintFor(const Stmt& loop) {
    const Stmt& body = loop->body[0];
    switch (loop->for_kind) {
      case ForKind::kBlockX: return PrintIndex(*loop, BlockText("/"));
      case ForKind::kCluster: return PrintIndex(*loop, BlockText("%"));
      case ForKind::kThreadX: return PrintIndex(*loop, cuda_ ? "threadIdx.x" : "get_local_id(0)");
      case ForKind::kVectorize:
        lane_ = loop->var;
        lanes_ = loop->extent;
        PrintVectorStmt(body);
        lane_ = nullptr;
        return;
      case ForKind::kUnroll: Line("#pragma unroll"); break;
      case ForKind::kSerial:
      case ForKind::kParallel:
        if (loop->unroll > 0) Line("#pragma unroll " + std::to_string(loop->unroll));
        break;
    }
    Block(ForText(*loop), body);
  }

  // The index of the block, or with clusters, which are neighbours in x, of its cluster ("/") or its rank ("%").
  std::string BlockText(const std::string& part) const {
    const std::string block = cuda_ ? "blockIdx.x" : "get_group_id(0)";
    return kernel_.cluster == 1 ? block : block + " " + part + " " + std::to_string(kernel_.cluster);
  }

  std::string ForText(const StmtNode& loop) {
    const std::string var = VarName(loop.var);
    return "for (" + IndexType() + " " + var + " = 0; " + var + " < " + std::to_string(loop.extent) + "; ++" + var +
           ")";
  }

  void PrintIndex(const StmtNode& loop, const std::string& value) {
    Open("");
    Line("const " + IndexType() + " " + VarName(loop.var) + " = " + value + ";");
    PrintStmt(loop.body[0]);
    Close();
  }

  // Of elements as they lie in memory: OpenCL C has pointers to half, but no arrays of it.
  std::string ArrayType(DType dtype) const { return IsOpenClHalf(dtype) ? "ushort" : StorageType(dtype); }

  // OpenCL C converts halves only where they lie in memory.
  bool IsOpenClHalf(DType dtype) const { return !cuda_ && dtype == DType::kFloat16; }

  bool IsNarrowInMemory(const BufferDecl& decl) const {
    return IsNarrowFloat(decl.dtype) && (decl.scope != Scope::kLocal || decl.packed);
  }

  std::string Space(const BufferDecl& decl) const {
    return cuda_ ? "" : decl.scope == Scope::kShared ? "__local " : "__global ";
  }

  // OpenCL C: the buffer as a pointer to half.
  std::string HalfPointer(const BufferDecl& decl, bool is_const) const {
    const std::string name = NameOf(decl.id);
    if (decl.scope == Scope::kGlobal) return name;
    return std::string(decl.scope == Scope::kShared ? "(__local " : "(__private ") + (is_const ? "const " : "") +
           "half*)" + name;
  }

  std::string LoadText(const ExprNode& load) override {
    for (const auto& [known, text] : components_)
      if (known->buffer == load.buffer && SameElement(*known, load)) return text;
    const BufferDecl& decl = buffers_.at(load.buffer);
    const std::string index = PlaceText(decl, load.args[0], 0), base = BaseText(load);
    if (!IsNarrowInMemory(decl)) return base + "[" + index + "]";
    if (!IsOpenClHalf(decl.dtype)) return Widened(decl.dtype, base + "[" + index + "]");
    return "vload_half(" + index + ", " + HalfPointer(decl, true) + ")";
  }

  static bool SameElement(const ExprNode& a, const ExprNode& b) {
    return a.args.size() == b.args.size() && Equal(a.args[0], b.args[0]) &&
           (a.args.size() == 1 || Equal(a.args[1], b.args[1]));
  }

  // The start of the buffer that a load reads: the block's own, or that of another block of the cluster.
  std::string BaseText(const ExprNode& load) {
    if (load.args.size() == 1) return NameOf(load.buffer);
    DIAPASON_CHECK_MSG(cuda_, kernel_.name + " reads the shared memory of another block");
    return helpers_.Use("in_cluster") + "(" + NameOf(load.buffer) + ", " + Text(load.args[1]) + ")";
  }

  std::string StoreText(int buffer, const Expr& index, std::string value) {
    const BufferDecl& decl = buffers_.at(buffer);
    const std::string element = NameOf(buffer) + "[" + PlaceText(decl, index, 0) + "]";
    if (IsNarrowInMemory(decl) && IsOpenClHalf(decl.dtype))
      return "vstore_half(" + value + ", " + Text(index) + ", " + HalfPointer(decl, false) + ");";
    if (IsNarrowInMemory(decl)) value = Narrowed(decl.dtype, value);
    if (decl.dtype == DType::kBool) value = "(" + value + ") != 0";
    return element + " = " + value + ";";
  }

  // --- Vector loops.

  bool UsesLane(const Expr& e) const { return UsesVar(e, lane_.get()); }
  Expr AtLane(const Expr& e, int64_t i) { return analyzer_.Simplify(Substitute(e, {{lane_.get(), IntImm(i)}})); }

  void PrintVectorStmt(const Stmt& stmt) {
    switch (stmt->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : stmt->body) PrintVectorStmt(child);
        return;
      case StmtKind::kIf:
        if (UsesLane(stmt->condition)) break;
        Open("if (" + Text(stmt->condition) + ")");
        PrintVectorStmt(stmt->body[0]);
        return Close();
      case StmtKind::kStore:
        if (PrintVectorStore(*stmt)) return;
        break;
      case StmtKind::kComment: return PrintStmt(stmt);
      default: break;
    }
    Line("#pragma unroll");
    const StmtNode loop{.kind = StmtKind::kFor, .var = lane_, .extent = lanes_};
    Block(ForText(loop), stmt);
  }

  // Lanes that one access of the buffer can have from `base` on: a power of two, at most 16 bytes; 1 for local buffers
  // and where the alignment is not certain.
  int64_t ChunkOf(const BufferDecl& decl, const Expr& base) {
    if (decl.scope == Scope::kLocal) return 1;
    const int64_t bytes = BytesOf(decl.dtype), divisor = analyzer_.KnownDivisor(base);
    int64_t chunk = std::min(kMaxVectorBytes, AlignmentOf(decl)) / bytes;
    while (chunk > 1 && (lanes_ % chunk != 0 || divisor % chunk != 0)) chunk /= 2;
    return chunk;
  }

  // The vector type that holds `chunk` elements of the type. Always a vector: compilers assume that accesses as one
  // scalar type never meet those as another, but make no such assumption for vectors.
  static std::string VectorType(DType dtype, int64_t chunk) {
    const int64_t bytes = BytesOf(dtype) * chunk;
    if (dtype == DType::kFloat32) return "float" + std::to_string(chunk);
    if (bytes == 2) return "uchar2";
    if (bytes == 4) return BytesOf(dtype) == 2 ? "ushort2" : "uchar4";
    return "uint" + std::to_string(bytes / 4);
  }

  std::string VectorAccess(const BufferDecl& decl, const std::string& type, const Expr& at, bool is_const) {
    return VectorAccess(decl, NameOf(decl.id), type, at, is_const);
  }

  std::string VectorAccess(const BufferDecl& decl, const std::string& base, const std::string& type, const Expr& at,
                           bool is_const) {
    const std::string offset = IsInt(at, 0) ? "" : " + " + PlaceText(decl, at);
    return "*(" + Space(decl) + (is_const ? "const " : "") + type + "*)(" + base + offset + ")";
  }

  std::string Zero(DType dtype, int64_t chunk) const { return cuda_ ? "{}" : "(" + VectorType(dtype, chunk) + ")(0)"; }

  // False: the store has no vector form.
  bool PrintVectorStore(const StmtNode& store) {
    const Stride stride = StrideOf(store.index, lane_, analyzer_);
    if (!stride.affine || stride.stride != 1) return false;
    return PrintCopy(store, stride.base) || PrintComputed(store, stride.base);
  }

  // to[...] = from[...], or select(condition, from[...], 0): one access a chunk on each side that is in memory. The
  // zero is put in first and the load predicated, so that several such copies have their loads in flight together.
  bool PrintCopy(const StmtNode& store, const Expr& base) {
    Expr value = store.value, condition;
    if (value->kind == ExprKind::kSelect && !UsesLane(value->args[0]) && IsZero(value->args[2])) {
      condition = value->args[0];
      value = value->args[1];
    }
    if (value->kind != ExprKind::kLoad || value->args.size() > 1) return false;
    const BufferDecl& to = buffers_.at(store.buffer);
    const BufferDecl& from = buffers_.at(value->buffer);
    const Stride stride = StrideOf(value->args[0], lane_, analyzer_);
    if (to.dtype != from.dtype || !stride.affine || stride.stride != 1) return false;
    const bool to_local = to.scope == Scope::kLocal, from_local = from.scope == Scope::kLocal;
    if (to_local && from_local) return false;
    const bool words = to.dtype == DType::kFloat32 || to.dtype == DType::kInt32;
    if ((to_local || from_local) && !words && !(to.packed && lanes_ == 2)) return false;
    int64_t chunk = lanes_;
    if (!to_local) chunk = std::min(chunk, ChunkOf(to, base));
    if (!from_local) chunk = std::min(chunk, ChunkOf(from, stride.base));
    if (chunk == 1) return false;
    for (int64_t start = 0; start < lanes_; start += chunk) {
      const Expr source = Offset(stride.base, start), target = Offset(base, start);
      if (IsAsync(store, to, from, chunk)) {
        PrintAsyncCopy({to, target}, {from, source}, chunk, condition);
        continue;
      }
      if (!to_local && !from_local && condition == nullptr) {
        const std::string type = VectorType(to.dtype, chunk);
        Line(VectorAccess(to, type, target, false) + " = " + VectorAccess(from, type, source, true) + ";");
        continue;
      }
      Open("");
      Line(VectorType(to.dtype, chunk) + " chunk = " + Zero(to.dtype, chunk) + ";");
      Take(from, source, chunk, condition);
      Put(to, target, chunk);
      Close();
    }
    return true;
  }

  // Copies of 4, 8 and 16 bytes from global to shared memory can be left to the hardware; OpenCL C copies at once.
  bool IsAsync(const StmtNode& store, const BufferDecl& to, const BufferDecl& from, int64_t chunk) const {
    const int64_t bytes = chunk * BytesOf(to.dtype);
    return cuda_ && store.async && to.scope == Scope::kShared && from.scope == Scope::kGlobal &&
           to.dtype == from.dtype && (bytes == 4 || bytes == 8 || bytes == 16);
  }

  // All comparisons of indices are made: at && compilers branch between the copies of a loop that is written out. Of 38
  // kernels for the 3x3 layers of ResNet-18 on an H200, 34 are faster so, by up to 33%, and two slower, by up to 11%.
  std::string WithoutBranches(const Expr& condition) {
    bool loads = false;
    Visit(condition, [&](const ExprNode& e) { loads |= e.kind == ExprKind::kLoad; });
    if (condition->kind == ExprKind::kAnd && !loads)
      return "(" + WithoutBranches(condition->args[0]) + " & " + WithoutBranches(condition->args[1]) + ")";
    return "(" + Text(condition) + ")";
  }

  struct Element {
    const BufferDecl& buffer;
    const Expr& index;
  };

  // Zeros where the condition does not hold: nothing is read then, so any address will do. A choice of addresses would
  // be a branch, which products by warpgroups must not meet (group_products.cc).
  void PrintAsyncCopy(const Element& to, const Element& from, int64_t chunk, const Expr& condition) {
    const std::string bytes = std::to_string(chunk * BytesOf(to.buffer.dtype));
    Line(helpers_.Use("async_copy") + "<" + bytes + ">(" + NameOf(to.buffer.id) + " + " +
         PlaceText(to.buffer, to.index) + ", " + NameOf(from.buffer.id) + " + " + Text(from.index, kSumLevel) + ", " +
         (condition == nullptr ? bytes : WithoutBranches(condition) + " ? " + bytes + " : 0") + ");");
  }

  // One element outside of vector loops. False: the store is no copy that the hardware does.
  bool PrintAsyncStore(const StmtNode& store) {
    if (!store.async || !cuda_) return false;
    Expr value = store.value, condition;
    if (value->kind == ExprKind::kSelect && IsZero(value->args[2])) {
      condition = value->args[0];
      value = value->args[1];
    }
    if (value->kind != ExprKind::kLoad) return false;
    const BufferDecl& to = buffers_.at(store.buffer);
    const BufferDecl& from = buffers_.at(value->buffer);
    if (!IsAsync(store, to, from, 1)) return false;
    PrintAsyncCopy({to, store.index}, {from, value->args[0]}, 1, condition);
    return true;
  }

  void Take(const BufferDecl& from, const Expr& at, int64_t chunk, const Expr& condition) {
    const std::string head = condition == nullptr ? "" : "if (" + Text(condition) + ") ";
    if (from.scope != Scope::kLocal)
      return Line(head + "chunk = " + VectorAccess(from, VectorType(from.dtype, chunk), at, true) + ";");
    for (int64_t i = 0; i < chunk; ++i)
      Line(head + "chunk." + kComponents[i] + " = " + NameOf(from.id) + "[" + Text(Offset(at, i)) + "];");
  }

  void Put(const BufferDecl& to, const Expr& at, int64_t chunk) {
    if (to.scope != Scope::kLocal) return Line(VectorAccess(to, VectorType(to.dtype, chunk), at, false) + " = chunk;");
    for (int64_t i = 0; i < chunk; ++i)
      Line(NameOf(to.id) + "[" + Text(Offset(at, i)) + "] = chunk." + kComponents[i] + ";");
  }

  bool IsComputable(DType dtype) const {
    return dtype == DType::kFloat32 || dtype == DType::kInt32 || IsByte(dtype) ||
           (IsNarrowFloat(dtype) && !IsOpenClHalf(dtype));
  }

  // The vector of a chunk whose components are computed with one by one.
  static std::string ComputedType(DType dtype, int64_t chunk) {
    const char* const type = IsNarrowFloat(dtype)     ? "ushort"
                             : dtype == DType::kInt32 ? "int"
                             : dtype == DType::kInt8  ? "char"
                             : dtype == DType::kUint8 ? "uchar"
                                                      : "float";
    return type + std::to_string(chunk);
  }

  // A store of floats or integers to memory of anything computed: the lanes one by one, the memory accesses that all
  // lanes perform as vectors of at most four.
  bool PrintComputed(const StmtNode& store, const Expr& base) {
    const BufferDecl& to = buffers_.at(store.buffer);
    if (!IsComputable(to.dtype) || IsFloat(to.dtype) != IsFloat(store.value->dtype)) return false;
    const int64_t chunk = std::min<int64_t>(4, ChunkOf(to, base));
    if (chunk == 1) return false;
    std::vector<Expr> loads;
    CollectLoads(store.value, chunk, loads);
    for (int64_t start = 0; start < lanes_; start += chunk) {
      Open("");
      for (size_t i = 0; i < loads.size(); ++i) LoadChunk(loads[i], i, start, chunk);
      const std::string type = ComputedType(to.dtype, chunk);
      Line(type + " chunk;");
      for (int64_t i = 0; i < chunk; ++i) {
        std::string value = Text(AtLane(store.value, start + i));
        if (IsNarrowFloat(to.dtype)) value = Narrowed(to.dtype, value);
        Line(std::string("chunk.") + kComponents[i] + " = " + value + ";");
      }
      Line(VectorAccess(to, type, Offset(base, start), false) + " = chunk;");
      Close();
      components_.clear();
    }
    return true;
  }

  // Loads that every lane performs, along memory and aligned, each once.
  void CollectLoads(const Expr& e, int64_t chunk, std::vector<Expr>& out) {
    if (e->kind == ExprKind::kLoad) {
      const BufferDecl& from = buffers_.at(e->buffer);
      if (!IsComputable(from.dtype) || from.scope == Scope::kLocal) return;
      const Stride stride = StrideOf(e->args[0], lane_, analyzer_);
      if (!stride.affine || stride.stride != 1 || ChunkOf(from, stride.base) % chunk != 0) return;
      if (std::none_of(out.begin(), out.end(), [&](const Expr& known) { return Equal(known, e); })) out.push_back(e);
      return;
    }
    const bool first_only = e->kind == ExprKind::kSelect || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr;
    for (size_t i = 0; i < (first_only ? 1 : e->args.size()); ++i) CollectLoads(e->args[i], chunk, out);
  }

  void LoadChunk(const Expr& load, size_t number, int64_t start, int64_t chunk) {
    const BufferDecl& from = buffers_.at(load->buffer);
    const Stride stride = StrideOf(load->args[0], lane_, analyzer_);
    const std::string name = "chunk" + std::to_string(number);
    const std::string type = ComputedType(from.dtype, chunk);
    Line("const " + type + " " + name + " = " +
         VectorAccess(from, BaseText(*load), type, Offset(stride.base, start), true) + ";");
    for (int64_t i = 0; i < chunk; ++i) {
      std::string component = name + "." + kComponents[i];
      if (IsNarrowFloat(from.dtype)) component = Widened(from.dtype, component);
      components_.emplace_back(AtLane(load, start + i), component);
    }
  }

  Expr Offset(const Expr& base, int64_t offset) { return analyzer_.Simplify(Add(base, IntImm(offset))); }

  static bool IsZero(const Expr& e) {
    return (e->kind == ExprKind::kFloatImm && std::bit_cast<uint64_t>(e->fvalue) == 0) || IsInt(e, 0);
  }

  const KernelFunc& kernel_;
  const bool cuda_;
  std::string out_;
  int depth_ = 0;
  std::map<int, BufferDecl> buffers_;
  std::map<int, std::string> buffer_names_;
  Expr lane_;  // of the vector loop that is being printed
  int64_t lanes_ = 1;
  bool waits_ = false;                                    // the wait for the kernel in front is still to be printed
  std::vector<std::pair<Expr, std::string>> components_;  // loads that are parts of vectors already loaded
};

}  // namespace

int64_t SharedBytesOf(const KernelFunc& kernel) { return LayOut(kernel.body).bytes; }

std::string GpuPrelude(Dialect dialect) {
  if (dialect == Dialect::kCuda) return "typedef long long int64;\n";
  return "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\ntypedef long int64;\n";
}

std::string PrintGpuKernel(const KernelFunc& kernel, Dialect dialect, Helpers& helpers) {
  return GpuKernelPrinter(kernel, dialect, helpers).Print();
}

}  // namespace diapason
