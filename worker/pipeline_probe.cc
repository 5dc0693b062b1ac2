// The health of devices: probes after what may have left one sick, quarantine, and the reference kernel.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/serialize.h"
#include "worker/convert.h"
#include "worker/pipeline_impl.h"

namespace diapason {
namespace {

constexpr int kMaxFailedProbes = 2;
constexpr double kLongestPause = 600;

// Small, so that it is built and run in no time anywhere: 65,536 numbers, doubled.
const std::string& ProbeWorkload() {
  static const std::string workload = [] {
    constexpr int64_t kElements = 1 << 16;
    DagBuilder b;
    int x = b.Placeholder("x", {kElements});
    int y =
        b.Compute("y", {kElements}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, {i[0]}), b.At(x, {i[0]})); });
    return SerializeDag(b.Build({y}).value());
  }();
  return workload;
}

}  // namespace

std::optional<Instant> Pipeline::Impl::NextProbe(const RunnerPlace& place) const {
  if (place.probe != nullptr || !place.slot->idle()) return std::nullopt;
  if (place.suspect || options_.reference_interval_seconds > 0) return place.probe_at;
  return std::nullopt;
}

void Pipeline::Impl::BeginProbes(Instant now) {
  for (size_t d = 0; d < runners_.size(); ++d) {
    RunnerPlace& place = *runners_[d];
    std::optional<Instant> due = NextProbe(place);
    if (!due.has_value() || now < *due) continue;
    auto probe = std::make_shared<Job>();
    probe->probe = true;
    probe->device = static_cast<int>(d);
    probe->target = place.target.ToString();
    probe->request.set_workload(ProbeWorkload());
    probe->request.set_target(probe->target);
    probe->request.set_mode(v1::MEASURE_MODE_TIME_AND_VERIFY);
    probe->request.mutable_timing()->set_repeat(3);
    probe->request.mutable_timing()->set_min_repeat_ms(5);
    probe->request.set_run_timeout_seconds(options_.probe_timeout_seconds);
    probe->request.set_verify_timeout_seconds(options_.probe_timeout_seconds);
    place.probe = probe;
    WantReference(probe);
    probe->program = probe->reference;  // when it was built before
    RunIfBuilt(probe);
  }
}

// No other work until a probe says that the device is well.
void Pipeline::Impl::Suspect(RunnerPlace& place, const std::string& why, Instant now) {
  if (place.state == v1::DEVICE_STATE_QUARANTINED) return;
  if (!place.suspect) place.failed_probes = 0;
  place.suspect = true;
  place.probe_at = now;
  place.state = v1::DEVICE_STATE_RESTARTING;
  place.state_text = why;
}

void Pipeline::Impl::ProbeEnded(const JobPtr& probe, Instant now) {
  RunnerPlace& place = *runners_[probe->device];
  place.probe.reset();
  const v1::MeasureResult& result = probe->result;
  place.probe_at = now + Seconds(options_.reference_interval_seconds);
  // Without a probe there is nothing to hold against the device.
  bool not_built = result.has_error() && probe->program == nullptr;
  if (!result.has_error() || not_built) {
    if (result.has_timing() && result.timing().samples_size() > 0)
      place.reference_seconds = MedianSeconds(FromProto(result.timing()));
    place.suspect = false;
    place.failed_probes = place.quarantines = 0;
    place.state = v1::DEVICE_STATE_READY;
    place.state_text.clear();
    return;
  }
  std::string why = "a health probe failed (" + result.error().kind() + "): " + result.error().text();
  Suspect(place, why, now);
  if (place.slot->idle()) place.slot->Replace(now);
  if (++place.failed_probes >= kMaxFailedProbes) Quarantine(place, why, now);
}

void Pipeline::Impl::Quarantine(RunnerPlace& place, const std::string& why, Instant now) {
  place.suspect = true;
  place.state = v1::DEVICE_STATE_QUARANTINED;
  place.state_text = why;
  double pause = options_.first_probe_again_seconds * std::pow(2.0, std::min(place.quarantines++, 20));
  // A runner that does not start is started again by its slot; it is probed as soon as it does.
  bool starts = place.start_failure.empty();
  place.probe_at = starts ? now + Seconds(std::min(pause, kLongestPause)) : now;
  for (const JobPtr& job : std::exchange(place.waiting, {})) {
    if (job->probe) {
      job->finished = true;
      place.probe.reset();
    } else {
      Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, why);
    }
  }
}

}  // namespace diapason
