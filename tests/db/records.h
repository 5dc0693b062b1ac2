// Records for tests of the history, and for what fuzzes it.
#pragma once

#include <string>

#include "db/history.h"

namespace diapason {

// A record that was timed, with every field set.
inline TuningRecord TimedRecord(const std::string& workload_key = "conv2d-1a2b", double seconds = 1.25e-5) {
  TuningRecord record;
  record.workload_key = workload_key;
  record.workload = "dag of " + workload_key + std::string("\0\x01\xff", 3);
  record.task_name = "conv2d_relu";
  record.target = "cuda -arch=sm_90";
  record.device_model = "NVIDIA H200";
  record.device_uuid = "GPU-0001";
  record.rewrite = "gemm";
  record.sketch = "tile+shared";
  record.schedule = std::string("steps\0\x80", 7);
  record.configuration = {4, -1, 2147483647, -2147483648};
  record.configuration_hash = 0xfedcba9876543210u;
  record.outcome = Timing{{seconds * 1.1, seconds, seconds * 0.9}, 100, false, 0.75, 0.0625};
  record.predicted = 0.1 + 0.2;
  record.seed = 0xffffffffffffffffu;
  record.trial = 17;
  record.clocks = {1980, 2619, 3400};
  record.driver = "550.54";
  record.compiler = "nvrtc 12.4";
  return record;
}

inline TuningRecord FailedRecord(ErrorKind kind = ErrorKind::kRunTimeout, const std::string& key = "conv2d-1a2b") {
  TuningRecord record = TimedRecord(key);
  record.outcome = MeasureError{kind, MeasureStage::kRun, "the kernel did not finish in 10 s"};
  record.predicted.reset();
  return record;
}

}  // namespace diapason
