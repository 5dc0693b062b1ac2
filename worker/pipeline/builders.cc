#include "worker/pipeline/builders.h"

#include <algorithm>
#include <utility>

#include "worker/process/convert.h"

namespace diapason::pipeline {

void Builders::Add(std::unique_ptr<ProcessSlot> slot) {
  places_.push_back(std::make_unique<Place>());
  places_.back()->slot = std::move(slot);
}

void Builders::Advance(Instant now) {
  for (auto& place : places_) {
    for (const SlotEvent& event : place->slot->Advance(now)) OnEvent(*place, event);
  }
}

void Builders::Begin(Instant now) {
  for (auto& place : places_) {
    if (quiet_holders_ > 0) return;
    if (!place->slot->idle()) continue;
    std::optional<BuildTask> task = builds_.Next();
    if (!task.has_value()) return;
    place->timeout = Timeout(options_, task->job->request.build_timeout_seconds(), options_.build_timeout_seconds);
    place->stage = MeasureStage::kInstantiate;
    v1::ProcessMessage message;
    v1::BuildJob& build = *message.mutable_build();
    build = builds_.BuildJobOf(*task);
    // Ours is the deadline that counts: it stands still in pauses, of which the builder knows nothing.
    build.set_timeout_seconds(options_.max_timeout_seconds);
    place->task = std::move(task);
    place->slot->Begin(message, place->timeout, now);
  }
}

void Builders::Quiet(bool quiet, Instant now) {
  quiet_holders_ += quiet ? 1 : -1;
  if (quiet_holders_ != (quiet ? 1 : 0)) return;
  for (auto& place : places_) quiet ? place->slot->Pause(now) : place->slot->Resume(now);
}

void Builders::ForEach(const std::function<void(const ProcessSlot& slot)>& visit) const {
  for (const auto& place : places_) visit(*place->slot);
}

void Builders::AddTo(v1::WorkerStatistics& statistics) const {
  double seconds = 0;
  uint64_t restarts = 0;
  for (const auto& place : places_) {
    seconds += place->slot->busy_seconds();
    restarts += place->slot->restarts();
  }
  statistics.set_builder_busy_seconds(seconds);
  statistics.set_builder_restarts(restarts);
  statistics.set_builders(static_cast<uint32_t>(places_.size()));
}

void Builders::OnEvent(Place& place, const SlotEvent& event) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: place.start_failures = 0; break;
    case SlotEvent::Kind::kStartFailure:
      place.start_failures = event.failures;
      GiveUpIfNoneStarts(event.text);
      break;
    case SlotEvent::Kind::kLoss: OnLost(place, event); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_built()) {
        counts_.set_builds(counts_.builds() + 1);
        builds_.Built(*std::exchange(place.task, std::nullopt), *event.message->mutable_built());
      }
      if (event.message->has_progress())
        place.stage = ParseStage(event.message->progress().stage()).value_or(place.stage);
      break;
  }
}

void Builders::OnLost(Place& place, const SlotEvent& loss) {
  BuildTask task = *std::exchange(place.task, std::nullopt);
  counts_.set_builds(counts_.builds() + 1);
  switch (loss.loss) {
    case LossKind::kDeadline:
      return builds_.Failed(task, ErrorKind::kBuildTimeout, place.stage,
                            WithDetail("not built within " + SecondsText(place.timeout), loss.text));
    case LossKind::kCrash: return builds_.Failed(task, ErrorKind::kBuildCrash, place.stage, "builder: " + loss.text);
    case LossKind::kOutOfMemory:
      return builds_.Failed(task, ErrorKind::kOutOfMemory, place.stage, "builder: " + loss.text);
    case LossKind::kKilled:
      return builds_.Failed(task, ErrorKind::kInfrastructure, place.stage, "builder: " + loss.text);
  }
}

void Builders::GiveUpIfNoneStarts(const std::string& text) {
  const bool none = std::all_of(places_.begin(), places_.end(),
                                [](const auto& place) { return place->start_failures >= kMaxStartFailures; });
  if (none) builds_.GiveUp("no builder starts: " + text);
}

}  // namespace diapason::pipeline
