#include "worker/candidate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "compiler/runtime/measure.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/process.pb.h"
#include "worker/convert.h"
#include "worker/verify.h"

namespace diapason {
namespace {

constexpr double kPossibleShareOfPeak = 0.2;
constexpr double kMatrixUnitFactor = 16;

std::string Printf(const char* format, double a, double b) {
  char text[200];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

// What a device's refusal means for a candidate, by the contract of Device and Plan.
ErrorKind KindOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
      return ErrorKind::kIllegalAccess;
    case absl::StatusCode::kResourceExhausted:
      return ErrorKind::kOutOfMemory;
    case absl::StatusCode::kUnavailable:
      return ErrorKind::kInfrastructure;
    case absl::StatusCode::kDeadlineExceeded:
      return ErrorKind::kRunTimeout;
    default:
      return ErrorKind::kLaunchFailure;
  }
}

bool HasFloat16(const ComputeDag& dag) {
  return std::any_of(dag.stages().begin(), dag.stages().end(),
                     [](const Stage& stage) { return stage.dtype == DType::kFloat16; });
}

}  // namespace

std::string ImpossibleTiming(const Timing& timing, const ComputeDag& dag, const DeviceFacts& facts) {
  if (timing.samples.empty()) return "the timing has no samples";
  double least = *std::min_element(timing.samples.begin(), timing.samples.end());
  if (!(least > 0)) return "a sample of 0 seconds: the clock did not move";
  if (!(facts.flops > 0)) return "";
  double peak = facts.flops * (HasFloat16(dag) ? kMatrixUnitFactor : 1);
  double possible = dag.flops() / peak * kPossibleShareOfPeak;
  if (least >= possible) return "";
  return Printf("a sample of %.3g us, where the device cannot be done before %.3g us", least * 1e6, possible * 1e6);
}

int64_t CandidateRunner::Reference::bytes() const {
  size_t total = 0;
  for (const auto& [id, array] : inputs) total += array.data.size();
  for (const Array& array : outputs) total += array.data.size();
  return static_cast<int64_t>(total);
}

CandidateRunner::Reference& CandidateRunner::ReferenceFor(const std::string& workload, uint64_t seed) {
  std::string key = std::to_string(seed) + ":" + workload;
  auto found = std::find_if(references_.begin(), references_.end(), [&](const Reference& r) { return r.key == key; });
  if (found != references_.end()) {
    references_.splice(references_.begin(), references_, found);
  } else {
    references_.emplace_front();
    references_.front().key = std::move(key);
  }
  return references_.front();
}

void CandidateRunner::Shrink() {
  int64_t total = 0;
  for (const Reference& reference : references_) total += reference.bytes();
  while (references_.size() > 1 && total > cache_bytes_) {
    total -= references_.back().bytes();
    references_.pop_back();
  }
}

// One job. Each step returns false when the reply has its error.
class CandidateRunner::Job {
 public:
  Job(CandidateRunner& runner, const v1::RunJob& job, const StageBegins& stage_begins)
      : runner_(runner), device_(runner.device_), job_(job), stage_begins_(stage_begins) {}

  v1::RunReply Run();

 private:
  bool wants_timing() const { return job_.mode() != v1::MEASURE_MODE_VERIFY; }
  bool wants_verification() const {
    return job_.mode() == v1::MEASURE_MODE_VERIFY || job_.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY;
  }

  void Begin(MeasureStage stage, bool quiet = false) {
    stage_ = stage;
    stage_begins_(stage, quiet);
  }
  bool Fail(ErrorKind kind, const std::string& text) {
    SetError(kind, stage_, text, *reply_.mutable_error());
    return false;
  }
  bool Fail(const absl::Status& status) {
    if (absl::IsAborted(status)) reply_.set_device_lost(true);
    return Fail(KindOf(status), std::string(status.message()));
  }

  bool Parse();
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const std::string& program_bytes);
  absl::Status Fill(Executable& executable);
  bool RunOnce();
  bool CheckWritten();
  bool Time();
  bool Verify();
  absl::StatusOr<std::vector<Array>> Outputs(Executable& executable);
  absl::Status EvaluateNaively();

  CandidateRunner& runner_;
  Device& device_;
  const v1::RunJob& job_;
  const StageBegins& stage_begins_;
  v1::RunReply reply_;
  MeasureStage stage_ = MeasureStage::kLoad;
  ComputeDag dag_;
  std::unique_ptr<Executable> executable_;
  std::vector<Array> outputs_;  // of the candidate
  bool raced_out_ = false;
};

v1::RunReply CandidateRunner::Job::Run() {
  auto began = std::chrono::steady_clock::now();
  Begin(MeasureStage::kLoad);
  bool ok = Parse() && RunOnce() && CheckWritten() && (!wants_timing() || Time());
  if (ok && wants_verification() && !raced_out_) ok = Verify();
  if (ok && !wants_timing()) reply_.mutable_timing();
  if (ok)
    reply_.mutable_timing()->set_run_seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  Device::Clocks clocks = device_.clocks();
  reply_.mutable_clocks()->set_core_mhz(clocks.core_mhz);
  reply_.mutable_clocks()->set_memory_mhz(clocks.memory_mhz);
  return std::move(reply_);
}

bool CandidateRunner::Job::Parse() {
  absl::StatusOr<ComputeDag> dag = ParseDag(job_.workload());
  if (!dag.ok()) return Fail(ErrorKind::kInfrastructure, std::string(dag.status().message()));
  dag_ = *std::move(dag);
  absl::StatusOr<std::unique_ptr<Executable>> executable = Prepare(job_.program());
  if (!executable.ok()) return Fail(executable.status());
  executable_ = *std::move(executable);
  return true;
}

absl::StatusOr<std::unique_ptr<Executable>> CandidateRunner::Job::Prepare(const std::string& program_bytes) {
  ASSIGN_OR_RETURN(Program program, ParseProgram(program_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Executable::Create(device_, std::move(program)));
  RETURN_IF_ERROR(executable->AllocateRest());
  RETURN_IF_ERROR(Fill(*executable));
  return executable;
}

// Inputs and constants from the host's copies, poison everywhere else.
absl::Status CandidateRunner::Job::Fill(Executable& executable) {
  Reference& reference = runner_.ReferenceFor(job_.workload(), job_.input_seed());
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ProgramBuffer& buffer = buffers[i];
    DeviceBuffer& to = *executable.buffer(static_cast<int>(i));
    if (buffer.role != BufferRole::kInput && buffer.role != BufferRole::kConstant) {
      RETURN_IF_ERROR(device_.Fill(to, 0xff));
      continue;
    }
    bool is_placeholder = buffer.stage >= 0 && buffer.stage < dag_.size() && dag_.stage(buffer.stage).placeholder;
    if (!is_placeholder || dag_.stage(buffer.stage).elements() != buffer.elements) {
      return absl::InternalError("the program's buffer '" + buffer.name + "' is no input of the workload");
    }
    auto [input, added] = reference.inputs.try_emplace(buffer.stage);
    if (added) input->second = RandomInput(dag_, buffer.stage, job_.input_seed());
    RETURN_IF_ERROR(device_.CopyIn(to, input->second.data.data(), buffer.bytes()));
  }
  return absl::OkStatus();
}

// The prologue and one run; what a crash or an illegal access is told by.
bool CandidateRunner::Job::RunOnce() {
  Begin(MeasureStage::kRun, job_.quiet() && wants_timing());
  if (absl::Status prologue = executable_->RunPrologue(); !prologue.ok()) return Fail(prologue);
  absl::StatusOr<std::unique_ptr<Plan>> plan = executable_->MakePlan();
  if (!plan.ok()) return Fail(plan.status());
  if (absl::Status run = (*plan)->Run(); !run.ok()) return Fail(run);
  return true;
}

absl::StatusOr<std::vector<Array>> CandidateRunner::Job::Outputs(Executable& executable) {
  std::vector<Array> outputs;
  for (int id : dag_.outputs()) {
    int index = executable.BufferOfStage(id);
    if (index < 0) return absl::InternalError("the program has no buffer for output '" + dag_.stage(id).name + "'");
    Array array(dag_.stage(id).dtype, dag_.stage(id).shape());
    RETURN_IF_ERROR(
        device_.CopyOut(array.data.data(), *executable.buffer(index), static_cast<int64_t>(array.data.size())));
    outputs.push_back(std::move(array));
  }
  return outputs;
}

// Before the timing, so that a program that does nothing is not taken for a fast one.
bool CandidateRunner::Job::CheckWritten() {
  absl::StatusOr<std::vector<Array>> outputs = Outputs(*executable_);
  if (!outputs.ok()) return Fail(outputs.status());
  outputs_ = *std::move(outputs);
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const std::string& name = dag_.stage(dag_.outputs()[o]).name;
    if (int64_t at = FirstUnwritten(outputs_[o]); at >= 0) {
      std::string text = "element " + std::to_string(at) + " of output '" + name +
                         "' was not written, or came from memory that was not";
      if (wants_verification()) {
        v1::Verification& verification = *reply_.mutable_verification();
        verification.set_max_abs_error(std::numeric_limits<double>::infinity());
        verification.set_max_rel_error(std::numeric_limits<double>::infinity());
        verification.set_text(text);
      }
      return Fail(ErrorKind::kWrongResult, text);
    }
    int64_t at = FirstNonFinite(outputs_[o]);
    // With a reference at hand, the comparison tells whether that is right.
    if (at >= 0 && !wants_verification()) {
      return Fail(ErrorKind::kWrongResult,
                  "element " + std::to_string(at) + " of output '" + name + "' is no finite number");
    }
  }
  return true;
}

bool CandidateRunner::Job::Time() {
  const v1::TimingOptions& wanted = job_.timing();
  TimingOptions options;
  options.number = std::max<int64_t>(1, static_cast<int64_t>(wanted.number()));
  options.repeat = std::max<int>(1, static_cast<int>(wanted.repeat()));
  options.min_repeat_ms = wanted.min_repeat_ms();
  options.race_seconds = wanted.race() ? job_.best_seconds() : 0;
  options.flush_cache = wanted.flush_cache();
  options.max_seconds = job_.max_timing_seconds() > 0 ? job_.max_timing_seconds() : options.max_seconds;
  absl::StatusOr<Timing> timing = MeasureExecutable(*executable_, options);
  if (!timing.ok()) return Fail(timing.status());
  std::string impossible = ImpossibleTiming(*timing, dag_, device_.facts());
  if (!impossible.empty()) return Fail(ErrorKind::kWrongResult, impossible);
  raced_out_ = timing->raced_out;
  ToProto(*timing, *reply_.mutable_timing());
  return true;
}

absl::Status CandidateRunner::Job::EvaluateNaively() {
  Reference& reference = runner_.ReferenceFor(job_.workload(), job_.input_seed());
  if (!reference.outputs.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> naive, Prepare(job_.naive_program()));
  RETURN_IF_ERROR(naive->RunPrologue());
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, naive->MakePlan());
  RETURN_IF_ERROR(plan->Run());
  ASSIGN_OR_RETURN(reference.outputs, Outputs(*naive));
  return absl::OkStatus();
}

bool CandidateRunner::Job::Verify() {
  Begin(MeasureStage::kVerify);
  executable_.reset();  // the naive program keeps every intermediate tensor: room for it
  if (absl::Status naive = EvaluateNaively(); !naive.ok()) {
    // Not the candidate's doing; a device that it broke shows when the candidate runs.
    reply_.set_device_lost(absl::IsAborted(naive));
    return Fail(ErrorKind::kInfrastructure, "the naive evaluation failed: " + std::string(naive.message()));
  }
  Comparison comparison =
      CompareOutputs(dag_, outputs_, runner_.ReferenceFor(job_.workload(), job_.input_seed()).outputs);
  v1::Verification& verification = *reply_.mutable_verification();
  verification.set_ok(comparison.ok);
  verification.set_max_abs_error(comparison.max_abs_error);
  verification.set_max_rel_error(comparison.max_rel_error);
  verification.set_tolerance(comparison.tolerance);
  verification.set_text(comparison.text);
  return comparison.ok || Fail(ErrorKind::kWrongResult, comparison.text);
}

v1::RunReply CandidateRunner::Run(const v1::RunJob& job, const StageBegins& stage_begins) {
  v1::RunReply reply = Job(*this, job, stage_begins).Run();
  Shrink();
  return reply;
}

}  // namespace diapason
