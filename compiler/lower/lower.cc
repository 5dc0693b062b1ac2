#include "compiler/lower/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/lower/early_operands.h"
#include "compiler/lower/early_start.h"
#include "compiler/lower/element_index.h"
#include "compiler/lower/kernel_context.h"
#include "compiler/lower/limits.h"
#include "compiler/lower/nest.h"
#include "compiler/lower/overlapped_loads.h"
#include "compiler/lower/prologue_loops.h"
#include "compiler/lower/recurrent_kernel.h"
#include "compiler/lower/remote_loads.h"
#include "compiler/lower/roles.h"
#include "compiler/lower/run_sums.h"
#include "compiler/lower/wide_stores.h"
#include "compiler/schedule/rewrite.h"
#include "compiler/schedule/state.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/run_sums.h"

namespace diapason {
namespace {

absl::Status CheckLimits(const KernelFunc& kernel, const Target& target, const DeviceFacts& facts) {
  if (!target.is_gpu()) return absl::OkStatus();
  if (kernel.threads > facts.max_threads_per_block)
    return absl::FailedPreconditionError(absl::StrCat("kernel ", kernel.name, " needs ", kernel.threads,
                                                      " threads per block, the device has ",
                                                      facts.max_threads_per_block));
  if (kernel.blocks > kMaxGridBlocks)
    return absl::FailedPreconditionError(absl::StrCat("kernel ", kernel.name, " needs ", kernel.blocks,
                                                      " blocks, a GPU launches at most ", kMaxGridBlocks,
                                                      "; choose larger tiles"));
  if (kernel.cluster > std::max(1, facts.max_cluster))
    return absl::FailedPreconditionError(absl::StrCat("kernel ", kernel.name, " needs a cluster of ", kernel.cluster,
                                                      " blocks, the device has ", std::max(1, facts.max_cluster)));
  if (kernel.shared_bytes > facts.max_shared_bytes)
    return absl::FailedPreconditionError(absl::StrCat("kernel ", kernel.name, " needs ", kernel.shared_bytes,
                                                      " bytes of shared memory per block, the device has ",
                                                      facts.max_shared_bytes));
  return absl::OkStatus();
}

// Roles and sizes of all buffers that live outside kernels; stage ids are those of the task's own dag.
std::map<int, LoweredProgram::Buffer> DescribeBuffers(const ComputeDag& task, const ComputeDag& rewrite,
                                                      const State& state, const Bounds& bounds,
                                                      const OutputPlace& place) {
  std::map<int, LoweredProgram::Buffer> buffers;
  const std::vector<int> task_inputs = task.inputs(), rewritten_inputs = rewrite.inputs();
  for (int id = 0; id < state.size(); ++id) {
    const StageState& stage = state.stage(id);
    const bool root = stage.op.placeholder || (stage.computes() && stage.attach == StageState::Attach::kRoot);
    if (!root) continue;
    LoweredProgram::Buffer buffer;
    buffer.decl = {
        id, stage.op.name, stage.op.dtype, Scope::kGlobal, StoredElements(state, bounds, id), !stage.op.placeholder, 0};
    buffer.valid_min = stage.op.valid_min;
    buffer.valid_max = stage.op.valid_max;
    BufferRole role = stage.prologue ? BufferRole::kPrepared : BufferRole::kWorkspace;
    if (stage.op.placeholder) {
      role = stage.op.constant ? BufferRole::kConstant : BufferRole::kInput;
      for (size_t i = 0; i < rewritten_inputs.size(); ++i)
        if (rewritten_inputs[i] == id) buffer.stage = task_inputs[i];
    }
    for (size_t i = 0; i < rewrite.outputs().size(); ++i) {
      if (rewrite.outputs()[i] != id) continue;
      role = BufferRole::kOutput;
      buffer.stage = task.outputs()[i];
      if (!place.whole()) buffer.decl.elements = place.elements;
    }
    buffer.role = static_cast<int>(role);
    buffers[id] = buffer;
  }
  return buffers;
}

// Which parameters of a kernel of a run hold what was there before the run.
void MarkConstants(const LoweredProgram& program, KernelFunc* kernel) {
  for (BufferDecl& param : kernel->params) {
    const auto role = static_cast<BufferRole>(program.buffers.at(param.id).role);
    param.constant = !param.written && (role == BufferRole::kConstant || role == BufferRole::kPrepared);
  }
}

// Kernels of sketches that have no such parameter start one behind the other.
void StartKernelEarly(const State& state, KernelFunc* kernel) {
  if (!state.has_overlap()) return;
  const auto start = static_cast<EarlyStart>(state.overlap().Eval({}));
  kernel->overlap = start != EarlyStart::kNever;
  kernel->body = WithEarlyStart(*kernel, start);
}

// A stage that a library computes.
KernelFunc LibraryKernel(const State& state, const Bounds& bounds, int id) {
  const StageState& stage = state.stage(id);
  LibraryCall call = *stage.library;
  call.algorithm = stage.library_algorithm.Eval({});
  KernelFunc kernel;
  kernel.name = absl::StrCat(NameOf(call.library()), "_", id);
  std::vector<int> operands = stage.library_operands;
  operands.push_back(id);
  for (int operand : operands) {
    const StageState& s = state.stage(operand);
    kernel.params.push_back({operand, absl::StrReplaceAll(s.op.name, {{".", "_"}}), s.op.dtype, Scope::kGlobal,
                             StoredElements(state, bounds, operand), operand == id, 0});
  }
  kernel.library = std::make_shared<const LibraryCall>(call);
  return kernel;
}

absl::Status CheckPlace(const State& state, const OutputPlace& place) {
  if (place.whole()) return absl::OkStatus();
  if (state.outputs().size() != 1)
    return absl::InvalidArgumentError("a task of several results cannot be written into a larger tensor");
  const StageState& output = state.stage(state.outputs()[0]);
  if (output.op.placeholder || !place.Holds(output.op.elements()))
    return absl::InvalidArgumentError(absl::StrCat("stage ", output.op.name, " of ", output.op.elements(),
                                                   " elements has no room in ", place.ToString()));
  if (output.library != nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", output.op.name, ": a library writes whole tensors, not a part of a larger one"));
  return absl::OkStatus();
}

// KernelFunc::resident. Compilers otherwise save registers for as many blocks as a multiprocessor can have, and issue
// loads one after the other for want of them.
int64_t ResidentBlocks(const KernelFunc& kernel, const DeviceFacts& facts) {
  constexpr int64_t kMostBlocks = 4, kMostThreads = 512;  // 128 registers a thread
  const int64_t each = (kernel.blocks + facts.num_cores - 1) / std::max(1, facts.num_cores);
  return each <= kMostBlocks && each * kernel.threads <= kMostThreads ? each : 0;
}

// A root stage that has the sums of runs of what another root stores.
struct FollowingSums {
  int root;
  RunSums of;
};

std::optional<FollowingSums> FindFollowingSums(const Skeleton& skeleton, int source) {
  const State& state = skeleton.state();
  for (int id : state.topological()) {
    const StageState& stage = state.stage(id);
    if (!stage.computes()) continue;
    const auto sums = RunSumsOf(stage.op, [&](int of) -> const Stage& { return state.stage(of).op; });
    if (!sums || sums->source != source) continue;
    const int root = skeleton.root_of(id);
    const Stage& op = state.stage(root).op;
    const bool copies =
        op.body->kind == ExprKind::kLoad && op.body->buffer == id && op.elements() == stage.op.elements();
    if (root != source && (root == id || copies)) return FollowingSums{root, *sums};
  }
  return std::nullopt;
}

struct LoweringContext {
  const Skeleton& skeleton;
  const Bounds& bounds;
  const Target& target;
  const DeviceFacts& facts;
  const OutputPlace& place;
};

// The kernel of a root stage.
absl::StatusOr<KernelFunc> BuildKernel(const LoweringContext& context, int id, int* next_buffer) {
  const StageState& stage = context.skeleton.state().stage(id);
  if (stage.recurrence != nullptr)
    return BuildRecurrentKernel(
        {*stage.recurrence, RecurrentTiles::Of(stage.recurrent_factors), context.target, context.facts, context.place},
        next_buffer);
  ASSIGN_OR_RETURN(const KernelContext kernel,
                   KernelContext::Create(context.skeleton, context.bounds, context.target, context.place, id));
  return NestBuilder(kernel, next_buffer).Build();
}

// The kernel with the sums of runs of what it stores (tensor/run_sums.h), where it can make them; `made`: their stage.
KernelFunc WithFollowingSums(const LoweringContext& context, int id, KernelFunc kernel, int* next_buffer,
                             std::set<int>* made) {
  const State& state = context.skeleton.state();
  if (context.target.kind != TargetKind::kCuda || !context.place.whole() || state.stage(id).prologue) return kernel;
  const std::optional<FollowingSums> sums = FindFollowingSums(context.skeleton, id);
  if (!sums) return kernel;
  const Stage& op = state.stage(sums->root).op;
  const BufferDecl decl{
      sums->root, Identifier(op.name), op.dtype, Scope::kGlobal, StoredElements(state, context.bounds, sums->root),
      true};
  std::optional<KernelFunc> with = WithRunSums(kernel, sums->of, decl, next_buffer);
  if (!with) return kernel;
  made->insert(sums->root);
  return *std::move(with);
}

}  // namespace

absl::StatusOr<LoweredProgram> Lower(const ComputeDag& task, const Schedule& schedule, const Target& target,
                                     const DeviceFacts& facts, const OutputPlace& place) {
  ASSIGN_OR_RETURN(const ComputeDag rewrite, ApplyRewrite(task, schedule.rewrite));
  if (rewrite.inputs().size() != task.inputs().size())
    return absl::InternalError(
        absl::StrCat("rewrite ", schedule.rewrite.ToString(), " changes the inputs of the task"));
  RETURN_IF_ERROR(CheckNumbers(schedule.steps));
  ASSIGN_OR_RETURN(State state, Replay(rewrite, schedule.steps));
  RETURN_IF_ERROR(CheckStructure(state));
  LoweredProgram program;
  RETURN_IF_ERROR(CheckPlace(state, place));
  const Skeleton skeleton(std::move(state));
  Bounds bounds;
  skeleton.Infer({}, &bounds);
  RETURN_IF_ERROR(CheckLoops(skeleton.state(), bounds));
  program.buffers = DescribeBuffers(task, rewrite, skeleton.state(), bounds, place);
  int next_buffer = skeleton.state().size();
  std::set<int> made;  // by kernels of others
  for (int id : skeleton.state().topological()) {
    const StageState& stage = skeleton.state().stage(id);
    if (!stage.computes() || stage.attach != StageState::Attach::kRoot || made.contains(id)) continue;
    if (stage.library != nullptr) {
      program.kernels.push_back(LibraryKernel(skeleton.state(), bounds, id));
      continue;
    }
    const LoweringContext context{skeleton, bounds, target, facts, place};
    ASSIGN_OR_RETURN(KernelFunc kernel, BuildKernel(context, id, &next_buffer));
    kernel = WithFollowingSums(context, id, std::move(kernel), &next_buffer, &made);
    if (target.kind == TargetKind::kCuda) kernel.resident = ResidentBlocks(kernel, facts);
    if (stage.prologue && target.kind == TargetKind::kCpu)
      kernel = WithFasterLoops(std::move(kernel), facts.vector_bytes);
    RETURN_IF_ERROR(CheckBuffers(kernel));
    if (!stage.prologue) {
      MarkConstants(program, &kernel);
      if (target.kind == TargetKind::kCuda) {
        kernel = WithEarlyLoads(WithLateWaits(std::move(kernel)), &next_buffer);
        kernel = WithEarlyOperands(std::move(kernel), &next_buffer);
        kernel = WithRemoteLoadsAhead(std::move(kernel), &next_buffer);
      }
      StartKernelEarly(skeleton.state(), &kernel);
      if (target.kind == TargetKind::kCuda) kernel = WithRoles(WithWideStores(std::move(kernel), &next_buffer));
    }
    RETURN_IF_ERROR(CheckLimits(kernel, target, facts));
    (stage.prologue ? program.prologue : program.kernels).push_back(std::move(kernel));
  }
  return program;
}

}  // namespace diapason
