#include "worker/tracker/trials.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/process/convert.h"

namespace diapason::tracker {
namespace {

constexpr uint32_t kDefaultAttempts = 2;
constexpr uint32_t kMaxAttempts = 10;

double StageSeconds(int64_t began, int64_t ended) { return began > 0 ? static_cast<double>(ended - began) * 1e-9 : -1; }

}  // namespace

void Totals::Count(const v1::MeasureResult& result) {
  ++outcomes[OutcomeName(result)];
  const v1::StageTimes& times = result.times();
  queued.Add(times.queued_seconds());
  if (times.build_ended_at() > 0) build.Add(StageSeconds(times.build_started_at(), times.build_ended_at()));
  if (times.run_ended_at() > 0) run.Add(StageSeconds(times.run_started_at(), times.run_ended_at()));
}

bool Trials::Begin(const RequestPtr& request) const {
  parts_.groups.Join(request);
  if (request->parked) return false;
  if (const v1::MeasureResult* had = parts_.recent.Take(*request); had != nullptr) {
    ++parts_.totals.shared;
    LogTrial(LogLevel::kDebug, "trial_shared", *request, {});
    parts_.groups.Part(request);
    Deliver(request, *had);
    return false;
  }
  parts_.lines.Put(request, /*in_front=*/false);
  return true;
}

void Trials::Resume(const RequestPtr& request) const {
  parts_.groups.Join(request);
  if (!request->parked) parts_.lines.Put(request, /*in_front=*/false);
}

void Trials::Finish(RequestPtr request, v1::MeasureResult result, double race_seconds) const {
  const auto entry = request->queue->unfinished.find(request->message.id());
  if (entry == request->queue->unfinished.end() || entry->second != request) return;
  std::vector<RequestPtr> others = parts_.groups.Parked(request);
  std::erase_if(others, [&](const RequestPtr& other) { return !SpeaksFor(*other, result, race_seconds); });
  result.mutable_times()->set_queued_seconds(request->waited);
  parts_.totals.Count(result);
  const Session* session = parts_.workers.Find(request->session);
  parts_.recent.Keep(*request, session == nullptr ? "" : session->status.worker_id(), result, race_seconds);
  for (const RequestPtr& other : others) {
    ++parts_.totals.shared;
    parts_.recent.NoteHad(*other);
    parts_.groups.Part(other);
    LogTrial(LogLevel::kDebug, "trial_shared", *other, {{"of_job", request->queue->job()}});
    Deliver(other, result);
  }
  const bool waits = parts_.groups.Unpark(request);  // those that it says nothing for
  parts_.groups.Part(request);
  Deliver(request, std::move(result));
  if (waits) parts_.leases.Dispatch(request->device_class);
}

void Trials::Cancel(RequestPtr request, const std::string& reason) const {
  parts_.lines.Remove(request);
  if (Session* session = parts_.workers.Find(request->session);
      request->lease != 0 && session != nullptr && session->leases.contains(request->lease)) {
    if (const std::vector<RequestPtr> heirs = parts_.groups.Parked(request); !heirs.empty()) {
      parts_.leases.HandOver(*session, request->lease, heirs.front());
    } else {
      parts_.leases.Erase(*session, request->lease);
      session->revoked.push_back(request->lease);
      parts_.leases.Answer(*session);
    }
  }
  v1::MeasureResult result;
  result.mutable_cancelled()->set_reason(reason);
  Finish(request, std::move(result));
}

void Trials::Retry(const RequestPtr& request, v1::MeasureResult why) const {
  uint32_t allowed = request->message.max_attempts() > 0 ? request->message.max_attempts() : kDefaultAttempts;
  if (request->attempts < std::min(allowed, kMaxAttempts)) {
    const bool fault = IsInfrastructure(why);
    LogTrial(fault ? LogLevel::kWarning : LogLevel::kInfo, "trial_retried", *request,
             {{"why", fault ? why.error().text() : why.cancelled().reason()}});
    Requeue(request);
    parts_.journal.PutAttempts(*request);
    parts_.leases.Dispatch(request->device_class);
    return;
  }
  if (!why.has_error()) why = InfrastructureResult(MeasureStage::kQueue, "the worker stopped");
  Finish(request, std::move(why));
}

void Trials::GiveBack(const RequestPtr& request) const {
  --request->attempts;
  Requeue(request);
  parts_.journal.PutAttempts(*request);
}

void Trials::Requeue(const RequestPtr& request) const {
  parts_.groups.Unpark(request);
  parts_.lines.Put(request, /*in_front=*/true);
}

void Trials::Deliver(const RequestPtr& request, v1::MeasureResult result) const {
  parts_.lines.Remove(request);
  parts_.queues.Deliver(request, std::move(result));
}

}  // namespace diapason::tracker
