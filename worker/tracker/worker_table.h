// The registry of workers: their sessions, and what their devices serve.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/model.h"
#include "worker/tracker/quarantines.h"

namespace diapason::tracker {

using Sessions = std::map<std::string, std::unique_ptr<Session>>;  // by id

// InvalidArgument when the facts of a worker's device, where it gives any, are not those of a device (CheckFacts).
absl::Status CheckDevice(const std::string& worker, const v1::DeviceDescription& device);

// Changes Session::classes.
class WorkerTable {
 public:
  explicit WorkerTable(const AwakeClock& clock) : clock_(clock) {}

  const Sessions& sessions() const { return sessions_; }

  // InvalidArgument when a worker cannot be as it says, AlreadyExists when another one has a GPU of its.
  absl::Status Check(const v1::RegisterRequest& request) const;
  // `fault`: for which the worker is in quarantine; null: it is in none.
  Session& Add(const std::string& id, const v1::RegisterRequest& worker, const Quarantines::Fault* fault);
  Session* Find(const std::string& id) const;
  Session* FindWorker(const std::string& worker_id) const;
  // Out of the table: its devices serve nothing. Null when there is none.
  std::unique_ptr<Session> Remove(const std::string& id);

  // What a device serves depends on its state, its drift and its worker's quarantine.
  void SetDeviceState(Session& session, const std::string& device, v1::DeviceState state);
  void RefreshDevices(Session& session);
  // What the worker says of its devices now.
  void TakeStates(Session& session, const v1::ReportRequest& request);

  // How many devices serve the class.
  size_t Serving(const std::string& device_class) const;
  // Whether a worker that has not tried the request serves its class.
  bool AnotherCould(const Request& request) const;

 private:
  void StopServing(const std::vector<std::string>& classes);

  const AwakeClock& clock_;
  Sessions sessions_;
  std::map<std::string, size_t> serving_;  // devices, by class
};

}  // namespace diapason::tracker
