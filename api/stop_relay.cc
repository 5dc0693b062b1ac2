#include "api/stop_relay.h"

#include <chrono>

namespace diapason::api {
namespace {

constexpr std::chrono::milliseconds kLookAtStop{50};

}  // namespace

StopRelay::StopRelay(const std::atomic<bool>* stop) : stop_(stop) {
  if (stop_ != nullptr) thread_ = std::thread([this] { Loop(); });
}

StopRelay::~StopRelay() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void StopRelay::Loop() {
  MutexLock lock(mutex_);
  do {
    if (*stop_) Raise();
  } while (!changed_.WaitFor(lock, kLookAtStop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_; }));
}

}  // namespace diapason::api
