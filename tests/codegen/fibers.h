// Threads of a kernel that take turns in one thread of the host: each runs until it waits. What waits for something
// that never comes is found at once, and what is missing a barrier fails every time, in one of two orders. Not for
// ThreadSanitizer, which must be told of such threads.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "absl/functional/function_ref.h"
#include "base/check.h"

namespace diapason::testing {

// Not thread-safe; one Run at a time, and none inside another.
class Fibers {
 public:
  void Add(std::function<void()> body) { bodies_.push_back(std::move(body)); }

  // Runs all that were added to their ends, and forgets them. Of those that can go on, the first comes first, or, if
  // `backward`, the last. CHECK fails where all that are left wait.
  void Run(bool backward) {
    while (fibers_.size() < bodies_.size()) fibers_.push_back(std::make_unique<Fiber>());
    const auto count = static_cast<int64_t>(bodies_.size());
    for (int64_t i = 0; i < count; ++i) Prepare(*fibers_[i], bodies_[i]);
    for (int64_t left = count; left > 0;) {
      bool moved = false;
      for (int64_t i = 0; i < count; ++i) {
        Fiber& fiber = *fibers_[backward ? count - 1 - i : i];
        if (fiber.ended || (fiber.ready != nullptr && !(*fiber.ready)())) continue;
        moved = true;
        Resume(fiber);
        if (fiber.ended) --left;
      }
      DIAPASON_CHECK_MSG(moved, "threads that wait for each other: not all of them come to a barrier");
    }
    bodies_.clear();
  }

  // Inside of a body: lets others run until `ready` holds.
  void WaitUntil(absl::FunctionRef<bool()> ready) {
    if (ready()) return;
    Fiber& fiber = *running_;
    fiber.ready = &ready;
    Switch(fiber, fiber.context, main_);
    fiber.ready = nullptr;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kStackBytes = size_t{2} << 20;  // frames are larger
#else
  static constexpr size_t kStackBytes = size_t{512} << 10;
#endif

  struct Fiber {
    // Pages that are not touched take no memory; those of the last run are used again. At the first one a stack that
    // runs over ends the program.
    Fiber()
        : stack(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)) {
      DIAPASON_CHECK_MSG(stack != MAP_FAILED, "no memory for a stack");
      DIAPASON_CHECK_MSG(mprotect(stack, size_t{4} << 10, PROT_NONE) == 0, "a stack cannot be guarded");
    }
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber() { munmap(stack, kStackBytes); }

    void* const stack;
    ucontext_t context;
    const std::function<void()>* body = nullptr;
    const absl::FunctionRef<bool()>* ready = nullptr;  // not null: waits for it
    bool ended = false;
  };

  void Prepare(Fiber& fiber, const std::function<void()>& body) {
    fiber.body = &body;
    fiber.ready = nullptr;
    fiber.ended = false;
    DIAPASON_CHECK(getcontext(&fiber.context) == 0);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    // makecontext hands on numbers of 32 bits.
    const auto address = reinterpret_cast<uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Fibers::Start), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
  }

  static void Start(unsigned high, unsigned low) {
    auto& fibers = *reinterpret_cast<Fibers*>(uintptr_t{high} << 32 | low);
    fibers.FinishSwitch();
    Fiber& fiber = *fibers.running_;
    (*fiber.body)();
    fiber.ended = true;
    fibers.Switch(fiber, fiber.context, fibers.main_);
  }

  void Resume(Fiber& fiber) {
    running_ = &fiber;
    Switch(fiber, main_, fiber.context);
  }

  // From the main context to a fiber's, or back.
  void Switch([[maybe_unused]] Fiber& fiber, ucontext_t& from, ucontext_t& to) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    if (&to == &main_) {
      __sanitizer_start_switch_fiber(fiber.ended ? nullptr : &fake_stack, main_stack_, main_stack_bytes_);
    } else {
      __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStackBytes);
    }
    DIAPASON_CHECK(swapcontext(&from, &to) == 0);
    if (&to == &main_) {
      __sanitizer_finish_switch_fiber(fake_stack, &main_stack_, &main_stack_bytes_);
    } else {
      __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
    }
#else
    DIAPASON_CHECK(swapcontext(&from, &to) == 0);
#endif
  }

  // On a fiber's stack for the first time.
  void FinishSwitch() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &main_stack_, &main_stack_bytes_);
#endif
  }

  std::vector<std::function<void()>> bodies_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  ucontext_t main_;
#if defined(__SANITIZE_ADDRESS__)
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
#endif
};

// A barrier of fibers, which can be used again and again.
class FiberBarrier {
 public:
  FiberBarrier(Fibers* fibers, int64_t count) : fibers_(*fibers), count_(count) {}

  void ArriveAndWait() {
    const int64_t round = round_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++round_;
      return;
    }
    fibers_.WaitUntil([&] { return round_ != round; });
  }

 private:
  Fibers& fibers_;
  const int64_t count_;
  int64_t arrived_ = 0, round_ = 0;
};

}  // namespace diapason::testing
