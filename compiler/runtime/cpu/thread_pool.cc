#include "compiler/runtime/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

namespace diapason {
namespace {

// Pieces a thread: finer balances better, coarser takes fewer trips to the counter (some 50 ns each).
constexpr int64_t kPiecesPerThread = 16;
// How long a worker looks for the next loop before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(200);

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t LoopOf(uint64_t ticket) { return ticket >> 32; }
uint64_t PiecesOf(uint64_t ticket) { return (ticket >> 16) & 0xffff; }
uint64_t TakenOf(uint64_t ticket) { return ticket & 0xffff; }

std::vector<int> AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

// Processors that the control group's quota amounts to; 0: no quota.
double QuotaProcessors() {
  std::string quota;
  double period = 0;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double used = 0;
  if (v1_quota >> used && v1_period >> period && used > 0 && period > 0) return used / period;
  return 0;
}

void KeepOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

int UsableCores() {
  int cores = static_cast<int>(AllowedProcessors().size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  if (const double quota = QuotaProcessors(); quota > 0) cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  return std::max(cores, 1);
}

ThreadPool::ThreadPool(int threads) {
  std::vector<int> allowed = AllowedProcessors();
  if (threads > 1 && static_cast<int>(allowed.size()) == threads) processors_ = std::move(allowed);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(Body body, void* const* args, int64_t count) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) return body(args, 0, count);
  const int64_t wanted = std::min<int64_t>({count, kPiecesPerThread * threads(), 0xffff});
  const int64_t piece = (count + wanted - 1) / wanted;
  const uint64_t pieces = (count + piece - 1) / piece;
  body_.store(body, std::memory_order_relaxed);
  args_.store(args, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  piece_.store(piece, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t ticket = (LoopOf(ticket_.load(std::memory_order_relaxed)) + 1) << 32 | pieces << 16;
  ticket_.store(ticket, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  Help(ticket);
  // Only pieces already being run are left. The thread that runs one may have lost its processor: let it have this one.
  for (int spins = 0; done_.load(std::memory_order_acquire) != static_cast<int>(pieces); ++spins) {
    if (spins % 1024 == 1023) sched_yield();
    Pause();
  }
}

void ThreadPool::Help(uint64_t ticket) {
  while (TakenOf(ticket) < PiecesOf(ticket)) {
    const Body body = body_.load(std::memory_order_relaxed);
    void* const* const args = args_.load(std::memory_order_relaxed);
    const int64_t count = count_.load(std::memory_order_relaxed), piece = piece_.load(std::memory_order_relaxed);
    const uint64_t taken = TakenOf(ticket);
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    const int64_t begin = static_cast<int64_t>(taken) * piece;
    body(args, begin, std::min(begin + piece, count));
    done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Work(int index) {
  if (!processors_.empty()) KeepOn(processors_[index]);
  using Clock = std::chrono::steady_clock;
  Clock::time_point sleep_at = Clock::now() + kSpin;
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (TakenOf(ticket) < PiecesOf(ticket)) {
      Help(ticket);
      sleep_at = Clock::now() + kSpin;
      continue;
    }
    Pause();
    if (++spins % 64 != 0 || Clock::now() < sleep_at) continue;
    // Announce the sleep before the last look, as Run publishes before it looks for sleepers: one of the two sees the
    // other.
    const uint32_t wake = wake_.load(std::memory_order_seq_cst);
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t last = ticket_.load(std::memory_order_seq_cst);
    if (TakenOf(last) >= PiecesOf(last) && !stop_.load()) wake_.wait(wake);
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
    sleep_at = Clock::now() + kSpin;
  }
}

bool ThreadPool::CallerIsInPlace() const { return processors_.empty() || sched_getcpu() == processors_[0]; }

ThreadPool::CallerPin::CallerPin(const ThreadPool& pool) {
  if (pool.processors_.empty()) return;
  cpu_set_t before;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return;
  before_.resize(sizeof(before));
  std::memcpy(before_.data(), &before, sizeof(before));
  KeepOn(pool.processors_[0]);
}

ThreadPool::CallerPin::~CallerPin() {
  if (before_.empty()) return;
  cpu_set_t before;
  std::memcpy(&before, before_.data(), sizeof(before));
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace diapason
