// What a tracker knows of queues, their requests, and the sessions of workers. The parts of the tracker share these
// structs; a part says in its header which of them, or which members, it alone changes.
//
// All parts are behind the one lock of the tracker (worker/tracker/tracker.cc): none has a lock of its own, and each
// call of any of them is made with that one held.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "worker/rpc/log.h"
#include "worker/tracker/id_set.h"
#include "worker/tracker/options.h"
#include "worker/tracker/tracker.h"

namespace diapason::tracker {

using Clock = TrackerOptions::Clock;
using Labels = google::protobuf::Map<std::string, std::string>;

struct Queue;

// A measurement on its way.
struct Request {
  v1::MeasureRequest message;
  Queue* queue = nullptr;
  std::string device_class;
  uint32_t attempts = 0;
  std::set<std::string> tried;                      // ids of workers that had it
  std::map<std::string, std::string> lost_runners;  // by id of the worker: what it said of its lost runner
  int64_t submitted_at = 0;                         // Unix nanoseconds
  size_t bytes = 0;
  Clock::time_point submitted;
  std::string session;                       // that has the lease
  std::optional<Clock::time_point> give_up;  // queue timeout
  uint64_t lease = 0;                        // 0: pending
  double waited = 0;                         // seconds from its submission to its (last) lease
  std::string share_key;                     // of its group; empty: it is in none
  bool parked = false;                       // in no line, since another one of its group has a lease
};
// Shared by its queue's table, a line of the queue, its group and a lease.
using RequestPtr = std::shared_ptr<Request>;

struct Queue {
  std::string id;
  uint64_t number = 0;  // in the order of opening
  v1::OpenRequest open;
  double pass = 0;  // of stride scheduling
  std::map<uint64_t, RequestPtr> unfinished;
  std::map<std::string, std::deque<RequestPtr>> pending;  // by class; no line is empty
  IdSet done;
  std::deque<v1::MeasureResult> results;  // not acknowledged
  uint64_t next_sequence = 1;
  Tracker::Reply<v1::NextResponse> waiting;  // null: nobody waits
  Clock::time_point wait_until, last_call;
  uint32_t max_results = 0;

  int32_t priority() const { return open.priority(); }
  double weight() const { return open.weight() > 0 ? open.weight() : 1; }
  const Labels& labels() const { return open.labels(); }
  const std::string& job() const { return open.job().empty() ? open.name() : open.job(); }
};

struct LeaseEntry {
  RequestPtr request;
  std::string device;
  Clock::time_point expires;
  uint64_t batch = 0;
  Clock::time_point last;   // moment, whatever is renewed
  double race_seconds = 0;  // best that the candidate races against; 0: none
};

// A device's totals at a moment.
struct Counts {
  Clock::time_point at;
  v1::DeviceStatistics total;
};

struct Session {
  std::string id;
  v1::RegisterRequest worker;
  v1::WorkerStatus status;
  std::map<std::string, std::vector<std::string>> classes;  // by device: what it serves now
  std::map<uint64_t, LeaseEntry> leases;
  std::vector<uint64_t> revoked;  // not yet reported to the worker
  uint64_t batch = 0;             // of the last answer to Lease
  size_t next_bytes = 0;          // of the grants in the next one
  Tracker::Reply<v1::LeaseResponse> waiting;
  std::map<std::string, uint32_t> capacity;  // of the call that waits
  Clock::time_point wait_until, last_report;
  bool in_line = false;                                // of those that wait for leases
  std::map<std::string, std::deque<Counts>> counts;    // by device: of the last minute or so, oldest first
  std::set<std::string> excluded;                      // devices that drift too far
  std::optional<Clock::time_point> quarantined_until;  // the whole worker, by the tracker
  std::string quarantine_text;

  const v1::DeviceDescription* Device(const std::string& name) const {
    for (const v1::DeviceDescription& device : worker.devices())
      if (device.name() == name) return &device;
    return nullptr;
  }
  // As it last said.
  v1::DeviceState StateOf(const v1::DeviceDescription& device) const {
    for (const v1::DeviceStatus& reported : status.states())
      if (reported.device() == device.name()) return reported.state();
    return device.state();
  }
  bool Offers(const std::string& device_class) const {
    return std::any_of(classes.begin(), classes.end(), [&](const auto& entry) {
      return std::find(entry.second.begin(), entry.second.end(), device_class) != entry.second.end();
    });
  }
};

inline double SecondsBetween(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

inline std::string KindOfTarget(const std::string& target) { return target.substr(0, target.find(' ')); }
// What a request asks for, and what a device offers (twice: for requests that name its model and for those that name
// none).
inline std::string ClassOf(const std::string& target, const std::string& model) {
  return KindOfTarget(target) + "\n" + model;
}

// Whether a worker with these labels may have what is for workers with those.
inline bool Carries(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

// An event of one measurement, with what identifies it.
inline void LogTrial(LogLevel level, const std::string& event, const Request& request,
                     const std::vector<std::pair<std::string, std::string>>& more) {
  if (!Logs(level)) return;
  std::vector<std::pair<std::string, std::string>> fields = {{"job", request.queue->job()},
                                                             {"trial", std::to_string(request.message.id())},
                                                             {"queue", ShortId(request.queue->id)},
                                                             {"attempt", std::to_string(request.attempts)}};
  fields.insert(fields.end(), more.begin(), more.end());
  LogEvent(level, event, fields);
}

}  // namespace diapason::tracker
