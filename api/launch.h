// Launched workers, for calls of the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/launch.h"
#include "service/worker_pool.h"
#include "worker/rpc/security.h"

namespace diapason::api {

// What launched workers are for.
struct WorkersPurpose {
  std::string tracker;  // that they connect to
  std::string status;   // address that this process asks for the tracker's state, with `credentials`
  std::shared_ptr<const ClientCredentials> credentials;
  // Their label is derived from it, so that the next call with the same one finds them again.
  std::string owner;
  // Called once, on a thread of the pool, when all workers are lost, max_replaced allows no more, and the tracker knows
  // no other worker. May be null.
  std::function<void()> used_up;
};

// Starts the pool; null if the request has no engine. Errors: those of CheckOptions about files and this host.
// REQUIRES: CheckOptions is OK.
absl::StatusOr<std::unique_ptr<WorkerPool>> StartWorkers(const LaunchRequest& request, WorkersPurpose purpose);

// The owner of workers of a call about one history.
std::string OwnerOfHistory(const std::string& history);

// Why a call stops when its workers are used up.
absl::Status NoWorkerLeft(const LaunchRequest& request);

class LaunchedWorkers::Impl {
 public:
  explicit Impl(LaunchRequest request) : request(std::move(request)) {}
  const LaunchRequest request;
  std::atomic<bool> used_up{false};
  std::unique_ptr<WorkerPool> pool;  // gone before what its thread uses; null: no engine
};

}  // namespace diapason::api
