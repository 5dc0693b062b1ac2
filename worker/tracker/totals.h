// What a tracker has done since it began, for metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "worker/rpc/metrics.h"
#include "worker/tracker/model.h"

namespace diapason::tracker {

struct Totals {
  uint64_t granted = 0, expired = 0;  // leases
  uint64_t shared = 0, bad_outcomes = 0;
  std::map<std::string, uint64_t> outcomes;  // by kind
  Distribution queued, build, run;           // seconds of each stage

  void Count(const v1::MeasureResult& result);
};

}  // namespace diapason::tracker
