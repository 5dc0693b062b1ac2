#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "base/process.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/accesses.h"
#include "compiler/tensor/device_facts.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/process.pb.h"
#include "worker/process/child_process.h"
#include "worker/process/convert.h"
#include "worker/process/limits.h"
#include "worker/process/processes.h"
#include "worker/process/toolchain.h"

namespace diapason {
namespace {

using BuildResult = std::variant<Program, MeasureError>;

constexpr int kBuilderNiceness = 5;

// A compiler takes tens of megabytes in small pieces and gives them back, once a candidate: the allocator is not to
// take them from the system, and clear them, each time.
void KeepFreedMemory() {
#ifdef M_TRIM_THRESHOLD
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TOP_PAD, 32 << 20);
#endif
}

BuildResult BuildReference(Toolchain& toolchain, const ComputeDag& dag, const Target& target) {
  absl::StatusOr<Program> program = toolchain.BuildReference(dag, target);
  if (program.ok()) return *std::move(program);
  // A reference that cannot be had says nothing of the candidate.
  return MeasureError{ErrorKind::kInfrastructure, MeasureStage::kCompile,
                      "the reference implementation does not build: " + std::string(program.status().message())};
}

BuildResult Build(Toolchain& toolchain, const v1::BuildJob& job, const Toolchain::StageBegins& stage_begins) {
  stage_begins(MeasureStage::kInstantiate);
  auto refuse = [](const absl::Status& status) {
    return MeasureError{ErrorKind::kInstantiation, MeasureStage::kInstantiate, std::string(status.message())};
  };
  const bool limited = job.has_limits();
  const RequestLimits limits = FromProto(job.limits());
  absl::StatusOr<ComputeDag> dag = ParseDag(job.workload());
  if (!dag.ok()) return refuse(dag.status());
  absl::StatusOr<Target> target = Target::Parse(job.target());
  if (!target.ok()) return refuse(target.status());
  if (absl::Status fits = CheckDag(*dag, limits); limited && !fits.ok()) return refuse(fits);
  // The agent's own programs may be large, and are ours.
  if (absl::Status proven = limited ? CheckAccesses(*dag) : absl::OkStatus(); !proven.ok()) return refuse(proven);
  if (job.reference()) return BuildReference(toolchain, *dag, *target);
  absl::StatusOr<Schedule> schedule = ParseSchedule(job.schedule());
  if (!schedule.ok()) return refuse(schedule.status());
  if (absl::Status fits = CheckSchedule(*schedule, limits); limited && !fits.ok()) return refuse(fits);
  const DeviceFacts facts = FromProto(job.facts());
  if (absl::Status checked = CheckFacts(facts, target->kind); !checked.ok()) return refuse(checked);
  const OutputPlace place{job.place().row(), job.place().stride(), job.place().offset(), job.place().elements()};
  if (!place.whole() && (dag->outputs().size() != 1 || !place.Holds(dag->stage(dag->outputs()[0]).elements())))
    return refuse(absl::InvalidArgumentError("the place of the output does not hold it"));
  BuildResult result = toolchain.Build({*dag, *schedule, *target, facts, place, job.timeout_seconds()}, stage_begins);
  const Program* program = std::get_if<Program>(&result);
  if (!limited || program == nullptr) return result;
  const absl::Status fits = CheckProgram(*program, limits);
  if (fits.ok()) return result;
  return MeasureError{ErrorKind::kLowering, MeasureStage::kLower, std::string(fits.message())};
}

v1::ProcessMessage Answer(Toolchain& toolchain, const v1::BuildJob& job, const Toolchain::StageBegins& stage_begins) {
  auto began = std::chrono::steady_clock::now();
  BuildResult result = Build(toolchain, job, stage_begins);
  v1::ProcessMessage message;
  v1::BuildReply& reply = *message.mutable_built();
  if (auto* program = std::get_if<Program>(&result)) {
    reply.set_program(SerializeProgram(*program));
    reply.set_compiler(program->compiler);
    reply.mutable_registers()->Assign(program->registers.begin(), program->registers.end());
    reply.mutable_spill_bytes()->Assign(program->spill_bytes.begin(), program->spill_bytes.end());
  } else {
    ToProto(std::get<MeasureError>(result), *reply.mutable_error());
  }
  reply.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return message;
}

}  // namespace

int BuilderMain(int fd, Toolchain& toolchain) {
  DieWithParentAndGroups();  // with its compilers
  PrepareChildProcess(fd);
  // There are as many builders as cores: what feeds them, and what is timed, goes first.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kBuilderNiceness);
  v1::ProcessMessage message;
  if (!ReadMessage(fd, message).ok() || !message.has_start()) return 1;
  LimitMemory(message.start().memory_limit_bytes());
  KeepFreedMemory();
  v1::ProcessMessage ready;
  ready.mutable_ready();
  if (!WriteMessage(fd, ready).ok()) return 1;
  auto stage_begins = [fd](MeasureStage stage) {
    v1::ProcessMessage progress;
    progress.mutable_progress()->set_stage(StageName(stage));
    (void)WriteMessage(fd, progress);  // an agent that is gone shows at the reply
  };
  while (ReadMessage(fd, message).ok() && message.has_build()) {
    TruncateOutput();
    if (!WriteMessage(fd, Answer(toolchain, message.build(), stage_begins)).ok()) return 1;
  }
  return 0;
}

}  // namespace diapason
