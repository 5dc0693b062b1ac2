// What a runner keeps between candidates beside buffers (compiler/runtime/buffer_pool.h), so that one costs little more
// than its own runs: of the workloads seen last their inputs (on the device) and reference outputs (on the host).
//
// For a candidate of ResNet-50 at batch 16 (inputs and outputs of up to 51 MB) making these anew took some 100 ms, and
// its runs 5. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The inputs of a workload for a seed, and what the reference program makes of them.
class References {
 public:
  // The least recently used go when there are more than so many bytes of inputs or of outputs; the last one used stays.
  References(Device& device, int64_t most_input_bytes, int64_t most_output_bytes)
      : device_(device), most_input_bytes_(most_input_bytes), most_output_bytes_(most_output_bytes) {}

  // Takes up a workload: what follows is about it. `workload`: SerializeDag(dag), which must live until the next.
  void Use(const std::string& workload, const ComputeDag& dag, uint64_t seed);
  // Copies the input of a placeholder (RandomInput) to a buffer of its size. It is made once; kernels never see the one
  // that is kept.
  absl::Status Fill(int stage, DeviceBuffer& to);
  // Outputs of the reference program, empty until they were set.
  std::vector<Array>& outputs() { return entries_.front().outputs; }
  // Whether the inputs that are kept are what they were made as: a kernel may have written outside of its buffers.
  bool Intact();
  // Forgets what is kept of the workload in use, or of all others.
  void ForgetCurrent();
  void ForgetOthers();
  void Shrink();

 private:
  struct Entry {
    std::string key;
    std::map<int, std::unique_ptr<DeviceBuffer>> inputs;  // by placeholder
    std::vector<Array> outputs;
    int64_t input_bytes() const;
    int64_t output_bytes() const;
  };

  Device& device_;
  const int64_t most_input_bytes_, most_output_bytes_;
  const ComputeDag* dag_ = nullptr;
  uint64_t seed_ = 0;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace diapason
