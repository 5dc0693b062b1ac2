#include "worker/agent/leases.h"

#include <algorithm>
#include <utility>

namespace diapason {
namespace {

constexpr int kOutcomesPerReport = 128;

}  // namespace

bool AgentLeases::SetHandle(uint64_t lease, uint64_t handle) {
  const auto found = held_.find(lease);
  if (found == held_.end()) return false;
  found->second.handle = handle;
  return true;
}

std::optional<HeldLease> AgentLeases::Finish(uint64_t lease, const std::string& worker,
                                             const v1::MeasureResult& result) {
  std::optional<HeldLease> held = Remove(lease);
  if (!held) return held;
  v1::LeaseOutcome outcome;
  outcome.set_lease(lease);
  *outcome.mutable_result() = result;
  outcome.mutable_result()->mutable_times()->set_leased_at(held->leased_at);
  if (outcome.result().has_on()) outcome.mutable_result()->mutable_on()->set_worker(worker);
  outcomes_.push_back(std::move(outcome));
  return held;
}

std::optional<HeldLease> AgentLeases::Remove(uint64_t lease) {
  const auto found = held_.find(lease);
  if (found == held_.end()) return std::nullopt;
  HeldLease held = std::move(found->second);
  held_.erase(found);
  return held;
}

int AgentLeases::HeldOn(int device) const {
  return static_cast<int>(
      std::count_if(held_.begin(), held_.end(), [&](const auto& held) { return held.second.device == device; }));
}

std::vector<uint64_t> AgentLeases::all() const {
  std::vector<uint64_t> leases;
  for (const auto& [lease, held] : held_) leases.push_back(lease);
  return leases;
}

void AgentLeases::AddTo(v1::ReportRequest& request) const {
  for (const v1::LeaseOutcome& outcome : outcomes_)
    if (request.outcomes_size() < kOutcomesPerReport) *request.add_outcomes() = outcome;
  for (const auto& [lease, held] : held_) request.add_renew(lease);
}

}  // namespace diapason
