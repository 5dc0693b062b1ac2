// Certificate files that are read again while the process runs.
//
// A thread reads the files of each identity every second. What LoadTls accepts takes the place of what is in use, for
// new connections; what it refuses (half of a file, a certificate whose key is not there yet, one that has expired or
// has the wrong role) changes nothing and is logged once. gRPC reads key, certificate and authority from files at
// moments of its own, so it is given files in memory that hold accepted contents only and are replaced in one step.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "worker/rpc/security.h"

namespace diapason {

class TlsWatch {
 public:
  // The one for the identity's files, shared by all connections of the process; it begins with what `identity` holds
  // and lives until the process ends. REQUIRES: identity.files.given().
  static TlsWatch& Of(const TlsIdentity& identity);
  // What connections to or from a peer show now: `identity` itself when it has no files. Safe from any thread.
  static TlsIdentity InUse(const TlsIdentity& identity);

  // Paths of this process: the key with its certificates, and the authority's certificates. Empty when the system has
  // no such files in memory; the certificates then stay as they are, which is logged.
  const std::string& identity_path() const { return identity_file_.path; }
  const std::string& root_path() const { return root_file_.path; }
  TlsIdentity identity() const;

  TlsWatch(const TlsWatch&) = delete;
  TlsWatch& operator=(const TlsWatch&) = delete;

 private:
  struct MemoryFile {
    int fd = -1;
    std::string path;  // empty: there is none
    // Replaces the contents: who has the file open still reads the old ones. False: the system refused, nothing is
    // changed.
    bool Publish(const std::string& text);
  };

  explicit TlsWatch(const TlsIdentity& identity);
  static void StopAll();
  void Stop();
  void Loop();
  void ReadAgain();
  bool Publish(const TlsIdentity& identity);

  mutable Mutex mutex_;
  TlsIdentity identity_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  MemoryFile identity_file_, root_file_;  // of the constructor and the thread
  std::string refusal_;                   // of the last reading; empty: it was accepted
  bool logged_ = false;                   // that refusal
  std::thread thread_;
};

// When the certificate that is in use for these files expires, in Unix seconds; 0 when there is none.
double ExpiryInUse(const TlsFiles& files);

}  // namespace diapason
