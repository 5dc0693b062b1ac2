// Accepts the connections of a server, no more than the process has files for. gRPC 1.51 accepts by itself, but stops
// for good when the open files run out once: a host without credentials could make a server deaf with 1,024
// connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// Raises this process's soft limit of open files to the hard one. Returns the limit now in force.
size_t RaiseOpenFileLimit();

struct ListenerOptions {
  std::string address;  // HOST:PORT; port 0: any free one
  // Connections open at once; more are closed at once. 0: three quarters of the open files, at most 20,480. The rest is
  // for the files that the process itself opens.
  size_t max_connections = 0;
  // Of these, from one IP address. 0: half of them, so that one host cannot keep out all others.
  size_t max_per_address = 0;
};

struct ConnectionCounts {
  uint64_t accepted = 0;
  uint64_t refused = 0;  // over one of the limits
  size_t open = 0;       // some may have closed within the last second
};

class Listener {
 public:
  // Gets a connection that was accepted, and owns both: `fd` is non-blocking, and is known to be open until it is
  // closed by whoever got it. Called from the listener's thread alone.
  using Take = std::function<void(int listener_fd, int fd)>;

  // Listens on all addresses that the host's name has. Unavailable, naming the address, when that fails.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const ListenerOptions& options, Take take);
  // Stops.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // With the port that was chosen.
  const std::string& address() const;
  // Safe from any thread.
  ConnectionCounts counts() const;
  // No connection is taken afterwards; those that were stay open. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
