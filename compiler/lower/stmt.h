// The loop nest: one statement tree for all targets, printed by compiler/codegen.
//
// Expressions are those of compiler/tensor. A kLoad has ONE index here, the flat element offset in its buffer, or two:
// the offset in a shared buffer, and the cluster rank of the block that owns that buffer. Buffers are referred to by id
// (BufferDecl::id). Loop variables are int64 kVar nodes, printed as 32-bit where sizes allow.
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
#include "compiler/tensor/tensor_box.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

enum class Scope : uint8_t {
  kGlobal = 0,  // a parameter of the kernel
  kShared = 1,  // one copy per block; GPU only
  kLocal = 2,   // one copy per thread: registers if unrolling makes all indices constant, else stack or local memory
};

enum class ForKind : uint8_t {
  kSerial = 0,
  kParallel = 1,   // cpu: over threads. Only the outermost loop of a kernel, which becomes the range [begin, end)
  kUnroll = 2,     // unrolled completely
  kVectorize = 3,  // all iterations at once, as a vector of `extent` lanes
  kBlockX = 4,     // GPU: blockIdx.x
  kThreadX = 5,    // GPU: threadIdx.x
  kCluster = 6,    // GPU: rank of the block in its cluster; in a kernel with clusters, kBlockX counts clusters
};

struct BufferDecl {
  int id = -1;
  std::string name;  // valid C identifier, unique in the kernel
  DType dtype = DType::kFloat32;
  Scope scope = Scope::kGlobal;
  int64_t elements = 0;
  bool written = false;  // global: the kernel stores to it
  int alignment = 0;     // of the start, in bytes (0: element size); parameters are aligned to at least 64
  bool overlay = false;  // shared: reuses the memory of the kernel's other shared buffers, which are dead by then
  bool apart = false;    // shared: no overlay reuses its memory
  bool packed = false;   // local, narrow floats: stored in the narrow type, converted where they are read
  // global: written before a run begins; neither this kernel nor any other writes it during a run
  bool constant = false;
  // shared, on cuda: the swizzle of 32, 64 or 128 bytes (PTX, "Shared memory matrix layout"); 0: none. The 16-byte unit
  // number p is stored as unit p ^ (p / 8 % (swizzle / 16)), so that both a row of `swizzle` bytes and a column of
  // 16-byte units are spread over different banks. Indices are those before swizzling.
  int swizzle = 0;
};

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;  // shared: passes rebuild only what they change

enum class StmtKind : uint8_t {
  kFor,    // var in [0, extent): body[0]
  kSeq,    // body in order
  kStore,  // buffer[index] = value; with operands[0] that of the block of this rank in the cluster (kShared)
  kIf,     // if (condition) body[0]
  kAlloc,  // decl lives during body[0]
  // Of all threads of the block, or of the first `extent` of them (0: all), which then see each other's writes to
  // shared memory.
  kBarrier,
  // Of all threads of all blocks of the cluster but producers (KernelFunc), which end before: they then see each
  // other's writes to shared memory. What is in its body each thread does between its arrival and its wait: the barrier
  // orders none of that.
  kClusterBarrier,
  // Of the same threads: none goes on before all have come here, with what they have read of other blocks' shared
  // memory. The kernel's last statement, since a block's shared memory is gone when it has ended. They need not see
  // each other's writes.
  kClusterEnd,
  kLet,               // var = value (int64) during body[0]
  kComment,           // printed on its own line
  kCommit,            // makes one group of this thread's asynchronous stores since the last commit
  kLaunchDependents,  // cuda: the next kernel may start once all threads of all blocks have executed this or exited
  kWait,              // waits until at most `extent` of this thread's groups are unfinished
  // Warp MMA of 16 x 8 x depth (tensor_intrinsic.h). operands: the 4 indices of this lane's accumulators in `buffer`,
  // its 4 registers of row factors and its 2 registers of column factors. Factors of fewer than 32 bits are packed into
  // int32 elements, the first one in the lowest bits.
  kMma,
  // Loads `extent` matrices of 8 rows of 16 bytes from shared memory by the whole warp (ldmatrix), this lane's
  // registers into buffer[index, index + extent). In lane l, `value` is the load of the first element of row l % 8 of
  // matrix l / 8. Of each matrix, lane l receives word q = l % 4 of row l / 4; if `transposed`, the 16-bit elements
  // 2q and 2q + 1 of column l / 4.
  kLoadMatrix,
  // buffer[index] = `value`, a load from registers, as lane operands[0] of the warp evaluates it. All lanes execute it
  // together.
  kShuffle,
  // The four lanes of a row (lanes 4r to 4r + 3 of a warp) together store 4 * (number of operands) consecutive elements
  // of 16 bits from buffer[index] on, the same for all of them and a multiple of what one lane stores. Operand 2t + c
  // of lane 4r + q is element 8t + 2q + c (as kMma leaves them); there are 4 or 8. `extent` lanes are here together:
  // all 32, or 4.
  // `transposed`: all 32 lanes together store 8 rows of 16 elements. Operand 2t + c of lane 4g + q is element 8t + g of
  // row 2q + c (as kMma leaves a product whose columns are the tensor's rows); there are 4. Row g begins at the index
  // that lanes 4g to 4g + 3 have, a multiple of 4. Lane 4g + q stores four elements of row g, from 8 (q % 2) + 4 (q /
  // 2) on, if its `condition` holds (null: always), which is the same for lanes that store of the same eight.
  kQuadStore,
  kPack,         // buffer[index] = the factors of `operands` packed into one word, the first one in the lowest bits
  kFactorParts,  // buffer[index, index + extent) = the parts `part` of `extent` consecutive elements, of which `value`
                 // loads the first; for rounded ones the elements themselves may be replaced
  // Asynchronous warpgroup MMA of 64 x extent x depth. The result is added to this lane's extent / 2 accumulators,
  // which are at `sums` or in buffer[index, ...), with the layout of kMma for each 8 columns in turn. The four warps
  // share the columns. operands, those in brackets only if the intrinsic has parts:
  // - this lane's 4 registers of row factors [and their low parts]; if rows.stride > 0, a load of the first factor of
  //   the first row instead, since the 64 rows are in shared memory, laid out as `rows` says;
  // - a load of the first factor of the first column [and one of its low part] in shared memory; `columns` has the
  //   layout.
  kGroupMma,
  kGroupSync,  // orders kGroupMma and other accesses: `sync`
  // Copies `extent` consecutive elements of global memory, of which `value` loads the first, to shared buffer[index,
  // index + extent). Without operands, all threads of the block copy together, and the data is visible after the next
  // barrier. Else operands[0] loads the mbarrier in shared memory that the copy signals: the executing thread alone
  // starts the copy, and each thread sees the data after its MbarrierOp::kWait.
  kBulkCopy,
  // Copies a box of a tensor in global memory to shared `buffer`, from `index` on, where elements of it that lie
  // outside of the tensor become zeros. `box` says which tensor of the buffer that `value` loads, and which box;
  // operands: the mbarrier in shared memory at which the copy arrives, then the coordinates of the box's first element,
  // the innermost first. Each thread sees the data after its MbarrierOp::kWait. The executing thread starts the copy if
  // `condition` holds (null: always), without a branch.
  kTensorCopy,
  // cuda: each thread has `extent` registers from here on, more than before if `value` is 1, fewer if it is 0
  // (setmaxnreg). All threads of a warpgroup execute it.
  kSetRegisters,
  kMbarrier,  // an operation `mbarrier` on an mbarrier (PTX), at which bulk copies or threads arrive
};

enum class MbarrierOp : uint8_t {
  kInit,  // initializes `extent` consecutive barriers, of which operands[0] loads the first. By one thread, before any
          // other use. A phase of a barrier completes when `value` copies, or threads, have arrived
  kWait,  // waits at the barrier of operands[0] for the end of its phase n (counted from 0), where n % 2 == `value`. A
          // barrier has at most the copies of one phase in flight
  kArrive,  // this thread arrives at the barrier of operands[0] if `condition` holds (null: always; without a branch);
            // threads that wait there then see its writes. No thread arrives again before all others have arrived
};

enum class GroupSync : uint8_t {
  kBegin,   // the accumulators and factors in registers are ready to be used by kGroupMma (wgmma.fence)
  kCommit,  // makes one group of the products since the last commit
  kWait,    // waits until at most `extent` groups are unfinished. The accumulators of the finished ones (all of `sums`)
            // may then be read, and their factors overwritten
  kPublish,  // makes this thread's stores to shared memory visible to products after the next barrier
};

// What products of TensorFloat-32 read in place of a float32.
enum class FactorPart : uint8_t {
  kLow,      // the low part (residual) that TensorFloat-32 drops of it
  kRounded,  // itself, rounded to the nearest number of TensorFloat-32
};

// Layout in shared memory of the rows (or columns) of a warpgroup MMA operand, as core matrices. The unit is a run of
// `width` consecutive elements:
// - along_k: a run holds `width` values of k of one row. The next run belongs to the next row; the next `width` values
//   of k of the same row are `stride` elements further on.
// - else: a run holds `width` rows at one k. The next run holds the same rows at the next k; the next `width` rows are
//   `stride` elements further on.
// Runs of more than 16 bytes are in a swizzled buffer.
struct CoreMatrices {
  int64_t width = 0;
  int64_t stride = 0;
  bool along_k = true;
  // Offset of element (row, k) from element (0, 0), in elements.
  int64_t At(int64_t row, int64_t k) const {
    return along_k ? k / width * stride + row * width + k % width : row / width * stride + k * width + row % width;
  }
};

// The element types of the operands of an MMA, each of those that its intrinsic accepts.
struct FactorTypes {
  DType rows = DType::kFloat32, columns = DType::kFloat32;
};

struct StmtNode {
  StmtKind kind;
  ForKind for_kind = ForKind::kSerial;
  Expr var{};  // kFor, kLet
  // kFor, kBarrier, kWait, kLoadMatrix, kFactorParts, kGroupMma, kGroupSync, kBulkCopy, kMbarrier, kQuadStore,
  // kSetRegisters
  int64_t extent = 0;
  int unroll = 0;  // kFor, serial: unroll hint (#pragma unroll N); 0: the compiler decides, 1: do not unroll
  // kStore, kMma, kLoadMatrix, kPack, kFactorParts, kGroupMma, kGroupSync, kBulkCopy, kTensorCopy, kQuadStore
  int buffer = -1;
  // kStore, kLoadMatrix, kPack, kFactorParts, kGroupMma, kBulkCopy, kTensorCopy, kQuadStore: element offset
  Expr index{};
  Expr value{};        // kStore, kLet, kLoadMatrix, kFactorParts, kBulkCopy, kTensorCopy, kMbarrier, kSetRegisters
  bool async = false;  // kStore to shared memory: complete and visible only after a kWait and the barrier after it
  Expr condition{};    // kIf, kTensorCopy, kMbarrier, kQuadStore
  // kIf: what threads of one role do (roles.h), which wait for the kernel in front (early_start.h) by themselves.
  bool role = false;
  // kStore, kMma, kPack, kGroupMma, kBulkCopy, kTensorCopy, kMbarrier, kQuadStore
  std::vector<Expr> operands{};
  std::shared_ptr<const TensorBox> box{};   // kTensorCopy
  std::vector<Expr> sums{};                 // kGroupMma, kGroupSync (kWait): accumulators, elements of `buffer`
  TensorMode tensor = TensorMode::kNone;    // kMma, kLoadMatrix, kGroupMma
  FactorTypes factors{};                    // kMma, kGroupMma
  bool transposed = false;                  // kLoadMatrix, kQuadStore
  bool from_zero = false;                   // kMma, kGroupMma: overwrites the accumulators instead of adding to them
  CoreMatrices columns{}, rows{};           // kGroupMma
  GroupSync sync = GroupSync::kBegin;       // kGroupSync
  MbarrierOp mbarrier = MbarrierOp::kInit;  // kMbarrier
  FactorPart part = FactorPart::kLow;       // kFactorParts
  BufferDecl decl{};                        // kAlloc
  std::string text{};                       // kComment
  std::vector<Stmt> body{};
};

// The rank in the cluster of the block whose shared memory a load reads, its second index; null: the block's own.
Expr RankOf(const ExprNode& load);
// The same of the block to whose shared memory a kStore goes.
Expr RankOf(const StmtNode& store);

// Makes a C identifier of the name of a kernel, buffer or variable: '_' replaces every character that is not allowed.
std::string Identifier(std::string name);

Stmt MakeFor(ForKind kind, Expr var, int64_t extent, Stmt body, int unroll = 0);
Stmt MakeSeq(std::vector<Stmt> body);  // flattens nested sequences, drops nulls
Stmt MakeStore(int buffer, Expr index, Expr value, bool async = false);
// To shared memory of the block of that rank in the cluster.
Stmt MakeRemoteStore(int buffer, Expr index, Expr value, Expr rank);
Stmt MakeIf(Expr condition, Stmt body);
Stmt MakeRole(
    Expr condition,
    Stmt body);  // StmtNode::role  // returns the body if the condition is constant true, null if constant false
Stmt MakeAlloc(BufferDecl decl, Stmt body);
Stmt MakeBarrier(int64_t threads = 0);
Stmt MakeClusterBarrier(Stmt meanwhile = nullptr);
Stmt MakeClusterEnd();
Stmt MakeLet(Expr var, Expr value, Stmt body);
Stmt MakeComment(std::string text);
Stmt MakeMma(TensorMode tensor, FactorTypes factors, int buffer, std::vector<Expr> operands, bool from_zero);
// Loads into `buffer` from `index` on; `value` is the load of this lane's row (kLoadMatrix).
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
Stmt MakeQuadStore(int buffer, Expr index, std::vector<Expr> values, int64_t lanes);
Stmt MakeTransposedStore(int buffer, Expr index, std::vector<Expr> values, Expr condition);
Stmt MakePack(int buffer, Expr index, std::vector<Expr> factors);
Stmt MakeFactorParts(FactorPart part, int buffer, Expr index, int64_t elements, Expr value);
// `sums`: this lane's accumulators, elements of `buffer`, 4 for each 8 columns. 3xTF32, whose products have a separate
// buffer, uses the elements of that `buffer` from `index` on instead.
struct GroupMma {
  TensorMode tensor;
  FactorTypes factors{};
  int buffer;
  std::vector<Expr> sums{};
  Expr index{};            // 3xTF32
  int64_t columns = 0;     // 3xTF32; else the number follows from `sums`
  bool from_zero = false;  // 3xTF32
  std::vector<Expr> operands;
  CoreMatrices column_matrices;
  CoreMatrices row_matrices{};  // if the rows are in shared memory
};
Stmt MakeGroupMma(GroupMma product);
Stmt MakeGroupSync(GroupSync sync, int64_t unfinished = 0);
Stmt MakeGroupWait(int64_t unfinished, int buffer, std::vector<Expr> sums);
// `arrival`: the load of the mbarrier that the copy signals; may be null (kBulkCopy).
Stmt MakeBulkCopy(int buffer, Expr index, int64_t elements, Expr value, Expr arrival);
struct TensorCopy {
  std::shared_ptr<const TensorBox> box;
  Expr from;  // a load of the tensor's first element
  int buffer;
  Expr index;
  Expr arrival;  // a load of the mbarrier
  // Of the box's first element, in order of the tensor's dimensions; of windows: the channel, where the window begins
  // in each dimension of the image, the image, and then how far from there the element of the window is.
  std::vector<Expr> coordinates;
  Expr condition{};
};
Stmt MakeTensorCopy(TensorCopy copy);
Stmt MakeMbarrierInit(Expr first, int64_t barriers, int64_t arrivals = 1);
Stmt MakeMbarrierArrive(Expr barrier, Expr condition = nullptr);
Stmt MakeMbarrierWait(Expr barrier, Expr parity);
Stmt MakeSetRegisters(int64_t registers, bool more);
Stmt MakeCommit();
Stmt MakeLaunchDependents();
Stmt MakeWait(int64_t unfinished);

// The tensors of parameters that a kernel's tensor copies read, each once, in order of their first copies.
struct MappedTensor {
  int buffer;
  std::shared_ptr<const TensorBox> box;
};
std::vector<MappedTensor> MappedTensorsOf(const Stmt& body);

// One kernel. Thread and block loops are ordinary kFor nodes in `body`. All kThreadX loops of a kernel are bound to the
// same threadIdx.x; lowering guards those whose extent is smaller than `threads`.
struct KernelFunc {
  std::string name;
  std::vector<BufferDecl> params;  // global buffers, in order of the parameters
  Stmt body;
  int64_t blocks = 1;   // number of blocks, with clusters all blocks of all clusters; on cpu the parallel loop's extent
  int64_t cluster = 1;  // neighbouring blocks that form a cluster
  int64_t threads = 1;  // extent of threadIdx.x
  // cuda: of `threads` so many, the last ones, do nothing but ask for the tensor copies of the others.
  int64_t producers = 0;
  // Before WithRoles (roles.h): what the producer does, and what one thread does before all; null without a producer.
  Stmt producer, before_roles;
  // The producer asks for constants first: it waits for the kernel in front behind these (StepKind::kProducer).
  bool constants_first = false;
  int64_t shared_bytes = 0;
  // cuda: blocks that a multiprocessor has of the kernel at once, where the whole grid runs at once. The compiler need
  // not save registers for more. 0: the grid is larger, or blocks have so many threads that it must save them anyway.
  int64_t resident = 0;
  // cuda: programmatic dependent launch. The kernel may start before the previous one has ended (early_start.h).
  // Codegen makes every thread wait for the previous kernel before its first access to a parameter that is not
  // constant, each role by itself where constants come first.
  bool overlap = false;
  // If not null, the kernel is a library call instead of loops: `body` is null, and `params` are the call's operands in
  // order.
  std::shared_ptr<const LibraryCall> library;
};

// A lowered task: its kernels in order. All kernels use the same ids for parameters; `buffers` describes each id.
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

bool IsLoop(const Stmt& stmt, ForKind kind);
// Whether `is` holds for the statement or any statement below it.
bool Contains(const Stmt& stmt, const std::function<bool(const StmtNode&)>& is);
// Whether the expression loads from a buffer for which `from` holds; false if the expression is null.
bool LoadsFrom(const Expr& e, const std::function<bool(int buffer)>& from);
bool LoadsAnything(const Expr& e);
// A copy of the statement with another body.
Stmt WithBody(const StmtNode& stmt, std::vector<Stmt> body);

std::string ToString(const Stmt& stmt);
std::string ToString(const KernelFunc& kernel);

}  // namespace diapason
