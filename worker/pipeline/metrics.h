// The metrics of a worker's processes and devices.
#pragma once

#include <vector>

#include "worker/pipeline/pipeline.h"
#include "worker/rpc/metrics.h"

namespace diapason {

// As they are now. Safe from any thread.
std::vector<Metric> PipelineMetrics(Pipeline& pipeline);

}  // namespace diapason
