#include "worker/tracker/writer.h"

#include <iterator>
#include <utility>

namespace diapason {

TrackerWriter::TrackerWriter(TrackerStore& store, std::chrono::milliseconds pause)
    : store_(store), pause_(pause), thread_([this] { Loop(); }) {}

TrackerWriter::~TrackerWriter() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.NotifyAll();
  stop_.NotifyAll();
  thread_.join();
}

TrackerWriter::Answers TrackerWriter::Add(TrackerStore::Changes changes, Answers answers) {
  {
    MutexLock lock(mutex_);
    if (changes.empty() && changes_.empty() && !writing_) return answers;
    if (!changes.empty()) changes_.push_back(std::move(changes));
    answers_.insert(answers_.end(), std::make_move_iterator(answers.begin()), std::make_move_iterator(answers.end()));
  }
  work_.NotifyAll();
  return {};
}

void TrackerWriter::Loop() {
  auto next = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  while (true) {
    work_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !changes_.empty() || !answers_.empty();
    });
    if (changes_.empty() && answers_.empty()) return;
    stop_.WaitUntil(lock, next, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
    next = std::chrono::steady_clock::now() + pause_;
    const std::vector<TrackerStore::Changes> changes = std::exchange(changes_, {});
    const Answers answers = std::exchange(answers_, {});
    writing_ = true;
    lock.Unlock();
    if (!changes.empty()) store_.Write(changes);
    for (const auto& answer : answers) answer();
    store_.Tidy();
    lock.Lock();
    writing_ = false;
  }
}

}  // namespace diapason
