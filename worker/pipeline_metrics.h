// The metrics of a worker's processes and devices.
#pragma once

#include <vector>

#include "worker/metrics.h"
#include "worker/pipeline.h"

namespace diapason {

// As they are now. Safe from any thread.
std::vector<Metric> PipelineMetrics(Pipeline& pipeline);

}  // namespace diapason
