#include "compiler/build/check_package.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/build/open_package.h"
#include "compiler/codegen/reference.h"
#include "compiler/runtime/cpu/thread_pool.h"
#include "compiler/runtime/executable.h"

namespace diapason {
namespace {

using Place = PackageTensor::Place;

// An output may be off by so many times its largest change under random errors, of which elements that are 0 have none:
// about half of them behind a relu.
constexpr double kAllowedChange = 6;
// By how many times a bound may be too small: numbers that cancel to a hundredth.
constexpr double kMostWidening = 100;
// Evaluations with random errors, until they have shown that elements jump where some may.
constexpr int kMostEvaluations = 8;
// An element that is so many times larger than typical ones belongs to a mask.
constexpr double kMaskRatio = 256;
// The largest relative error that is added to a task's result: two to four units in the last place of a narrow float;
// in float32 the error of sums of tens of thousands of terms, or of factors that are rounded to TensorFloat-32.
double LargestNoise(DType dtype, double tf32) {
  const double exact = IsNarrowFloat(dtype) ? 2 * SpacingOf(dtype) : 1e-4;
  return std::max(exact, std::min(tf32, 2 * SpacingOf(DType::kFloat16)));
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

// Adds a uniform random error to each element: at most the tolerance of a result of exact operands, which may itself be
// useless where a task takes exponentials, and at most the limits above. The large elements of masks stay as they are,
// and so do zeros: rows of padding are exactly 0 behind a product, and noise there would grow to 1 in a normalization
// of rows, and hide every other error. Of rounded integers, as many are moved by a step as the tolerance
// expects to be off by one.
void AddNoise(const Tolerance& tolerance, double tf32, std::mt19937_64& random, Array* result) {
  const auto chance = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  if (!IsFloat(result->dtype)) {
    for (int64_t i = 0, n = tolerance.jump > 0 ? result->elements() : 0; i < n; ++i) {
      const double value = result->at(i), moved = value + (chance() < 0.5 ? -1 : 1) * tolerance.jump;
      if (chance() >= tolerance.share) continue;
      result->set(i, moved);
      if (result->at(i) != moved) result->set(i, value);  // beyond the type's last value
    }
    return;
  }
  const double most = std::min(tolerance.relative, LargestNoise(result->dtype, tf32));
  const double scale = MagnitudeOf(*result);
  for (int64_t i = 0, n = result->elements(); i < n; ++i) {
    const double value = result->at(i), share = 2 * chance() - 1;
    if (std::isfinite(value) && value != 0 && std::fabs(value) <= kMaskRatio * scale)
      result->set(i, value + share * most * std::max(std::fabs(value), scale));
  }
}

// Copies a part of a tensor into the whole tensor.
void PutPart(const Array& part, const OutputPlace& place, std::vector<uint8_t>& whole) {
  const size_t bytes = BytesOf(part.dtype);
  for (int64_t i = 0; i < part.elements(); i += place.row)
    std::memcpy(whole.data() + place.At(i) * bytes, part.data.data() + i * bytes, place.row * bytes);
}

}  // namespace

// Runs the network a step at a time with every tensor in host memory.
class ReferenceNetwork::Impl {
 public:
  Impl(const Package& package, Device& device)
      : package_(package), manifest_(package_.manifest()), device_(device), tf32_(manifest_.target.tf32) {}
  absl::Status Prepare(std::vector<Program> reference_programs);
  absl::StatusOr<ExpectedOutputs> Run(const std::map<std::string, Array>& inputs);
  absl::Status WidenTolerances(const std::map<std::string, Array>& inputs, ExpectedOutputs* expected);

 private:
  // Compiles all tasks, as many at a time as there are cores: a compiler takes some 0.2 s.
  absl::StatusOr<std::vector<Program>> Compile();
  absl::StatusOr<Program> CompileTask(int task);
  absl::Status TakeConstants();
  // With `noise` (not null) random errors are added to what the step has computed.
  absl::Status RunStep(const PackageStep& step, std::mt19937_64* noise);
  absl::Status RunSteps(const std::map<std::string, Array>& inputs, std::mt19937_64* noise);
  absl::Status TakeInputs(const std::map<std::string, Array>& inputs);
  // The largest change of each output under random errors.
  absl::StatusOr<std::vector<double>> ChangesByNoise(const std::map<std::string, Array>& inputs,
                                                     const ExpectedOutputs& expected, uint64_t seed);
  // Replaces tolerances above kLargestBound by measured ones.
  absl::Status MeasureTolerances(const std::map<std::string, Array>& inputs, ExpectedOutputs* expected);
  // The tolerances of what the step has written, from those of what it read.
  void EstimateErrors(const PackageStep& step);
  double MagnitudeOfTensor(int tensor);

  const Package package_;
  const PackageManifest& manifest_;
  Device& device_;
  const double tf32_;
  std::vector<ComputeDag> dags_;
  std::vector<std::unique_ptr<Executable>> executables_;  // by task
  std::vector<Array> values_;                             // by tensor, flat
  std::vector<Tolerance> tolerances_;                     // by tensor
  bool wide_ = false;                                     // errors are those of predicted magnitudes
  std::map<int, double> magnitudes_;                      // of constants, by tensor, as far as they were asked for
};

absl::StatusOr<Program> ReferenceNetwork::Impl::CompileTask(int task) {
  Target target;
  target.kind = device_.kind();
  if (target.kind == TargetKind::kCuda) target.arch = device_.facts().arch;
  return CompileReference(dags_[task], target);
}

absl::StatusOr<std::vector<Program>> ReferenceNetwork::Impl::Compile() {
  const int count = static_cast<int>(manifest_.tasks.size());
  std::vector<absl::StatusOr<Program>> compiled(count, absl::UnknownError("not compiled"));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < std::min(count, UsableCores()); ++i)
    threads.emplace_back([&] {
      for (int task; (task = next.fetch_add(1)) < count;) compiled[task] = CompileTask(task);
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<Program> programs;
  for (absl::StatusOr<Program>& program : compiled) {
    if (!program.ok()) return program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

absl::Status ReferenceNetwork::Impl::Prepare(std::vector<Program> reference_programs) {
  const int count = static_cast<int>(manifest_.tasks.size());
  for (int task = 0; task < count; ++task) {
    ASSIGN_OR_RETURN(ComputeDag dag, ReadDag(package_, task));
    dags_.push_back(std::move(dag));
  }
  if (reference_programs.empty()) {
    ASSIGN_OR_RETURN(reference_programs, Compile());
  }
  DIAPASON_CHECK(static_cast<int>(reference_programs.size()) == count);
  for (Program& program : reference_programs) {
    ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Executable::Create(device_, std::move(program)));
    RETURN_IF_ERROR(executable->AllocateRest());
    executables_.push_back(std::move(executable));
  }
  return TakeConstants();
}

absl::Status ReferenceNetwork::Impl::TakeConstants() {
  ASSIGN_OR_RETURN(const PackageBytes weights, package_.ReadWeights());
  for (const PackageTensor& tensor : manifest_.tensors) {
    Array value(tensor.dtype, {tensor.elements});
    if (tensor.place == Place::kConstant)
      std::memcpy(value.data.data(), weights.bytes.data() + tensor.offset, tensor.bytes());
    values_.push_back(std::move(value));
  }
  tolerances_.assign(values_.size(), Tolerance{});
  return absl::OkStatus();
}

absl::Status ReferenceNetwork::Impl::RunStep(const PackageStep& step, std::mt19937_64* noise) {
  Executable& executable = *executables_[step.task];
  const ComputeDag& dag = dags_[step.task];
  const std::vector<int> inputs = dag.inputs(), &outputs = dag.outputs();
  const OutputPlace& place = manifest_.tasks[step.task].place;
  const auto fits = [&](const std::vector<int>& stages, const std::vector<int>& tensors) {
    if (stages.size() != tensors.size()) return false;
    for (size_t i = 0; i < stages.size(); ++i)
      if (dag.stage(stages[i]).elements() * BytesOf(dag.stage(stages[i]).dtype) !=
          manifest_.tensors[tensors[i]].bytes())
        return false;
    return true;
  };
  // That a part's tensor is large enough was seen when the manifest was read.
  const bool part_fits = !place.whole() && outputs.size() == 1 && place.Holds(dag.stage(outputs[0]).elements()) &&
                         dag.stage(outputs[0]).dtype == manifest_.tensors[step.outputs[0]].dtype;
  if (!fits(inputs, step.inputs) || !(place.whole() ? fits(outputs, step.outputs) : part_fits))
    return absl::DataLossError(absl::StrCat("package '", package_.dir(), "' is damaged: a step does not fit its task '",
                                            manifest_.tasks[step.task].name, "'; build the package again"));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<uint8_t>& value = values_[step.inputs[i]].data;
    DeviceBuffer& to = *executable.buffer(executable.BufferOfStage(inputs[i]));
    RETURN_IF_ERROR(device_.CopyIn(to, value.data(), static_cast<int64_t>(value.size())));
  }
  RETURN_IF_ERROR(executable.RunPrologue());
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable.MakePlan());
  RETURN_IF_ERROR(plan->Run());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Stage& stage = dag.stage(outputs[i]);
    Array result(stage.dtype, {stage.elements()});
    const DeviceBuffer& from = *executable.buffer(executable.BufferOfStage(outputs[i]));
    RETURN_IF_ERROR(device_.CopyOut(result.data.data(), from, static_cast<int64_t>(result.data.size())));
    if (noise != nullptr) AddNoise(ToleranceOf(dag, static_cast<int>(i), {}, tf32_), tf32_, *noise, &result);
    std::vector<uint8_t>& value = values_[step.outputs[i]].data;
    if (place.whole())
      value = std::move(result.data);
    else
      PutPart(result, place, value);
  }
  return absl::OkStatus();
}

double ReferenceNetwork::Impl::MagnitudeOfTensor(int tensor) {
  if (manifest_.tensors[tensor].place != Place::kConstant) return MagnitudeOf(values_[tensor]);
  const auto [known, added] = magnitudes_.try_emplace(tensor, 0);
  if (added) known->second = MagnitudeOf(values_[tensor]);
  return known->second;
}

void ReferenceNetwork::Impl::EstimateErrors(const PackageStep& step) {
  const ComputeDag& dag = dags_[step.task];
  const std::vector<int> inputs = dag.inputs();
  std::map<int, InputError> errors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double magnitude = MagnitudeOfTensor(step.inputs[i]);
    const Tolerance& of = tolerances_[step.inputs[i]];
    errors[inputs[i]] = {magnitude, of.relative * (wide_ ? std::max(magnitude, of.magnitude) : magnitude), of.jump,
                         of.share};
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const Tolerance one = ToleranceOf(dag, static_cast<int>(i), errors, tf32_);
    Tolerance& tensor = tolerances_[step.outputs[i]];  // of which another step may have written another part
    tensor.relative = std::max(tensor.relative, one.relative);
    tensor.magnitude = std::max(tensor.magnitude, one.magnitude);
    tensor.jump = std::max(tensor.jump, one.jump);
    tensor.share = std::max(tensor.share, one.share);
  }
}

absl::Status ReferenceNetwork::Impl::TakeInputs(const std::map<std::string, Array>& inputs) {
  for (const PackagePort& port : manifest_.inputs) {
    const auto given = inputs.find(port.name);
    if (given == inputs.end() || given->second.dtype != port.dtype || given->second.shape != port.shape)
      return absl::InvalidArgumentError(absl::StrCat("input '", port.name, "' must be given as ", port.TypeText()));
    values_[port.tensor].data = given->second.data;
  }
  return absl::OkStatus();
}

absl::Status ReferenceNetwork::Impl::RunSteps(const std::map<std::string, Array>& inputs, std::mt19937_64* noise) {
  RETURN_IF_ERROR(TakeInputs(inputs));
  for (const PackageStep& step : manifest_.steps) {
    RETURN_IF_ERROR(RunStep(step, noise));
    if (noise == nullptr) EstimateErrors(step);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ReferenceNetwork::Impl::ChangesByNoise(const std::map<std::string, Array>& inputs,
                                                                           const ExpectedOutputs& expected,
                                                                           uint64_t seed) {
  std::mt19937_64 noise(seed);
  RETURN_IF_ERROR(RunSteps(inputs, &noise));
  std::vector<double> changes;
  for (size_t i = 0; i < manifest_.outputs.size(); ++i) {
    Array changed(manifest_.outputs[i].dtype, manifest_.outputs[i].shape);
    changed.data = values_[manifest_.outputs[i].tensor].data;
    Tolerance tolerance = expected.tolerances[i];
    tolerance.jump = tolerance.share = 0;  // the noise makes elements jump as well
    changes.push_back(Compare(changed, expected.values[i], tolerance).max_rel_error);
  }
  return changes;
}

absl::Status ReferenceNetwork::Impl::MeasureTolerances(const std::map<std::string, Array>& inputs,
                                                       ExpectedOutputs* expected) {
  constexpr double kLeast = kLargestBound / 100;
  const auto useless = [](const Tolerance& tolerance) { return tolerance.relative > kLargestBound; };
  std::vector<double> largest(expected->tolerances.size(), 0);
  // Of outputs in which few elements jump, a single evaluation need not have one that does.
  const auto incomplete = [&](int evaluations) {
    for (size_t i = 0; i < largest.size(); ++i) {
      const Tolerance& tolerance = expected->tolerances[i];
      const bool may_jump = tolerance.share > 0 && kAllowedChange * largest[i] <= kLeast;
      if (useless(tolerance) && (evaluations == 0 || may_jump)) return evaluations < kMostEvaluations;
    }
    return false;
  };
  for (int evaluations = 0; incomplete(evaluations); ++evaluations) {
    ASSIGN_OR_RETURN(const std::vector<double> changes, ChangesByNoise(inputs, *expected, 1 + evaluations));
    for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], changes[i]);
  }
  for (size_t i = 0; i < largest.size(); ++i) {
    Tolerance& tolerance = expected->tolerances[i];
    if (!useless(tolerance)) continue;
    tolerance.jump = tolerance.share = 0;
    tolerance.relative = std::clamp(kAllowedChange * largest[i], kLeast, tolerance.relative);
  }
  return absl::OkStatus();
}

// Where numbers cancel, a tensor has the errors of the magnitude that was predicted, not of its own.
absl::Status ReferenceNetwork::Impl::WidenTolerances(const std::map<std::string, Array>& inputs,
                                                     ExpectedOutputs* expected) {
  wide_ = true;
  tolerances_.assign(values_.size(), Tolerance{});
  const absl::Status evaluated = RunSteps(inputs, nullptr);
  wide_ = false;
  RETURN_IF_ERROR(evaluated);
  std::vector<double> bounds;
  for (const PackagePort& port : manifest_.outputs) {
    const Tolerance& tolerance = tolerances_[port.tensor];
    const double magnitude = std::max(MagnitudeOf(values_[port.tensor]), std::numeric_limits<double>::min());
    bounds.push_back(tolerance.relative * std::max(1.0, tolerance.magnitude / magnitude));
  }
  ASSIGN_OR_RETURN(const std::vector<double> changes, ChangesByNoise(inputs, *expected, 1));
  for (size_t i = 0; i < changes.size(); ++i) {
    Tolerance& tolerance = expected->tolerances[i];
    if (tolerance.share > 0 || !IsFloat(expected->values[i].dtype)) continue;
    const double wider = std::max(bounds[i], kAllowedChange * changes[i]);
    tolerance.relative =
        std::max(tolerance.relative, std::min({wider, kMostWidening * tolerance.relative, kLargestBound}));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpectedOutputs> ReferenceNetwork::Impl::Run(const std::map<std::string, Array>& inputs) {
  tolerances_.assign(values_.size(), Tolerance{});
  RETURN_IF_ERROR(RunSteps(inputs, nullptr));
  ExpectedOutputs expected;
  for (const PackagePort& port : manifest_.outputs) {
    expected.values.emplace_back(port.dtype, port.shape).data = values_[port.tensor].data;
    expected.tolerances.push_back(tolerances_[port.tensor]);
  }
  RETURN_IF_ERROR(MeasureTolerances(inputs, &expected));
  return expected;
}

ReferenceNetwork::ReferenceNetwork(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReferenceNetwork::~ReferenceNetwork() = default;

absl::StatusOr<std::unique_ptr<ReferenceNetwork>> ReferenceNetwork::Create(const Package& package, Device& device,
                                                                           std::vector<Program> reference_programs) {
  auto impl = std::make_unique<Impl>(package, device);
  RETURN_IF_ERROR(impl->Prepare(std::move(reference_programs)));
  return std::unique_ptr<ReferenceNetwork>(new ReferenceNetwork(std::move(impl)));
}

absl::StatusOr<ExpectedOutputs> ReferenceNetwork::Run(const std::map<std::string, Array>& inputs) {
  return impl_->Run(inputs);
}

absl::Status ReferenceNetwork::WidenTolerances(const std::map<std::string, Array>& inputs, ExpectedOutputs* expected) {
  return impl_->WidenTolerances(inputs, expected);
}

CheckResult CompareOutputs(const std::vector<PackagePort>& ports, const std::vector<Array>& got,
                           const ExpectedOutputs& want) {
  DIAPASON_CHECK(ports.size() == got.size() && ports.size() == want.values.size() &&
                 ports.size() == want.tolerances.size());
  CheckResult result;
  result.ok = true;
  double most = 0;
  for (size_t i = 0; i < ports.size(); ++i) {
    const Array& expected = want.values[i];
    DIAPASON_CHECK(got[i].dtype == expected.dtype && got[i].shape == expected.shape);
    const Comparison one = Compare(got[i], expected, want.tolerances[i]);
    result.ok = result.ok && one.ok;
    result.max_abs_error = std::max(result.max_abs_error, one.max_abs_error);
    if (i == 0) result.tolerance = one.tolerance;
    if (one.worst < 0) continue;
    const double share = one.max_rel_error / one.tolerance;  // infinite for integers
    if (share <= most) continue;
    most = share;
    result.max_rel_error = one.max_rel_error;
    result.tolerance = one.tolerance;
    result.worst = absl::StrCat("'", ports[i].name, "' at element ", one.worst, ": ", Number(got[i].at(one.worst)),
                                " instead of ", Number(expected.at(one.worst)));
  }
  return result;
}

absl::StatusOr<ExpectedOutputs> EvaluateReference(const Package& package, Device& device,
                                                  const std::map<std::string, Array>& inputs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReferenceNetwork> reference, ReferenceNetwork::Create(package, device));
  return reference->Run(inputs);
}

absl::StatusOr<CheckResult> CheckPackage(PackageRunner& runner, const std::map<std::string, Array>& inputs) {
  RETURN_IF_ERROR(runner.Poison());  // what is not written must not look right because an earlier run, or another
                                     // buffer, left it there
  RETURN_IF_ERROR(runner.SetInputs(inputs));
  RETURN_IF_ERROR(runner.Run());
  ASSIGN_OR_RETURN(const std::vector<Array> got, runner.Outputs());
  std::unique_ptr<Device> cpu;
  Device* reference = &runner.device();
  if (reference->kind() == TargetKind::kOpenCl) {
    ASSIGN_OR_RETURN(cpu, OpenDevice(Target{}));
    reference = cpu.get();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ReferenceNetwork> network,
                   ReferenceNetwork::Create(runner.package(), *reference));
  ASSIGN_OR_RETURN(ExpectedOutputs want, network->Run(inputs));
  CheckResult result = CompareOutputs(runner.manifest().outputs, got, want);
  if (result.ok) return result;
  RETURN_IF_ERROR(network->WidenTolerances(inputs, &want));
  return CompareOutputs(runner.manifest().outputs, got, want);
}

}  // namespace diapason
