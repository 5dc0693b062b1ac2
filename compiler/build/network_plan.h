// A network as a worker is asked to assemble it (NetworkPlan in proto/diapason/v1/program.proto): tasks, steps and
// tensors without the values of large constants, which both sides make from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/graph/network.h"
#include "compiler/graph/partition.h"
#include "compiler/tensor/program.h"
#include "compiler/tensor/target.h"

namespace diapason {

namespace v1 {
class NetworkPlan;
}

// Constants are sent as they are while there is room, the smallest first and integers before all, since these may be
// indices: so many bytes. Of the others mean, deviation and range are sent.
inline constexpr int64_t kPlanConstantBytes = int64_t{2} << 20;

// REQUIRES: `partition` is of `network`.
void PlanNetwork(const Network& network, const Partition& partition, v1::NetworkPlan& plan);

// The network of a plan with values for all constants. The network has no nodes.
struct PlannedNetwork {
  Network network;
  Partition partition;
};

// `seed`: of constants that are made here; `gain`: their mean and deviation are multiplied by it. InvalidArgument for a
// plan that contradicts itself, with the reason; never crashes on any plan. `most_bytes`: of all tensors together.
absl::StatusOr<PlannedNetwork> ParseNetworkPlan(const v1::NetworkPlan& plan, uint64_t seed, double gain,
                                                int64_t most_bytes);

}  // namespace diapason
