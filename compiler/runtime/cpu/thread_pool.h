// Threads for the parallel loop of a cpu kernel.
//
// Kernels of a network follow each other within microseconds, so a worker that has finished keeps looking for the next
// loop for a while (spinning) before it sleeps in the kernel: a loop then costs one to two microseconds to start and to
// end, where a sleep and a wake-up cost ten or more.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace diapason {

// Processors that this process may use: its affinity mask, less where a control group's quota allows less. At least 1.
int UsableCores();

class ThreadPool {
 public:
  // A part [begin, end) of a loop.
  using Body = void (*)(void* const* args, int64_t begin, int64_t end);

  // `threads` in all, the calling thread of Run among them. Where they are as many as the processors of the affinity
  // mask, each is kept on one of them (a refusal of the system is ignored).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body over [0, count) in pieces that free threads take from a common counter, and returns when all are done.
  // One call at a time.
  void Run(Body body, void* const* args, int64_t count);

  // Whether the calling thread is where CallerPin would keep it. A thread that was kept there stays, as a rule, so that
  // one run after the other need not pay for pinning: some microseconds each.
  bool CallerIsInPlace() const;

  // Keeps the calling thread on its own processor while it lives, as the workers are on theirs. Does nothing for a pool
  // that keeps none.
  class CallerPin {
   public:
    explicit CallerPin(const ThreadPool& pool);
    ~CallerPin();
    CallerPin(const CallerPin&) = delete;
    CallerPin& operator=(const CallerPin&) = delete;

   private:
    std::vector<uint8_t> before_;  // the affinity mask to restore; empty: nothing to do
  };

 private:
  void Work(int index);
  // Takes and runs pieces of the loop published as `ticket` until none is left.
  void Help(uint64_t ticket);

  // The loop at hand, as one word so that a piece is taken together with the proof that its loop is still the one at
  // hand:
  //   bits 32..63 number of the loop, 16..31 pieces in all, 0..15 pieces taken.
  // Whoever takes a piece knows that the loop cannot end before that piece does, hence that the fields below are its
  // own.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<Body> body_{nullptr};
  std::atomic<void* const*> args_{nullptr};
  std::atomic<int64_t> count_{0}, piece_{1};

  alignas(64) std::atomic<int> done_{0};  // pieces finished
  // Sleeping workers wait for `wake_` to change; `sleeping_` spares the wake-up when there are none.
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<uint32_t> wake_{0};
  std::atomic<bool> stop_{false};

  std::vector<int> processors_;  // where thread i is kept; empty: anywhere
  std::vector<std::thread> workers_;
};

}  // namespace diapason
