// Serves the page over HTTP: files, JSON of a history, of jobs and of the fleet, and changes as server-sent events.
// docs/page.md describes addresses and documents.
//
// Everything is read-only. Data need a token where the credentials have an Authority (role reader), and with TLS a
// certificate as gRPC calls do; the page's own files are public, so that a browser can ask for the token. Requests that
// name another host than this one are refused, so that a web site whose name was made to lead here (DNS rebinding)
// reads nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "ui/feed.h"
#include "worker/rpc/security.h"

namespace diapason {

struct PageOptions {
  // Called from any thread, several at a time.
  using Source = std::function<absl::StatusOr<Json>()>;

  std::string flag = "--http";  // that gave the address, for messages
  std::string address;          // HOST:PORT, checked by the caller; port 0: any free one
  ServerCredentials credentials;
  std::string history;  // its path
  FeedOptions feed;
  // What `diapason explain --json` prints of a record.
  std::function<absl::StatusOr<Json>(int64_t record)> explain;
  Source jobs, fleet;  // arrays and objects for the pages of that name; null: there are none
  std::function<absl::StatusOr<Json>(int64_t job)> job;  // one of them with its tasks; null as jobs
  double poll_seconds = 0.5;                             // between looks at the history, while somebody follows it
  size_t max_followers = 48;                             // event streams at once; each has a thread
};

class PageServer {
 public:
  // Errors: those of HistoryFeed::Open; Unavailable, naming the address, when nothing can be listened on there.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(PageOptions options);
  // Stops, and ends event streams.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // "http://127.0.0.1:8085/", with the port that was chosen.
  const std::string& url() const;

 private:
  class Impl;
  explicit PageServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
