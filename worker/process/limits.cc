#include "worker/process/limits.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "diapason/v1/process.pb.h"

namespace diapason {
namespace {

absl::Status TooMuch(const std::string& what, const std::string& limit, const char* option) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ", more than the ", limit, " that this worker takes; start it with a larger ", option));
}

std::string Gib(double bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g GiB", bytes / (int64_t{1} << 30));
  return text;
}

absl::Status CheckTensors(const char* what, double bytes, const RequestLimits& limits) {
  if (bytes <= static_cast<double>(limits.tensor_bytes)) return absl::OkStatus();
  return TooMuch(absl::StrCat(what, " need ", Gib(bytes)), Gib(static_cast<double>(limits.tensor_bytes)),
                 "--max-tensor-gib");
}

// In doubles, which do not overflow.
double Iterations(const Stage& stage) {
  if (stage.placeholder) return 0;
  return static_cast<double>(stage.elements()) * static_cast<double>(stage.terms());
}

}  // namespace

absl::Status CheckBytes(int64_t bytes, const RequestLimits& limits) {
  if (bytes <= limits.bytes) return absl::OkStatus();
  return TooMuch(absl::StrCat("the request has ", bytes, " bytes"), absl::StrCat(limits.bytes), "--max-request-mib");
}

absl::Status CheckDag(const ComputeDag& dag, const RequestLimits& limits) {
  int64_t nodes = 0;
  double bytes = 0;
  for (const Stage& stage : dag.stages()) {
    if (stage.body != nullptr) Visit(stage.body, [&nodes](const ExprNode&) { ++nodes; });
    bytes += static_cast<double>(stage.elements()) * BytesOf(stage.dtype);
    const double iterations = Iterations(stage);
    if (iterations > static_cast<double>(limits.iterations)) {
      return TooMuch(absl::StrCat("stage '", stage.name, "' has ", iterations, " iterations"),
                     absl::StrCat(static_cast<double>(limits.iterations)), "--max-iterations");
    }
  }
  if (nodes > limits.nodes) {
    return TooMuch(absl::StrCat("the program has ", nodes, " nodes of expressions"), absl::StrCat(limits.nodes),
                   "--max-nodes");
  }
  return CheckTensors("the program's tensors", bytes, limits);
}

absl::Status CheckSchedule(const Schedule& schedule, const RequestLimits& limits) {
  if (static_cast<int64_t>(schedule.steps.size()) <= limits.steps) return absl::OkStatus();
  return TooMuch(absl::StrCat("the schedule has ", schedule.steps.size(), " steps"), absl::StrCat(limits.steps),
                 "--max-steps");
}

absl::Status CheckProgram(const Program& program, const RequestLimits& limits) {
  double bytes = 0;
  for (const ProgramBuffer& buffer : program.buffers)
    bytes += static_cast<double>(buffer.elements) * BytesOf(buffer.dtype);
  return CheckTensors("the buffers of its kernels", bytes, limits);
}

void ToProto(const RequestLimits& limits, v1::RequestLimits& message) {
  message.set_bytes(limits.bytes);
  message.set_nodes(limits.nodes);
  message.set_steps(limits.steps);
  message.set_iterations(limits.iterations);
  message.set_tensor_bytes(limits.tensor_bytes);
}

RequestLimits FromProto(const v1::RequestLimits& message) {
  return {message.bytes(), message.nodes(), message.steps(), message.iterations(), message.tensor_bytes()};
}

}  // namespace diapason
