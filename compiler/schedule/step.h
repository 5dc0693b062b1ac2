// Schedules as lists of steps (Ansor's transform steps), over a rewrite of a task's dag.
//
// A number in a step may depend on tunable parameters: it is a constant times some of them. A sketch is a list of steps
// with such numbers; a candidate is a sketch with one integer for each parameter. The steps in a record have constants
// only. Stage ids are those of the rewrite's dag; stages made by steps (caches, rfactor) take the next free ids in
// order of their steps. Loop ids are stable too: each stage numbers its loops as they are made (its axes first, spatial
// then reduce).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

// `value` times the values of the parameters with these numbers; -1: none.
struct Factor {
  int32_t value = 1;
  std::array<int16_t, 6> parameters{-1, -1, -1, -1, -1, -1};

  static Factor Of(int32_t value) { return Factor{value}; }
  static Factor Parameter(int parameter) {
    Factor f;
    f.parameters[0] = static_cast<int16_t>(parameter);
    return f;
  }
  Factor operator*(const Factor& other) const;
  bool is_constant() const { return parameters[0] < 0; }
  int64_t Eval(absl::Span<const int32_t> configuration) const {
    int64_t product = value;
    for (int16_t parameter : parameters) {
      if (parameter < 0) break;
      product *= configuration[parameter];
    }
    return product;
  }
};

// The numbers are stored in records: never renumber, never change what one means.
enum class StepKind : uint8_t {
  // loops = {loop}; factors f1..fn: the loop becomes n+1 loops; the inner ones have extents f1..fn (outer to inner),
  // the outermost ceil(extent / product). The product need not divide: what lies outside is predicated.
  kSplit = 1,
  // loops = adjacent leaf loops, outer to inner; they become one.
  kFuse = 2,
  // loops = all leaf loops in their new order.
  kReorder = 3,
  // loops = {loop}; ints = {Annotation}.
  kAnnotate = 4,
  // target = stage; loops = candidate loops of the target; factors = {index into loops}: computed there, for what that
  // iteration of the target needs.
  kComputeAt = 5,
  kInline = 6,
  // ints = {Scope}: a new stage computes in that scope; `stage` becomes its copy out.
  kCacheWrite = 7,
  // ints = {Scope, reader stages...}: a new stage copies `stage`; those readers read the copy.
  kCacheRead = 8,
  // loops = {reduce loop, a piece of a reduce axis split in two, or the middle one of three}: a new stage has that loop
  // as its first spatial axis (partial results); `stage` reduces over it.
  kRfactor = 9,
  // factors = {elements}: each row (innermost dimension) of the stage's buffer is followed by that many unused
  // elements. Only of stages that are computed at a loop of another one.
  kPadRows = 10,
  // factors = {steps}: serial inner loops of the stage whose product of extents is at most this are unrolled.
  kUnroll = 11,
  // target = a constant placeholder read by `stage`; ints = dimension order after splitting; factors = one a dimension
  // of the placeholder: dimension d is split in [ceil(n/f), f] (f = 1: not split). A new prologue stage holds the
  // constant in that layout: `ints` lists the pieces outer to inner, piece 2*d the outer and 2*d+1 the inner part of
  // dimension d. All readers use it.
  kPack = 12,
  // ints = {Scope}: the memory in which the stage's result is kept (attached stages).
  kSetScope = 13,
  // factors = {stages}: the reduce loops of the stage down to the one at which its operands are copied into shared
  // memory run as a software pipeline: there are `stages` buffers of each copy, and the copies of an iteration are
  // started stages - 1 iterations ahead (asynchronously on cuda). 1: no pipeline.
  kPipeline = 14,
  // A sum of products on tensor cores (tensor_intrinsic.h). loops = {k, m, n} of the stage: its innermost loops, k a
  // reduce loop whose extent is a multiple of the product's depth, m and n of extent 2; target = the stage that has the
  // thread loops; ints = {TensorMode, lane loop of m, lane loop of n}: loops of the target, of extents 8 and 4, fused
  // innermost into its threads. The lanes of a warp then hold a product's 16x8 elements at (m + 8 lanes) x (4 lanes +
  // n), so the loops as they stand compute the same; targets without tensor cores run them so.
  kTensorize = 15,
  // factors = {0, 1 or 2}: with 1 or 2, each kernel of the program may be started before the one that it depends on has
  // ended, and waits itself (programmatic dependent launch). With 1 it lets the next one start at once, else when its
  // sums are complete (EarlyStart, lower/early_start.h). `stage` is any.
  kOverlap = 16,
  // factors = {elements}: along its last dimension the stage, an attached one, is computed from a multiple of so many
  // elements on and for a multiple of so many, where its readers need one run of neighbours: whole vectors can be
  // copied.
  kAlignRows = 17,
  // Copies for wgmma: of the last two dimensions [r, k] of the stage's buffer (shared memory), k in runs of 16 bytes, c
  // elements, is outermost: [k / c][r][k % c], rows of c one after the other and c unused elements behind each k / c.
  // Targets without wgmma lay it out so as well.
  kCoreMatrices = 18,
  // factors = {tiles}: the stage, a plain copy of a constant in shared memory, is made a whole tile at a time (bulk
  // copies on cuda), and so many tiles are there or on their way at once: no fewer than the buffers of its pipeline, no
  // more than there are. A new prologue stage between the two holds the image of the copy's buffer for each tile, in
  // order of the dimensions, one behind the other.
  kBulkCopy = 19,
  // loops = {the loop over blocks, made of several}; factors = {rows}: of the last two loops that it was made of, rows
  // and columns of tiles, so many rows are walked together, down each column before the next, instead of one row after
  // the other: blocks that run at the same time read less that is not the same. The last rows may be fewer.
  kGroupBlocks = 20,
  // The stage, a copy into shared memory computed at a loop of its kernel's root, is asked for before all else that is
  // computed there, asynchronously on cuda, and waited for where the first of these reads it.
  kAsyncCopy = 21,
  // loops = {l}, the outermost piece of the split axis of a reduction; target, ints = {a reduce loop of the target, M
  // or
  // -1}: the reduction, computed at that loop of the target or the target itself, is carried from one iteration of the
  // loop to the next: each takes the terms of the iteration of l of the same number, and what the stage then holds is
  // of
  // all terms so far. Without M it is a maximum. M is a maximum of such results that is computed at the same loop; the
  // terms of a sum with M are exponentials relative to M, or their products by other factors, and what the sum holds is
  // multiplied by exp(M before - M) when M grows (online softmax: Milakov and Gimelshein 2018).
  kCarry = 22,
  // factors = {replicas}: a new innermost loop of the stage, whose iterations all compute the same: so many threads
  // then
  // have the elements that are kept by lanes (Memory::kLanes), where others would have to ask for them.
  kReplicate = 23,
  // The stage, a constant of float32 or what is computed element by element from constants, is rounded to
  // TensorFloat-32: products that need their factors so then read it as it is. Of a constant itself a new prologue
  // stage
  // holds the rounded elements, and all readers use it.
  kRoundFactors = 24,
  // factors = {blocks, lanes, units of a thread, WeightsIn}: the stage, the only result, and all stages that it needs
  // are
  // computed by one kernel, as the recurrence that they are (FindRecurrence); RecurrentTiles says how. The only step of
  // a schedule.
  kRecurrence = 25,
  // The stage, a plain copy into shared memory in core matrices that is made ahead (kPipeline), is made by tensor
  // copies
  // on cuda (Tensor Memory Accelerator): a box of the tensor at once, that one thread asks for. Elsewhere, and where
  // the
  // numbers of a configuration do not allow it, threads copy as its loops say.
  kTensorCopy = 26,
  // factors = {0 to 4}: above 0, where tensor copies make all shared copies of the stage's pipeline, which products by
  // warpgroups read, a warpgroup of its own asks for them ("warp specialization", Bauer et al. 2011; the producer of
  // Shah et al. 2024), and the others meet no more than where they have to. Above 1 it asks for some of the constants
  // first (Producer in lower/tensor_copies.h).
  kProducer = 27,
  // ints = {Library, fused}; target = the anchor; factors = {algorithm}: a library computes the anchor and what belongs
  // to the call up to `stage` (MatchLibrary). Weights that the library wants in another order are read through a new
  // stage that holds them so. Comes before all other steps of these stages.
  kLibrary = 32,
  // factors = {elements}: as kPadRows, up to the next odd multiple of so many elements, so that rows begin in different
  // banks of shared memory.
  kOddRows = 33,
};

enum class Annotation : uint8_t {
  kNone = 0,
  kUnroll = 1,
  kVectorize = 2,  // on a reduce loop, innermost with all reduce loops inside the spatial ones: reduction across the
                   // lanes of a vector
  kParallel = 3,
  kBlockX = 4,
  kThreadX = 5,  // on a reduce loop: cross-thread reduction
  // The rank of a block in its thread-block cluster. On a reduce loop: each block accumulates the iterations of its
  // rank, and a stage in shared memory that holds them is read as the sum over the cluster. On a loop of the kernel's
  // root: the share of the block in what all write together.
  kCluster = 6,
  // On a reduce loop, an inner piece of a split inside all loops at which shared copies are computed: a block's threads
  // are as many sets, one behind the other; each accumulates the iterations of its number. The stage in shared memory
  // that holds the results, computed by the threads of one set, is read as the sum over the sets (and over the
  // cluster).
  kThreadSet = 7,
};

struct Step {
  StepKind kind;
  int32_t stage = -1;
  std::vector<int32_t> loops = {};
  std::vector<Factor> factors = {};
  int32_t target = -1;
  std::vector<int32_t> ints = {};
};

// Which rewriting of the task's dag the steps apply to (compiler/schedule/rewrite.h).
struct DagRewrite {
  std::string name = "direct";   // direct, gemm, gemm_k, winograd, winograd_k, rows, strassen, attention, library
  std::vector<int64_t> params;   // winograd, winograd_k: {m}; strassen: {levels}
  std::string ToString() const;  // "winograd(4)"
  bool operator==(const DagRewrite&) const = default;
};

struct Schedule {
  DagRewrite rewrite;
  std::string sketch;                  // name of the sketch it came from, for people
  std::vector<Step> steps;             // constants only
  std::vector<int32_t> configuration;  // values of the sketch's parameters: for hashing, features, mutation
};

// Replaces the parameters in the steps of a sketch by their values.
std::vector<Step> Instantiate(const std::vector<Step>& steps, absl::Span<const int32_t> configuration);
// One line a step, for people.
std::string ToString(const Step& step);

// As bytes (proto/diapason/v1/program.proto). REQUIRES: constants only. Parse is total: DataLoss on bytes that are no
// schedule.
std::string SerializeSchedule(const Schedule& schedule);
absl::StatusOr<Schedule> ParseSchedule(const std::string& bytes);

}  // namespace diapason
