#include "db/service_lease.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "db/postgres.h"
#include "db/service_tables.h"
#include "db/text.h"

namespace diapason {
namespace {

using LeaseClock = std::chrono::steady_clock;

// Between attempts to renew while the database is away.
constexpr std::chrono::milliseconds kRenewAgain{200};

}  // namespace

// What this process knows of the lease.
class LeaseFence final : public WriteFence {
 public:
  LeaseFence(std::string history, std::chrono::milliseconds lasts)
      : owner(RandomUuid()), history_(std::move(history)), lasts_(lasts) {}

  absl::Status Holds() const override {
    MutexLock lock(mutex_);
    return HoldsLocked();
  }

  absl::Status Check(Database& db) const override {
    ASSIGN_OR_RETURN(Statement select, db.Prepare("SELECT COUNT(*) FROM service_lease WHERE owner=? AND epoch=?"));
    select.BindText(1, owner);
    select.BindInt(2, epoch());
    ASSIGN_OR_RETURN(const int64_t ours, select.RunForInt());
    if (ours == 0) Lose("another service has taken it over");
    return Holds();
  }

  std::chrono::milliseconds lasts() const override { return lasts_; }

  int64_t epoch() const {
    MutexLock lock(mutex_);
    return epoch_;
  }
  void Begin(int64_t epoch, LeaseClock::time_point sent) {
    MutexLock lock(mutex_);
    epoch_ = epoch;
    until_ = sent + lasts_;
  }
  // Nothing that was over begins again.
  void Extend(LeaseClock::time_point sent) {
    MutexLock lock(mutex_);
    if (HoldsLocked().ok()) until_ = sent + lasts_;
  }
  void Lose(const std::string& why) const {
    MutexLock lock(mutex_);
    if (why_.empty()) why_ = why;
  }
  // Why the last renewal failed.
  void Fails(const absl::Status& renewal) {
    MutexLock lock(mutex_);
    trouble_ = std::string(renewal.message());
  }

  const std::string owner;

 private:
  absl::Status HoldsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string why = why_;
    if (why.empty() && until_.has_value() && LeaseClock::now() < *until_) return absl::OkStatus();
    if (why.empty() && !until_.has_value()) why = "it was not taken yet";
    if (why.empty())
      why = absl::StrCat("it was not renewed in time", trouble_.empty() ? "" : absl::StrCat(": ", trouble_));
    return absl::UnavailableError(absl::StrCat("this service does not hold the lease of history '", history_, "' (",
                                               why, "); the one that does resumes its jobs"));
  }

  const std::string history_;
  const std::chrono::milliseconds lasts_;
  mutable Mutex mutex_;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<LeaseClock::time_point> until_ ABSL_GUARDED_BY(mutex_);
  mutable std::string why_ ABSL_GUARDED_BY(mutex_);  // lost for good
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
};

class ServiceLease::Impl {
 public:
  Impl(std::string uri, std::chrono::milliseconds lasts, std::unique_ptr<Database> database)
      : uri_(std::move(uri)), lasts_(lasts), db_(std::move(database)) {
    fence = std::make_shared<LeaseFence>(db_->path(), lasts);
  }
  ~Impl() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    if (!renewer_.joinable()) return;
    renewer_.join();
    if (fence->Holds().ok()) GiveBack().IgnoreError();  // it expires by itself
    fence->Lose("it was given back");
  }

  static PostgresOptions Connection(std::chrono::milliseconds lasts) { return {lasts, lasts, nullptr}; }

  absl::StatusOr<bool> Take(const std::string& address, std::string& holder);
  void SetAddress(const std::string& address) {
    {
      MutexLock lock(mutex_);
      address_ = address;
      at_once_ = true;
    }
    changed_.NotifyAll();
  }

  std::shared_ptr<LeaseFence> fence;

 private:
  absl::StatusOr<bool> IsFree(std::string& holder);
  absl::StatusOr<int64_t> TakeFree(const std::string& address);
  void RenewLoop();
  absl::Status Renew(const std::string& address);
  absl::Status GiveBack();

  const std::string uri_;
  const std::chrono::milliseconds lasts_;
  std::unique_ptr<Database> db_;  // of Take, then of the renewing thread, then of the destructor
  std::thread renewer_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool at_once_ ABSL_GUARDED_BY(mutex_) = false;
  std::string address_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<bool> ServiceLease::Impl::IsFree(std::string& holder) {
  return ReadTransaction(*db_, [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(Statement select,
                     db_->Prepare("SELECT address, (expires_at > clock_timestamp())::INT FROM service_lease"));
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return db_->Damaged("service_lease has no row");
    holder = select.Bytes(0);
    return select.Int(1) == 0;
  });
}

// The epoch; 0: somebody was faster.
absl::StatusOr<int64_t> ServiceLease::Impl::TakeFree(const std::string& address) {
  return WriteTransaction(*db_, [&](bool) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(
        Statement take,
        db_->Prepare("UPDATE service_lease SET owner=?1, address=?2, epoch=epoch+1, expires_at=clock_timestamp() + "
                     "CAST(?3 AS DOUBLE PRECISION) * INTERVAL '1 millisecond' WHERE expires_at <= clock_timestamp() OR "
                     "owner=?1 RETURNING epoch"));
    take.BindText(1, fence->owner);
    take.BindText(2, address);
    take.BindInt(3, lasts_.count());
    return take.RunForInt();
  });
}

absl::StatusOr<bool> ServiceLease::Impl::Take(const std::string& address, std::string& holder) {
  ASSIGN_OR_RETURN(const bool is_free, IsFree(holder));
  if (!is_free) return false;
  const LeaseClock::time_point sent = LeaseClock::now();
  ASSIGN_OR_RETURN(const int64_t epoch, TakeFree(address));
  if (epoch == 0) return false;
  {
    MutexLock lock(mutex_);
    address_ = address;
  }
  fence->Begin(epoch, sent);
  renewer_ = std::thread([this] { RenewLoop(); });
  return true;
}

// By itself, and not in a transaction that waits for other writers: an import may take longer than the lease lasts.
absl::Status ServiceLease::Impl::Renew(const std::string& address) {
  if (db_->lost()) {
    ASSIGN_OR_RETURN(db_, OpenPostgres(uri_, HistoryMode::kReadWrite, Connection(lasts_)));
  }
  ASSIGN_OR_RETURN(Statement renew,
                   db_->Prepare("UPDATE service_lease SET address=?, expires_at=clock_timestamp() + CAST(? AS DOUBLE "
                                "PRECISION) * INTERVAL '1 millisecond' WHERE owner=? AND epoch=? RETURNING epoch"));
  renew.BindText(1, address);
  renew.BindInt(2, lasts_.count());
  renew.BindText(3, fence->owner);
  renew.BindInt(4, fence->epoch());
  ASSIGN_OR_RETURN(const int64_t epoch, renew.RunForInt());
  if (epoch == 0) fence->Lose("another service has taken it over");
  return absl::OkStatus();
}

void ServiceLease::Impl::RenewLoop() {
  std::chrono::milliseconds wait = lasts_ / 3;
  while (true) {
    std::string address;
    {
      MutexLock lock(mutex_);
      changed_.WaitFor(lock, wait, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || at_once_; });
      if (stopping_) return;
      at_once_ = false;
      address = address_;
    }
    const LeaseClock::time_point sent = LeaseClock::now();
    const absl::Status renewed = Renew(address);
    if (renewed.ok()) fence->Extend(sent);
    if (!renewed.ok()) fence->Fails(renewed);
    if (!fence->Holds().ok()) return;
    wait = renewed.ok() ? lasts_ / 3 : std::min(kRenewAgain, lasts_ / 3);
  }
}

absl::Status ServiceLease::Impl::GiveBack() {
  ASSIGN_OR_RETURN(Statement give, db_->Prepare("UPDATE service_lease SET address='', expires_at='-infinity' WHERE "
                                                "owner=? AND epoch=?"));
  give.BindText(1, fence->owner);
  give.BindInt(2, fence->epoch());
  return give.Run();
}

ServiceLease::ServiceLease(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ServiceLease::~ServiceLease() = default;

absl::StatusOr<std::unique_ptr<ServiceLease>> ServiceLease::Open(const std::string& uri,
                                                                 std::chrono::milliseconds lasts) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> db, OpenServiceTables(uri, Impl::Connection(lasts)));
  return std::unique_ptr<ServiceLease>(new ServiceLease(std::make_unique<Impl>(uri, lasts, std::move(db))));
}

absl::StatusOr<bool> ServiceLease::Take(const std::string& address, std::string& holder) {
  return impl_->Take(address, holder);
}
void ServiceLease::SetAddress(const std::string& address) { impl_->SetAddress(address); }
absl::Status ServiceLease::Holds() const { return impl_->fence->Holds(); }
int64_t ServiceLease::epoch() const { return impl_->fence->epoch(); }
std::shared_ptr<const WriteFence> ServiceLease::fence() const { return impl_->fence; }

}  // namespace diapason
