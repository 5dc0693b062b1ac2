// What runs beside the thread that owns a run's state: one search at a time, and the wait for outcomes. What they
// find comes by the queue of events.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "scheduler/event_queue.h"
#include "scheduler/measurer.h"
#include "scheduler/tuning/trial.h"
#include "scheduler/warm_start.h"

namespace diapason::tuning {

class SearchThread {
 public:
  explicit SearchThread(EventQueue<Event>& events) : events_(events) {}
  ~SearchThread() { Join(); }

  // Searches a round of a task, whose search it has until End. REQUIRES: none runs.
  void Start(TaskState& task, int trials, std::shared_ptr<const Ranker> ranker, std::vector<Suggestion> suggested);
  // Its event is here.
  void End(TaskState& task);
  bool runs() const { return runs_; }
  void Join();

 private:
  EventQueue<Event>& events_;
  std::thread thread_;
  bool runs_ = false;
};

class Collector {
 public:
  Collector(Measurer& measurer, EventQueue<Event>& events) : measurer_(measurer), events_(events) {}
  ~Collector() { Stop(); }

  // Collects outcomes until Stop, or until there are none any more: an event says why.
  void Start();
  void Stop();

 private:
  Measurer& measurer_;
  EventQueue<Event>& events_;
  std::atomic<bool> end_{false};
  std::thread thread_;
};

}  // namespace diapason::tuning
