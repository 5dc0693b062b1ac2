#include "worker/process/candidate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/hash/hash.h"
#include "base/check.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/compare.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/process.pb.h"
#include "worker/process/convert.h"
#include "worker/process/verify.h"

namespace diapason {
namespace {

// How much faster than by its facts a device may be: the clock is a base clock, and operations of common subexpressions
// count twice.
constexpr double kPeakMargin = 3, kCacheMargin = 8;
// Peak of matrix units over that of float32 (14.8 on an H200, 28 on a B200 for float16; half of it for TF32, of which a
// float32 product takes three).
constexpr double kMatrixUnits = 32, kSplitMatrixUnits = kMatrixUnits / 6;
// Of an output that is looked at in part: pieces, and of each.
constexpr int64_t kParts = 8, kPartBytes = 64 << 10;
constexpr int64_t kViewAlignment = 512;  // Device::View
constexpr int kReplays = 16;             // of a program that starts early, behind a kernel that writes its inputs
// Kept between candidates: of host memory, and of a GPU's.
constexpr int64_t kMostHostBytes = int64_t{512} << 20, kMostDeviceBytes = int64_t{4} << 30;
// Of buffers that take turns: on cpu 68 MiB a candidate, on cuda constants of one and a half times the L2 cache.
constexpr int64_t kMostSpareBytes = int64_t{256} << 20;

std::string Printf(const char* format, double a, double b) {
  char text[200];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

// The default one if the job names none that can be read.
Target TargetOf(const v1::RunJob& job) { return Target::Parse(job.target()).value_or(Target()); }

bool HasNarrowFloats(const ComputeDag& dag) {
  return std::any_of(dag.stages().begin(), dag.stages().end(),
                     [](const Stage& stage) { return IsNarrowFloat(stage.dtype); });
}

}  // namespace

ErrorKind ErrorKindOfDevice(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted: return ErrorKind::kIllegalAccess;
    case absl::StatusCode::kResourceExhausted: return ErrorKind::kOutOfMemory;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kUnavailable: return ErrorKind::kInfrastructure;
    case absl::StatusCode::kDeadlineExceeded: return ErrorKind::kRunTimeout;
    default: return ErrorKind::kLaunchFailure;
  }
}

bool DeviceIsLost(const absl::Status& status) { return absl::IsAborted(status) || absl::IsUnknown(status); }

double LeastWork::Seconds(double flops, double l2_bandwidth) const {
  return std::max(flops > 0 ? operations / flops : 0, l2_bandwidth > 0 ? bytes / l2_bandwidth : 0);
}

LeastWork LeastWorkOf(const ComputeDag& dag, bool matrix_units) {
  const double units = !matrix_units ? 1 : HasNarrowFloats(dag) ? kMatrixUnits : kSplitMatrixUnits;
  LeastWork least{dag.flops() / LargestSaving(dag) / (units * kPeakMargin), 0};
  for (int id : dag.outputs())
    least.bytes += static_cast<double>(dag.stage(id).elements() * BytesOf(dag.stage(id).dtype)) / kCacheMargin;
  return least;
}

std::string ImpossibleTiming(const Timing& timing, const ComputeDag& dag, const DeviceFacts& facts) {
  if (timing.samples.empty()) return "the timing has no samples";
  double least = *std::min_element(timing.samples.begin(), timing.samples.end());
  if (!(least > 0)) return "a sample of 0 seconds: the clock did not move";
  const double possible = LeastWorkOf(dag, facts.arch.rfind("sm_", 0) == 0).Seconds(facts.flops, facts.l2_bandwidth);
  if (least >= possible) return "";
  return Printf("a sample of %.3g us, where the device cannot be done before %.3g us", least * 1e6, possible * 1e6);
}

// Adds the seconds of its life to a number.
class StageClock {
 public:
  explicit StageClock(double* total) : total_(total) {}
  ~StageClock() { *total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double* const total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One job. Each step returns false when the reply has its error.
class CandidateRunner::Job {
 public:
  Job(CandidateRunner& runner, const v1::RunJob& job, const StageBegins& stage_begins)
      : runner_(runner), device_(runner.device_), job_(job), stage_begins_(stage_begins) {}
  ~Job() { Release(); }

  v1::RunReply Run();

 private:
  // Seconds of the stages, for RunReply.
  struct Seconds {
    double load = 0, fill = 0, first_run = 0, timing = 0, check = 0, verify = 0;
  };

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
    if (DeviceIsLost(status)) reply_.set_device_lost(true);
    return Fail(ErrorKindOfDevice(status), std::string(status.message()));
  }
  void ReportSeconds();
  void SetUnboundedError(const std::string& text);

  bool Parse();
  OutputComparison CompareWithReference() const;
  bool Load();
  // Makes the program executable_. Where memory is short, again without what is kept between candidates.
  absl::Status Use(const std::string& program_bytes);
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const std::string& program_bytes);
  absl::Status Allocate(Executable& executable);
  absl::Status Fill(Executable& executable);
  // Gives the buffers of the executable in use back.
  void Release();
  bool RunOnce();
  bool Check();
  bool CheckWritten(const Array& output, const std::string& name, int64_t first);
  bool Time();
  bool CompareInPlace();
  bool Verify();
  absl::Status Outputs(Executable& executable, std::vector<Array>* outputs);
  absl::StatusOr<std::vector<Array>> PartsOfOutput(int output, std::vector<int64_t>* begins);
  absl::Status EvaluateReference();

  CandidateRunner& runner_;
  Device& device_;
  const v1::RunJob& job_;
  const StageBegins& stage_begins_;
  v1::RunReply reply_;
  MeasureStage stage_ = MeasureStage::kLoad;
  ComputeDag dag_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::unique_ptr<DeviceBuffer>> taken_;  // of the executable, from the pool
  bool stopped_early_ = false;
  // For WarmShares; zero: nothing to tell.
  uint64_t share_of_ = 0;
  double seconds_of_run_ = 0, warm_seconds_ = 0;
  Seconds seconds_;
};

v1::RunReply CandidateRunner::Job::Run() {
  auto began = std::chrono::steady_clock::now();
  Begin(MeasureStage::kLoad);
  // Looked at after the timing, so that those that were stopped early are looked at in part only; an error takes the
  // place of the time.
  bool ok = Parse() && Load() && RunOnce() && (!wants_timing() || Time()) && CompareInPlace() && Check();
  if (ok && wants_verification() && !stopped_early_) ok = Verify();
  // Not of what is wrong.
  if (ok && !stopped_early_) runner_.warm_shares_.Add(share_of_, seconds_of_run_, warm_seconds_);
  if (ok && !wants_timing()) reply_.mutable_timing();
  if (ok)
    reply_.mutable_timing()->set_run_seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  Device::Clocks clocks = device_.clocks();
  reply_.mutable_clocks()->set_core_mhz(clocks.core_mhz);
  reply_.mutable_clocks()->set_memory_mhz(clocks.memory_mhz);
  ReportSeconds();
  return std::move(reply_);
}

void CandidateRunner::Job::ReportSeconds() {
  v1::RunStages& stages = *reply_.mutable_stages();
  stages.set_load_seconds(seconds_.load);
  stages.set_fill_seconds(seconds_.fill);
  stages.set_first_run_seconds(seconds_.first_run);
  (stopped_early_ ? stages.set_stopped_early_seconds(seconds_.timing) : stages.set_timing_seconds(seconds_.timing));
  stages.set_check_seconds(seconds_.check);
  stages.set_verify_seconds(seconds_.verify);
  stages.set_stopped_early(stopped_early_ ? 1 : 0);
}

bool CandidateRunner::Job::Parse() {
  absl::StatusOr<ComputeDag> dag = ParseDag(job_.workload());
  if (!dag.ok()) return Fail(ErrorKind::kInfrastructure, std::string(dag.status().message()));
  dag_ = *std::move(dag);
  runner_.references_.Use(job_.workload(), dag_, job_.input_seed());
  return true;
}

bool CandidateRunner::Job::Load() {
  const absl::Status loaded = Use(job_.program());
  return loaded.ok() || Fail(loaded);
}

absl::Status CandidateRunner::Job::Use(const std::string& program_bytes) {
  absl::StatusOr<std::unique_ptr<Executable>> executable = Prepare(program_bytes);
  if (absl::IsResourceExhausted(executable.status())) {
    Release();
    runner_.FreeWhatIsKept();
    executable = Prepare(program_bytes);
  }
  RETURN_IF_ERROR(executable.status());
  executable_ = *std::move(executable);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executable>> CandidateRunner::Job::Prepare(const std::string& program_bytes) {
  std::unique_ptr<Executable> executable;
  {
    StageClock clock(&seconds_.load);
    ASSIGN_OR_RETURN(Program program, ParseProgram(program_bytes));
    ASSIGN_OR_RETURN(executable, Executable::Create(device_, std::move(program)));
    RETURN_IF_ERROR(Allocate(*executable));
  }
  StageClock clock(&seconds_.fill);
  RETURN_IF_ERROR(Fill(*executable));
  return executable;
}

absl::Status CandidateRunner::Job::Allocate(Executable& executable) {
  const std::vector<ProgramBuffer>& buffers = executable.program().buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, runner_.pool_.Take(buffers[i].bytes()));
    executable.Bind(static_cast<int>(i), buffer.get());
    taken_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

void CandidateRunner::Job::Release() {
  executable_.reset();
  for (std::unique_ptr<DeviceBuffer>& buffer : taken_) runner_.pool_.Give(std::move(buffer));
  taken_.clear();
}

// Fresh inputs and constants, poison everywhere else.
absl::Status CandidateRunner::Job::Fill(Executable& executable) {
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
    RETURN_IF_ERROR(runner_.references_.Fill(buffer.stage, to));
  }
  return absl::OkStatus();
}

// The prologue and one run; where a crash or an illegal access shows.
bool CandidateRunner::Job::RunOnce() {
  Begin(MeasureStage::kRun, job_.quiet() && wants_timing());
  StageClock clock(&seconds_.first_run);
  if (absl::Status prologue = executable_->RunPrologue(); !prologue.ok()) return Fail(prologue);
  absl::StatusOr<std::unique_ptr<Plan>> plan = executable_->MakePlan();
  if (!plan.ok()) return Fail(plan.status());
  if (absl::Status run = (*plan)->Run(); !run.ok()) return Fail(run);
  return true;
}

absl::Status CandidateRunner::Job::Outputs(Executable& executable, std::vector<Array>* outputs) {
  outputs->resize(dag_.outputs().size());
  for (size_t o = 0; o < outputs->size(); ++o) {
    const Stage& stage = dag_.stage(dag_.outputs()[o]);
    const int index = executable.BufferOfStage(dag_.outputs()[o]);
    if (index < 0) return absl::InternalError("the program has no buffer for output '" + stage.name + "'");
    Array& array = (*outputs)[o];
    array.dtype = stage.dtype;
    array.shape = stage.shape();
    array.data.resize(static_cast<size_t>(stage.elements() * BytesOf(stage.dtype)));
    RETURN_IF_ERROR(
        device_.CopyOut(array.data.data(), *executable.buffer(index), static_cast<int64_t>(array.data.size())));
  }
  return absl::OkStatus();
}

// Pieces from its first to its last element, of an output that is much larger than they are; else all of it.
absl::StatusOr<std::vector<Array>> CandidateRunner::Job::PartsOfOutput(int output, std::vector<int64_t>* begins) {
  const Stage& stage = dag_.stage(output);
  const int index = executable_->BufferOfStage(output);
  if (index < 0) return absl::InternalError("the program has no buffer for output '" + stage.name + "'");
  DeviceBuffer& buffer = *executable_->buffer(index);
  const int64_t width = BytesOf(stage.dtype), bytes = stage.elements() * width;
  const int64_t parts = bytes > 2 * kParts * kPartBytes ? kParts : 1;
  std::vector<Array> arrays;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t size = parts == 1 ? bytes : kPartBytes + (i + 1 == parts ? bytes % kViewAlignment : 0);
    const int64_t begin = parts == 1 ? 0 : (bytes - kPartBytes) / kViewAlignment * i / (parts - 1) * kViewAlignment;
    Array& array = arrays.emplace_back(stage.dtype, std::vector<int64_t>{size / width});
    begins->push_back(begin / width);
    if (parts == 1) {
      RETURN_IF_ERROR(device_.CopyOut(array.data.data(), buffer, bytes));
    } else {
      ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBuffer> view, device_.View(buffer, begin, size));
      RETURN_IF_ERROR(device_.CopyOut(array.data.data(), *view, size));
    }
  }
  return arrays;
}

// Whether the outputs are written and finite: a program that does nothing must not be taken for a fast one, nor one
// that skips some. Of what was stopped early, whose time is a label for the cost model and no more, pieces will do.
bool CandidateRunner::Job::Check() {
  StageClock clock(&seconds_.check);
  for (size_t o = 0; o < dag_.outputs().size() && stopped_early_; ++o) {
    std::vector<int64_t> begins;
    absl::StatusOr<std::vector<Array>> parts = PartsOfOutput(dag_.outputs()[o], &begins);
    if (!parts.ok()) return Fail(parts.status());
    for (size_t i = 0; i < parts->size(); ++i)
      if (!CheckWritten((*parts)[i], dag_.stage(dag_.outputs()[o]).name, begins[i])) return false;
  }
  if (stopped_early_) return true;
  std::vector<Array>& outputs = runner_.scratch_;
  if (absl::Status copied = Outputs(*executable_, &outputs); !copied.ok()) return Fail(copied);
  for (size_t o = 0; o < outputs.size(); ++o)
    if (!CheckWritten(outputs[o], dag_.stage(dag_.outputs()[o]).name, 0)) return false;
  return true;
}

// `first`: the number that the first element of `output` has in the whole.
bool CandidateRunner::Job::CheckWritten(const Array& output, const std::string& name, int64_t first) {
  const int64_t at = FirstNonFinite(output);
  if (at < 0) return true;  // poison is a NaN
  if (const int64_t unwritten = FirstUnwritten(output); unwritten >= 0) {
    std::string text = "element " + std::to_string(first + unwritten) + " of output '" + name +
                       "' was not written, or came from memory that was not";
    if (wants_verification()) SetUnboundedError(text);
    return Fail(ErrorKind::kWrongResult, text);
  }
  // With a reference at hand, the comparison tells whether that is right.
  if (wants_verification()) return true;
  return Fail(ErrorKind::kWrongResult,
              "element " + std::to_string(first + at) + " of output '" + name + "' is no finite number");
}

bool CandidateRunner::Job::Time() {
  StageClock clock(&seconds_.timing);
  const v1::TimingOptions& wanted = job_.timing();
  TimingOptions options;
  options.number = std::max<int64_t>(1, static_cast<int64_t>(wanted.number()));
  options.repeat = std::max<int>(1, static_cast<int>(wanted.repeat()));
  options.min_repeat_ms = wanted.min_repeat_ms();
  options.race_seconds = wanted.race() ? job_.best_seconds() : 0;
  const Caches caches = wanted.flush_cache() ? Caches::kFlushed : TargetOf(job_).caches;
  options.SetCaches(caches);
  options.has_run = true;
  // What starts early has the kernel in front in its time, others do not.
  share_of_ = absl::HashOf(caches, StartsEarly(executable_->program()), job_.workload());
  options.warm_share = runner_.warm_shares_.Of(share_of_, options.race_seconds);
  options.warm_seconds = &warm_seconds_;
  options.spare_buffers = &runner_.spare_buffers_;
  options.max_seconds = job_.max_timing_seconds() > 0 ? job_.max_timing_seconds() : options.max_seconds;
  if (caches == Caches::kNetwork && StartsEarly(executable_->program())) {
    absl::StatusOr<InPlace*> in_place = runner_.in_place_.Get();
    if (!in_place.ok()) return Fail(ErrorKind::kInfrastructure, std::string(in_place.status().message()));
    absl::StatusOr<std::vector<Launch>> writers = (*in_place)->Rewrite(*executable_);
    if (!writers.ok()) return Fail(writers.status());
    options.before = *std::move(writers);
    options.timed_before = [this, in_place = *in_place, seconds = options.max_seconds] {
      return in_place->TimedRewrite(*executable_, seconds);
    };
  }
  absl::StatusOr<Timing> timing = MeasureExecutable(*executable_, options);
  if (absl::IsResourceExhausted(timing.status())) {
    runner_.FreeWhatIsKept();
    options.timed_before = nullptr;
    timing = MeasureExecutable(*executable_, options);
  }
  if (!timing.ok()) return Fail(timing.status());
  std::string impossible = ImpossibleTiming(*timing, dag_, device_.facts());
  if (!impossible.empty()) return Fail(ErrorKind::kWrongResult, impossible);
  stopped_early_ = timing->stopped_early;
  seconds_of_run_ = MedianSeconds(*timing);
  ToProto(*timing, *reply_.mutable_timing());
  return true;
}

// A program that starts early is compared with itself behind a kernel that writes its inputs. What was stopped early is
// no one's best.
bool CandidateRunner::Job::CompareInPlace() {
  if (stopped_early_ || !StartsEarly(executable_->program())) return true;
  StageClock clock(&seconds_.check);
  absl::StatusOr<InPlace*> in_place = runner_.in_place_.Get();
  if (!in_place.ok()) return Fail(ErrorKind::kInfrastructure, std::string(in_place.status().message()));
  const absl::StatusOr<std::string> difference = (*in_place)->Compare(*executable_, kReplays);
  if (!difference.ok()) return Fail(difference.status());
  if (difference->empty()) return true;
  if (wants_verification()) SetUnboundedError(*difference);
  return Fail(ErrorKind::kWrongResult, *difference);
}

// The verification of a program whose outputs cannot be compared, or need not be.
void CandidateRunner::Job::SetUnboundedError(const std::string& text) {
  v1::Verification& verification = *reply_.mutable_verification();
  verification.set_max_abs_error(std::numeric_limits<double>::infinity());
  verification.set_max_rel_error(std::numeric_limits<double>::infinity());
  verification.set_text(text);
}

absl::Status CandidateRunner::Job::EvaluateReference() {
  std::vector<Array>& outputs = runner_.references_.outputs();
  if (!outputs.empty()) return absl::OkStatus();
  Release();  // the reference program keeps every intermediate tensor: room for it
  runner_.pool_.Clear();
  RETURN_IF_ERROR(Use(job_.reference_program()));
  RETURN_IF_ERROR(executable_->RunPrologue());
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable_->MakePlan());
  RETURN_IF_ERROR(plan->Run());
  const absl::Status copied = Outputs(*executable_, &outputs);
  if (!copied.ok()) outputs.clear();
  executable_.reset();
  taken_.clear();  // nobody else has buffers of these sizes
  return copied;
}

OutputComparison CandidateRunner::Job::CompareWithReference() const {
  return CompareOutputs(dag_, runner_.scratch_, runner_.references_.outputs(), TargetOf(job_).tf32);
}

bool CandidateRunner::Job::Verify() {
  Begin(MeasureStage::kVerify);
  StageClock clock(&seconds_.verify);
  const auto broken = [&](const absl::Status& status) {
    // Not the candidate's doing; a device that it broke shows when the candidate runs.
    reply_.set_device_lost(DeviceIsLost(status));
    return Fail(ErrorKind::kInfrastructure, "the reference implementation failed: " + std::string(status.message()));
  };
  if (absl::Status status = EvaluateReference(); !status.ok()) return broken(status);
  OutputComparison comparison = CompareWithReference();
  if (!comparison.ok && !runner_.references_.Intact()) {
    // An earlier candidate wrote where it should not: once more, with inputs made anew.
    runner_.references_.ForgetCurrent();
    Release();
    if (!Load() || !RunOnce() || !Check()) return false;
    Begin(MeasureStage::kVerify);
    if (absl::Status status = EvaluateReference(); !status.ok()) return broken(status);
    comparison = CompareWithReference();
  }
  v1::Verification& verification = *reply_.mutable_verification();
  verification.set_ok(comparison.ok);
  verification.set_max_abs_error(comparison.max_abs_error);
  verification.set_max_rel_error(comparison.max_rel_error);
  verification.set_tolerance(comparison.tolerance);
  verification.set_text(comparison.text);
  return comparison.ok || Fail(ErrorKind::kWrongResult, comparison.text);
}

CandidateRunner::CandidateRunner(Device& device, SourceCompiler compile)
    : device_(device),
      in_place_(device, std::move(compile)),
      pool_(device, device.kind() == TargetKind::kCuda ? kMostDeviceBytes : kMostHostBytes),
      spare_buffers_(device, kMostSpareBytes),
      references_(device, device.kind() == TargetKind::kCuda ? kMostDeviceBytes : kMostHostBytes, kMostHostBytes) {}

void CandidateRunner::FreeWhatIsKept() {
  references_.ForgetOthers();
  pool_.Clear();
  spare_buffers_.Clear();
  in_place_.Forget();
}

v1::RunReply CandidateRunner::Run(const v1::RunJob& job, const StageBegins& stage_begins) {
  v1::RunReply reply = Job(*this, job, stage_begins).Run();
  // What it left may be other numbers than were kept.
  if (reply.has_error() && reply.error().kind() == ErrorKindName(ErrorKind::kWrongResult)) {
    references_.ForgetCurrent();
    spare_buffers_.Clear();
    in_place_.Forget();
  }
  references_.Shrink();
  return reply;
}

}  // namespace diapason
