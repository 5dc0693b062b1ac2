// The loop nest: one statement tree for all targets, printed by compiler/codegen.
//
// Expressions are those of compiler/tensor; a kLoad here has ONE index, the flat element offset in its buffer, or two:
// the offset in a shared buffer and the rank of the block of the cluster whose buffer it is. Buffers are known by id
// (KernelFunc::buffers). Loop variables are int64 kVar nodes, printed as 32-bit where sizes allow.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/expr.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

enum class Scope : uint8_t {
  kGlobal = 0,  // a parameter of the kernel
  kShared = 1,  // one copy a block; GPU only
  kLocal = 2,   // one copy a thread: registers if all accesses become constant by unrolling, else stack / local memory
};

enum class ForKind : uint8_t {
  kSerial = 0,
  kParallel = 1,   // cpu: over threads; the kernel's outermost loop only, it becomes the range [begin, end)
  kUnroll = 2,     // unrolled whole
  kVectorize = 3,  // all iterations at once, as a vector of `extent` lanes
  kBlockX = 4,     // GPU: blockIdx.x
  kThreadX = 5,    // GPU: threadIdx.x
  kCluster = 6,    // GPU: rank of the block in its cluster; blockIdx.x counts clusters where a kernel has them
};

struct BufferDecl {
  int id = -1;
  std::string name;  // valid C identifier, unique in the kernel
  DType dtype = DType::kFloat32;
  Scope scope = Scope::kGlobal;
  int64_t elements = 0;
  bool written = false;  // global: the kernel stores to it
  int alignment = 0;     // bytes that the start is aligned to (0: element size); parameters are at least 64
  bool overlay = false;  // shared: in the place of the kernel's other shared buffers, which are dead where it is used
  bool apart = false;    // shared: those in place of others leave it alone
  bool packed = false;   // local, of float16: kept in two bytes and converted where it is read
  // global: made before a run begins; neither this kernel nor another one writes it during a run
  bool constant = false;
  // Shared, on cuda: 16 bytes of place p lie at place p ^ (p / 8 % (swizzle / 16)), so that rows of `swizzle` bytes
  // (32, 64, 128) and columns of 16 both are in different banks (PTX, "Shared memory matrix layout"); 0: they do not.
  // Indices count as if they did not.
  int swizzle = 0;
};

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;  // shared: passes rebuild only what they change

enum class StmtKind : uint8_t {
  kFor,               // var in [0, extent): body[0]
  kSeq,               // body in order
  kStore,             // buffer[index] = value
  kIf,                // if (condition) body[0]
  kAlloc,             // decl lives during body[0]
  kBarrier,           // all threads of the block; shared memory is visible after it
  kClusterBarrier,    // all threads of all blocks of the cluster; their shared memory is visible to each other after it
  kLet,               // var = value (int64) during body[0]
  kComment,           // text for people, printed on its own line
  kCommit,            // the asynchronous stores of this thread since the last commit are one group
  kLaunchDependents,  // cuda: the next kernel may start once all threads of all blocks have come here or ended
  kWait,              // until at most `extent` of this thread's groups are unfinished
  // A product of 16 x 8 x depth by the warp (tensor_intrinsic.h): operands = 4 indices of this lane's sums in `buffer`,
  // then its 4 and 2 registers of factors. Factors of fewer than 32 bits lie together in int32 elements, the first one
  // in the lowest bits.
  kMma,
  // buffer[index, index + extent) = this lane's registers of `extent` matrices of 8 rows of 16 bytes in shared memory,
  // loaded by the warp: `value` is the load of the first element of a row, of row l % 8 of matrix l / 8 in lane l; lane
  // l gets word l % 4 of row l / 4 of each; `transposed`: elements 2 * (l % 4) and the next of column l / 4 (16 bits).
  kLoadMatrix,
  // buffer[index] = `value`, a load of registers, as lane operands[0] of the warp has it; all its lanes come here at
  // once.
  kShuffle,
  kPack,        // buffer[index] = the factors of operands, the first one in the lowest bits
  kSmallParts,  // buffer[index, index + extent) = what TensorFloat-32 cannot hold of the elements of `value`, a load,
                // and those behind it
  // A product of 64 x extent x depth by a warpgroup, four warps that all have the same columns, added later to this
  // lane's extent / 2 sums, buffer[index, ...) or at `sums`: as kMma does for each 8 columns in turn. operands = its 4
  // registers of factors of the rows, [their small parts,] loads of the first column's first factor and [of its small
  // part] in shared memory, those in brackets where the intrinsic has parts. Columns lie there as `columns` says; with
  // rows.stride > 0 the 64 rows lie in shared memory too, and in place of registers stands a load of the first row's
  // first factor.
  kGroupMma,
  kGroupSync,  // orders kGroupMma and other accesses: `sync`
  // shared buffer[index, index + extent) = the elements of `value`, a load of global memory, and those behind it.
  // operands: none, then all threads of the block copy together, and see it behind the next barrier; or a load of the
  // barrier in shared memory at which the copy arrives: the thread that runs this asks for it, and any thread sees it
  // behind its kMbarrier::kWait.
  kBulkCopy,
  kMbarrier,  // at an mbarrier (PTX), where bulk copies or threads arrive: `mbarrier`
};

enum class MbarrierOp : uint8_t {
  kInit,    // by one thread, before all else: `extent` barriers from the one that operands[0] loads on, each passed by
            // the arrival of a copy, or by `value` threads
  kWait,    // until the copy has arrived that was the n-th at the barrier of operands[0], where n % 2 == value, or the
            // threads have for the n-th time. One copy at a time is under way to each
  kArrive,  // of this thread at the barrier of operands[0]: those who wait there see what it has done. No thread
            // arrives again before the others have
};

enum class GroupSync : uint8_t {
  kBegin,    // the sums and factors in registers are ready
  kCommit,   // the products since the last commit are one group
  kWait,     // until at most `extent` groups are unfinished: their sums (all of `sums`) may be read, their factors
             // overwritten
  kPublish,  // what this thread has stored to shared memory is visible to products behind the next barrier
};

// How the rows or columns of a factor lie in shared memory for products by warpgroups: runs of `width` elements one
// after the other, the 8 of a core matrix first. Along k, a run is of k, the next run that of the next row, and the
// next k of the same row are `stride` elements on; else a run is of rows, the next one of the same rows at the next k,
// and the next rows are `stride` elements on. Runs of more than 16 bytes lie in a swizzled buffer.
struct CoreMatrices {
  int64_t width = 0;
  int64_t stride = 0;
  bool along_k = true;
  // Elements from the first row at the first k to row `row` at element `k`.
  int64_t At(int64_t row, int64_t k) const {
    return along_k ? k / width * stride + row * width + k % width : row / width * stride + k * width + row % width;
  }
};

// The element types of a product's operands, of those that its intrinsic takes.
struct FactorTypes {
  DType rows = DType::kFloat32, columns = DType::kFloat32;
};

struct StmtNode {
  StmtKind kind;
  ForKind for_kind = ForKind::kSerial;
  Expr var{};          // kFor, kLet
  int64_t extent = 0;  // kFor, kWait, kLoadMatrix, kSmallParts, kGroupMma, kGroupSync, kBulkCopy, kMbarrier
  int unroll = 0;      // kFor, serial: unroll hint (#pragma unroll N); 0: leave it to the compiler, 1: do not unroll
  int buffer = -1;     // kStore, kMma, kLoadMatrix, kPack, kSmallParts, kGroupMma, kGroupSync, kBulkCopy
  Expr index{};        // kStore, kLoadMatrix, kPack, kSmallParts, kGroupMma, kBulkCopy: flat element offset
  Expr value{};        // kStore, kLet, kLoadMatrix, kSmallParts, kBulkCopy, kMbarrier
  bool async = false;  // kStore to shared memory: may finish later, at a wait and the barrier behind it
  Expr condition{};    // kIf
  std::vector<Expr> operands{};             // kMma, kPack, kGroupMma, kBulkCopy, kMbarrier
  std::vector<Expr> sums{};                 // kGroupMma, kGroupSync (kWait): elements of `buffer`
  TensorMode tensor = TensorMode::kNone;    // kMma, kLoadMatrix, kGroupMma
  FactorTypes factors{};                    // kMma, kGroupMma
  bool transposed = false;                  // kLoadMatrix
  bool from_zero = false;                   // kMma, kGroupMma: the sums are the product alone
  CoreMatrices columns{}, rows{};           // kGroupMma
  GroupSync sync = GroupSync::kBegin;       // kGroupSync
  MbarrierOp mbarrier = MbarrierOp::kInit;  // kMbarrier
  BufferDecl decl{};                        // kAlloc
  std::string text{};                       // kComment
  std::vector<Stmt> body{};
};

// The name with '_' for what no identifier may have: names of kernels, buffers and variables.
std::string Identifier(std::string name);

Stmt MakeFor(ForKind kind, Expr var, int64_t extent, Stmt body, int unroll = 0);
Stmt MakeSeq(std::vector<Stmt> body);  // flattens nested sequences, drops nulls
Stmt MakeStore(int buffer, Expr index, Expr value, bool async = false);
Stmt MakeIf(Expr condition, Stmt body);  // a true condition gives the body, a false one nothing (null)
Stmt MakeAlloc(BufferDecl decl, Stmt body);
Stmt MakeBarrier();
Stmt MakeClusterBarrier();
Stmt MakeLet(Expr var, Expr value, Stmt body);
Stmt MakeComment(std::string text);
Stmt MakeMma(TensorMode tensor, FactorTypes factors, int buffer, std::vector<Expr> operands, bool from_zero);
// Into `buffer`, from `index` on; `value` is the load of this lane's row.
struct MatrixLoad {
  TensorMode tensor;
  int buffer;
  Expr index;
  int64_t matrices;  // 2 or 4
  Expr value;
  bool transposed = false;
};
Stmt MakeLoadMatrix(MatrixLoad load);
Stmt MakeShuffle(int buffer, Expr index, Expr value, Expr lane);
Stmt MakePack(int buffer, Expr index, std::vector<Expr> factors);
Stmt MakeSmallParts(int buffer, Expr index, int64_t elements, Expr value);
// `sums`: elements of `buffer` to which products are added, two for 8 columns. 3xTF32, whose sums are apart, has a
// buffer of its own instead, from `index` on.
struct GroupMma {
  TensorMode tensor;
  FactorTypes factors{};
  int buffer;
  std::vector<Expr> sums{};
  Expr index{};            // 3xTF32
  int64_t columns = 0;     // 3xTF32; else as `sums` say
  bool from_zero = false;  // 3xTF32
  std::vector<Expr> operands;
  CoreMatrices column_matrices;
  CoreMatrices row_matrices{};  // if the rows are in shared memory
};
Stmt MakeGroupMma(GroupMma product);
Stmt MakeGroupSync(GroupSync sync, int64_t unfinished = 0);
Stmt MakeGroupWait(int64_t unfinished, int buffer, std::vector<Expr> sums);
// `arrival` may be null: no barrier.
Stmt MakeBulkCopy(int buffer, Expr index, int64_t elements, Expr value, Expr arrival);
Stmt MakeMbarrierInit(Expr first, int64_t barriers, int64_t threads = 1);
Stmt MakeMbarrierArrive(Expr barrier);
Stmt MakeMbarrierWait(Expr barrier, Expr parity);
Stmt MakeCommit();
Stmt MakeLaunchDependents();
Stmt MakeWait(int64_t unfinished);

// One kernel. Thread and block loops are ordinary kFor nodes in `body`; all kThreadX loops of a kernel stand for the
// one threadIdx.x (a loop of smaller extent than `threads` is guarded by the lowering already).
struct KernelFunc {
  std::string name;
  std::vector<BufferDecl> params;  // global buffers, in order of the parameters
  Stmt body;
  int64_t blocks = 1;   // all blocks, those of clusters one by one; extent of the parallel loop on cpu
  int64_t cluster = 1;  // neighbouring blocks that form a cluster
  int64_t threads = 1;  // extent of threadIdx.x
  int64_t shared_bytes = 0;
  // cuda: programmatic dependent launch. The kernel may start before the one in front of it has ended (early_start.h);
  // codegen puts the wait for that one where every thread passes, before the first access to a parameter that is not
  // constant.
  bool overlap = false;
  // Not null: no loops but a call of a library on `params`, in order of its operands; `body` is null.
  std::shared_ptr<const LibraryCall> library;
};

// A lowered task: the kernels in order. Buffer ids of params are shared by all kernels; `buffers` describes each.
struct LoweredProgram {
  struct Buffer {
    BufferDecl decl;
    int role = 0;    // BufferRole (compiler/tensor/program.h)
    int stage = -1;  // stage of the task's own dag for inputs, constants and outputs
    int64_t valid_min = 0, valid_max = 0;
  };
  std::map<int, Buffer> buffers;  // by buffer id
  std::vector<KernelFunc> prologue;
  std::vector<KernelFunc> kernels;
};

// True if `is` holds for the statement or one below it.
bool Contains(const Stmt& stmt, const std::function<bool(const StmtNode&)>& is);
// Whether the expression, if there is one, loads from a buffer that `from` holds for.
bool LoadsFrom(const Expr& e, const std::function<bool(int buffer)>& from);
// The statement around another body.
Stmt WithBody(const StmtNode& stmt, std::vector<Stmt> body);

std::string ToString(const Stmt& stmt);
std::string ToString(const KernelFunc& kernel);

}  // namespace diapason
