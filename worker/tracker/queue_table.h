// The queues of coordinators: what they hold, how much they may hold, and their results until these are acknowledged.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/model.h"

namespace diapason::tracker {

class QueueTable {
 public:
  // `incarnation`: of the tracker, for its answers.
  QueueTable(const TrackerOptions& options, const AwakeClock& clock, Journal& journal, uint64_t incarnation)
      : options_(options), clock_(clock), journal_(journal), incarnation_(incarnation) {}

  const Queues& queues() const { return queues_; }
  size_t stored_bytes() const { return stored_bytes_; }  // of all requests and results

  // ResourceExhausted when there may not be one more queue of `owner`.
  absl::Status CheckOpen(const std::string& owner) const;
  // Not stored.
  Queue& Add(const std::string& id, const v1::OpenRequest& open);
  Queue* Find(const std::string& id) const;
  // REQUIRES: it has no unfinished requests.
  void Erase(const std::string& id);

  // InvalidArgument, naming the request, when it cannot be measured as it is.
  absl::Status CheckRequest(const v1::MeasureRequest& request) const;
  // ResourceExhausted when the queue may not have so many more.
  absl::Status CheckRoom(const Queue& queue, size_t requests, size_t bytes) const;
  // Not stored, and in no line.
  RequestPtr AddRequest(Queue& queue, const v1::MeasureRequest& message, int64_t submitted_at);
  // One of the store.
  void AddResult(Queue& queue, v1::MeasureResult result);
  // The unfinished request, which is in no line, becomes a result. By value: it may be the table's own pointer.
  void Deliver(RequestPtr request, v1::MeasureResult result);
  // The coordinator has the results up to this one.
  void Acknowledge(Queue& queue, uint64_t sequence);

  // Answers when there are results, or the time is over.
  void Wait(Queue& queue, const v1::NextRequest& request, Tracker::Reply<v1::NextResponse> reply);
  // Nothing if nobody waits.
  void Answer(Queue& queue, absl::Status status = absl::OkStatus());

 private:
  struct Usage {
    int64_t queues = 0, requests = 0, bytes = 0;
  };

  // What a queue holds counts for the tracker, and for who opened it.
  void Charge(const Queue& queue, int64_t requests, int64_t bytes);

  const TrackerOptions& options_;
  const AwakeClock& clock_;
  Journal& journal_;
  const uint64_t incarnation_;
  Queues queues_;
  uint64_t next_number_ = 1;
  size_t stored_bytes_ = 0;
  std::map<std::string, Usage> usage_;  // by owner of queues; those that have some
};

}  // namespace diapason::tracker
