#include "worker/pipeline/process_slot.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "diapason/v1/process.pb.h"

namespace diapason {
namespace {

// A process that was killed and is still there after so long hangs in a driver; the slot goes on without it.
constexpr double kBurialSeconds = 5;
// Ends are noticed by the socket; only a process whose socket lives on in another one needs looking after.
constexpr double kLookAfterSeconds = 0.1;
// A process whose socket has ended is on its way out.
constexpr double kLookForExitSeconds = 0.002;

SlotEvent Loss(LossKind loss, std::string text) {
  return {.kind = SlotEvent::Kind::kLoss, .loss = loss, .text = std::move(text)};
}

std::string WithOutput(std::string text, const ChildProcess& child) {
  std::string output = child.OutputTail();
  return output.empty() ? text : text + ": " + output;
}

}  // namespace

std::optional<Instant> ProcessSlot::next_time() const {
  if (state_ == State::kNone) return paused_at_.has_value() ? std::nullopt : std::optional<Instant>(retry_at_);
  bool leaving = stopped_talking_ || state_ == State::kDying;
  Instant look = std::chrono::steady_clock::now() + Seconds(leaving ? kLookForExitSeconds : kLookAfterSeconds);
  if (state_ == State::kDying || state_ == State::kIdle || paused_at_.has_value()) return look;
  return std::min(deadline_, look);
}

std::vector<SlotEvent> ProcessSlot::Advance(Instant now) {
  std::vector<SlotEvent> events;
  if (state_ == State::kNone && now >= retry_at_ && !paused_at_.has_value()) TryStart(now, events);
  if (child_ == nullptr) return events;
  child_->Flush();
  if (state_ != State::kDying && !stopped_talking_) ReadMessages(now, events);
  if (child_ == nullptr) return events;
  bool late = now >= deadline_ && !paused_at_.has_value();
  if (late && state_ == State::kStarting) {
    FailStart(WithOutput("the process did not start within " +
                             std::to_string(std::lround(options_.start_timeout_seconds)) + " s",
                         *child_),
              now, events);
    return events;
  }
  if (late && state_ == State::kBusy) {
    events.push_back(child_->stopped() ? Loss(LossKind::kKilled, "the process was stopped from outside")
                                       : Loss(LossKind::kDeadline, child_->OutputTail()));
    EndJob(now);
    Die(now);
  }
  if (std::optional<int> status = child_->Reap()) {
    OnExit(*status, now, events);
  } else if (state_ == State::kDying && now >= give_up_at_) {
    child_.reset();
    state_ = State::kNone;
    retry_at_ = now;
  }
  return events;
}

void ProcessSlot::TryStart(Instant now, std::vector<SlotEvent>& events) {
  absl::StatusOr<std::string> folder = scratch_.Fresh(options_.name);
  if (!folder.ok()) return FailStart(std::string(folder.status().message()), now, events);
  ChildOptions options;
  options.program = options_.program;
  options.args = options_.args;
  options.scratch = *folder;
  options.keep_environment = options_.keep_environment;
  sandbox_.Wrap(options_.devices, options);
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Spawn(options);
  if (!child.ok()) return FailStart(std::string(child.status().message()), now, events);
  child_ = *std::move(child);
  ++starts_;
  jobs_ = 0;
  stopped_talking_ = false;
  broken_.clear();
  state_ = State::kStarting;
  deadline_ = now + Seconds(options_.start_timeout_seconds);
  v1::ProcessMessage start;
  start.mutable_start()->set_memory_limit_bytes(options_.memory_limit_bytes);
  child_->Send(start);
}

void ProcessSlot::FailStart(const std::string& text, Instant now, std::vector<SlotEvent>& events) {
  ++failures_;
  events.push_back({.kind = SlotEvent::Kind::kStartFailure, .failures = failures_, .text = text});
  child_.reset();
  state_ = State::kNone;
  double wait = options_.first_retry_seconds * std::pow(2.0, std::min(failures_ - 1, 20));
  retry_at_ = now + Seconds(std::min(wait, 10.0));
}

void ProcessSlot::ReadMessages(Instant now, std::vector<SlotEvent>& events) {
  bool ended = false;
  absl::StatusOr<std::vector<std::string>> frames = child_->Receive(ended);
  if (!frames.ok()) {
    broken_ = std::string(frames.status().message());
    child_->Kill();
    stopped_talking_ = true;
    return;
  }
  stopped_talking_ = ended;
  for (const std::string& frame : *frames) {
    auto message = std::make_shared<v1::ProcessMessage>();
    if (!message->ParseFromString(frame)) {
      broken_ = "a message that does not parse";
      child_->Kill();
      stopped_talking_ = true;
      return;
    }
    OnMessage(std::move(message), now, events);
    if (child_ == nullptr) return;
  }
}

void ProcessSlot::OnMessage(std::shared_ptr<v1::ProcessMessage> message, Instant now, std::vector<SlotEvent>& events) {
  if (state_ == State::kStarting && message->has_ready()) {
    if (!message->ready().failure().empty()) return FailStart(message->ready().failure(), now, events);
    ready_ = std::move(message);
    failures_ = 0;
    state_ = State::kIdle;
    events.push_back({.kind = SlotEvent::Kind::kReady});
    return;
  }
  if (state_ != State::kBusy) return;  // of a job that is no longer wanted
  bool is_reply = message->has_built() || message->has_ran();
  bool device_lost = message->has_ran() && message->ran().device_lost();
  events.push_back({.kind = SlotEvent::Kind::kMessage, .message = std::move(message)});
  if (!is_reply) return;
  EndJob(now);
  state_ = State::kIdle;
  if (device_lost || (options_.max_jobs > 0 && jobs_ >= options_.max_jobs)) Die(now);
}

void ProcessSlot::OnExit(int wait_status, Instant now, std::vector<SlotEvent>& events) {
  if (state_ == State::kStarting) {
    return FailStart(WithOutput("the process " + DescribeWaitStatus(wait_status) + " while starting", *child_), now,
                     events);
  }
  if (state_ == State::kBusy) {
    events.push_back(ExplainExit(wait_status));
    EndJob(now);
  }
  child_.reset();
  state_ = State::kNone;
  retry_at_ = now;
}

SlotEvent ProcessSlot::ExplainExit(int wait_status) const {
  if (!broken_.empty()) return Loss(LossKind::kCrash, "the process sent " + broken_);
  std::string text = WithOutput("the process " + DescribeWaitStatus(wait_status), *child_);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitOutOfMemory) return Loss(LossKind::kOutOfMemory, text);
  if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL) return Loss(LossKind::kCrash, text);
  // The kernel's killer uses SIGKILL as well; it counts what it does.
  bool by_kernel = SystemOutOfMemoryKills() > out_of_memory_kills_;
  return Loss(by_kernel ? LossKind::kOutOfMemory : LossKind::kKilled, text);
}

void ProcessSlot::Begin(const v1::ProcessMessage& job, double timeout_seconds, Instant now) {
  DIAPASON_CHECK(idle());
  state_ = State::kBusy;
  ++jobs_;
  job_began_ = now;
  deadline_ = now + Seconds(timeout_seconds);
  out_of_memory_kills_ = SystemOutOfMemoryKills();
  child_->Send(job);
}

void ProcessSlot::Replace(Instant now) {
  DIAPASON_CHECK(idle());
  Die(now);
}

void ProcessSlot::ExtendDeadline(double timeout_seconds, Instant now) {
  if (busy()) deadline_ = now + Seconds(timeout_seconds);
}

void ProcessSlot::Send(const v1::ProcessMessage& message) {
  if (child_ != nullptr) child_->Send(message);
}

void ProcessSlot::Pause(Instant now) {
  paused_at_ = now;
  if (child_ != nullptr) child_->Pause();
}

void ProcessSlot::Resume(Instant now) {
  if (!paused_at_.has_value()) return;
  auto pause = now - *paused_at_;
  deadline_ += pause;
  job_began_ += pause;
  paused_at_.reset();
  if (child_ != nullptr) child_->Resume();
}

void ProcessSlot::EndJob(Instant now) {
  busy_seconds_ += std::max(0.0, std::chrono::duration<double>(now - job_began_).count());
  if (paused_at_.has_value())
    busy_seconds_ -= std::chrono::duration<double>(now - std::max(*paused_at_, job_began_)).count();
}

void ProcessSlot::Die(Instant now) {
  state_ = State::kDying;
  give_up_at_ = now + Seconds(kBurialSeconds);
  child_->Kill();
}

}  // namespace diapason
