// What a worker refuses to build, whoever asks: a request past one of these limits costs an error and no more. Workers
// of one fleet should have the same, since a refusal is an error of the candidate and not tried elsewhere.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/program.h"

namespace diapason {

namespace v1 {
class RequestLimits;
}

struct RequestLimits {
  int64_t bytes = int64_t{16} << 20;           // of workload and schedule as they are sent
  int64_t nodes = int64_t{1} << 20;            // of the program's expressions, as trees; ParseDag takes no more
  int64_t steps = 1024;                        // of the schedule
  int64_t iterations = 1'000'000'000'000'000;  // of one stage's loops
  int64_t tensor_bytes = int64_t{64} << 30;    // of all tensors of the program, and of all buffers of its kernels
};

// The checks return OK or InvalidArgument, with both numbers and the option of `diapason worker` that allows more.

// Of a request as it arrives.
absl::Status CheckBytes(int64_t bytes, const RequestLimits& limits);
absl::Status CheckDag(const ComputeDag& dag, const RequestLimits& limits);
absl::Status CheckSchedule(const Schedule& schedule, const RequestLimits& limits);
// Of what was built, which may need workspaces that the request does not show.
absl::Status CheckProgram(const Program& program, const RequestLimits& limits);

void ToProto(const RequestLimits& limits, v1::RequestLimits& message);
RequestLimits FromProto(const v1::RequestLimits& message);

}  // namespace diapason
