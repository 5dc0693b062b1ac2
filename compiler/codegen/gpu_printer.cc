#include "compiler/codegen/gpu_printer.h"

#include "compiler/codegen/gpu/access_printer.h"
#include "compiler/codegen/gpu/copy_printer.h"
#include "compiler/codegen/gpu/launch_wait.h"
#include "compiler/codegen/gpu/shared_layout.h"
#include "compiler/codegen/gpu/tensor_core_printer.h"
#include "compiler/codegen/gpu/vector_printer.h"
#include "compiler/codegen/passes.h"
#include "compiler/codegen/source_writer.h"
#include "compiler/lower/expand_loops.h"
#include "compiler/tensor/program.h"

namespace diapason {
namespace {

// Copies that a loop is expanded to at most; beyond, the compiler unrolls it.
constexpr int64_t kMaxExpandedStores = 4096;

// Expands the unrolled loops by whose variable a value chooses, with the unrolled loops in them, and simplifies: folded
// here, the choices cost nothing; left to the compiler, chains of them take it minutes.
Stmt ExpandChoices(const Stmt& stmt, Analyzer& analyzer) {
  if (stmt == nullptr) return nullptr;
  const auto chooses = [](const StmtNode& loop, bool inside) {
    return loop.for_kind == ForKind::kUnroll && (inside || ChoosesByVariable(loop));
  };
  return LoopExpander(analyzer, chooses, kMaxExpandedStores).Expand(stmt);
}

// Whether a statement stores to the shared memory of another block of the cluster.
bool StoresRemotely(const StmtNode& s) { return s.kind == StmtKind::kStore && !s.operands.empty(); }

// The kernel and its loops; statements of one kind are left to the printers of gpu/.
class GpuKernelPrinter {
 public:
  GpuKernelPrinter(const KernelFunc& kernel, Dialect dialect, Helpers& helpers)
      : kernel_(kernel),
        cuda_(dialect == Dialect::kCuda),
        helpers_(helpers),
        access_(kernel, dialect, helpers),
        stores_remotely_(kernel.body != nullptr && Contains(kernel.body, StoresRemotely)),
        wait_(kernel, cuda_ && kernel.overlap),
        copies_(kernel.threads, access_, helpers, out_),
        tensor_cores_(access_, helpers, out_),
        vectors_(access_, copies_, out_, [this](const Stmt& stmt) { PrintStmt(stmt); }) {}

  std::string Print() {
    for (const BufferDecl& param : kernel_.params) access_.Declare(param);
    const Stmt body = Prepare();
    out_.Open(HeadText());
    PrintShared();
    if (body != nullptr) PrintStmt(body);
    if (wait_.pending()) PrintLaunchWait();
    out_.Close();
    return out_.Take();
  }

 private:
  Stmt Prepare() {
    Analyzer& analyzer = access_.analyzer();
    access_.BindVars(kernel_.body);
    const Stmt body = ExpandChoices(NormalizeVectorLoops(kernel_.body, analyzer), analyzer);
    KernelFunc simplified = kernel_;
    simplified.body = UnifyLaneConditions(body, analyzer);
    access_.ChooseIndexType(simplified);
    return simplified.body;
  }

  // A parameter that is awaited has no __restrict__: with it compilers take the contents as unchanging, move loads over
  // the wait, and read through a cache that is not coherent (ld.global.nc).
  std::string HeadText() {
    std::string params;
    for (const BufferDecl& param : kernel_.params) {
      const std::string type = (param.written ? "" : "const ") + access_.StorageType(param.dtype) + "* ";
      const std::string pointer =
          cuda_ ? type + (wait_.IsAwaited(param.id) ? "" : "__restrict__ ") : "__global " + type + "restrict ";
      params += (params.empty() ? "" : ", ") + pointer + access_.NameOf(param.id);
    }
    for (const std::string& map : copies_.TensorMapParameters(kernel_.body)) params += ", " + map;
    const std::string threads = std::to_string(kernel_.threads);
    return (cuda_ ? "extern \"C\" __global__ void __launch_bounds__(" + threads + Residence() + ") "
                  : "__kernel __attribute__((reqd_work_group_size(" + threads + ", 1, 1))) void ") +
           kernel_.name + "(" + params + ")";
  }

  // Registers that roles give to each other are those of one block a multiprocessor.
  std::string Residence() const {
    const auto sets = [](const StmtNode& s) { return s.kind == StmtKind::kSetRegisters; };
    if (Contains(kernel_.body, sets)) return ", 1";
    return kernel_.resident > 0 ? ", " + std::to_string(kernel_.resident) : "";
  }

  void PrintShared() {
    const SharedLayout layout = LayOutShared(kernel_.body);
    const bool dynamic = cuda_ && layout.bytes > kMaxStaticSharedBytes;
    const bool one_array = dynamic || (cuda_ && layout.overlaid);
    if (dynamic) {
      out_.Line("extern __shared__ __align__(" + std::to_string(layout.alignment) + ") unsigned char shared_memory[];");
    } else if (one_array) {
      out_.Line("__shared__ __align__(" + std::to_string(layout.alignment) + ") unsigned char shared_memory[" +
                std::to_string(layout.bytes) + "];");
    }
    for (const auto& [decl, offset] : layout.offsets) {
      access_.Declare(decl);
      const std::string name = access_.NameOf(decl.id), size = "[" + std::to_string(decl.elements) + "]";
      const std::string alignment = std::to_string(GpuAlignmentOf(decl));
      const std::string type = access_.ArrayType(decl.dtype);
      if (one_array) {
        out_.Line(type + "* const " + name + " = (" + type + "*)(shared_memory + " + std::to_string(offset) + ");");
      } else if (cuda_) {
        out_.Line("__shared__ __align__(" + alignment + ") " + type + " " + name + size + ";");
      } else {
        out_.Line("__local " + type + " " + name + size + " __attribute__((aligned(" + alignment + ")));");
      }
    }
  }

  void PrintLaunchWait() {
    out_.Line(helpers_.Use("wait_for_previous") + "();");
    wait_.SetPrinted();
  }

  void Block(const std::string& head, const Stmt& body) {
    out_.Open(head);
    PrintStmt(body);
    out_.Close();
  }

  void PrintStmt(const Stmt& stmt) {
    if (wait_.StandsBefore(stmt)) PrintLaunchWait();
    switch (stmt->kind) {
      case StmtKind::kFor: return PrintFor(*stmt);
      case StmtKind::kSeq:
        for (const Stmt& child : stmt->body) PrintStmt(child);
        return;
      case StmtKind::kStore:
        if (copies_.PrintAsyncStore(*stmt)) return;
        return out_.Line(access_.StoreText(*stmt, access_.Text(stmt->value)));
      case StmtKind::kIf: return PrintIf(*stmt);
      case StmtKind::kAlloc: return PrintAlloc(*stmt);
      case StmtKind::kLet: return PrintLet(*stmt);
      case StmtKind::kComment: return out_.Comment(stmt->text);
      case StmtKind::kMma: return tensor_cores_.PrintMma(*stmt);
      case StmtKind::kLoadMatrix: return tensor_cores_.PrintLoadMatrix(*stmt);
      case StmtKind::kPack: return tensor_cores_.PrintPack(*stmt);
      case StmtKind::kFactorParts: return tensor_cores_.PrintFactorParts(*stmt);
      case StmtKind::kGroupMma: return tensor_cores_.PrintGroupMma(*stmt);
      case StmtKind::kGroupSync: return tensor_cores_.PrintGroupSync(*stmt);
      case StmtKind::kBulkCopy: return copies_.PrintBulkCopy(*stmt);
      case StmtKind::kTensorCopy: return copies_.PrintTensorCopy(*stmt);
      case StmtKind::kMbarrier: return copies_.PrintMbarrier(*stmt);
      case StmtKind::kCommit: return copies_.PrintCommit();
      case StmtKind::kWait: return copies_.PrintWait(*stmt);
      case StmtKind::kShuffle: return PrintShuffle(*stmt);
      case StmtKind::kQuadStore: return tensor_cores_.PrintQuadStore(*stmt);
      case StmtKind::kBarrier: return PrintBarrier(stmt->extent);
      case StmtKind::kSetRegisters:
        access_.RequireCuda("sets registers, which OpenCL C does not");
        return out_.Line(helpers_.Use(IsInt(stmt->value, 1) ? "more_registers" : "fewer_registers") + "<" +
                         std::to_string(stmt->extent) + ">();");
      case StmtKind::kClusterBarrier:
        access_.RequireCuda("has clusters, which OpenCL C does not have");
        return PrintClusterBarrier(*stmt);
      case StmtKind::kClusterEnd:
        access_.RequireCuda("has clusters, which OpenCL C does not have");
        return out_.Line(helpers_.Use("cluster_end") + "();");
      case StmtKind::kLaunchDependents:
        if (cuda_) out_.Line(helpers_.Use("launch_dependents") + "();");
        return;
    }
  }

  void PrintIf(const StmtNode& branch) {
    const LaunchWait before = wait_;
    Block("if (" + access_.Text(branch.condition) + ")", branch.body[0]);
    if (branch.role) wait_ = before;
  }

  void PrintClusterBarrier(const StmtNode& barrier) {
    const std::string arrive = stores_remotely_ ? "cluster_arrive" : "cluster_arrive_of_own";
    out_.Line(helpers_.Use(arrive) + "();");
    for (const Stmt& child : barrier.body) PrintStmt(child);
    out_.Line(helpers_.Use("cluster_wait") + "();");
  }

  void PrintBarrier(int64_t threads) {
    if (threads == 0) return out_.Line(cuda_ ? "__syncthreads();" : "barrier(CLK_LOCAL_MEM_FENCE);");
    access_.RequireCuda("has barriers of some threads, which OpenCL C does not");
    out_.Line(helpers_.Use("barrier_of") + "<" + std::to_string(threads) + ">();");
  }

  void PrintShuffle(const StmtNode& shuffle) {
    access_.RequireCuda("reads registers of other lanes, which OpenCL C does not");
    out_.Line(access_.NameOf(shuffle.buffer) + "[" + access_.Text(shuffle.index) + "] = __shfl_sync(0xffffffffu, " +
              access_.Text(shuffle.value) + ", " + access_.Text(shuffle.operands[0]) + ");");
  }

  void PrintLet(const StmtNode& let) {
    out_.Open();
    out_.Line("const " + (access_.is_wide(let.value) ? "int64" : access_.IndexType()) + " " + access_.VarName(let.var) +
              " = " + access_.Text(let.value) + ";");
    PrintStmt(let.body[0]);
    out_.Close();
  }

  void PrintAlloc(const StmtNode& alloc) {
    const BufferDecl& decl = alloc.decl;
    if (decl.scope == Scope::kShared) return PrintStmt(alloc.body[0]);
    access_.Declare(decl);
    out_.Open();
    const std::string type = decl.packed ? access_.ArrayType(decl.dtype) : access_.ValueType(decl.dtype);
    out_.Line(type + " " + access_.NameOf(decl.id) + "[" + std::to_string(decl.elements) + "];");
    PrintStmt(alloc.body[0]);
    out_.Close();
  }

  void PrintFor(const StmtNode& loop) {
    switch (loop.for_kind) {
      case ForKind::kBlockX: return PrintIndex(loop, BlockText("/"));
      case ForKind::kCluster: return PrintIndex(loop, BlockText("%"));
      case ForKind::kThreadX: return PrintIndex(loop, cuda_ ? "threadIdx.x" : "get_local_id(0)");
      case ForKind::kVectorize: return vectors_.Print(loop);
      case ForKind::kUnroll: out_.Line("#pragma unroll"); break;
      case ForKind::kSerial:
      case ForKind::kParallel:
        if (loop.unroll > 0) out_.Line("#pragma unroll " + std::to_string(loop.unroll));
        break;
    }
    Block(access_.ForText(loop), loop.body[0]);
  }

  // The index of the block, or with clusters, which are neighbours in x, of its cluster ("/") or its rank ("%").
  std::string BlockText(const std::string& part) const {
    const std::string block = cuda_ ? "blockIdx.x" : "get_group_id(0)";
    return kernel_.cluster == 1 ? block : block + " " + part + " " + std::to_string(kernel_.cluster);
  }

  void PrintIndex(const StmtNode& loop, const std::string& value) {
    out_.Open();
    out_.Line("const " + access_.IndexType() + " " + access_.VarName(loop.var) + " = " + value + ";");
    PrintStmt(loop.body[0]);
    out_.Close();
  }

  const KernelFunc& kernel_;
  const bool cuda_;
  Helpers& helpers_;
  SourceWriter out_;
  GpuAccessPrinter access_;
  const bool stores_remotely_;
  LaunchWait wait_;
  GpuCopyPrinter copies_;
  TensorCorePrinter tensor_cores_;
  GpuVectorPrinter vectors_;
};

}  // namespace

int64_t SharedBytesOf(const KernelFunc& kernel) { return LayOutShared(kernel.body).bytes; }

std::string GpuPrelude(Dialect dialect) {
  if (dialect == Dialect::kCuda) return "typedef long long int64;\n";
  return "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\ntypedef long int64;\n";
}

std::string PrintGpuKernel(const KernelFunc& kernel, Dialect dialect, Helpers& helpers) {
  return GpuKernelPrinter(kernel, dialect, helpers).Print();
}

}  // namespace diapason
