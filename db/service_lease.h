// The lease of a history that several coordinator services share: the one that holds it acts, the others stand by.
//
// It is one row of the database (db/service_tables.h): owner, address, epoch, and when it expires by the database's
// clock. The holder renews it three times within the time for which it lasts. Taking it over raises the epoch, which
// every transaction that writes looks at (WriteFence), alone with the writers' lock: what one writes that has lost the
// lease, without knowing it yet, is refused. One that cannot reach the database in time stops by its own clock, which
// runs from before each renewal was sent and so never later than the database's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"

namespace diapason {

// Once it is lost it stays lost: open another to stand by. Safe from any thread, but for Take.
class ServiceLease {
 public:
  // Makes the tables where there are none. `lasts`: from one renewal on. Errors: those of OpenServiceTables.
  static absl::StatusOr<std::unique_ptr<ServiceLease>> Open(const std::string& uri, std::chrono::milliseconds lasts);
  // Gives it back, so that another may take it at once. What writes under its fence has ended.
  ~ServiceLease();
  ServiceLease(const ServiceLease&) = delete;
  ServiceLease& operator=(const ServiceLease&) = delete;

  // Takes it, for a service that is reached at `address`, and begins to renew it. False when somebody has it, who is
  // reached at `holder` (empty: nobody knows yet). To be called until it is true.
  absl::StatusOr<bool> Take(const std::string& address, std::string& holder);
  // What others see from the next renewal on, which comes at once.
  void SetAddress(const std::string& address);
  // OK while it is held; Unavailable with the reason afterwards.
  absl::Status Holds() const;
  // Number of this time with it, one above that of the last service to have it; 0 before it is taken.
  int64_t epoch() const;
  // For connections that write; outlives the lease, and then refuses.
  std::shared_ptr<const WriteFence> fence() const;

 private:
  class Impl;
  explicit ServiceLease(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
