// What a tracker's owner may set.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace diapason {

struct TrackerOptions {
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds heartbeat{1000};  // sent to workers
  std::chrono::milliseconds lease{15000};     // without renewal
  // Of a worker, without Report. Shorter than a lease: a silent worker is gone before its lease would be granted again.
  std::chrono::milliseconds session{10000};
  std::chrono::milliseconds queue_expiry{60000};  // without a call of its coordinator
  std::chrono::milliseconds max_wait{30000};      // of Lease and Next
  // A longer time in which nothing is done here is a stall of this process and not of its peers: their deadlines move
  // on by it.
  std::chrono::milliseconds stall{2000};
  // A device whose reference kernel takes so many times as long as its peers' (or they as its) gets nothing to measure;
  // 0: it is only reported. Three devices of a model are the fewest that can outvote one.
  double exclude_drift = 0;
  uint32_t max_pending = 4096;  // of a queue
  uint32_t max_request_bytes = 16 << 20;
  uint32_t max_queues = 1024;
  uint32_t max_workers = 16384;
  size_t max_stored_bytes = 256 << 20;  // of requests and results of all queues together
  // Of these, for the queues that one token opened; no quota without tokens.
  uint32_t max_queues_per_token = 256;
  uint32_t max_pending_per_token = 65536;
  size_t max_stored_bytes_per_token = 128 << 20;
  uint32_t max_leases_per_worker = 1024;
  uint32_t max_results_per_answer = 256;
  // An answer is full past this: it has at most so much and one more request (max_request_bytes), result or status.
  size_t max_answer_bytes = 4 << 20;
  // An outcome is given for so long to other queues that ask for the same; 0: only while it is measured.
  std::chrono::milliseconds share_recent{30000};
  size_t max_recent = 4096;
  // A worker that gave a bad outcome, or kept a lease past its last moment, gets nothing for so long; doubled each
  // time.
  std::chrono::milliseconds first_quarantine{60000}, longest_quarantine{600000};
  // Between the beginnings of two transactions of the state file (worker/tracker/writer.h); 0: each call writes its own
  // before it returns, for tests with a clock of their own.
  std::chrono::milliseconds store_pause{10};
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

}  // namespace diapason
