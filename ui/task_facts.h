// What a roofline plot needs of tasks and devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace diapason {

struct TaskFacts {
  double flops = 0;   // ComputeDag::flops
  double bytes = 0;   // of inputs, constants and outputs, each moved once
  std::string dtype;  // of the outputs: "float32"
};

// Of a workload's bytes (SerializeDag); nothing for bytes that are no dag.
std::optional<TaskFacts> FactsOfWorkload(const std::string& workload);

struct Roofs {
  struct Compute {
    std::string name;  // "float32", "float16 on tensor cores", "int8 on tensor cores"
    double flops_per_second = 0;
  };
  std::vector<Compute> compute;
  double bytes_per_second = 0;  // device memory
};

// What the estimates assume of a device. Nothing where only the device itself could say: for opencl, for a processor
// other than this machine's and for a GPU other than the one that stands for its architecture (DefaultFacts).
std::optional<Roofs> RoofsOf(const std::string& target, const std::string& device_model);

}  // namespace diapason
