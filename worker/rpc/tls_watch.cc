#include "worker/rpc/tls_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "base/mutex.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

constexpr std::chrono::seconds kReadEvery{1};

// Paths of certificate, key and authority, and whether certificates without a role are accepted.
using Key = std::tuple<std::string, std::string, std::string, bool>;

struct Watches {
  Mutex mutex;
  std::map<Key, TlsWatch*> all ABSL_GUARDED_BY(mutex);
};

// Never destroyed: gRPC may read the files as long as it has threads.
Watches& AllWatches() {
  static Watches& watches = *new Watches;
  return watches;
}

bool WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Of its own each time: gRPC reads key and certificate again when it differs before and after.
timespec NextTime() {
  static std::atomic<time_t> last{1};
  return {++last, 0};
}

}  // namespace

bool TlsWatch::MemoryFile::Publish(const std::string& text) {
  const int fresh = memfd_create("diapason-tls", MFD_CLOEXEC);
  const timespec now = NextTime();
  const timespec times[2] = {now, now};
  if (fresh < 0 || fchmod(fresh, 0600) != 0 || !WriteAll(fresh, text) || futimens(fresh, times) != 0) {
    if (fresh >= 0) close(fresh);
    return false;
  }
  if (fd < 0) {
    fd = fresh;
    path = "/proc/self/fd/" + std::to_string(fd);
    if (access(path.c_str(), R_OK) != 0) path.clear();  // /proc is not mounted
    return true;
  }
  const bool replaced = dup3(fresh, fd, O_CLOEXEC) == fd;
  close(fresh);
  return replaced;
}

TlsWatch& TlsWatch::Of(const TlsIdentity& identity) {
  Watches& watches = AllWatches();
  MutexLock lock(watches.mutex);
  TlsWatch*& watch = watches.all[{identity.files.cert, identity.files.key, identity.files.ca, identity.allow_no_role}];
  if (watch == nullptr) {
    // After OpenSSL's own, whose place is taken when it first reads a certificate, and so called before it.
    static const int registered = std::atexit(StopAll);
    static_cast<void>(registered);
    watch = new TlsWatch(identity);
  }
  MutexLock of_watch(watch->mutex_);
  watch->identity_.listens |= identity.listens;  // who listens and connects needs a certificate for both
  return *watch;
}

TlsIdentity TlsWatch::InUse(const TlsIdentity& identity) {
  if (!identity.files.given()) return identity;
  TlsIdentity now = Of(identity).identity();
  now.any_name = identity.any_name;
  return now;
}

TlsWatch::TlsWatch(const TlsIdentity& identity) : identity_(identity) {
  Publish(identity);
  if (identity_file_.path.empty() || root_file_.path.empty()) {
    LogEvent(LogLevel::kWarning, "certificates_not_watched",
             {{"cert", identity.files.cert}, {"why", "this system has no files in memory (memfd_create and /proc)"}});
    return;
  }
  thread_ = std::thread([this] { Loop(); });
}

void TlsWatch::StopAll() {
  Watches& watches = AllWatches();
  MutexLock lock(watches.mutex);
  for (const auto& [key, watch] : watches.all) watch->Stop();
}

void TlsWatch::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

TlsIdentity TlsWatch::identity() const {
  MutexLock lock(mutex_);
  return identity_;
}

bool TlsWatch::Publish(const TlsIdentity& identity) {
  return root_file_.Publish(identity.ca) && identity_file_.Publish(identity.key + "\n" + identity.cert);
}

void TlsWatch::Loop() {
  MutexLock lock(mutex_);
  while (!changed_.WaitFor(lock, kReadEvery, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; })) {
    lock.Unlock();
    ReadAgain();
    lock.Lock();
  }
}

// A refusal is logged when the next reading finds it too: between two files that are replaced together there is a
// moment.
void TlsWatch::ReadAgain() {
  const TlsIdentity before = identity();
  absl::StatusOr<TlsIdentity> read =
      LoadTls(before.files, {.listens = before.listens, .allow_no_role = before.allow_no_role});
  if (!read.ok()) {
    const std::string why(read.status().message());
    if (why != std::exchange(refusal_, why)) {
      logged_ = false;
    } else if (!std::exchange(logged_, true)) {
      LogEvent(LogLevel::kError, "certificates_not_read", {{"why", why}, {"in_use_until", ExpiryDay(before.cert)}});
    }
    return;
  }
  refusal_.clear();
  logged_ = false;
  if (read->cert == before.cert && read->key == before.key && read->ca == before.ca) return;
  if (!Publish(*read)) return;  // tried again
  LogEvent(LogLevel::kInfo, "certificates_read",
           {{"cert", before.files.cert}, {"in_use_until", ExpiryDay(read->cert)}});
  MutexLock lock(mutex_);
  read->listens |= identity_.listens;  // which may have been said meanwhile
  identity_ = *std::move(read);
}

double ExpiryInUse(const TlsFiles& files) {
  Watches& watches = AllWatches();
  MutexLock lock(watches.mutex);
  for (const auto& [key, watch] : watches.all)
    if (std::get<0>(key) == files.cert && std::get<1>(key) == files.key)
      return CertificateExpiry(watch->identity().cert);
  return 0;
}

}  // namespace diapason
