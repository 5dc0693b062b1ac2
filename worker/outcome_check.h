// Whether what a worker answers can be an outcome of what it was asked. Used where outcomes arrive: by the tracker, and
// again by who asked it.
#pragma once

#include <string>

namespace diapason {

namespace v1 {
class MeasureRequest;
class MeasureResult;
}  // namespace v1

// Cuts texts to their limits (worker/message_limits.h), and drops fields that this program does not know.
void TrimOutcome(v1::MeasureResult& result);

// Why it cannot be, in a clause: "its timing has 0 launches"; empty: nothing speaks against it. `flops`: float32 peak of
// the device that measured; 0: unknown. REQUIRES: TrimOutcome was called.
std::string FaultOfOutcome(const v1::MeasureRequest& request, const v1::MeasureResult& result, double flops);

}  // namespace diapason
