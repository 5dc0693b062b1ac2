// What the classes that emit a kernel's loop nest share, as plain data: the kernel, what its loops stand at, the
// buffers so far, and the first thing that cannot be had.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/lower/kernel_buffers.h"
#include "compiler/lower/kernel_context.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// What the loops and axes of a stage are, where its statements are emitted (LoopValues::Prepare).
struct StageValues {
  std::vector<Expr> value;    // by loop id
  std::vector<Expr> leaf;     // loop variable by position
  std::vector<Expr> axis;     // real coordinate by axis
  std::vector<Expr> compact;  // own coordinate in the buffer by spatial axis
  std::vector<std::pair<Expr, Expr>>
      blocks;                     // row and column of a loop over blocks in groups: variables and what they are
  std::vector<uint8_t> unrolled;  // by position: without an annotation, and within the stage's limit of unrolled steps
  Expr write_slot, read_slot;     // of a pipelined copy: which of its buffers is filled, is read; else null
  std::unordered_map<const ExprNode*, const Access*> access_of;  // by load of the stage's body
};

struct NestState {
  NestState(const KernelContext& of, int* next_buffer)
      : kernel(of),
        buffers(of, next_buffer),
        stages(of.state.size()),
        rank(MakeVar("rank")),
        thread_set(MakeVar("thread_set")) {
    analyzer.Bind(rank, of.split.blocks);
    analyzer.Bind(thread_set, of.split.thread_sets);
  }
  NestState(const NestState&) = delete;
  NestState& operator=(const NestState&) = delete;

  // Notes what the schedule asks for and cannot have. The first one is the kernel's; what is emitted since is void.
  void Refuse(absl::Status why) {
    if (status.ok()) status = std::move(why);
  }

  const KernelContext& kernel;
  Analyzer analyzer;  // knows the ranges of all variables
  KernelBuffers buffers;
  std::vector<StageValues> stages;
  Expr rank;        // of the block in its cluster
  Expr thread_set;  // of the thread: its number
  // What a warpgroup of its own does (HasProducer), and what one thread does before all: barriers are initialised.
  Stmt producer, before_roles;
  bool constants_first = false;  // KernelFunc
  int serial_depth = 0;          // serial and unrolled loops around what is emitted, pipelines too
  absl::Status status;
};

}  // namespace diapason
