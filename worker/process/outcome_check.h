// Whether what a worker answers can be an outcome of what it was asked. Used where outcomes arrive: by the tracker, and
// again by who asked it.
#pragma once

#include <string>

namespace diapason {

namespace v1 {
class DeviceFacts;
class MeasureRequest;
class MeasureResult;
}  // namespace v1

// Cuts texts to their limits (worker/rpc/message_limits.h), and drops fields that this program does not know.
void TrimOutcome(v1::MeasureResult& result);

// Why it cannot be, in a clause: "its timing has 0 launches"; empty: nothing speaks against it. `facts`: of the
// device that measured; null: unknown. REQUIRES: TrimOutcome was called.
std::string FaultOfOutcome(const v1::MeasureRequest& request, const v1::MeasureResult& result,
                           const v1::DeviceFacts* facts);

}  // namespace diapason
