#include "worker/process/convert.h"

#include "compiler/tensor/device_facts.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"

namespace diapason {

std::string Printable(const std::string& text) {
  std::string result;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    result += plain ? c : '?';
  }
  return result;
}

std::string CutMiddle(const std::string& text, size_t most) {
  constexpr char kGap[] = "\n...\n";
  if (text.size() <= most) return text;
  size_t half = (most - sizeof(kGap)) / 2;
  return text.substr(0, half) + kGap + text.substr(text.size() - half);
}

void ToProto(const DeviceFacts& facts, v1::DeviceFacts& message) {
  message.set_model(facts.model);
  message.set_uuid(facts.uuid);
  message.set_num_cores(facts.num_cores);
  message.set_max_threads_per_block(facts.max_threads_per_block);
  message.set_max_shared_bytes(facts.max_shared_bytes);
  message.set_shared_bytes_per_core(facts.shared_bytes_per_core);
  message.set_registers_per_core(facts.registers_per_core);
  message.set_max_registers_per_thread(facts.max_registers_per_thread);
  message.set_max_threads_per_core(facts.max_threads_per_core);
  message.set_warp_size(facts.warp_size);
  message.set_max_cluster(facts.max_cluster);
  message.set_vector_bytes(facts.vector_bytes);
  message.set_num_vector_registers(facts.num_vector_registers);
  message.set_l1_bytes(facts.l1_bytes);
  message.set_l2_bytes(facts.l2_bytes);
  message.set_l3_bytes(facts.l3_bytes);
  message.set_clock_hz(facts.clock_hz);
  message.set_flops(facts.flops);
  message.set_bandwidth(facts.bandwidth);
  message.set_l2_bandwidth(facts.l2_bandwidth);
  message.set_launch_seconds(facts.launch_seconds);
  message.set_arch(facts.arch);
  message.set_driver(facts.driver);
}

DeviceFacts FromProto(const v1::DeviceFacts& message) {
  DeviceFacts facts;
  facts.model = message.model();
  facts.uuid = message.uuid();
  facts.num_cores = message.num_cores();
  facts.max_threads_per_block = message.max_threads_per_block();
  facts.max_shared_bytes = message.max_shared_bytes();
  facts.shared_bytes_per_core = message.shared_bytes_per_core();
  facts.registers_per_core = message.registers_per_core();
  facts.max_registers_per_thread = message.max_registers_per_thread();
  facts.max_threads_per_core = message.max_threads_per_core();
  facts.warp_size = message.warp_size();
  facts.max_cluster = message.max_cluster();
  facts.vector_bytes = message.vector_bytes();
  facts.num_vector_registers = message.num_vector_registers();
  facts.l1_bytes = message.l1_bytes();
  facts.l2_bytes = message.l2_bytes();
  facts.l3_bytes = message.l3_bytes();
  facts.clock_hz = message.clock_hz();
  facts.flops = message.flops();
  facts.bandwidth = message.bandwidth();
  facts.l2_bandwidth = message.l2_bandwidth();
  facts.launch_seconds = message.launch_seconds();
  facts.arch = message.arch();
  facts.driver = message.driver();
  return facts;
}

absl::StatusOr<DeviceFacts> CheckedFacts(const v1::DeviceDescription& device) {
  absl::StatusOr<Target> target = Target::Parse(device.target());
  if (!target.ok()) return target.status();
  DeviceFacts facts = FromProto(device.facts());
  if (absl::Status checked = CheckFacts(facts, target->kind); !checked.ok()) return checked;
  return facts;
}

void ToProto(const Timing& timing, v1::Timing& message) {
  message.mutable_samples()->Assign(timing.samples.begin(), timing.samples.end());
  message.set_number(timing.number);
  message.set_stopped_early(timing.stopped_early);
  message.set_build_seconds(timing.build_seconds);
  message.set_run_seconds(timing.run_seconds);
}

Timing FromProto(const v1::Timing& message) {
  Timing timing;
  timing.samples.assign(message.samples().begin(), message.samples().end());
  timing.number = message.number();
  timing.stopped_early = message.stopped_early();
  timing.build_seconds = message.build_seconds();
  timing.run_seconds = message.run_seconds();
  return timing;
}

void ToProto(const MeasureError& error, v1::MeasureError& message) {
  SetError(error.kind, error.stage, error.text, message);
}

MeasureError FromProto(const v1::MeasureError& message) {
  return {ParseErrorKind(message.kind()).value_or(ErrorKind::kUnknown),
          ParseStage(message.stage()).value_or(MeasureStage::kUnknown), message.text()};
}

void SetError(ErrorKind kind, MeasureStage stage, const std::string& text, v1::MeasureError& message) {
  message.set_kind(ErrorKindName(kind));
  message.set_stage(StageName(stage));
  message.set_text(CutMiddle(Printable(text)));
}

v1::MeasureResult InfrastructureResult(MeasureStage stage, const std::string& text) {
  v1::MeasureResult result;
  SetError(ErrorKind::kInfrastructure, stage, text, *result.mutable_error());
  return result;
}

bool IsInfrastructure(const v1::MeasureResult& result) {
  return result.has_error() && result.error().kind() == ErrorKindName(ErrorKind::kInfrastructure);
}

std::string OutcomeName(const v1::MeasureResult& result) {
  if (result.has_timing()) return "timing";
  return result.has_cancelled() ? "cancelled" : ErrorKindName(FromProto(result.error()).kind);
}

}  // namespace diapason
