// A place for a builder or runner process: keeps one alive in it, gives it one job at a time, and ends it when it
// misses its deadline. What happens to the process comes out as events; the slot knows nothing of what the jobs mean.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/process/child_process.h"
#include "worker/process/sandbox.h"
#include "worker/process/scratch.h"

namespace diapason {

namespace v1 {
class ProcessMessage;
}

using Instant = std::chrono::steady_clock::time_point;

inline std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

// Why a process ended without answering its job.
enum class LossKind : uint8_t {
  kDeadline,     // we killed it
  kCrash,        // a signal of its own making, or an exit
  kOutOfMemory,  // its limit, or the kernel's killer of processes
  kKilled,       // SIGKILL, or SIGSTOP until the deadline, from outside: somebody's hand, the cluster's engine
};

// What happened to the process of a slot.
struct SlotEvent {
  enum class Kind : uint8_t {
    kReady,         // the process is ready for jobs (again)
    kStartFailure,  // no process could be started, `failures` in a row; the slot tries again, ever more slowly
    kMessage,       // of the process about its job: progress or reply
    kLoss,          // the job is lost with its process
  };
  Kind kind = Kind::kReady;
  int failures = 0;
  LossKind loss = LossKind::kCrash;
  std::string text{};                             // of a failure or a loss
  std::shared_ptr<v1::ProcessMessage> message{};  // shared: events are copied, messages are large
};

struct SlotOptions {
  std::string name;  // of its scratch folder: "builder-3"
  std::string program;
  std::vector<std::string> args;
  std::vector<std::string> keep_environment;
  bool devices = false;  // its sandbox has the nodes of the GPUs
  int64_t memory_limit_bytes = 0;
  double start_timeout_seconds = 60;
  double first_retry_seconds = 0.1;  // after a failure to start; doubled up to 10 s
  int max_jobs = 0;                  // a process is replaced after so many jobs; 0: never
};

// For one thread.
class ProcessSlot {
 public:
  ProcessSlot(SlotOptions options, const Sandbox& sandbox, ScratchFolder& scratch)
      : options_(std::move(options)), sandbox_(sandbox), scratch_(scratch) {}

  // Starts, reads, buries and kills as the time demands, and returns what happened, in order. To be called when
  // `socket` is ready for what `wants_write` says, and at `next_time`. The last event of a job is its reply or its
  // loss.
  std::vector<SlotEvent> Advance(Instant now);
  // For poll; -1 when there is nothing to hear.
  int socket() const { return child_ != nullptr && !stopped_talking_ ? child_->socket() : -1; }
  bool wants_write() const { return child_ != nullptr && child_->has_unsent(); }
  // When Advance is to be called at the latest, if nothing happens before.
  std::optional<Instant> next_time() const;

  bool idle() const { return state_ == State::kIdle; }
  bool busy() const { return state_ == State::kBusy; }
  // Jobs that this process was given before the present one.
  int jobs_before() const { return jobs_ - 1; }
  // Processes started after the first.
  uint64_t restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }
  // Seconds spent on jobs that have ended, pauses left out.
  double busy_seconds() const { return busy_seconds_; }
  // The first message of the present process.
  const v1::ProcessMessage* ready_message() const { return ready_.get(); }

  // REQUIRES: idle().
  void Begin(const v1::ProcessMessage& job, double timeout_seconds, Instant now);
  // Ends the process; another one is started. REQUIRES: idle().
  void Replace(Instant now);
  // Gives the present job so long from now on; nothing happens when it has ended meanwhile.
  void ExtendDeadline(double timeout_seconds, Instant now);
  void Send(const v1::ProcessMessage& message);
  // Stops the clock and the processes of the slot; none is started in a pause. REQUIRES: Pause and Resume alternate.
  void Pause(Instant now);
  void Resume(Instant now);

 private:
  enum class State : uint8_t { kNone, kStarting, kIdle, kBusy, kDying };

  void TryStart(Instant now, std::vector<SlotEvent>& events);
  void ReadMessages(Instant now, std::vector<SlotEvent>& events);
  void OnMessage(std::shared_ptr<v1::ProcessMessage> message, Instant now, std::vector<SlotEvent>& events);
  void FailStart(const std::string& text, Instant now, std::vector<SlotEvent>& events);
  void OnExit(int wait_status, Instant now, std::vector<SlotEvent>& events);
  SlotEvent ExplainExit(int wait_status) const;
  void EndJob(Instant now);
  void Die(Instant now);

  const SlotOptions options_;
  const Sandbox sandbox_;
  ScratchFolder& scratch_;
  State state_ = State::kNone;
  std::unique_ptr<ChildProcess> child_;
  std::shared_ptr<v1::ProcessMessage> ready_;
  Instant deadline_{};            // of the start or the job
  Instant retry_at_{};            // kNone: when to start
  Instant give_up_at_{};          // kDying: a process that the kernel does not end by then is left behind
  bool stopped_talking_ = false;  // its socket is at the end
  std::string broken_;            // why its stream was cut by us
  std::optional<Instant> paused_at_;
  Instant job_began_{};
  int jobs_ = 0;
  uint64_t starts_ = 0;
  int failures_ = 0;
  double busy_seconds_ = 0;
  int64_t out_of_memory_kills_ = 0;  // of the system, when the job began
};

}  // namespace diapason
