// The messages of proto/diapason/v1 and the structs that they mirror.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/target.h"

namespace diapason {

namespace v1 {
class DeviceDescription;
class DeviceFacts;
class MeasureError;
class MeasureResult;
class Timing;
}  // namespace v1

// Longer texts are cut in the middle: the beginning names the fault, the end is what a compiler or a crash says last.
inline constexpr size_t kMaxErrorText = 4096;

void ToProto(const DeviceFacts& facts, v1::DeviceFacts& message);
DeviceFacts FromProto(const v1::DeviceFacts& message);
// The facts of a worker's device, where they can be those of a device of its target. InvalidArgument: CheckFacts, or
// the target is none.
absl::StatusOr<DeviceFacts> CheckedFacts(const v1::DeviceDescription& device);

void ToProto(const Timing& timing, v1::Timing& message);
Timing FromProto(const v1::Timing& message);

void ToProto(const MeasureError& error, v1::MeasureError& message);
MeasureError FromProto(const v1::MeasureError& message);

// Fit for the wire: what is no printable ASCII becomes '?'. protobuf refuses strings that are no UTF-8, and compilers
// quote whatever stands in their input.
std::string Printable(const std::string& text);
// At most `most` bytes: longer texts without their middle.
std::string CutMiddle(const std::string& text, size_t most = kMaxErrorText);

// `text` as an error of this kind and stage, fit for the wire: valid UTF-8 of at most kMaxErrorText bytes.
void SetError(ErrorKind kind, MeasureStage stage, const std::string& text, v1::MeasureError& message);
// An error that says nothing of the candidate.
v1::MeasureResult InfrastructureResult(MeasureStage stage, const std::string& text);
// Whether the outcome of a result speaks of the candidate (compiler/runtime/outcome.h).
bool IsInfrastructure(const v1::MeasureResult& result);
// "timing", "cancelled", or the name of the error's kind: for logs and metrics.
std::string OutcomeName(const v1::MeasureResult& result);

}  // namespace diapason
